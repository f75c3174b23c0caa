"""`python -m tests.bench SCENARIO`: speed, freshness and cost, each in one command.

Starts all servers it needs in a temporary directory and ends them.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from relay.program.command import run_main
from tests.bench import commands, dead_bench, loader_bench, relay_bench
from tests.bench.options import (
    BESIDE,
    OUTPUT,
    RUNS,
    Scenario,
    rows_option,
    shape,
    shape_options,
    with_options,
)


@click.group()
def bench() -> None:
    """Speed beside peers, and what the product demands of itself: figures, each with its limit.

    relay, loader and dead let product and peers take turns over the same rows and print medians.
    freshness and endtoend run relay and loader as users do, with rows that come at a steady rate.
    scaling shows what tables, partitions and a long past cost, rebalance how long rows stand still
    when relays come and go, memory what a relay holds, price what exactly once costs by the time
    between commits, wide what a core moves of large rows.
    """


@bench.command()
@with_options(RUNS, rows_option(12_000_000), *shape_options(5), BESIDE, *OUTPUT)
@click.option(
    "--quix",
    is_flag=True,
    help="Quix Streams exactly-once too, installed into an environment of its own; at 1 row per "
    "message it reads a twentieth of the rows.",
)
def relay(
    runs: int,
    total: int,
    columns: str,
    tables: int,
    beside: Path | None,
    *,
    skew: bool,
    quix: bool,
    **output: Any,
) -> None:
    """`relay run` beside Kafka Streams routing by header, and a plain pass-through.

    At 1 row per message it is --rows rows, at 100 five times as many. The ratio is to the
    faster of Kafka Streams' variants, median against median.
    """
    given: dict[str, Any] = {
        "runs": runs,
        "rows": total,
        "columns": columns,
        "tables": tables,
        "skew": skew,
    }
    if quix:
        given["quix"] = True
    if beside:
        given["beside"] = beside.name
    scenario = Scenario("relay", given, **output)
    of = shape(columns, tables, skew=skew)
    with scenario.place() as place:
        results = relay_bench.run(
            place, total, runs, scenario.progress, of, with_quix=quix, beside=beside
        )
    scenario.results(results)


@bench.command()
@with_options(RUNS, rows_option(9_000_000), BESIDE, *OUTPUT)
@click.option(
    "--block-megabytes",
    type=click.FloatRange(min=0.01),
    default=10.0,
    show_default=True,
    help="Row bytes of a block.",
)
def loader(
    runs: int, total: int, block_megabytes: float, beside: Path | None, **output: Any
) -> None:
    """`loader run --once` beside Spark with typed rows, and insert_arrow of ready Arrow.

    Both ways of Spark's read the same blocks, but let Spark have their rows with their types: as
    Row objects, or as Arrow. Neither they nor insert_arrow guarantee anything.
    """
    given: dict[str, Any] = {"runs": runs, "rows": total, "block_megabytes": block_megabytes}
    if beside:
        given["beside"] = beside.name
    scenario = Scenario("loader", given, **output)
    size = round(block_megabytes * 1e6)
    with scenario.place() as place:
        results = loader_bench.run(place, total, runs, scenario.progress, size, beside)
    scenario.results(results)


@bench.command()
@with_options(RUNS, rows_option(6_000_000), *OUTPUT)
def dead(runs: int, total: int, **output: Any) -> None:
    """`relay run` with 1 % bad messages beside `relay run` with none ("peer"), same messages."""
    scenario = Scenario("dead", {"runs": runs, "rows": total}, **output)
    with scenario.place() as place:
        results = dead_bench.run(place, total, runs, scenario.progress)
    scenario.results(results)


for command in (
    commands.measure_freshness,
    commands.measure_endtoend,
    commands.measure_scaling,
    commands.measure_rebalance,
    commands.measure_memory,
    commands.measure_price,
    commands.measure_peers,
    commands.measure_wide,
):
    bench.add_command(command)


if __name__ == "__main__":
    # SIGTERM ends it as Ctrl-C does, so that it ends its servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run_main(bench, "python -m tests.bench"))
