"""What the `diptych` command does with services that run: wait for them, paint a first picture, show their state."""
