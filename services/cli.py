"""The `diptych` command. Each sub-command imports its room only when it is called."""

from pathlib import Path
from typing import Any

import click

from services.wire.errors import DiptychError


class _Commands(click.Group):
    """Shows a typed error as one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DiptychError as error:
            raise click.ClickException(error.message) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="diptych")
def main() -> None:
    """Serve GLM-Image as an AR service and a DiT service behind the OpenAI Images API."""


@main.command()
@click.argument("services", nargs=-1, required=True, metavar="NAME=URL...")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds.")
def wait(services: tuple[str, ...], timeout: float) -> None:
    """Block until each service is ready, and say what it is doing meanwhile."""
    from services.console.wait import wait_for

    named = dict(entry.partition("=")[::2] if "=" in entry else (entry, entry) for entry in services)
    raise SystemExit(0 if wait_for(named, timeout) else 1)


@main.command()
@click.argument("url", default="http://127.0.0.1:8000")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("out/demo.png"), show_default=True)
def demo(url: str, out: Path) -> None:
    """Paint one picture through the gateway at URL, and print what each stage took."""
    from services.console.demo import paint_one

    paint_one(url, out)


@main.command()
def ar() -> None:
    """Run the AR service (stage 0: prompt to prior tokens)."""
    from services.ar.main import run

    raise SystemExit(run())


@main.command()
def dit() -> None:
    """Run the DiT service (stage 1: prior tokens to pixels)."""
    from services.dit.main import run

    raise SystemExit(run())


@main.command()
@click.option("--host", help="Address to listen on.  [DIPTYCH_GATEWAY_HOST]")
@click.option("--port", type=int, help="Port to listen on.  [DIPTYCH_GATEWAY_PORT]")
@click.option("--playground/--no-playground", default=None, help="Serve the playground page at /.")
def gateway(host: str | None, port: int | None, playground: bool | None) -> None:
    """Run the gateway: the OpenAI Images API over the two stages."""
    from services.gateway.main import read_settings, run

    raise SystemExit(run(read_settings(gateway_host=host, gateway_port=port, playground=playground)))


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.pass_context
def plan(context: click.Context) -> None:
    """How many AR and DiT replicas a target needs, and what they cost, beside the monolith."""
    from services.planner.command import plan as command

    with command.make_context("plan", context.args, parent=context.parent) as inner:
        command.invoke(inner)
