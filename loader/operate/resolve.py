"""Settles blocks as a person says; no Spark.

Receives block ids and what the person found, gives outcomes. Goes through the same
claims and conditions as a run, so it is safe beside one, and beside another of its kind. A
block is settled at once, and loaders need not be told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from loader.blocks.attempt import Outcome
from loader.blocks.worker import Worker
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.ledger import Ledger
from loader.core import left_out
from loader.core.entries import NewEntry, claims
from loader.core.plan import ASIDE, PARKED, Human, doubt, settled
from loader.core.set_aside_plan import Aside, stands_aside
from loader.spark.set_aside import set_aside
from relay.clickhouse.errors import About
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.names import LEFT_OUT, BlockId
from relay.program.plural import several
from relay.records_pb2 import Block

PATIENCE_SECONDS = 30.0
"""That a loader which is at the block just now is waited for."""
_PAUSE_SECONDS = 0.5


def resolve(
    settings: Settings, ledger: Ledger, wanted: Sequence[str], human: Human, why: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield (block id, outcome, reason) of each block; the outcome is loader.core.plan's.

    Behind a block that is loaded without messages that its table refuses comes the block that
    these make, if it waits for a person: they may be dead letters, or become some.

    Args:
        settings: of the app.
        ledger: of the app.
        wanted: block ids; "all" that wait for a person; "aside", all that are set aside.
        human: what the person says of every one of them.
        why: the person's words, for the ledger.

    Raises:
        ConfigError: a block is loaded or given up already, or is no block; none was touched.
    """
    blocks = chosen(settings, ledger, wanted, dead=human == "dead")
    known = ledger.entries(list(blocks.values()))
    forgotten = [block for name, block in blocks.items() if name not in known]
    ledger.write([NewEntry(block, doubt(block.rows, lost=False)) for block in forgotten])
    of_table = [b for name, b in blocks.items() if name in known and not claims(known[name])]
    Forgotten.of_waiting(ledger, settings).doubt(of_table)
    worker, start, words = Worker(settings, isolates=True), time.monotonic(), " ".join(why.split())
    try:
        left = list(blocks.values())
        while left:
            outcomes = worker.load(left, (), human, words)
            late = time.monotonic() - start > PATIENCE_SECONDS
            again = {one.block for one in outcomes if _is_busy(one, human) and not late}
            for one in outcomes:
                if one.block not in again:
                    yield _outcome(ledger, one, blocks[one.block])
                    yield from _parked_rest(ledger, one, blocks[one.block])
            left = [block for block in left if block.id in again]
            if left:
                time.sleep(_PAUSE_SECONDS)  # the condition is in the ledger
    finally:
        worker.close()


def chosen(
    settings: Settings, ledger: Ledger, wanted: Sequence[str], *, dead: bool = False
) -> dict[str, Block]:
    """Return the blocks that are meant, by id, and change nothing; `wanted` as `resolve`.

    With `dead`, which makes dead letters of messages, they are those of left out messages alone.

    Raises:
        ConfigError: as `resolve`.
    """
    waiting = {one.block.id: one for one in ledger.waiting()}
    blocks = {name: waiting[name].block for name in wanted if name in waiting}
    for word, aside in (("all", False), ("aside", True)):
        if word in wanted:
            blocks |= {name: one.block for name, one in waiting.items() if one.aside == aside}
    if others := [name for name in wanted if name not in blocks and name not in {"all", "aside"}]:
        blocks |= _sealed(settings, ledger, others)
    whole = [name for name, block in blocks.items() if not left_out.is_left_out(block)]
    if dead and (named := [name for name in whole if name in wanted]):
        raise ConfigError(
            f"no messages that were left out of a block: {', '.join(named)}",
            f"--dead is for blocks whose id ends with {LEFT_OUT}; `loader parked ls` shows them.",
        )
    for block in blocks.values():  # so does a loader that tries it again, if that is needed
        block.to_dead_letters = dead
    return {name: block for name, block in blocks.items() if not (dead and name in whole)}


def _is_busy(result: Outcome, human: Human) -> bool:
    """Return whether somebody else is at the block: a loader that sets it aside again is."""
    if result.outcome == "retry":
        return not result.about
    return result.outcome == ASIDE and human != "retry"


def _outcome(ledger: Ledger, result: Outcome, block: Block) -> tuple[str, str, str]:
    """Return the outcome; set aside a block that its table refuses, for a loader to try again."""
    refused = stands_aside(result.about, 1, 0, others_loaded=False)
    refused |= result.about == About.TABLE_NOW
    if result.outcome == "retry" and refused:
        others = set_aside(ledger, [Aside(block, result.reason, result.about)])
        return result.block, others.get(block.id, ASIDE), result.reason
    without = f"without {several(result.left_out, 'message')} that the table refuses"
    reasons = result.reason, f"{without} ({result.block}{LEFT_OUT})" if result.left_out else ""
    return result.block, result.outcome, "; ".join(filter(None, reasons))


def _parked_rest(ledger: Ledger, result: Outcome, block: Block) -> Iterator[tuple[str, str, str]]:
    """Yield the block of messages left out of a loaded one, if it waits for a person."""
    if result.left_out:
        rest = Block(id=f"{result.block}{LEFT_OUT}", table=block.table)
        last = settled(ledger.entries([rest]).get(rest.id, ()))
        if last is not None and last.state == PARKED:
            yield rest.id, last.state, last.reason


def _sealed(settings: Settings, ledger: Ledger, wanted: Sequence[str]) -> dict[str, Block]:
    """Return blocks that no loader has settled, from the journal."""
    said = [text for name in wanted if (text := _describe_settled(ledger, name))]
    if said:
        raise ConfigError(
            f"there is nothing to settle: {'; '.join(said)}",
            "`loader parked ls` lists the blocks that wait.",
        )
    from loader.journal.sealed_blocks import sealed  # noqa: PLC0415 - Spark's Python

    blocks = {block.id: block for block in sealed(settings, ledger).blocks if block.id in wanted}
    if missing := [name for name in wanted if name not in blocks]:
        raise ConfigError(
            "neither the ledger nor the journal after the ledger's position has block "
            f"{', '.join(missing)}",
            "`loader parked ls` lists the blocks that wait, `relay blocks ls` lists all.",
        )
    return blocks


def _describe_settled(ledger: Ledger, block: str) -> str:
    """Return why a block cannot be settled, as the ledger says; empty where it can be."""
    try:
        table = BlockId.parse(block).table
    except ValueError as error:
        return str(error)
    last = settled(ledger.entries([Block(id=block, table=table)]).get(block, ()))
    if last is None:
        return ""
    return f"{block} is {last.state}{': ' if last.reason else ''}{last.reason}"
