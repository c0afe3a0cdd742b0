"""The options of `diptych plan`."""

import json
from pathlib import Path

import click

from services.planner import plot, profile, report, search, simulate
from services.planner.workload import MAX_RATE, Target, parse_mix, positive


@click.command(name="diptych plan")
@click.option("--profile", "name", default="a800", show_default=True, help="A shipped profile, or a YAML or JSON file.")
@click.option("--rate", type=float, default=1.0, show_default=True, help="Images a second to serve.")
@click.option("--p95", type=float, help="Seconds that 95 % of the images may take at most.")
@click.option("--mix", multiple=True, metavar="WxH:STEPS[:SHARE]", help="A kind of image; more than once for a mix.")
@click.option("--gpu-price", type=float, default=2.0, show_default=True, help="Of one GPU for an hour, any currency.")
@click.option("--gpu-memory", type=float, help="GiB of one GPU; the profile's own if not given.")
@click.option("--batch", type=click.IntRange(1, 4096), help="The largest AR batch; as measured if not given.")
@click.option("--max-load", type=float, default=0.9, show_default=True, help="How busy a stage may be, 0 to 1.")
@click.option("--jobs", type=int, default=20_000, show_default=True, help="Images to simulate.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the simulation.")
@click.option("--no-simulate", is_flag=True, help="The closed form only.")
@click.option("--plot", "figure", type=click.Path(path_type=Path, dir_okay=False), help="Write figures to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--list", "listing", is_flag=True, help="Name the shipped profiles.")
def plan(
    name: str,
    rate: float,
    p95: float | None,
    mix: tuple[str, ...],
    gpu_price: float,
    gpu_memory: float | None,
    batch: int | None,
    max_load: float,
    jobs: int,
    seed: int,
    no_simulate: bool,
    figure: Path | None,
    as_json: bool,
    listing: bool,
) -> None:
    """How many AR and DiT replicas a target needs, and what they cost, beside the monolith."""
    if listing:
        for each in profile.names():
            found = profile.load(each)
            click.echo(f"{each:<12}{found.origin:<11}{found.device}")
        return
    times = profile.load(name)
    memory = positive("--gpu-memory", gpu_memory if gpu_memory is not None else times.memory_gib, most=1e5)
    price = positive("--gpu-price", gpu_price, most=1e9)
    target = Target(
        rate=positive("--rate", rate, most=MAX_RATE),
        mix=parse_mix(mix or ("1024x1024:50",)),
        p95=None if p95 is None else positive("--p95", p95, most=1e7),
        max_load=positive("--max-load", max_load, most=0.99),
    )
    ours = search.plan(times, target, memory, batch)
    theirs = search.monolith(times, target, memory)
    checked = None
    if not no_simulate:
        checked = simulate.simulate(ours.fleet, target.mix, jobs=jobs, seed=seed, rate=target.rate)
    if as_json:
        click.echo(json.dumps(report.as_object(times, target, ours, theirs, checked, price), indent=2))
    else:
        click.echo(report.text(times, target, ours, theirs, checked, price))
    if figure is not None:
        plot.draw(figure, f"profile {times.name} ({times.origin})", target, ours, theirs, price)
