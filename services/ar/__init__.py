"""Stage 0: a prompt goes in, a ticket to prior tokens comes out."""
