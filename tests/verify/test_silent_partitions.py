"""`relay verify --deep` where the brokers answer for some partitions, and not for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Message

from relay import names
from relay.errors import Unavailable
from relay.operate.verify import deep
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.judge.contents import RefusedMessages
from relay.operate.verify.judge.ledger_history import WaitingBlock
from relay.operate.verify.read.topic import DeletedMeanwhile
from relay.records_pb2 import Block, Commit, DeadLetters
from tests.verify import nowhere

APP, SOURCE = "shop", "source"
DEAD = names.dead_topic(APP)
A, B = "shop.blocks.d.a", "shop.blocks.d.b"
Place = tuple[str, int]


class SomeBrokers:
    """Logs that are empty; of `silent` nobody answers, and from `last` on nobody does at all."""

    def __init__(self, silent: set[Place], last: Place | None) -> None:
        self._silent, self._last, self._away = silent, last, False
        self.asked: dict[Place, int] = defaultdict(int)

    def partitions(self, topic: str) -> list[int]:
        if self._away:
            raise Unavailable("nobody answers", "start the brokers")
        return [0, 1] if topic in {SOURCE, DEAD} else [0]

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        self.asked[topic, partition] += 1
        if (topic, partition) in self._silent:
            self._away = (topic, partition) == self._last
            raise Unavailable(f"nobody leads {topic}[{partition}]", "start its broker")
        return 0, 0

    def not_shown(self, _topic: str) -> str:
        return ""

    def end(self, topic: str, partition: int) -> int:
        return self.bounds(topic, partition)[1]

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        assert start >= end, f"{topic}[{partition}] has nothing"
        return iter(())

    def compacted(self, _topic: str) -> bool:
        return False

    def close(self) -> None:
        pass


class LandedElsewhere:
    """ClickHouse, whose tables have all that is sealed but for what waits in d.a."""

    def __init__(self, *_: object) -> None:
        self.acknowledged: list[str] = []
        self.not_judged: list[str] = []
        self.failed: dict[str, Unavailable] = {}
        self.refused: dict[str, RefusedMessages] = {}
        self.waiting: dict[str, list[WaitingBlock]] = {}

    def refused_by_now(self, _blocks: object) -> dict[str, RefusedMessages]:
        return self.refused

    def judge(self, blocks: Sequence[Block]) -> Iterator[Anomaly]:
        self.waiting = {"d.a": [WaitingBlock(b, "parked") for b in blocks if b.table == "d.a"]}
        yield Anomaly(AnomalyKind.GAP, 0, 0, -1, "ClickHouse was asked", "d.b")


def block(table: str) -> Block:
    return Block(
        id=f"shop:{table}:0:1:0", table=table, topic=f"shop.blocks.{table}", next_offset=3, rows=2
    )


JOURNAL = {
    0: Commit(
        n=1,
        floor=10,
        blocks=[block("d.a"), block("d.b")],
        dead=[DeadLetters(table="d.a", messages=1, next_source_offset=10)],
    ),
    1: Commit(
        n=1,
        partition=1,
        floor=5,
        dead=[DeadLetters(table="d.b", messages=1, next_source_offset=5)],
    ),
}


def audited(
    brokers: SomeBrokers,
    monkeypatch: pytest.MonkeyPatch,
    landed: type[LandedElsewhere] = LandedElsewhere,
) -> tuple[deep.Deep, list[str], SomeBrokers]:
    """The audit, the texts of what it found, and whom it asked."""
    monkeypatch.setattr(deep, "TopicReader", lambda *_: brokers)
    monkeypatch.setattr(deep, "Landing", landed)
    settings = nowhere.settings(APP)
    further = deep.Deep(settings, Audit("a", "rows", 1.0))
    for partition, commit in JOURNAL.items():
        further.keep(partition, 0, commit)
    return further, [one.text for one in further.judge(lambda _: None)], brokers


def test_all_that_is_lost_is_found_where_all_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    further, found, _ = audited(SomeBrokers(set(), None), monkeypatch)
    assert (further.audit.not_judged, further.audit.errors) == ([], [])
    for text in (
        "block shop:d.a:0:1:0: its chunks",
        "block shop:d.b:0:1:0: its chunks",
        "ClickHouse was asked",
        f"{A}[0] ends at offset 0 now",
        "'d.a' from offset 0 to 10: record n=1 lists 1 dead",
        "'d.b' from offset 0 to 5: record n=1 lists 1 dead",
        "'d.a' from offset 0 to 10: the journal lists",
        "'d.b' from offset 0 to 5: the journal lists",
    ):
        assert len([one for one in found if text in one]) == 1, text


@pytest.mark.parametrize(
    ("silent", "lacks"),
    [
        ((A, 0), ["block shop:d.a:0:1:0: its chunks", f"{A}[0] ends at offset 0 now"]),
        ((B, 0), ["block shop:d.b:0:1:0: its chunks"]),
        ((DEAD, 0), ["'d.a' from offset 0 to 10: record n=1 lists 1 dead"]),
        ((DEAD, 1), ["'d.b' from offset 0 to 5: record n=1 lists 1 dead"]),
        ((SOURCE, 0), ["'d.a' from offset 0 to 10: the journal lists"]),
        ((SOURCE, 1), ["'d.b' from offset 0 to 5: the journal lists"]),
    ],
)
def test_a_partition_that_does_not_answer_keeps_nothing_else_from_being_judged(
    silent: Place, lacks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the audit before ClickHouse was asked about any table."""
    _, everything, _ = audited(SomeBrokers(set(), None), monkeypatch)
    further, found, brokers = audited(SomeBrokers({silent}, None), monkeypatch)
    left = [one for one in everything if not any(text in one for text in lacks)]
    assert (found, len(left)) == (left, len(everything) - len(lacks))
    said = f"nobody leads {silent[0]}[{silent[1]}]"
    assert further.audit.not_judged == [said]
    assert [error.message for error in further.audit.errors] == [said]
    assert brokers.asked[silent] == 1, "each question may take half a minute"


