"""Settles parked blocks as a person says; no Spark.

Receives block ids and what the person found, gives outcomes. Goes through the same
claims and conditions as a run, so it is safe beside one.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, cast

from loader.ledger import Row
from loader.plan import LOADED, Entry
from loader.work import Worker
from relay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loader.ledger import Ledger
    from loader.plan import Human
    from relay.settings import Settings


def resolve(
    settings: Settings, ledger: Ledger, wanted: Sequence[str], human: str
) -> Iterator[tuple[str, str, str]]:
    """(block id, outcome, reason) of each block.

    Args:
        settings: of the app.
        ledger: of the app.
        wanted: block ids, or "all".
        human: "retry", "absent" or "loaded".

    Raises:
        ConfigError: a block is not parked.
    """
    parked = {block.id: block for block, _ in ledger.parked()}
    if unknown := [block for block in wanted if block not in parked and block != "all"]:
        raise ConfigError(f"not parked: {', '.join(unknown)}", "See `loader parked`.")
    blocks = list(parked.values()) if "all" in wanted else [parked[block] for block in wanted]
    if human == LOADED:
        claim = uuid.uuid4().hex
        reason = "a person found all rows in the table"
        ledger.write([Row(block, Entry(LOADED, 0, claim, reason=reason)) for block in blocks])
        yield from ((block.id, LOADED, "") for block in blocks)
        return
    worker = Worker(settings)
    try:
        for one in worker.load(blocks, cast("Human", human)):
            yield one.block, one.outcome, one.reason
    finally:
        worker.close()
