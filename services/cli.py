"""The `diptych` command. Each sub-command imports its room only when it is called."""

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="diptych")
def main() -> None:
    """Serve GLM-Image as an AR service and a DiT service behind the OpenAI Images API."""
