"""Where a block's rows lie: the partition and key of its chunks, and its own rows in a shared one.

Receives a block as the journal has it. Small blocks of a table, of several source partitions and
one transaction, share a chunk (relay.blocks.form_block); all others have chunks of their own.

A block topic has no more partitions than were needed so far: each costs brokers and clients
something, and a thousand quiet tables would have many thousands of them.
"""

# pure

from __future__ import annotations

from collections.abc import Collection

from relay.blocks import message_rows
from relay.records_pb2 import Block


def home_of(owned: Collection[int]) -> int:
    """Return the partition that each block topic has to have, for a relay to write there.

    It is the first of its source partitions, 0 where it has none.
    """
    return min(owned, default=0)


def chosen(source: int, home: int, width: int) -> int:
    """Return the partition of the block topic that a relay puts chunks into.

    It is always a partition that this relay owns. If two relays wrote one partition, the chunks of
    a block would lie among others, and a relay that hangs in a transaction would hide both.

    Args:
        source: the block's source partition.
        home: of the relay, by `home_of`; the topic has it.
        width: of the topic, in partitions.
    """
    return source if source < width else home


def place(block: Block) -> tuple[str, int]:
    """Return topic and partition of its chunks."""
    return block.topic, block.share.partition if block.HasField("share") else block.partition


def key(block: Block) -> str:
    """Return the key of its chunks' records."""
    return block.share.first if block.HasField("share") else block.id


def messages_header(block: Block) -> str:
    """Return the header of its first chunk that says which message each row came from."""
    return message_rows.header(block.partition if block.HasField("share") else None)
