"""Commands of `python -m tests.chaos` in which several servers go at once, or one comes back with
less than it had: tests.chaos.outages, tests.chaos.absences, tests.chaos.unclean."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from relay.errors import ConfigError
from tests.chaos import absences, outages, unclean
from tests.chaos.command import common_options, run_command


@click.command()
@common_options
@click.option("--count", default=20, show_default=True, help="Times.")
@click.option(
    "--brokers",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="Killed with the others.",
)
def together(count: int, brokers: str, **o: Any) -> None:
    """SIGKILL of relays, loader and brokers together."""
    body = partial(outages.together, count=count)
    given = {"count": count, "brokers": brokers}
    run_command("together", body, {"brokers": int(brokers), "members": 2}, given, o)


@click.command()
@common_options
@click.option("--seconds", default=300.0, show_default=True, help="Without any broker.")
def outage(seconds: float, **o: Any) -> None:
    """All brokers killed, and away for minutes."""
    body = partial(outages.outage, seconds=seconds)
    run_command("outage", body, {"members": 2}, {"seconds": seconds}, o)


@click.command("outages")
@common_options
@click.option(
    "--lengths", default="30,70,120", show_default=True, help="In seconds, with commas; also 600."
)
@click.option("--kinds", default=",".join(absences.KINDS), show_default=True, help="Who is away.")
@click.option("--session", default=6.0, show_default=True, help="Of relays, in seconds.")
def outages_(lengths: str, kinds: str, session: float, **o: Any) -> None:
    """Outages of these lengths, of all brokers, one of three, ClickHouse; nobody may end."""
    chosen = kinds.split(",")
    if unknown := set(chosen) - set(absences.KINDS):
        known = ", ".join(absences.KINDS)
        raise ConfigError(f"no such kinds: {', '.join(sorted(unknown))}", f"Choose of {known}.")
    try:
        seconds = [float(length) for length in lengths.split(",")]
    except ValueError as error:
        raise ConfigError(f"--lengths {lengths}: {error}", "Give seconds, as 30,70.") from error
    body = partial(absences.outages, lengths=seconds, kinds=chosen)
    given = {"lengths": lengths, "kinds": kinds, "session": session}
    made = {"brokers": 3, "members": 2, "relay": {"session_timeout_seconds": session}}
    run_command("outages", body, made, given, o, default_loader="spark")


@click.command()
@common_options
@click.option("--count", default=20, show_default=True, help="Brokers killed and cut.")
def truncations(count: int, **o: Any) -> None:
    """A broker of three killed, and the ends of its segments cut off."""
    body = partial(outages.truncations, count=count)
    run_command("truncations", body, {"brokers": 3, "members": 2}, {"count": count}, o)


@click.command("unclean")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def unclean_(directory: Path) -> None:
    """An unclean election of the source's leader, in a new DIRECTORY."""
    anomalies = []
    for when in unclean.WHEN:
        place = directory.resolve() / when.replace(" ", "-")
        for what in unclean.seen(place, lambda line: click.echo(line, err=True), when):
            anomalies.append(f"{when}: {what}")
            click.echo(f"ANOMALY: {anomalies[-1]}")
    click.echo(f"unclean: {'RED' if anomalies else 'clean'}")
    if anomalies:
        sys.exit(1)


COMMANDS = (together, outage, outages_, truncations, unclean_)
