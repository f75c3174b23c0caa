"""Names of tables, topics and blocks: pure text, no client.

A table name is only ever looked up, never pasted: what does not match the
pattern below is a dead letter before anything else sees it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
_TABLE = re.compile(rf"({_IDENTIFIER})\.({_IDENTIFIER})")
_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
# 40 (app) + 8 (".blocks.") + 201 (database.table) = 249, Kafka's limit for a topic name.

FIRST_EPOCHS = 1 << 30
"""How many epochs a journal may begin with, and the least of them. Rewinds add one each."""

TABLE_HEADER = "table"
"""The source message's header that names its table."""

NO_TABLE = ""
"""The table of messages whose header names none; its "block" is their dead letters."""


def is_table_name(name: str) -> bool:
    """Return whether `name` is `database.table` in plain identifiers."""
    return _TABLE.fullmatch(name) is not None


def header_name(raw: bytes) -> str:
    """Return a header's name; bytes that are not UTF-8 stand in it as lone surrogates."""
    return raw.decode("utf-8", "surrogateescape")


def header_bytes(name: str) -> bytes:
    """Return the reverse of `header_name`."""
    return name.encode("utf-8", "surrogateescape")


def shown_header(name: str) -> str:
    r"""Return a header's name as text that can be written: a byte that is not UTF-8 as `\xff`."""
    return header_bytes(name).decode("utf-8", "backslashreplace")


def is_app_name(name: str) -> bool:
    """Return whether `name` can prefix topics, groups and transactional ids."""
    return _APP.fullmatch(name) is not None


def split_table(table: str) -> tuple[str, str]:
    """Split `database.table` into (database, table).

    Raises:
        ValueError: not a table name.
    """
    match = _TABLE.fullmatch(table)
    if match is None:
        raise ValueError(f"not a table name: {table!r}")
    return match[1], match[2]


def blocks_prefix(app: str) -> str:
    """Return how the names of the app's block topics begin."""
    return f"{app}.blocks."


def blocks_topics(app: str, table: str) -> tuple[str, str]:
    """Return the names that a table's block topic may have: the plain one and the dashed one.

    Kafka takes "." and "_" for the same when it makes a topic: of two plain names that differ in
    nothing else it refuses the second. No identifier has a dash, so dashed names always differ.
    """
    database, name = split_table(table)
    return f"{blocks_prefix(app)}{database}.{name}", f"{blocks_prefix(app)}{database}-{name}"


def blocks_topic(app: str, table: str) -> str:
    """Return the name that a table's block topic gets where it has none yet.

    No two tables' collide: without a "_" in the database the first "." or "_" parts the plain
    name, and the others are dashed. Which name it has, relay.kafka.block_topics says, and the
    journal.
    """
    plain, dashed = blocks_topics(app, table)
    return dashed if "_" in split_table(table)[0] else plain


def table_of_topic(app: str, topic: str) -> str:
    """Return whose block topic it is, by either name; empty where it is none of the app's."""
    if not topic.startswith(blocks_prefix(app)):
        return ""
    table = topic.removeprefix(blocks_prefix(app)).replace("-", ".", 1)
    return table if is_table_name(table) else ""


def journal_topic(app: str) -> str:
    """Return the topic with one Commit per source partition per transaction."""
    return f"{app}.journal"


def dead_topic(app: str) -> str:
    """Return the topic of source messages that could not become rows."""
    return f"{app}.dead"


def replayed_topic(app: str) -> str:
    """Return the topic with one mark per dead letter that was replayed."""
    return f"{app}.replayed"


def schemas_topic(app: str) -> str:
    """Return the schema registry topic."""
    return f"{app}.schemas"


def is_written(topic: str, app: str) -> bool:
    """Return whether it is one that the app's relays write."""
    own = (journal_topic(app), dead_topic(app), schemas_topic(app))
    return topic in own or topic.startswith(blocks_prefix(app))


_CLAIM = "claim="


def insert_comment(blocks: Iterable[str], claim: str = "") -> str:
    """Return the log_comment of an INSERT of blocks, by their ids, and of its claim, if any.

    `is_of_block` finds it by a block, and `claim_of_comment` finds the claim.
    """
    return ",".join([*blocks, f"{_CLAIM}{claim}"] if claim else blocks)


def claim_of_comment(comment: str) -> str:
    """Return the claim that an INSERT with this log_comment was made under; "" if it has none."""
    last = comment.rpartition(",")[2]
    return last.removeprefix(_CLAIM) if last.startswith(_CLAIM) else ""


