"""What comes in one micro-batch, of what a consumer has queued up; no broker."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from loader.journal import reader as journal_reader
from loader.journal import source as journal_source
from loader.journal.reader import JournalPolling
from loader.journal.source import JOURNAL, JournalReader, Start
from relay.errors import ContractBroken, Refused, RelayError, Unavailable
from relay.records_pb2 import Block, Commit

if TYPE_CHECKING:
    from relay.config.settings import Kafka


class Queued:
    """A record with one block, or the end of a partition; written a second after the one before."""

    def __init__(self, partition: int, offset: int, *, end: bool = False) -> None:
        self._partition, self._offset, self._end = partition, offset, end

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 * self._offset

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._end else None

    def value(self) -> bytes:
        return b"record"


class Consumer:
    """Gives what is queued, at once."""

    def __init__(self, *queued: Queued) -> None:
        self.queued = deque(queued)
        self.assigned = 0

    def poll(self, _: float) -> Queued | None:
        return self.queued.popleft() if self.queued else None

    def assign(self, _: object) -> None:
        self.assigned += 1


def one_block(partition: int, offset: int, record: bytes) -> journal_reader.RecordRows:
    return journal_reader.RecordRows([(partition, offset, record)], 1)


@pytest.fixture
def polling(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(*queued: Queued) -> JournalPolling:
        settings: Any = object()
        kafka: Kafka = settings
        monkeypatch.setattr(journal_reader, "PartitionReader", lambda _: Consumer(*queued))
        monkeypatch.setattr(journal_reader.kafka_clients, "reader", lambda _: {})
        return JournalPolling(kafka, "app.journal", one_block)

    return made


def offsets(rows: list[journal_reader.Row]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, offset, _ in rows]


def of_a_slow_batch(records: int) -> list[Queued]:
    """As librdkafka queues what comes one by one while nobody asks: after each record an end."""
    queued = []
    for offset in range(records):
        for partition in (0, 1):
            queued += [Queued(partition, offset), Queued(partition, offset + 1, end=True)]
    return queued


def test_what_came_while_a_batch_was_loaded_is_one_batch(polling: Any) -> None:
    """Else a loader that is behind takes a transaction at a time, and never gets up again."""
    source = polling(*of_a_slow_batch(50))
    rows = source.there({0: 0, 1: 0}, 1_000)
    assert offsets(rows) == [(p, o) for o in range(50) for p in (0, 1)]
    assert source.there({0: 50, 1: 50}, 1_000) == []
    assert source._consumer.assigned == 1


def test_a_batch_has_about_so_many_blocks(polling: Any) -> None:
    source = polling(*of_a_slow_batch(50))
    assert len(source.there({0: 0, 1: 0}, 7)) == 7
    assert len(source.there({0: 4, 1: 3}, 1_000)) == 93
    assert source._consumer.assigned == 1


def of_a_backlog(partitions: int, records: int) -> list[Queued]:
    """As a broker answers: one partition's records after the other's."""
    return [Queued(p, offset) for p in range(partitions) for offset in range(records)]


def test_a_message_that_is_no_record_is_never_passed_over(polling: Any) -> None:
    """The loader ended with a traceback that named neither topic nor offset."""
    source = polling(Queued(0, 0), Queued(1, 4))
    source._given = journal_source._given  # what is queued is no Commit
    with pytest.raises(ContractBroken, match=r"^app.journal\[0\] has a message at offset 0 that"):
        source.there({0: 0, 1: 4}, 10)


OLDEST_FIRST = [(p, offset) for offset in range(3) for p in range(4)]


def test_of_a_backlog_what_was_sealed_together_comes_together(polling: Any) -> None:
    """Else a table's blocks of one transaction come in as many batches as it has partitions."""
    source = polling(*of_a_backlog(4, 10))
    end = dict.fromkeys(range(4), 10)

    first = source.there(dict.fromkeys(range(4), 0), 12)
    rest = source.there(dict.fromkeys(range(4), 3), 1_000)
    assert offsets(first) == OLDEST_FIRST
    assert offsets(first + rest) == [(p, offset) for offset in range(10) for p in range(4)]
    assert source._next == end
    assert source._consumer.assigned == 1


def test_a_bounded_read_takes_the_oldest_first_too(polling: Any) -> None:
    source = polling(*of_a_backlog(4, 10))
    end = dict.fromkeys(range(4), 9)
    assert offsets(source.up_to(dict.fromkeys(range(4), 0), end, 12)) == OLDEST_FIRST


