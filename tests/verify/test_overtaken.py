"""Retention, or a person, deletes journal records that a verifier has not read yet."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from relay import names
from relay.config.settings_file import load
from relay.errors import Unavailable
from relay.operate.verify import rounds
from relay.operate.verify.audit import GRACE_SECONDS, Audit, audit_of
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.progress import AuditProgress
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.read.topic import DeletedMeanwhile, TopicReader
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.verify.histories import APP, SOURCE, History, clean
from tests.verify.test_live import ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from relay.operate.verify.judge.anomaly import Anomaly
    from tests.broker.pipeline import Pipeline

HISTORY = clean(3, 50)


def judged(records: History) -> tuple[Audit, list[Anomaly]]:
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    return audit, [one for offset, commit in records for one in audit.record(0, offset, commit)]


def gone_to(audit: Audit, read: int, start: int) -> None:
    """Of HISTORY so many records were read, and the log begins at another since."""
    audit.note_deleted(0, HISTORY[read - 1][0] + 1, HISTORY[start][0])


def test_records_that_were_deleted_unread_are_one_gap() -> None:
    """One for all of them: floor, marks and counts of what came before say nothing any more."""
    audit, _ = judged(HISTORY[:10])
    gone_to(audit, 10, 30)
    found = [one for offset, c in HISTORY[30:] for one in audit.record(0, offset, c)]
    assert [(one.kind, one.n, one.offset) for one in found] == [
        (AnomalyKind.GAP, 31, HISTORY[30][0])
    ]
    assert "deleted 20 journal records (n=11 to n=30) before they were audited" in found[0].text
    assert f"at offset {HISTORY[9][0] + 1}" in found[0].text
    assert f"begins at offset {HISTORY[30][0]}" in found[0].text


def test_a_marker_that_was_deleted_unread_is_no_gap() -> None:
    """Markers and aborted records take offsets: what is deleted need not be a record."""
    audit, _ = judged(HISTORY[:10])
    gone_to(audit, 10, 10)
    assert [one for offset, c in HISTORY[10:] for one in audit.record(0, offset, c)] == []


def test_a_journal_that_was_empty_so_far_has_lost_its_first_records() -> None:
    """Read from offset 0 on, nothing of it can have been deleted before."""
    audit, _ = judged([])
    audit.note_deleted(0, 0, HISTORY[30][0])
    (found,) = audit.record(0, *HISTORY[30])
    assert "deleted 30 journal records (n=1 to n=30)" in found.text
    late, _ = judged([])
    late.note_deleted(0, 5, HISTORY[30][0])
    assert late.record(0, *HISTORY[30]) == [], "nobody knows what had been there"


def test_all_deleted_and_nothing_written_since_is_a_gap_by_what_the_group_names() -> None:
    """It said that the journal ends at n=10, and the relay stops at no such thing."""
    audit, _ = judged(HISTORY[:10])
    audit.begin_round({})
    gone_to(audit, 10, 49)
    offset, commit = HISTORY[48]
    entry = {0: (commit.floor, json.dumps({"n": commit.n, "journal": offset}))}
    assert audit.committed(entry, 0.0) == []
    journal = names.journal_topic(APP), 0
    assert audit.ends({journal: 1_000}, {journal: 1_000}, 1.0) == []
    (found,) = audit.committed(entry, GRACE_SECONDS + 1)
    assert found.kind is AnomalyKind.GAP
    assert "deleted 39 journal records (n=11 to n=49) before they were audited" in found.text
    audit.begin_round(entry)
    assert audit.committed(entry, GRACE_SECONDS + 2) == []
    assert audit.record(0, *HISTORY[49]) == []


def test_one_audit_of_all_ends_where_it_was_overtaken() -> None:
    """It would judge rows in the light of half of the records; the next run begins later."""
    overtaken = Overtaken(HISTORY[:10])
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    with pytest.raises(Unavailable, match="deleted while they were read"):
        rounds.once(overtaken, audit, pytest.fail)  # type: ignore[arg-type]


def test_one_audit_of_all_begins_later_where_nothing_was_read() -> None:
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    rounds.once(Overtaken([]), audit, pytest.fail)  # type: ignore[arg-type]
    assert audit.anomalies == []


class Overtaken:
    """A reader whose partition lost its next records after so many."""

    def __init__(self, read: History) -> None:
        self._read = read
        self.silent: dict[tuple[str, int], Unavailable] = {}

    def grow(self) -> None: ...

    def committed(self) -> dict[int, tuple[int, str | None] | None]:
        return {}

    def ends(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        return {}, {}

    def records(
        self, deleted: Callable[[int, int, int], None], _foreign: object
    ) -> Iterator[tuple[int, int, object]]:
        yield from ((0, *one) for one in self._read)
        deleted(0, 100, 200)


# ---- on a real broker


class Until(threading.Event):
    """Is set as soon as a condition holds."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._holds = holds

    def is_set(self) -> bool:
        return super().is_set() or self._holds()


