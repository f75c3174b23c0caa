"""`python -m tests.chaos`: campaigns of faults, each with a verdict and a seed to repeat it.

Starts all servers and programs it needs in a directory of its own and ends them. Ctrl-C stops
the faults, judges what was done so far, and prints it. Exit status: 0 as promised, 1 anomalies.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.errors import ConfigError
from relay.program.command import run_main
from tests.chaos import campaigns, controls, history, measures, outagecommands, schedule
from tests.chaos.across import across
from tests.chaos.command import common_options, run_command
from tests.chaos.pipelines import pipelines, shards
from tests.chaos.replicacommand import replicas
from tests.chaos.truth import Shape
from tests.chaos.upgrade import upgrade
from tests.jvms import live_shortly

if TYPE_CHECKING:
    from tests.chaos.campaign import Campaign

ON_PURPOSE = tuple(kind for kind in schedule.KINDS if kind not in schedule.PROXIED)
"""Kinds that need no proxies."""


@click.group()
def chaos() -> None:
    """Prove under fault that no row is lost and none comes twice."""


@chaos.command()
@common_options
@click.option("--seconds", default=300.0, show_default=True, help="Of faults, pauses included.")
@click.option(
    "--brokers",
    type=click.Choice(["1", "3"]),
    default="1",
    show_default=True,
    help="Three have replicated topics.",
)
@click.option("--members", default=3, show_default=True, help="Relays.")
@click.option("--every", default=2.0, show_default=True, help="Seconds between faults, on average.")
@click.option("--kinds", default="all", show_default=True, help="Of faults, with commas.")
def mixed(seconds: float, brokers: str, members: int, every: float, kinds: str, **o: Any) -> None:
    """Faults of all kinds over a time."""
    chosen = list(schedule.KINDS) if kinds == "all" else kinds.split(",")
    if unknown := set(chosen) - set(schedule.KINDS):
        raise ConfigError(f"no such kinds: {unknown}", f"Choose of {', '.join(schedule.KINDS)}.")
    run_command(
        "mixed",
        lambda c: campaigns.mixed(c, seconds, chosen, every),
        {
            "brokers": int(brokers),
            "members": members,
            "proxied": bool(schedule.PROXIED & set(chosen)),
        },
        {
            "seconds": seconds,
            "brokers": brokers,
            "members": members,
            "every": every,
            "kinds": kinds,
        },
        o,
        default_loader="spark",
    )


@chaos.command()
@common_options
@click.option("--count", default=1000, show_default=True, help="SIGKILLs that met a relay alive.")
def kills(count: int, **o: Any) -> None:
    """Random SIGKILLs of relays."""
    run_command("kills", partial(campaigns.kills, count=count), {"members": 3}, {"count": count}, o)


@chaos.command()
@common_options
@click.option("--each", default=50, show_default=True, help="SIGKILLs at each point.")
def failpoints(each: int, **o: Any) -> None:
    """SIGKILLs at every named step of relay and loader."""
    run_command(
        "failpoints", partial(campaigns.failpoints, each=each), {"members": 3}, {"each": each}, o
    )


@chaos.command("loader-kills")
@common_options
@click.option("--count", default=300, show_default=True, help="SIGKILLs of the loader.")
def loader_kills(count: int, **o: Any) -> None:
    """SIGKILLs of the loader, with a deduplication window of 1."""
    body = partial(campaigns.loader_kills, count=count)
    run_command("loader-kills", body, {"window": 1}, {"count": count}, o)


@chaos.command()
@common_options
@click.option("--count", default=100, show_default=True, help="Relays stopped and continued.")
def zombies(count: int, **o: Any) -> None:
    """Relays stopped inside a transaction, past its timeout, and continued."""
    run_command(
        "zombies", partial(campaigns.zombies, count=count), {"members": 3}, {"count": count}, o
    )


@chaos.command()
@common_options
@click.option("--count", default=100, show_default=True, help="Brokers ended and started.")
@click.option(
    "--coordinators", default=30, show_default=True, help="Of them, killed inside a commit."
)
def bounces(count: int, coordinators: int, **o: Any) -> None:
    """Brokers of three nodes, ended and started again."""
    body = partial(campaigns.bounces, count=count, coordinators=coordinators)
    given = {"count": count, "coordinators": coordinators}
    run_command("bounces", body, {"brokers": 3, "members": 2}, given, o)


@chaos.command()
@common_options
@click.option("--count", default=1000, show_default=True, help="Aborts.")
def aborts(count: int, **o: Any) -> None:
    """Aborts right after a produce (librdkafka#4849), by the relay's own producer."""

    def body(campaign: Campaign) -> dict[str, Any]:
        campaigns.mixed(campaign, 5.0, (), 1.0)
        found = measures.aborts(campaign, count)
        campaigns.mixed(campaign, 5.0, (), 1.0)
        return found

    run_command("aborts", body, {"members": 1}, {"count": count}, o)


@chaos.command()
@common_options
@click.option("--rows", default=1_000_000, show_default=True, help="Committed to the source.")
@click.option("--transactions", default=10_000, show_default=True, help="Of the source.")
@click.option("--every", default=5.0, show_default=True, help="Seconds between faults, on average.")
def large(rows: int, transactions: int, every: float, **o: Any) -> None:
    """Many rows and transactions under mixed faults."""
    body = partial(
        campaigns.large, rows=rows, transactions=transactions, kinds=ON_PURPOSE, every=every
    )
    shape = Shape(rows_per_second=0, transactional=0.95, rows=200)
    given = {"rows": rows, "transactions": transactions, "every": every}
    run_command("large", body, {"members": 3, "shape": shape}, given, o, default_loader="spark")


@chaos.command()
@common_options
@click.option("--minutes", default=60.0, show_default=True, help="Of the low rate.")
def soak(minutes: float, **o: Any) -> None:
    """A low rate for long: resident memory and open files stay flat."""
    body = partial(measures.soak, seconds=minutes * 60)
    shape = Shape(rows_per_second=500)
    run_command("soak", body, {"shape": shape}, {"minutes": minutes}, o, default_loader="spark")


@chaos.command()
@common_options
@click.option("--count", default=60, show_default=True, help="Kills, half of each sort.")
def recovery(count: int, **o: Any) -> None:
    """Time to progress after a kill: static restart, and another member."""
    run_command(
        "recovery", partial(measures.recovery, count=count), {"members": 2}, {"count": count}, o
    )


@chaos.command("controls")
@click.option("--seed", type=int, help="Repeats the schedules; default: a new one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--seconds", default=180.0, show_default=True, help="Given to each guard.")
@click.option(
    "--guards",
    default=",".join(controls.GUARDS),
    show_default=True,
    help="To take away, one after the other.",
)
def controls_(seed: int | None, seconds: float, guards: str, *, as_json: bool) -> None:
    """Take each guard away: the verdict has to become red."""
    number = random.randrange(1 << 31) if seed is None else seed
    table = []
    with contextlib.suppress(KeyboardInterrupt):  # what was found until then is shown
        for guard in guards.split(","):
            click.echo(f"without {guard}", err=True)
            table.append(
                controls.control(guard, number, seconds, lambda s: click.echo(s, err=True))
            )
    if as_json:
        click.echo(json.dumps({"seed": number, "controls": table}))
    else:
        for row in table:
            click.echo("  ".join(f"{key} {value}" for key, value in row.items()))
        click.echo(f"seed {number}")
    if len(table) < len(guards.split(",")) or not all(row["red"] for row in table):
        sys.exit(1)


for one in outagecommands.COMMANDS:
    chaos.add_command(one)
chaos.add_command(pipelines)
chaos.add_command(shards)
chaos.add_command(across)
chaos.add_command(replicas)
chaos.add_command(upgrade)


@chaos.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(file: Path) -> None:
    """Run again, with the seed and the options of a history FILE."""
    name, given = history.command_of(file)
    arguments = []
    for key, value in given.items():
        if value not in (None, "", False):
            arguments += [f"--{key}"] if value is True else [f"--{key}", str(value)]
    chaos.main([name, *arguments], standalone_mode=False)


if __name__ == "__main__":
    # Whoever ends a campaign from outside gets its verdict, and no servers are left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    live_shortly()
    sys.exit(run_main(chaos, "python -m tests.chaos"))
