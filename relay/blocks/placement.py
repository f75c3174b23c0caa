"""Where a block's rows lie: the partition and key of its chunks, and its own rows in a shared one.

Receives a block as the journal has it. Small blocks of a table, of several source partitions and
one transaction, share a chunk (relay.blocks.form_block); all others have chunks of their own.
"""

# pure

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.blocks import message_rows

if TYPE_CHECKING:
    from relay.records_pb2 import Block


def place(block: Block) -> tuple[str, int]:
    """Return topic and partition of its chunks."""
    return block.topic, block.share.partition if block.HasField("share") else block.partition


def key(block: Block) -> str:
    """Return the key of its chunks' records."""
    return block.share.first if block.HasField("share") else block.id


def messages_header(block: Block) -> str:
    """Return the header of its first chunk that says which message each row came from."""
    return message_rows.header(block.partition if block.HasField("share") else None)
