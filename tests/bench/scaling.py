"""`python -m tests.bench scaling`: what tables, partitions and a long past cost.

Receives a directory, sizes and rounds, gives figures. The same rows lie in two topics that differ
in one thing; the relay takes them in turns, and a ratio is of one round, because the machine's
own speed changes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench import relay_bench, restarts, rows, servers
from tests.bench import source as sources
from tests.bench.figures import Figure
from tests.bench.rows import Shape
from tests.bench.usage import Meter

TABLES_LIMIT, PARTITIONS_LIMIT = 1.5, 1.3
"""Time per row at the larger number, in those at the smaller, by issue 8."""
PARTS = ("tables", "partitions", "blocks")
_TABLES = 8  # where partitions are compared


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is compared with what: the smaller number, then the larger."""

    tables: tuple[int, int]
    partitions: tuple[int, int]
    blocks: tuple[int, int]
    rows: int
    per_message: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two topics that differ in one thing.

    Attributes:
        what: of which there are more in the second.
        variants: (tables, partitions) of the first and of the second.
        limit: for the time per row.
    """

    what: str
    variants: tuple[tuple[int, int], tuple[int, int]]
    limit: float

    def label(self, variant: tuple[int, int]) -> str:
        """`200 tables`, or `64 partitions`."""
        return f"{variant[self.what == 'partitions']} {self.what}"


def run(
    directory: Path,
    sizes: Sizes,
    parts: tuple[str, ...],
    runs: int,
    progress: Callable[[str], None],
) -> list[Figure]:
    """The parts asked for, `runs` rounds each."""
    (few, many), (narrow, broad) = sizes.tables, sizes.partitions
    four = sources.PARTITIONS
    found: list[Figure] = []
    for comparison in (
        Comparison("tables", ((few, four), (many, four)), TABLES_LIMIT),
        Comparison("partitions", ((_TABLES, narrow), (_TABLES, broad)), PARTITIONS_LIMIT),
    ):
        if comparison.what in parts:
            found += _compared(directory / comparison.what, comparison, sizes, runs, progress)
    if "blocks" in parts:
        found += restarts.run(directory / "blocks", sizes.blocks, runs, progress)
    return found


def _compared(
    directory: Path,
    comparison: Comparison,
    sizes: Sizes,
    runs: int,
    progress: Callable[[str], None],
) -> list[Figure]:
    rates: list[list[float]] = [[], []]
    memory: list[list[int]] = [[], []]
    directory.mkdir()
    with servers.started(directory, progress) as stack:
        most = max(tables for tables, _ in comparison.variants)
        rows.create_tables(servers.client(stack), Shape(tables=most))
        filled = []
        for tables, partitions in comparison.variants:
            topic = f"source.{tables}.{partitions}"
            progress(f"filling {topic}: {sizes.rows:,} rows, {sizes.per_message} per message")
            shape = Shape(tables=tables)
            filled.append(
                sources.fill(
                    *(stack.bootstrap, topic, sizes.rows, sizes.per_message, None),
                    *(shape, partitions),
                )
            )
        for turn in range(runs):
            for at in (0, 1) if turn % 2 == 0 else (1, 0):
                meters: list[Meter] = []
                kind = relay_bench.relay_kind(stack, filled[at], directory, 1)
                one = relay_bench.one_run(kind, f"x{turn}-{at}", meters, by_rows=True)
                rates[at].append(one.rows_per_second)
                memory[at].append(meters[0].most("relay"))
                progress(
                    f"round {turn + 1} of {runs}, {comparison.label(comparison.variants[at])}: "
                    f"{one.rows_per_second:,.0f} rows/s ({one.seconds:.1f} s)"
                )
    return figures(comparison, rates, memory)


def figures(
    comparison: Comparison, rates: list[list[float]], memory: list[list[int]]
) -> list[Figure]:
    """Medians over the rounds.

    Args:
        comparison: what was compared.
        rates: rows per second in each round, of either variant.
        memory: bytes that the relay held at most in each round, of either variant.
    """
    found = []
    for variant, rate, most in zip(comparison.variants, rates, memory, strict=True):
        label = comparison.label(variant)
        found.append(Figure(f"relay, {label}", statistics.median(rate), "rows/s", "higher"))
        found.append(Figure(f"most memory, {label}", statistics.median(most) / 1e6, "MB", "lower"))
    ratios = [fewer / more for fewer, more in zip(*rates, strict=True)]
    few, many = (comparison.label(variant) for variant in comparison.variants)
    name = f"time per row, {many} / {few}"
    found.append(Figure(name, statistics.median(ratios), "", "lower", comparison.limit))
    return found
