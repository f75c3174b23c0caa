"""What became of a seal, for the core and the journal.

Receives a seal, what its buffer became, and where the brokers put its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.blocks import chunks
from relay.core.records import ChunkShare, SealedBlock, SealResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relay.blocks.form_block import Formed
    from relay.core.state import Seal
    from relay.schema.dead_reason import DeadReason


@dataclass(frozen=True, slots=True)
class Sent:
    """What a seal became and the client now sends: a block, dead letters, or both.

    It holds no chunk and no dead letter. Those of a whole transaction, kept until its flush,
    were hundreds of megabytes beside the client's own copy.

    Attributes:
        offsets: of the chunks in the block topic, in order; complete once all is acknowledged.
        messages: whose rows are in the chunks; these, `rows` and the others as
        relay.blocks.form_block says. dead: messages that became dead letters. dead_reason: of the
        first; None where there is none.
    """

    seal: Seal
    offsets: Sequence[int]
    chunks: int
    crc32c: int
    messages: int
    rows: int
    row_bytes: int
    schema_version: int
    unknown: Mapping[str, int]
    dead: int
    dead_reason: DeadReason | None
    share: ChunkShare | None = None

    @classmethod
    def of(
        cls, seal: Seal, formed: Formed, offsets: Sequence[int], first: Seal | None = None
    ) -> Sent:
        """Describe what was just handed to the client.

        Args:
            seal: of the buffer.
            formed: what it became.
            offsets: gets the chunks' as they are acknowledged.
            first: whose chunk it is that it shares, where it shares one.
        """
        share = None
        if first is not None and formed.first_row is not None:
            share = ChunkShare(first.partition, first.block_id, formed.first_row)
        return cls(
            seal=seal,
            offsets=offsets,
            chunks=len(formed.chunks),
            crc32c=chunks.crc32c(value for value, _ in formed.chunks),
            messages=formed.messages,
            rows=formed.rows,
            row_bytes=formed.row_bytes,
            schema_version=formed.schema_version,
            unknown=formed.unknown,
            dead=len(formed.dead),
            dead_reason=formed.dead[0].reason if formed.dead else None,
            share=share,
        )

    def result(self, topic: str) -> SealResult:
        """Return the result of the seal, once the brokers acknowledged everything.

        Args:
            topic: the table's block topic.
        """
        if len(self.offsets) != self.chunks:
            raise AssertionError(
                f"{self.seal.block_id}: offsets of {len(self.offsets)} of {self.chunks} chunks"
            )
        if not self.chunks:
            return self._outcome(None)
        block = SealedBlock(
            topic=topic,
            first_offset=self.offsets[0],
            next_offset=self.offsets[-1] + 1,
            chunks=self.chunks,
            messages=self.messages,
            rows=self.rows,
            row_bytes=self.row_bytes,
            crc32c=self.crc32c,
            schema_version=self.schema_version,
            share=self.share,
        )
        return self._outcome(block)

    def _outcome(self, block: SealedBlock | None) -> SealResult:
        first = self.dead_reason
        if first is None:
            return SealResult(self.seal, block)
        return SealResult(self.seal, block, self.dead, first.text, first.kind.value)
