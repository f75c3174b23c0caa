"""Dead letters that loaders wrote since the moment of which the ledger is.

Receives settings, the ledger and where it stands in the journal; gives the rows that
loader.core.past_letters has for the ledger. No Spark engine runs for it. It reads the dead letters
from the time of the first block that may be concerned on: that waits, or that the ledger may have
forgotten. Where there is none, nothing is read. What an earlier start looked at is not read again:
the ledger says how far that was, and where it is set back, this is set back with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message, TopicPartition

from loader.clickhouse.ledger import Ledger
from loader.console import Say
from loader.core import past_letters as core
from loader.core.entries import NewEntry, earliest
from loader.core.past_letters import PastLetter
from loader.core.positions import Why, letters_rows
from loader.journal.reader import RecordRows, block_rows
from loader.journal.rewinds import some
from relay import names
from relay.blocks import dead_letter
from relay.blocks.dead_letter import RecordPlace
from relay.config import kafka_clients
from relay.config.kafka_clients import ClientSettings
from relay.config.settings import Settings
from relay.errors import Refused, RelayError
from relay.kafka import librdkafka
from relay.kafka.errors import answered
from relay.kafka.partition_reader import PartitionReader, begin_once_stable, records
from relay.kafka.topics import READ, Topics
from relay.records_pb2 import Block, Commit

_SECONDS = 30.0
"""For one request, and for the next record to come."""
_UNSURE_SECONDS = 10.0
"""As long as one look waits for open transactions; of most starts, at which no letter is missed."""
_MANY = 10_000
"""Of so many dead letters a person is told before they are read: more may take minutes."""


Check = Callable[[], None]
_Stretch = tuple[TopicPartition, int]
"""Of a partition of dead letters: where it begins, and the offset behind its last."""


class JournalStretch(NamedTuple):
    """Of the journal, by partition: the first offset, and the one behind the last."""

    begin: Mapping[int, int]
    ends: Mapping[int, int]


class FoundLetters(NamedTuple):
    """Letters that loaders wrote.

    Attributes:
        letters: by the block that they are of.
        looked: rows that say how far the dead letters were looked at, where that is news.
    """

    letters: Mapping[str, Sequence[PastLetter]]
    looked: Sequence[Mapping[str, object]] = ()


class _CheckingReader(PartitionReader):
    """Calls `check` before each request, so that a loader which is to stop ends its reading."""

    def __init__(self, config: ClientSettings, check: Check) -> None:
        self._check = check
        super().__init__(config)

    def consume(self, *arguments: Any, **named: Any) -> list[Message]:
        self._check()
        return super().consume(*arguments, **named)

    def get_watermark_offsets(self, *arguments: Any, **named: Any) -> tuple[int, int]:
        self._check()
        return super().get_watermark_offsets(*arguments, **named)


def is_needed(why: Why, rejected: str) -> bool:
    """Return whether no block may be loaded before the letters are read.

    Where nothing says that ClickHouse was set back, no letter can be missed, or no more than at a
    first start. Where the loader writes none, it cannot write one a second time.

    `why`: the ledger may not know some; `rejected`: the setting `loader.rejected`.
    """
    return why != "unsure" and rejected == "dead"


def bound_wait(why: Why, settings: Settings) -> float | None:
    """Return for how many seconds a start waits for letters that cannot be read; None: for ever.

    A partition without a leader or a transaction that stays open must not keep every table from
    being loaded. `why`: the ledger may not know some letters.
    """
    if is_needed(why, settings.loader.rejected):
        return None
    # As long as the transaction of a relay that was killed may stay open, and longer.
    return _UNSURE_SECONDS if why == "unsure" else 2 * settings.relay.transaction_timeout_seconds


def describe_unread(error: RelayError, why: Why) -> str:
    """Return what to say where a start goes on without having read letters; empty: nothing.

    `error`: why they cannot be read; `why`: the ledger may not know some.
    """
    if why != "unsure":
        return (
            f"whether messages that were left out of blocks are dead letters since cannot be seen: "
            f"{error.message}; before you resolve such a block, look for them with `relay dead ls`"
        )
    if isinstance(error, Refused):  # blocks whose letters are refused stand aside, and say so
        return ""
    return (
        f"dead letters cannot be read now: {error.message}; blocks are loaded, and the next start "
        "looks for letters that the ledger does not know"
    )


def since(settings: Settings, ledger: Ledger, stretch: JournalStretch) -> int | None:
    """Return the Unix ms before which no letter is of a block with unknown letters.

    Such blocks are those that wait in the ledger, and the journal's in this stretch, of which the
    ledger may not know. None: there are none.

    Raises:
        Unavailable: a server does not answer.
        ContractBroken: as loader.journal.reader.JournalPolling.up_to.
    """
    waiting = min(map(earliest, ledger.waiting_records()), default=None)
    with contextlib.closing(_blocks(settings, stretch)) as blocks:
        first = map(earliest, next(blocks, []))
    return min((at_ms for at_ms in (waiting, *first) if at_ms is not None), default=None)


def read(
    settings: Settings,
    since_ms: int,
    looked: Mapping[tuple[str, int], int],
    why: Why,
    tell: Say,
    check: Check,
) -> FoundLetters:
    """Read letters that loaders wrote from this time on; none where there is no such topic.

    `looked`: how far the dead letters were looked at, by topic id and partition; `why`: the ledger
    may not know some; `check`: is called again and again while it reads; may raise, to end it.

    Raises:
        Unavailable: a server does not answer, or a transaction stays open.
        Refused: the brokers say no.
    """
    topic = names.dead_topic(settings.app)
    facts = Topics(settings).describe(topic, (READ,))
    if facts is None:
        return FoundLetters({})
    config = kafka_clients.reader(settings.kafka)
    uncommitted = {**config, "isolation.level": "read_uncommitted"}
    try:
        with (
            contextlib.closing(_CheckingReader(config, check)) as reader,
            contextlib.closing(_CheckingReader(uncommitted, check)) as ends,
        ):
            stretches, ends_of = [], {}
            for partition in range(facts.partitions):
                place = TopicPartition(topic, partition, since_ms)
                end = ends.get_watermark_offsets(place, _SECONDS)[1]
                low = begin_once_stable(reader, place, end, _SECONDS)
                # Of a ledger that was lost nobody knows what is left.
                known = 0 if why == "lost" else looked.get((facts.topic_id, partition), 0)
                begin = _begin(reader, place, max(low, known), end)
                if end > known:
                    ends_of[partition] = end
                # Letters that are gone may matter only where ClickHouse was set back.
                if why != "unsure" and known < low == begin.offset:
                    tell(
                        f"retention has deleted dead letters of {topic}[{partition}] before {low}, "
                        "of which the ledger may know nothing since ClickHouse was set back: "
                        "messages of these become dead letters, or rows, once more",
                        level=logging.WARNING,
                    )
                stretches.append((begin, end))
            _announce(topic, stretches, tell)
            letters = core.by_block(_letters(reader, stretches))
    except KafkaException as error:
        grant = f"grant Read on topic {topic} to the loader's user"
        raise answered(f"read {topic}", error.args[0], grant) from error
    return FoundLetters(letters, letters_rows(facts.topic_id, ends_of))


def lacking(
    settings: Settings,
    ledger: Ledger,
    stretch: JournalStretch,
    found: FoundLetters,
    check: Check,
    *,
    lost: bool,
) -> list[NewEntry]:
    """Return what the ledger lacks of blocks that have letters.

    `found`: letters of any block; `check`: as of `read`; `lost`: a person says that the ledger was
    lost.

    Raises:
        Unavailable: a server does not answer.
        ContractBroken: as loader.journal.reader.JournalPolling.up_to.
    """
    if not found.letters:
        return []
    waiting = (block for block in ledger.waiting_records() if core.made_of(block) in found.letters)
    by_id = {block.id: block for block in waiting}
    for sealed in _blocks(settings, stretch):
        check()
        by_id |= {block.id: block for block in sealed if core.made_of(block) in found.letters}
    blocks = by_id.values()
    entries = ledger.entries([*blocks, *(Block(id=core.made_of(b), table=b.table) for b in blocks)])
    topic = names.dead_topic(settings.app)
    return core.find_lacking(blocks, found.letters, entries, topic, lost=lost)


def _blocks(settings: Settings, stretch: JournalStretch) -> Generator[list[Block]]:
    """Yield the blocks of the journal, the oldest first, those of a few records at a time."""
    for rows in some(settings, stretch.begin, stretch.ends, _block_rows):
        if blocks := [Block.FromString(block) for *_, block in rows if block is not None]:
            yield blocks


def _block_rows(partition: int, offset: int, record: bytes) -> RecordRows:
    rows = block_rows(partition, offset, Commit.FromString(record))
    return RecordRows(rows, len(rows))


def _begin(reader: PartitionReader, since: TopicPartition, low: int, end: int) -> TopicPartition:
    """Where to read a partition from: the first letter since then, and none before `low`."""
    begin = reader.offsets_for_times([since], _SECONDS)[0].offset
    since.offset = max(low, begin) if 0 <= begin < end else end
    return since


def _announce(topic: str, stretches: Sequence[_Stretch], tell: Say) -> None:
    count = sum(end - begin.offset for begin, end in stretches)
    if count > _MANY:
        tell(
            f"looking at {count:,} dead letters of {topic}, as blocks wait that they may be of; "
            "this is done once, and the first block is loaded after it"
        )


def _letters(reader: PartitionReader, stretches: Sequence[_Stretch]) -> Iterator[PastLetter]:
    for begin, end in stretches:
        for message in records(reader, begin, end, _SECONDS):
            yield from _of_loader(message)


def _of_loader(message: Message) -> Iterator[PastLetter]:
    """The letter, if a loader wrote it; a relay's names no block."""
    place = RecordPlace(message.partition() or 0, message.offset() or 0)
    headers = librdkafka.headers(message)
    if not any(name == dead_letter.BLOCK for name, _ in headers):
        return
    with contextlib.suppress(ValueError):  # nothing of ours
        letter = dead_letter.parse(place, 0, None, headers)
        yield PastLetter(letter.block, place.offset, letter.source.offset, letter.reason.text)
