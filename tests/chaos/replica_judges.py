"""Judges a rig after a round: every row once on every replica, nothing parked without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from relay.records_pb2 import Block
    from tests.replicas.rig import Rig


class Table(NamedTuple):
    """A table of the campaign.

    Attributes:
        columns, rest: of its CREATE.
    """

    name: str
    columns: str
    rest: str


class Settled(NamedTuple):
    """A block's last word in the ledger.

    Attributes:
        at: Unix seconds of that row, by the server's clock.
    """

    state: str
    reason: str
    at: float


def settled(rig: Rig, ledger: str) -> dict[str, Settled]:
    """Of every block that is loaded or parked, from the first replica, which has all."""
    rows = rig.replicas[0].rows(
        "SELECT block, argMax(state, r), argMax(reason, r), toFloat64(argMax(at, r)) FROM ("
        "SELECT *, (state = 'loaded', attempt, state = 'parked') AS r "
        f"FROM {ledger} WHERE table != '' AND state IN ('loaded', 'parked')) GROUP BY block"
    )
    return {block: Settled(*rest) for block, *rest in rows}


def judge(
    rig: Rig, tables: Sequence[Table], blocks: Mapping[str, Block], found: Mapping[str, Settled]
) -> Iterator[str]:
    """What is off: rows that are missing or doubled, on any replica, and blocks that wait."""
    waiting = blocks.keys() - found.keys()
    if waiting:
        yield f"{len(waiting)} blocks are not settled, {min(waiting)} among them"
    for table in tables:
        known = {_first(b): b for b in blocks.values() if b.table == table.name}
        loaded = {first for first, b in known.items() if _state(b, found) == "loaded"}
        for one in rig.replicas:
            one.command(f"SYSTEM SYNC REPLICA {table.name}")
            rows = one.rows(
                f"SELECT first, sum(n), count() FROM (SELECT intDiv(id, {ROWS}) * {ROWS} AS first, "
                f"id, count() AS n FROM {table.name} GROUP BY ALL) GROUP BY first"
            )
            there = {int(first): (int(n), int(ids)) for first, n, ids in rows}
            yield from _compared(f"{table.name} on {one.name}", known.keys(), loaded, there)


ROWS = 300
"""Of every block; its ids begin with a multiple of it."""


def _compared(
    where: str, known: set[int] | object, loaded: set[int], there: Mapping[int, tuple[int, int]]
) -> Iterator[str]:
    missing = sorted(first for first in loaded if there.get(first, (0, 0))[1] != ROWS)
    doubled = sorted(first for first, (n, ids) in there.items() if n != ids)
    strange = sorted(first for first in there if first not in known)  # type: ignore[operator]
    for what, blocks in (("lacks rows of", missing), ("doubles", doubled), ("invents", strange)):
        if blocks:
            rows, ids = there.get(blocks[0], (0, 0))
            first = f"the first has id {blocks[0]}: {rows} rows, {ids} of its {ROWS} ids"
            yield f"{where} {what} {len(blocks)} blocks, {first}"


def unexplained(
    found: Mapping[str, Settled], faults: Sequence[tuple[float, float]], patience: float
) -> Iterator[str]:
    """Blocks that were parked while no fault was under way, nor shortly before.

    Args:
        found: by block id.
        faults: when each began and ended, Unix seconds.
        patience: for so long a fault explains what follows.
    """
    for block, one in found.items():
        if one.state == "parked" and not any(
            begun <= one.at <= ended + patience for begun, ended in faults
        ):
            yield f"{block} is parked, and no fault explains it: {one.reason}"


def _first(block: Block) -> int:
    return int(block.id.rpartition(":")[2])


def _state(block: Block, found: Mapping[str, Settled]) -> str:
    return found[block.id].state if block.id in found else ""
