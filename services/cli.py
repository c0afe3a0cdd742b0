"""The `diptych` command. Each sub-command imports its room only when it is called."""

from pathlib import Path
from typing import Any, Literal

import click

from services.wire.errors import DiptychError

GATEWAY = "http://127.0.0.1:8000"  # where `make up` puts it


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
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("--key", envvar="DIPTYCH_API_KEY", default="", help="The gateway's API key.  [DIPTYCH_API_KEY]")
def status(urls: tuple[str, ...], key: str) -> None:
    """Print the deployment behind each URL (a gateway knows its replicas) as a table; exit 1 if a part is not ready."""
    from services.console.status import deployment

    text, ready = deployment(urls or (GATEWAY,), key)
    click.echo(text)
    raise SystemExit(0 if ready else 1)


@main.command()
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("--key", envvar="DIPTYCH_API_KEY", default="", help="The gateway's API key.  [DIPTYCH_API_KEY]")
@click.option("--interval", default=2.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds.")
def top(urls: tuple[str, ...], key: str, interval: float) -> None:
    """Like status, again and again."""
    from services.console.status import refresh

    refresh(urls or (GATEWAY,), key, interval)


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

    run()


@main.command()
def dit() -> None:
    """Run the DiT service (stage 1: prior tokens to pixels)."""
    from services.dit.main import run

    run()


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


@main.command()
@click.argument("file", type=click.Path(path_type=Path), default=Path("stage_configs/glm_image_cpu.yaml"))
@click.option("--role", type=click.Choice(["ar", "dit", "all"]), default="all", show_default=True)
@click.option("--json", "machine", is_flag=True, help="Print JSON instead of a table.")
@click.option("--explain", metavar="KEY", help="Say what a key does, and its default.")
def check(file: Path, role: Literal["ar", "dit", "all"], machine: bool, explain: str | None) -> None:
    """Resolve a stage configuration FILE, show where each value comes from, and what is wrong (exit 1)."""
    from services.stages.command import check_file, explain_key

    raise SystemExit(explain_key(explain) if explain else check_file(file, role, as_json=machine))


@main.command()
@click.argument("old", type=click.Path(path_type=Path))
def migrate(old: Path) -> None:
    """Print OLD, a file on the legacy stage_args schema, on the stages schema."""
    from services.stages.command import migrate_file

    raise SystemExit(migrate_file(old))


@main.command("tiny-model")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", default=1234, show_default=True, help="Same seed, same bytes.")
def tiny_model(directory: Path, seed: int) -> None:
    """Write a 17 MB random GLM-Image checkpoint into DIRECTORY (kept if it is there already)."""
    from services.omni.tiny_model import write_tiny_model

    click.echo(f"tiny checkpoint: {write_tiny_model(directory, seed)}")
