"""`python -m tests.bench dead`: the relay with one message in a hundred bad, and with none.

Receives a directory and sizes, starts a broker and a ClickHouse endpoint of its own, gives
results. The same messages stand in each topic but for the bad ones; the runs take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relay.dev.stack import Stack
from tests.bench import relay_bench, rows, servers
from tests.bench import source as sources
from tests.bench.measure import Result, Run
from tests.bench.relay_bench import PER_MESSAGE_FACTOR, SHAPES, Kind, Progress
from tests.bench.source import Header, Source, Spoil

EVERY = 100
"""One message of so many is bad."""
LEAST_RATIO = 0.8
"""Of the rate with no bad messages: what issue 5 demands."""
_FOREIGN: Header = [("table", b"nowhere.nothing")]


def cut_short(value: bytes, header: Header) -> tuple[bytes, Header]:
    """No RowBatch: the last byte is missing."""
    return value[:-1], header


def row_cut_short(value: bytes, header: Header) -> tuple[bytes, Header]:
    """A whole RowBatch, whose last row says that nine bytes follow, and none does."""
    return value + b"\x0a\x04\x08\x01\x32\x09", header


def out_of_range(value: bytes, header: Header) -> tuple[bytes, Header]:
    """One more row: day 70 000 does not fit a Date."""
    return value + b"\x0a\x04\x20\xf0\xa2\x04", header


def unknown_table(value: bytes, _: Header) -> tuple[bytes, Header]:
    """A table that ClickHouse does not have."""
    return value, _FOREIGN


KINDS = (cut_short, row_cut_short, out_of_range, unknown_table)
VARIANTS: dict[str, tuple[Callable[[bytes, Header], tuple[bytes, Header]], ...]] = {
    "no bad messages": (),
    "1 % bad, each kind in turn": KINDS,
    "1 % bad, all of them cut short in a row": (row_cut_short,),
}
"""The last is the worst: a row that does not parse fails all that are decoded with it."""


def spoil(kinds: tuple[Callable[[bytes, Header], tuple[bytes, Header]], ...]) -> Spoil | None:
    """Every hundredth message becomes a bad one, of each kind in turn."""
    if not kinds:
        return None

    def one(number: int, value: bytes, header: Header) -> tuple[bytes, Header] | None:
        # 37 is in the middle: no wave of messages begins with a bad one.
        if number % EVERY != 37:
            return None
        return kinds[number // EVERY % len(kinds)](value, header)

    return one


def run(directory: Path, total: int, runs: int, progress: Progress) -> list[Result]:
    """Both shapes, all variants, `runs` rounds."""
    with servers.started(directory, progress) as stack:
        rows.create_tables(servers.client(stack))
        results = []
        for per_message in SHAPES:
            wanted = total * (PER_MESSAGE_FACTOR if per_message > 1 else 1)
            progress(f"filling {len(VARIANTS)} topics: {wanted:,} rows, {per_message} per message")
            filled = {
                name: sources.fill(
                    stack.bootstrap, f"source.{per_message}.{at}", wanted, per_message, spoil(kinds)
                )
                for at, (name, kinds) in enumerate(VARIANTS.items())
            }
            results += _take_turns(stack, filled, directory, runs, progress)
            sources.delete_topics(stack.bootstrap, f"source.{per_message}.")
        return results


def _take_turns(
    stack: Stack, filled: dict[str, Source], directory: Path, runs: int, progress: Progress
) -> list[Result]:
    measured: dict[str, list[Run]] = {name: [] for name in filled}
    names = list(filled)
    for turn in range(runs):
        for name in names[:: -1 if turn % 2 else 1]:
            source = filled[name]
            app = f"d{source.per_message}-{turn}-{names.index(name)}"
            one = relay_bench.one_run(_kind(stack, source, directory), app)
            measured[name].append(one)
            progress(
                f"{source.per_message} per message, round {turn + 1} of {runs}, {name}: "
                f"{one.rows_per_second:,.0f} rows/s ({one.seconds:.1f} s)"
            )
    return [
        Result(name, source.per_message, tuple(measured[name]), "product" if source.bad else "peer")
        for name, source in filled.items()
    ]


def _kind(stack: Stack, source: Source, directory: Path) -> Kind:
    """One relay process: with two, broker and relays wait for each other's cores."""
    return relay_bench.relay_kind(stack, source, directory, 1)
