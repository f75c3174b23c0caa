"""What became of a seal, for the core and the journal.

Receives a seal, the facts of what its buffer became, and where the brokers put its chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.blocks.form_block import BlockFacts
from relay.core.records import ChunkShare, SealedBlock, SealResult
from relay.core.state import Buffer, Seal


@dataclass(frozen=True, slots=True)
class Sent:
    """What a seal became and the client now sends: a block, dead letters, or both.

    It holds no chunk and no dead letter. Those of a whole transaction, kept until its flush,
    were hundreds of megabytes beside the client's own copy.

    Attributes:
        facts: of what the seal's buffer became.
        offsets: of the chunks in the block topic, in order; complete once all is acknowledged.
        first: whose chunk it is, where the buffer shares one.
        partition: of the block topic.
        left: what of the seal's buffer is in neither.
    """

    seal: Seal
    facts: BlockFacts
    offsets: Sequence[int]
    first: Seal
    partition: int
    left: Buffer | None = None

    def result(self, topic: str) -> SealResult:
        """Return the result of the seal, once the table's block topic acknowledged everything."""
        seal, facts, acknowledged = self.seal, self.facts, len(self.offsets)
        if acknowledged != facts.chunks:
            raise AssertionError(
                f"{seal.block_id}: offsets of {acknowledged} of {facts.chunks} chunks"
            )
        block = self._block(topic) if facts.chunks else None
        if not facts.dead_groups:
            return SealResult(seal, block, left=self.left)
        reason = next(iter(facts.dead_groups)).reason
        count = sum(facts.dead_groups.values())
        return SealResult(seal, block, count, reason.text, reason.kind.value, self.left)

    def _block(self, topic: str) -> SealedBlock:
        facts, share = self.facts, None
        if facts.first_row is not None:
            share = ChunkShare(self.partition, self.first.block_id, facts.first_row)
        elif self.partition != self.seal.partition:
            share = ChunkShare(self.partition, self.seal.block_id, 0)
        return SealedBlock(
            topic=topic,
            first_offset=self.offsets[0],
            next_offset=self.offsets[-1] + 1,
            chunks=facts.chunks,
            messages=facts.messages,
            rows=facts.rows,
            row_bytes=facts.row_bytes,
            crc32c=facts.crc32c,
            schema_version=facts.schema_version,
            share=share,
            decoded_bytes=facts.decoded_bytes,
        )