class Shrinking(SomeBrokers):
    """Retention deletes what stands before offset `gone` when `place` is first read."""

    def __init__(self, place: Place, gone: int, times: int) -> None:
        super().__init__(set(), None)
        self._place, self._gone, self._times = place, gone, times

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        super().bounds(topic, partition)
        if (topic, partition) != self._place:
            return 0, 0
        return 0, self._gone

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        if start < end and self._times:
            self._times -= 1
            raise DeletedMeanwhile(f"{topic}[{partition}] was deleted", "run it again")
        assert start >= end or (topic, partition) == self._place
        return iter(())


@pytest.mark.parametrize("place", [(A, 0), (DEAD, 0), (SOURCE, 0)])
def test_records_that_are_deleted_while_they_are_read_are_no_fault(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition is judged from where it begins now; it was not judged, with status 4."""
    further, _, brokers = audited(Shrinking(place, 10, 2), monkeypatch)
    assert further.audit.errors == []
    assert brokers.asked[place] >= 3


def test_a_partition_that_is_always_overtaken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    further, _, _ = audited(Shrinking((A, 0), 100, 99), monkeypatch)
    assert [error.message for error in further.audit.errors] == [f"{A}[0] was deleted"]


def test_where_no_broker_answers_the_audit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="nobody answers"):
        audited(SomeBrokers({(A, 0)}, (A, 0)), monkeypatch)


class Unseen(SomeBrokers):
    """They give no partitions of a topic, and say why, or that it is not there."""

    def __init__(self, topic: str, why: str = "") -> None:
        super().__init__(set(), None)
        self._topic, self._why = topic, why

    def partitions(self, topic: str) -> list[int]:
        return [] if topic == self._topic else super().partitions(topic)

    def not_shown(self, topic: str) -> str:
        return self._why if topic == self._topic else ""


def test_blocks_that_wait_in_a_topic_that_is_not_shown_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each was a `gap`, with the advice to give its rows up: the user had no right on the topic."""
    further, found, _ = audited(Unseen(A, "not authorized"), monkeypatch)
    assert [text for text in found if "is parked" in text] == []
    assert further.audit.not_judged == [
        f"{A} is not there, or this user may not see it",
        f"whether blocks that wait are in {A}[0]: not authorized",
    ]


def test_blocks_that_wait_in_a_topic_that_is_not_there_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, found, _ = audited(Unseen(A), monkeypatch)
    (lost,) = [text for text in found if "is parked" in text]
    assert f"{A}[0] is not there any more, or this user may not see it (`loader parked" in lost


class LandedDead(LandedElsewhere):
    """The ledger has messages of partition 1 as dead letters."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.refused = {"shop:d.c:1:1:0": RefusedMessages("dead", 1, frozenset({7}))}


@pytest.mark.parametrize(("landed", "partitions"), [(LandedElsewhere, [0]), (LandedDead, [0, 1])])
def test_letters_in_a_topic_that_is_not_shown_are_not_judged(
    landed: type[LandedElsewhere], partitions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of loaders were each a `gap`."""
    monkeypatch.setitem(JOURNAL, 1, Commit(n=1, partition=1, floor=5))
    further, found, _ = audited(Unseen(DEAD), monkeypatch, landed)
    assert [text for text in found if "the topic has 0" in text or "are no dead" in text] == []
    assert further.audit.not_judged == [
        f"{DEAD}[{p}] is not there, or this user may not see it: dead letters are not judged"
        for p in partitions
    ]