def sealed(block: str) -> str:
    """Return the id of the block that was sealed; that of left out messages has its own behind."""
    return block.removesuffix(LEFT_OUT)


def is_of_block(comment: str) -> str:
    """Return SQL: whether a statement with this log_comment inserts the block {block:String}."""
    return f"has(splitByChar(',', {comment}), {{block:String}})"


def commented(comment: str) -> list[str]:
    """Return the blocks that the log_comment of an INSERT names."""
    return [part for part in comment.split(",") if not part.startswith(_CLAIM)]


def group_id(app: str) -> str:
    """Return the relay's consumer group; floors are committed to it."""
    return f"{app}.relay"


def transactional_id(app: str, member: str) -> str:
    """Return the relay process's id, stable over restarts, so that a successor fences it."""
    return f"{app}.relay.{member}"


def spare_transactional_id(app: str, member: str, number: int) -> str:
    """Return an id for while a transaction of the process's own, number 0, cannot be ended.

    No member's name has a "#".
    """
    own = transactional_id(app, member)
    return f"{own}#{number}" if number else own


def instance_id(app: str, member: str) -> str:
    """Return the group.instance.id of the process `member`: a restart keeps its partitions."""
    return f"{app}.{member}"


def partition_transactional_id(app: str, partition: int) -> str:
    """Return the id of a source partition of another cluster: its new owner fences the old.

    The app stands for the source's cluster and topic: an app has only one of each.
    """
    return f"{app}.source.{partition}"


def transactional_ids(app: str, *, by_partition: bool) -> str:
    """Return the prefix of the transactional ids of the app's relays."""
    return f"{app}.source." if by_partition else transactional_id(app, "")


def replay_transactional_id(app: str) -> str:
    """Return the id of the app's one replay of dead letters: a second one fences the first."""
    return f"{app}.dead-replay"


def left_out_transactional_id(app: str) -> str:
    """Return the id of the loaders' one writer of dead letters: a second one fences the first."""
    return f"{app}.left-out"


def rewind_transactional_id(app: str) -> str:
    """Return the id of the app's one rewind or accept: a second one fences the first."""
    return f"{app}.rewind"


def first_epoch(journal_topic_id: str) -> int:
    """Return the epoch that a source partition without journal records begins with.

    It is part of every block id. Derived from the journal's topic id, it keeps the ids of two
    journals of one app apart: where topics and group were deleted and made anew, the first block
    has the table and the offsets of a deleted one, and neither ledger nor deduplication window nor
    the rows' `_block` may take it for that one. Always of ten digits, far from the epochs 0, 1, 2
    of journals that older versions began.
    """
    if not journal_topic_id:
        return 0
    digest = hashlib.sha256(journal_topic_id.encode()).digest()
    return FIRST_EPOCHS + int.from_bytes(digest[:4], "big") % FIRST_EPOCHS


SAID_LOADED = "a person found all of its rows in the table"
"""How the ledger's reason begins of a block that is loaded as a person says, and nobody else."""

SUPERSEDED = "#superseded-"


def superseded_row(journal_topic_id: str, partition: int, offset: int) -> str:
    """Return the `block` of the ledger's row that notes a rewind, by its record in the journal.

    Its old blocks are settled, and their rows removed.
    """
    return f"{journal_topic_id}{SUPERSEDED}{offset}:{partition}"


LEFT_OUT = ":left-out"
"""Behind a block's id: the block that messages make which the table refused
(loader.core.left_out)."""


@dataclass(frozen=True, slots=True)
class BlockId:
    """What a block id says: unique, readable, and the deduplication token.

    Attributes:
        left_out: of messages that were left out of the block with the id before that.
    """

    app: str
    table: str
    partition: int
    epoch: int
    first_offset: int
    left_out: bool = False

    def __str__(self) -> str:
        sealed = f"{self.app}:{self.table}:{self.partition}:{self.epoch}:{self.first_offset}"
        return f"{sealed}{LEFT_OUT if self.left_out else ''}"

    @classmethod
    def parse(cls, text: str) -> BlockId:
        """Return the reverse of `str`.

        Raises:
            ValueError: not a block id.
        """
        sealed = text.removesuffix(LEFT_OUT)
        parts = sealed.split(":")
        if len(parts) != 5 or not is_table_name(parts[1]):
            raise ValueError(f"not a block id: {text!r}")
        numbers = int(parts[2]), int(parts[3]), int(parts[4])
        return cls(parts[0], parts[1], *numbers, sealed != text)
