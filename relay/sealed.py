"""What became of a seal, for the core and the journal.

Receives a seal, what its buffer became, and where the brokers put its chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay import chunks, names
from relay.core.records import SealedBlock, SealResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.core.state import Seal
    from relay.forming import Formed


def sealed(app: str, seal: Seal, formed: Formed, offsets: Sequence[int]) -> SealResult:
    """A block, dead letters, or both.

    Args:
        app: prefix of its topics.
        seal: the buffer.
        formed: what it became.
        offsets: of its chunks in the block topic, acknowledged, in order.
    """
    dead = len(formed.dead)
    reason = formed.dead[0][2] if formed.dead else ""
    if not formed.chunks:
        return SealResult(seal, None, dead, reason)
    block = SealedBlock(
        topic=names.blocks_topic(app, seal.table),
        first_offset=offsets[0],
        next_offset=offsets[-1] + 1,
        chunks=len(offsets),
        messages=formed.messages,
        rows=formed.rows,
        row_bytes=formed.row_bytes,
        crc32c=chunks.crc32c(value for value, _ in formed.chunks),
        schema_version=formed.schema_version,
    )
    return SealResult(seal, block, dead, reason)
