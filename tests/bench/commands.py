"""The scenarios without peers, as commands: their options, and what they hand to the scenario.

Receives a command line, gives figures; tests.bench.__main__ gathers the commands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tests.bench import endtoend, freshness, memory, peers, price, rebalance, scaling, wide
from tests.bench.figures import Figure
from tests.bench.live import Load
from tests.bench.options import (
    OUTPUT,
    PARTITIONS,
    PER_MESSAGE,
    RUNS,
    Scenario,
    apart,
    columns_option,
    load_options,
    per_message_option,
    rate_option,
    rows_option,
    shape,
    shape_options,
    with_options,
)

_MANY: Any = click.IntRange(min=1)


@click.command(name="freshness")
@with_options(
    *load_options(50_000.0, 60.0),
    *shape_options(8),
    click.option(
        "--bad",
        is_flag=True,
        help="A CHECK of the last table refuses 1 % of its messages; figures of the other tables.",
    ),
    *OUTPUT,
)
def measure_freshness(**options: Any) -> None:
    """How old rows are when ClickHouse shows them: produced -> queryable, p50 and p99 of rows.

    A feed sends rows at a steady rate; each carries when it was made, in milliseconds. A row's
    time ends with the INSERT that has it, by the server's log of statements.
    Where the time goes: produced to sealed (the relay's buffer), sealed to prepared (journal,
    Spark's next micro-batch, the ledger), prepared to loaded (the INSERT, and its rows counted).
    """
    _steady("freshness", freshness.run, **options)


@click.command(name="endtoend")
@with_options(
    *load_options(endtoend.RATE, 120.0),
    *shape_options(8),
    *OUTPUT,
)
def measure_endtoend(**options: Any) -> None:
    """Whether all of it keeps up with a rate: the lag once a second, and every row compared.

    The lag is what the source topic holds and ClickHouse does not show yet, in rows. It grows
    where it gains more than 1 % of the rate (a line through all samples but the first tenth). In
    the end each table must hold every row once, with the contents that follow from its number;
    else the status is 1. Feed, broker, Spark and ClickHouse's engine take their cores from the
    same machine: what each used is shown.
    """
    _steady("endtoend", endtoend.run, **options)


def _steady(name: str, run: Callable[..., list[Figure]], **options: Any) -> None:
    output, given = apart(options)
    scenario = Scenario(name, given, **output)
    with scenario.place() as place:
        found = run(place, _load(given), scenario.progress)
    scenario.figures(found)


def _load(given: dict[str, Any]) -> Load:
    return Load(
        rate=given["rate"],
        seconds=given["seconds"],
        per_message=given["per_message"],
        shape=shape(given["columns"], given["tables"], skew=given["skew"]),
        partitions=given["partitions"],
        processes=given["processes"],
        block={} if given["max_age"] is None else {"max_age_seconds": given["max_age"]},
        bad=given.get("bad", False),
    )


@click.command(name="price")
@with_options(
    click.option(
        "--part",
        "parts",
        type=click.Choice(price.PARTS),
        multiple=True,
        help="Only this; may be given again. Default: all.",
    ),
    click.option(
        "--interval",
        "intervals",
        type=click.FloatRange(min=0.001),
        multiple=True,
        default=price.INTERVALS,
        show_default=True,
        help="Seconds between commits; may be given again.",
    ),
    RUNS,
    rows_option(36_000_000),
    *load_options(50_000.0, 20.0),
    *shape_options(8),
    *OUTPUT,
)
def measure_price(
    parts: tuple[str, ...], intervals: tuple[float, ...], runs: int, total: int, **options: Any
) -> None:
    """What exactly once costs, by the time between commits.

    A plain pass-through copies a topic at least once and exactly once, with nothing else between
    the two; the relay forms its blocks beside them. rate: over a backlog of --rows, for intervals
    that it outlasts. steady: at --rate, cores used and how old messages are when they are
    committed. freshness: how old rows are when ClickHouse shows them, as in the scenario of that
    name. --plot draws all of it over the interval.
    """
    output, steady = apart(options)
    given = {**steady, "parts": parts, "intervals": intervals, "runs": runs, "rows": total}
    scenario = Scenario("price", given, **output)
    sizes = price.Sizes(intervals, total, runs, _load(steady))
    with scenario.place() as place:
        found = price.run(place, sizes, parts or price.PARTS, scenario.progress)
    scenario.curves(found)


@click.command(name="peers")
@with_options(
    click.option(
        "--part",
        "parts",
        type=click.Choice(peers.PARTS),
        multiple=True,
        help="Only this; may be given again. Default: all.",
    ),
    click.option(
        "--tables",
        type=_MANY,
        multiple=True,
        default=(1, 4),
        show_default=True,
        help="Of one topic; may be given again. Rows are killed with the first number.",
    ),
    rows_option(12_000_000),
    rate_option(50_000.0),
    click.option(
        "--seconds",
        type=click.FloatRange(min=1),
        default=15.0,
        show_default=True,
        help="How long the steady feed is watched, before the kills.",
    ),
    PER_MESSAGE,
    PARTITIONS,
    columns_option(),
    click.option(
        "--no-go",
        is_flag=True,
        help="Leave the loader in Go out, as is done (and said) where Go or its modules are "
        "missing, and with other rows than the usual ones.",
    ),
    *OUTPUT,
)
def measure_peers(
    parts: tuple[str, ...],
    tables: tuple[int, ...],
    total: int,
    columns: str,
    *,
    no_go: bool,
    **options: Any,
) -> None:
    """Relay and loader beside ClickHouse's Kafka engine and a loader in Go, in turns.

    Each brings rows from a topic to tables. The loader in Go is what a user of clickhouse-go would
    write: it inserts over the native protocol, whenever a table has a hundred thousand rows or a
    second is over, and then commits the offsets. It is built when it is first wanted.

    rate: all rows come at one moment to a consumer that is ready; core-seconds are those of all
    processes, broker and server too, until all rows are visible. Starts are measured apart, the
    loader's with and without `loader prepare`. kill: at a steady rate, how old rows are when they
    are visible; then each part is killed by SIGKILL at the moment when new rows have become
    visible, and started again: direct queries count what is lost and doubled. The status is 1 if
    the product loses or doubles a row. All are killed as often as the product has parts: the
    engine, which is the server's, three times with it; the loader in Go twice, and the server once.
    """
    output, steady = apart(options)
    given = {
        **steady,
        "parts": list(parts),
        "tables": list(tables),
        "rows": total,
        "columns": columns,
    }
    scenario = Scenario("peers", given, **output)
    sizes = peers.Sizes(total, tables, int(columns), **steady)
    found = peers.Outcome()
    try:
        with scenario.place() as place:
            progress = scenario.progress
            peers.run(place, sizes, parts or peers.PARTS, found, progress, with_go=not no_go)
    finally:  # a peer that stands still leaves what was measured before
        if found.rates or found.steady:
            scenario.figures(peers.figures(found), peers.table(found))
    peers.judge(found)


@click.command(name="scaling")
@with_options(
    click.option(
        "--part",
        "parts",
        type=click.Choice(scaling.PARTS),
        multiple=True,
        help="Only this; may be given again. Default: all.",
    ),
    click.option(
        "--tables",
        type=(_MANY, _MANY),
        default=(8, 200),
        show_default=True,
        help="Numbers of tables that are compared.",
    ),
    click.option(
        "--partitions",
        type=(_MANY, _MANY),
        default=(4, 64),
        show_default=True,
        help="Numbers of source partitions that are compared.",
    ),
    click.option(
        "--blocks",
        type=(_MANY, _MANY),
        default=(100, 100_000),
        show_default=True,
        help="Lengths of the past, in blocks, that are compared.",
    ),
    RUNS,
    rows_option(36_000_000),
    PER_MESSAGE,
    *OUTPUT,
)
def measure_scaling(
    parts: tuple[str, ...],
    tables: tuple[int, int],
    partitions: tuple[int, int],
    blocks: tuple[int, int],
    runs: int,
    total: int,
    per_message: int,
    **output: Any,
) -> None:
    """What more tables, more partitions and a longer past cost the product.

    tables, partitions: the relay's time per row over the same number of rows, in turns; a ratio
    is of one round. blocks: seconds from the start of relay and loader until new rows are through,
    behind a journal and a ledger of so many blocks.
    """
    given = {
        "parts": list(parts),
        "tables": list(tables),
        "partitions": list(partitions),
        "blocks": list(blocks),
        "runs": runs,
        "rows": total,
        "per_message": per_message,
    }
    scenario = Scenario("scaling", given, **output)
    sizes = scaling.Sizes(tables, partitions, blocks, total, per_message)
    with scenario.place() as place:
        found = scaling.run(place, sizes, parts or scaling.PARTS, runs, scenario.progress)
    scenario.figures(found)


@click.command(name="rebalance")
@with_options(
    RUNS,
    rate_option(50_000.0),
    PER_MESSAGE,
    PARTITIONS,
    *shape_options(8),
    *OUTPUT,
)
def measure_rebalance(runs: int, **options: Any) -> None:
    """How long rows stand still when a relay ends, comes or goes.

    Rows come at --rate. In each round a relay is left alone for a while, ended by SIGTERM and by
    SIGKILL and started again each time, joined by a second one, and left alone again as that one
    is killed for good. A pause is the longest time that the committed floor of any partition stood
    still meanwhile; blocks are sealed by age, so it is never less than that.
    """
    output, given = apart(options)
    scenario = Scenario("rebalance", {**given, "runs": runs}, **output)
    load = Load(
        rate=given["rate"],
        seconds=0.0,
        per_message=given["per_message"],
        shape=shape(given["columns"], given["tables"], skew=given["skew"]),
        partitions=given["partitions"],
    )
    with scenario.place() as place:
        found = rebalance.run(place, load, runs, scenario.progress)
    scenario.figures(found)


@click.command(name="memory")
@with_options(
    click.option(
        "--tables",
        type=_MANY,
        multiple=True,
        default=(8, 200),
        show_default=True,
        help="One run with so many; may be given again.",
    ),
    click.option(
        "--stall",
        type=click.FloatRange(min=0),
        default=20.0,
        show_default=True,
        help="Seconds that the broker is stopped; 0: never.",
    ),
    click.option(
        "--buffers",
        type=click.FloatRange(min=1),
        metavar="MB",
        help="relay.max_buffer_bytes. Default: as shipped.",
    ),
    rows_option(18_000_000),
    PER_MESSAGE,
    *OUTPUT,
)
def measure_memory(
    tables: tuple[int, ...],
    stall: float,
    buffers: float | None,
    total: int,
    per_message: int,
    **output: Any,
) -> None:
    """What a relay holds resident while it works off a backlog and its broker stalls.

    The broker's process is stopped when a fifth is done, and goes on after --stall seconds; then
    every row must come through. Shown is the most that was resident at looks every half second; a
    fifth more than the bound that `sizing` states for the settings is allowed.
    """
    given = {"tables": list(tables), "stall": stall, "rows": total, "per_message": per_message}
    given["buffers"] = buffers
    scenario = Scenario("memory", given, **output)
    size = None if buffers is None else round(buffers * 1e6)
    sizes = memory.Sizes(tables, total, per_message, stall, size)
    with scenario.place() as place:
        found = memory.run(place, sizes, scenario.progress)
    scenario.figures(found)


@click.command(name="wide")
@with_options(
    RUNS,
    rows_option(1_000_000),
    per_message_option(20),
    click.option(
        "--tables",
        type=_MANY,
        default=4,
        show_default=True,
        help="Among which rows are spread.",
    ),
    PARTITIONS,
    *OUTPUT,
)
def measure_wide(
    runs: int, total: int, per_message: int, tables: int, partitions: int, **output: Any
) -> None:
    """What a core moves of rows of 40 columns and 1.5 kB, in megabytes of protobuf.

    A fifth of the rows passes through relay and loader first, which counts as their start. The
    others come at one moment; the relay works them off alone, then the loader. Figures are of
    each one's processor time, and of both together. Every row is compared in the end; else the
    status is 1.
    """
    given = {"runs": runs, "rows": total, "per_message": per_message, "tables": tables}
    given["partitions"] = partitions
    scenario = Scenario("wide", given, **output)
    size = wide.size_of(total, per_message, tables, partitions)
    with scenario.place() as place:
        found = wide.run(place, size, runs, scenario.progress)
    scenario.figures(found)