class Followed:
    """One verifier of a pipeline, that is suspended where `follow` has returned."""

    def __init__(self, config: Path) -> None:
        settings = load(config)
        self.reader, self.audit = Reader(settings), audit_of(settings)
        self.progress = AuditProgress(0.0, 0.0)

    def suspend(self) -> None:
        """Fetch no more in the background, as where the process is stopped."""
        self.reader._consumer.pause(self.reader._consumer.assignment())

    def go_on(self) -> None:
        """Fetch again."""
        self.reader._consumer.resume(self.reader._consumer.assignment())

    def follow(self, rounds_more: int = 1) -> None:
        """Judge so many rounds more, or until one had to wait."""
        goal, waited = self.progress.rounds + rounds_more, self.progress.waited
        over = Until(lambda: self.progress.rounds >= goal or self.progress.waited > waited)
        rounds.follow(self.reader, self.audit, lambda _: None, over, self.progress)

    def read_to(self) -> dict[int, int]:
        return {p: one.n for p, one in self.progress.last().items()}


@pytest.fixture
def suspended(pipeline: Pipeline) -> Iterator[Followed]:  # noqa: F811
    """It has read all that there was, and ten more records of each partition came since."""
    config = ran(pipeline)
    followed = Followed(config)
    followed.follow()
    assert followed.read_to() == heads(pipeline)
    followed.suspend()
    relay = pipeline.start("a", config)
    for start in range(300, 600, 50):
        pipeline.send(range(start, start + 50), partition=start // 50 % 2)
        pipeline.exactly_once()
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    pipeline.await_markers()
    yield followed
    followed.reader.close()


def heads(pipeline: Pipeline) -> dict[int, int]:  # noqa: F811
    return {p: commits[-1].n for p, commits in pipeline.journal().items()}


def delete(pipeline: Pipeline, before: int) -> None:  # noqa: F811
    """Delete records of the journal's partition 0 that lie before the offset; -1: all."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    place = TopicPartition(names.journal_topic(pipeline.app), 0, before)
    admin.delete_records([place])[place].result(30)


def test_a_verifier_that_retention_overtook_says_so_and_goes_on(
    pipeline: Pipeline,  # noqa: F811
    suspended: Followed,
) -> None:
    """It waited 30 s in each round for the partition, judged no offset of any, and never ended."""
    ends, before = heads(pipeline), suspended.read_to()
    offsets = [offset for offset, _, _ in pipeline.read(names.journal_topic(pipeline.app), 2)[0]]
    delete(pipeline, offsets[-1])
    suspended.go_on()
    suspended.follow()
    assert suspended.progress.problem == ""
    assert suspended.read_to() == ends
    (found,) = suspended.audit.anomalies
    assert (found.kind, found.partition, found.offset) == (AnomalyKind.GAP, 0, offsets[-1])
    assert f"(n={before[0] + 1} to n={ends[0] - 1}) before they were audited" in found.text
    suspended.follow()
    assert suspended.audit.anomalies == [found]


def test_a_verifier_goes_on_where_nothing_was_left(
    pipeline: Pipeline,  # noqa: F811
    suspended: Followed,
) -> None:
    ends = heads(pipeline)
    delete(pipeline, -1)
    suspended.go_on()
    suspended.follow(2)
    assert suspended.progress.problem == ""
    assert suspended.read_to()[1] == ends[1]
    assert suspended.reader.behind == {0: 0, 1: 0}


def test_a_stretch_of_a_topic_whose_beginning_was_deleted_says_so(pipeline: Pipeline) -> None:  # noqa: F811
    """`relay verify --deep` sent its user to the brokers and to the rights of Kafka."""
    topic = names.journal_topic(pipeline.app)
    with contextlib.closing(TopicReader(load(ran(pipeline)))) as reader:
        end = reader.bounds(topic, 0)[1]
        delete(pipeline, 2)
        with pytest.raises(DeletedMeanwhile, match="begins at offset 2 now"):
            list(reader.read(topic, 0, 0, end))
        assert next(message.offset() for message in reader.read(topic, 0, 2, end)) >= 2


def test_what_reads_the_journal_once_says_that_it_was_overtaken(
    pipeline: Pipeline,  # noqa: F811
    suspended: Followed,
) -> None:
    """`relay rewind` must not decide by records with a hole; it was sent to the brokers."""
    delete(pipeline, -1)
    suspended.go_on()
    with pytest.raises(Unavailable, match="deleted while they were read"):
        list(suspended.reader.records())
