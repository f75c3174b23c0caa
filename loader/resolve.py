"""Settles parked blocks as a person says; no Spark.

Receives block ids and what the person found, gives outcomes. Goes through the same
claims and conditions as a run, so it is safe beside one, and beside another of its kind. A
block is settled here and now: no loader need hear of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loader.plan import settled
from loader.work import Worker
from relay.errors import ConfigError
from relay.names import BlockId
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loader.ledger import Ledger
    from loader.plan import Human
    from relay.settings import Settings


def resolve(
    settings: Settings, ledger: Ledger, wanted: Sequence[str], human: Human, why: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(block id, outcome, reason) of each block; the outcome is loader.plan's.

    Args:
        settings: of the app.
        ledger: of the app.
        wanted: block ids, or "all".
        human: what the person says of every one of them.
        why: the person's words, for the ledger.

    Raises:
        ConfigError: a block is not parked; none was touched.
    """
    parked = {block.id: block for block, _ in ledger.parked()}
    if unknown := [block for block in wanted if block not in parked and block != "all"]:
        said = "; ".join(_as_it_is(ledger, block) for block in unknown)
        raise ConfigError(f"not parked: {said}", "`loader parked ls` shows which blocks are.")
    blocks = list(parked.values()) if "all" in wanted else [parked[block] for block in wanted]
    worker = Worker(settings)
    try:
        for one in worker.load(blocks, (), human, " ".join(why.split())):
            yield one.block, one.outcome, one.reason
    finally:
        worker.close()


def _as_it_is(ledger: Ledger, block: str) -> str:
    """A block that is not parked, with what the ledger says of it."""
    try:
        table = BlockId.parse(block).table
    except ValueError as error:
        return str(error)
    entries = ledger.entries([Block(id=block, table=table)]).get(block, ())
    last = settled(entries)
    if last is not None:
        return f"{block} is {last.state}{': ' if last.reason else ''}{last.reason}"
    return f"{block} is {'claimed by a loader' if entries else 'not in the ledger'}"
