"""What runs in Spark's worker processes: record batches of blocks in, outcomes out.

Receives serialized Blocks, gives one row per block. Rows of tables never pass through
Spark: loader.work fetches and inserts them. Pickled by name, so that the worker kept
below is one per process and lives over tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from loader.work import Worker
from relay.errors import Unavailable
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.settings import Settings

OUTCOMES = "block string, outcome string, rows bigint, reason string"
_FIELDS: list[pa.Field[Any]] = [
    pa.field("block", pa.string()),
    pa.field("outcome", pa.string()),
    pa.field("rows", pa.int64()),
    pa.field("reason", pa.string()),
]
_worker: Worker | None = None


def load(settings: Settings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Attempts the blocks of each batch (column `block`); gives OUTCOMES."""
    for batch in batches:
        blocks = [Block.FromString(value.as_py()) for value in batch.column("block")]
        yield pa.RecordBatch.from_pylist(_attempt(settings, blocks), pa.schema(_FIELDS))


def _attempt(settings: Settings, blocks: list[Block]) -> list[dict[str, object]]:
    global _worker  # noqa: PLW0603 - one per process
    try:
        if _worker is None:
            _worker = Worker(settings)
    except Unavailable as error:
        return [
            {"block": block.id, "outcome": "retry", "rows": block.rows, "reason": error.message}
            for block in blocks
        ]
    return [
        {"block": one.block, "outcome": one.outcome, "rows": one.rows, "reason": one.reason}
        for one in _worker.load(blocks)
    ]