def test_a_partition_that_sends_nothing_does_not_stop_the_others(
    polling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader may be away: what waits for its records is bounded."""
    monkeypatch.setattr(journal_reader, "_WAITING_BYTES", 3 * len(b"record"))
    source = polling(*of_a_backlog(1, 10))
    position = {0: 0, 1: 0}
    assert offsets(source.up_to(position, {0: 10, 1: 10}, 7)) == [(0, n) for n in range(7)]
    assert offsets(polling(*of_a_backlog(1, 10)).there(position, 7)) == [(0, n) for n in range(7)]


def test_what_waits_is_forgotten_when_the_reader_begins_elsewhere(polling: Any) -> None:
    """As after a restart of the query: the consumer is assigned anew and delivers it again."""
    source = polling(*of_a_backlog(2, 5))
    assert offsets(source.there({0: 0, 1: 0}, 1)) == [(0, 0)]
    source._consumer.queued = deque(of_a_backlog(2, 5))
    assert len(source.there({0: 0, 1: 0}, 1_000)) == 10
    assert source._consumer.assigned == 2


@pytest.mark.parametrize(
    ("row_bytes", "weight"),
    [(0, 1 / 8), (1000, 1 / 8), (1 << 19, 1 / 2), (1 << 20, 1), (1 << 30, 1)],
)
def test_a_small_block_counts_for_less(row_bytes: int, weight: float) -> None:
    """So a loader that is behind many quiet tables takes several blocks of each at a time."""
    block = Block(id="b", row_bytes=row_bytes)
    given = journal_source._given(0, 1, Commit(blocks=[block, block]).SerializeToString())
    assert (len(given.rows), given.weight) == (2, 2 * weight)
    assert journal_source._given(0, 1, b"") == ([(0, 1, None)], 0, None)


def in_transactions(partition: int, offset: int, record: bytes) -> journal_reader.RecordRows:
    """Each transaction has a record in each partition: those of the same offset."""
    return journal_reader.RecordRows([(partition, offset, record)], 1, ("member", offset))


def test_no_batch_ends_within_a_transaction(polling: Any) -> None:
    """Else each batch of a backlog cuts the blocks of 40 tables into two INSERTs each."""
    source = polling(*of_a_backlog(4, 10))
    source._given = in_transactions
    first = source.there(dict.fromkeys(range(4), 0), 5)
    assert offsets(first) == [(p, offset) for offset in range(2) for p in range(4)]
    second = source.there(dict.fromkeys(range(4), 2), 4)
    assert offsets(second) == [(p, 2) for p in range(4)]


def test_a_transaction_is_told_by_member_and_time() -> None:
    def told(**of: Any) -> object:
        commit = Commit(**{"member": "a", "written_at_ms": 5, "blocks": [Block(id="b")], **of})
        return journal_source._given(0, 1, commit.SerializeToString()).transaction

    assert told() == told(partition=3, n=9)
    assert len({told(), told(member="b"), told(written_at_ms=6)}) == 3
    assert told(blocks=[]) is None
    assert told(written_at_ms=0) is None, "it does not say"


def test_what_was_read_before_is_read_whole(polling: Any) -> None:
    """A leader that is behind names an early end; the replay must not be shorter for it."""
    early = [Queued(0, 0), Queued(0, 1, end=True), Queued(0, 1), Queued(0, 2, end=True)]
    source = polling(*early)
    assert offsets(source.up_to({0: 0}, {0: 2}, None, whole=True)) == [(0, 0), (0, 1)]


def test_a_bounded_read_ends_at_the_stable_end(polling: Any) -> None:
    """What an open transaction holds back is left to the next run."""
    source = polling(Queued(0, 0), Queued(0, 1, end=True))
    assert offsets(source.up_to({0: 0}, {0: 5}, None)) == [(0, 0)]


def test_a_replay_that_gets_no_answer_says_so(
    polling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reader, "ANSWER_SECONDS", 0.05)
    source = polling(Queued(0, 0), Queued(0, 1, end=True))
    with pytest.raises(journal_reader.Unavailable, match="did not answer"):
        source.up_to({0: 0}, {0: 2}, None, whole=True)


def test_a_loader_waits_where_no_broker_answers(polling: Any) -> None:
    """An error here would end Spark's query, and the loader with it."""
    away = KafkaException(KafkaError(KafkaError._TRANSPORT))
    reader = reader_of(polling(), away)
    rows, end = reader.read({JOURNAL: "id", "0": 7})
    assert (list(rows), end) == ([], {JOURNAL: "id", "0": 7})


def test_a_bounded_run_says_that_no_broker_answers(polling: Any) -> None:
    reader = reader_of(polling(), KafkaException(KafkaError(KafkaError._TRANSPORT)))
    reader._until = {0: 9}
    with pytest.raises(journal_reader.Unavailable, match=r"describe app\.journal: _TRANSPORT"):
        reader.read({JOURNAL: "id", "0": 7})


def test_a_no_is_a_no(polling: Any) -> None:
    reader = reader_of(polling(), KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        reader.read({JOURNAL: "id", "0": 7})


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Unavailable),
        (KafkaError.LEADER_NOT_AVAILABLE, Unavailable),
        (None, Unavailable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Refused),
    ],
)
def test_a_broker_that_does_not_know_the_topic_shows_no_empty_journal(
    polling: Any, code: int | None, raised: type[RelayError]
) -> None:
    """Red before: each check of a start passed, and a bounded run ended with nothing loaded."""
    error = None if code is None else KafkaError(code)
    source = polling()
    source._consumer.list_topics = lambda *_, **__: SimpleNamespace(
        topics={"app.journal": SimpleNamespace(error=error, partitions={})}
    )
    for ask in (source.partitions, source.ends):
        with pytest.raises(raised, match=r"^describe app\.journal: ") as said:
            ask()
        assert said.value.next_step


def reader_of(source: JournalPolling, answer: KafkaException) -> JournalReader:
    """A reader whose brokers answer every question about the topic with this."""

    def asked(*_: object, **__: object) -> None:
        raise answer

    consumer: Any = source._consumer
    consumer.list_topics = asked
    settings: Any = SimpleNamespace(app="app", loader=SimpleNamespace(blocks_per_batch=9))
    reader = JournalReader(Start(settings, "id", {}))
    vars(reader)["_polling"] = source
    return reader
