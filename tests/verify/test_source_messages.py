"""Source messages against what the journal says was sealed of them; no false alarm where retention
cut either, and no message that is lost behind the cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from relay import names
from relay.config.settings_file import load
from relay.operate.verify.read.topic import TopicReader
from relay.operate.verify.source_messages import SourceJudge
from relay.program.plural import several
from relay.records_pb2 import Accept, Block, Commit, DeadLetters, Mark, Rewind
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, row_batch, wait_until
from tests.broker.topic_changes import set_topic
from tests.loader import unsparked
from tests.rewind.world import World
from tests.verify.histories import Writer
from tests.verify.rewinds import rewind
from tests.verify.test_live import once, spoken

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

Messages = Sequence[tuple[int, str]]


def judged(
    commits: Sequence[Commit],
    messages: Iterable[tuple[int, str]],
    start: int = 0,
    *,
    compacted: bool | None = False,
) -> tuple[list[str], list[str]]:
    """What is wrong, each with its kind, and what is not judged."""
    judge = SourceJudge(commits, start, compacted=compacted)
    for offset, table in messages:
        if max(judge.first, start) <= offset < judge.next:
            judge.message(offset, table)
    found = [f"{one.kind.value}: {one.text}" for one in judge.judge()]
    return found, list(judge.not_judged(0))


def sealed(table: str, first: int, following: int, messages: int) -> Block:
    return Block(
        table=table,
        first_source_offset=first,
        next_source_offset=following,
        messages=messages,
    )


def record(n: int, floors: tuple[int, int], *blocks: Block, **marks: int) -> Commit:
    """A relay's."""
    named = [Mark(table=table, offset=offset) for table, offset in marks.items()]
    return Commit(n=n, previous_floor=floors[0], floor=floors[1], blocks=blocks, marks=named)


BUSY = [(offset, "a") for offset in range(400) if offset != 100]
QUIET = [(100, "b")]
BOTH = sorted([*BUSY, *QUIET])
"""b's open buffer held the floor at 100, while a was sealed to 300."""
MARKED = record(50, (100, 100), a=300)
SEALS = record(50, (100, 100), sealed("a", 200, 300, 100), a=300)
BEYOND = record(50, (100, 400), sealed("b", 100, 101, 1))
"""It ends b's buffer: a, done to 400, needs no mark any more."""
LAST = record(51, (100, 400), sealed("a", 300, 400, 100), sealed("b", 100, 101, 1))


@pytest.mark.parametrize(
    ("commits", "unknown"),
    [
        ([MARKED, LAST], "199 source messages of 1 table, from source offset 100 to 300"),
        ([SEALS, LAST], "99 source messages of 1 table, from source offset 100 to 200"),
        ([BEYOND], "299 source messages of 1 table, from source offset 100 to 400"),
    ],
)
def test_what_deleted_records_told_of_is_no_gap(commits: list[Commit], unknown: str) -> None:
    """199 messages of a were each a `gap`, with the advice to restart nothing."""
    found, not_judged = judged(commits, BOTH)
    assert found == []
    assert len(not_judged) == 1
    assert unknown in not_judged[0]


@pytest.mark.parametrize(
    ("commits", "extra"),
    [
        ([MARKED, record(51, (100, 400), sealed("a", 302, 400, 98), LAST.blocks[1])], [300, 301]),
        ([SEALS, record(51, (100, 400), LAST.blocks[1])], range(300, 400)),
        ([record(50, (100, 400), sealed("a", 101, 390, 289), LAST.blocks[1])], range(390, 400)),
    ],
)
def test_a_gap_behind_the_cut_is_found(commits: list[Commit], extra: Iterable[int]) -> None:
    """Also one behind the last that was sealed of the table: all before the floor is done."""
    found, _ = judged(commits, BOTH)
    lost = [f"gap: source message {o} of 'a' is in no block and no dead letter" for o in extra]
    assert found == lost


def test_a_table_of_which_nothing_was_sealed_is_found() -> None:
    """Between two floors of retained records."""
    found, _ = judged([MARKED, record(51, (100, 400), LAST.blocks[0])], BOTH)
    assert found == ["gap: source message 100 of 'b' is in no block and no dead letter"]


def test_the_first_record_of_all_tells_of_everything_from_its_floor_on() -> None:
    one = record(1, (100, 100), sealed("a", 120, 300, 180), a=300)
    found, not_judged = judged([one, LAST], BOTH, start=100)
    assert found == [
        f"gap: source message {offset} of 'a' is in no block and no dead letter"
        for offset in range(101, 120)
    ]
    assert not_judged == []


@pytest.mark.parametrize(("start", "lost"), [(250, 100), (250, 240), (150, 120)])
def test_a_stretch_of_which_retention_took_the_first_messages(start: int, lost: int) -> None:
    """The rest of it was a `gap`; it cannot be counted any more."""
    one = record(1, (0, 100), sealed("a", 0, 200, 199), a=200)
    commits = [one, record(2, (100, 100), sealed("a", 200, 300, 100), a=300), LAST]
    messages = [message for message in BOTH if message[0] >= start]
    assert judged(commits, messages, start)[0] == []
    fewer = [message for message in messages if message[0] not in {lost, 310}]
    assert judged(commits, fewer, start)[0] == [
        (
            "overlap: 'a' from offset 300 to 400: the journal lists 100 messages, but the source "
            "topic has 99"
        )
    ]


def test_dead_letters_of_a_buffer_count_with_its_block() -> None:
    one = record(50, (100, 100), sealed("a", 200, 300, 60), a=300)
    one.dead.append(
        DeadLetters(table="a", first_source_offset=200, next_source_offset=300, messages=40)
    )
    assert judged([one, LAST], BOTH)[0] == []
    one.dead[0].messages = 39
    assert judged([one, LAST], BOTH)[0] == [
        (
            "gap: 'a' from offset 200 to 300: the journal lists 99 messages, but the source topic "
            "has 100"
        )
    ]


WHOLE = record(1, (0, 10), sealed("a", 0, 10, 10))
KEPT = [(offset, "a") for offset in (3, 6, 8, 9)]
"""The last message of each key, which compaction leaves."""
TWICE = (
    "overlap: 'a' from offset 0 to 10: the journal lists 10 messages, but the source topic has 4"
)


def test_fewer_messages_of_a_compacted_source_are_no_overlap() -> None:
    """Compaction deleted six of ten after they were loaded: status 1 for ever."""
    found, (not_judged,) = judged([WHOLE], KEPT, compacted=True)
    assert found == []
    assert not_judged == (
        "partition 0: 1 sealed buffer of 1 table: the source topic has fewer messages than the "
        "journal lists, as its cleanup.policy has compact; whether any is in blocks twice is "
        "not known"
    )
    assert judged([WHOLE], KEPT) == ([TWICE], [])


def test_where_nobody_tells_the_policy_the_finding_names_compaction() -> None:
    (found,), not_judged = judged([WHOLE], KEPT, compacted=None)
    assert found.startswith(f"{TWICE}. If its cleanup.policy has compact, ")
    assert "DescribeConfigs" in found
    assert not_judged == []


@pytest.mark.parametrize("compacted", [True, False, None])
def test_compaction_adds_no_message_and_moves_none(compacted: bool | None) -> None:
    """Those that the journal does not count, and those that no record tells of."""
    listed = record(1, (0, 12), sealed("a", 0, 10, 3))
    found, not_judged = judged([listed], [*KEPT, (11, "a")], compacted=compacted)
    assert found == [
        "gap: 'a' from offset 0 to 10: the journal lists 3 messages, but the source topic has 4",
        "gap: source message 11 of 'a' is in no block and no dead letter",
    ]
    assert not_judged == []


def test_what_a_person_recorded_tells_of_each_table_too() -> None:
    """A rewind of b alone: what is done of a is in records that may be gone."""
    marks = [Mark(table="a", offset=300)]
    rewind = Rewind(starts=[Mark(table="b", offset=100)])
    record = Commit(n=50, previous_floor=250, floor=100, marks=marks, rewind=rewind)
    ended = Commit(n=51, previous_floor=100, floor=100, marks=marks, rewound=True)
    for cut in ([record, ended, LAST], [ended, LAST]):
        found, not_judged = judged(cut, BOTH)
        assert found == []
        assert "199 source messages of 1 table" in not_judged[0]
        assert len(judged(cut[:-1], BOTH)[0]) == 0
    fewer = Commit.FromString(LAST.SerializeToString())
    del fewer.blocks[1]
    assert len(judged([record, ended, fewer], BOTH)[0]) == 1


def test_offsets_count_anew_where_a_person_accepted_another_topic() -> None:
    """What was sealed before names other messages."""
    accept = Commit(n=50, previous_floor=900, floor=0, accept=Accept(kinds=["topic"]))
    after = record(51, (0, 400), sealed("a", 0, 400, 399), LAST.blocks[1])
    before = record(49, (800, 900), sealed("a", 0, 900, 800))
    assert judged([before, accept, after], BOTH) == ([], [])
    del after.blocks[1]
    assert len(judged([before, accept, after], BOTH)[0]) == 1


# ---- what relays write


@cache
def world(seed: int) -> World:
    """Relays, with a rewind of a table or of all between them."""
    made = World(seed)
    made.relay(30)
    rewind(made, made.floor // 2, "d.a" if seed % 2 else None)
    made.relay(40)
    return made


def cut(made: Writer, records: int, start: int) -> tuple[list[Commit], Messages]:
    """What is left of journal and source."""
    commits = [commit for _, commit in made.journal[records:]]
    return commits, [message for message in made.messages if message[0] >= start]


@pytest.mark.parametrize("seed", range(8))
def test_retention_that_cuts_anywhere_raises_nothing(seed: int) -> None:
    made = world(seed)
    end = made.journal[-1][1].floor
    for records in range(len(made.journal)):
        for start in range(0, end, max(end // 9, 1)):
            commits, messages = cut(made, records, start)
            assert judged(commits, messages, start)[0] == [], (records, start)


@pytest.mark.parametrize("seed", range(8))
def test_a_message_that_no_record_tells_of_is_found_wherever_retention_cut(seed: int) -> None:
    """Each message that was not there before, of each table, behind what is not judged."""
    made = world(seed)
    there = {offset for offset, _ in made.messages}
    for records in range(0, len(made.journal), 7):
        commits, messages = cut(made, records, 0)
        judge = SourceJudge(commits, 0)
        holes = [offset for offset in range(judge.first, judge.next) if offset not in there]
        for offset in holes[::5]:
            for table in ("d.a", "d.b", "never seen"):
                more = sorted([*messages, (offset, table)])
                found, not_judged = judged(commits, more)
                if offset < judge._told.of(table):
                    assert "source message" in not_judged[0]
                else:
                    assert found or _ends_later(commits, offset, table)


def _ends_later(commits: Sequence[Commit], offset: int, table: str) -> bool:
    """Whether it lies in a stretch that ends after the last floor: it cannot be counted."""
    parts = [part for commit in commits for part in (*commit.blocks, *commit.dead)]
    return any(
        one.table == table  # type: ignore[attr-defined]
        and one.first_source_offset <= offset < one.next_source_offset  # type: ignore[attr-defined]
        and one.next_source_offset > commits[-1].floor  # type: ignore[attr-defined]
        for one in parts
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_block_that_no_record_lists_is_found(seed: int) -> None:
    """Taken out of each record but the oldest, of whose tables nothing before is known."""
    made = world(seed)
    taken = 0
    for records in (0, 20, 50):
        commits, messages = cut(made, records, 0)
        assert judged(commits, messages)[0] == []
        for at in range(1, len(commits)):
            if any(each.HasField("rewind") for each in commits[at:]):
                continue  # it may have been superseded
            for block in commits[at].blocks:
                if block.first_source_offset >= commits[-1].floor:
                    continue
                changed = Commit.FromString(commits[at].SerializeToString())
                changed.blocks.remove(block)
                letters = [one for one in changed.dead if one.table != block.table]
                del changed.dead[:]
                changed.dead.extend(letters)
                lost = [*commits[:at], changed, *commits[at + 1 :]]
                assert judged(lost, messages)[0] != [], block
                taken += 1
    assert taken > 20


# ---- on real servers


def sealed_apart(pipeline: Pipeline) -> Path:  # noqa: F811
    """A quiet table holds the floor at 0 while a busy one is sealed three times; all is loaded."""
    quiet = f"{pipeline.database}.quiet"
    config = pipeline.config(f'[block.tables]\n"{quiet}" = {{ max_age_seconds = 300.0 }}')
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    pipeline.produce(producer, row_batch([7]), 0, [("table", quiet.encode())])
    assert producer.flush(30) == 0
    relay = pipeline.start("a", config)
    for start in range(0, 150, 50):
        pipeline.send(range(start, start + 50))
        pipeline.exactly_once()
    assert pipeline.floor(0) == 0
    relay.terminate()
    assert pipeline.end_of(relay) == 0
    pipeline.await_markers()
    unsparked.load(load(config))
    return config


def delete(pipeline: Pipeline, topic: str, before: int) -> None:  # noqa: F811
    place = TopicPartition(topic, 0, before)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    admin.delete_records([place])[place].result(30)


def test_retention_that_cuts_a_journal_of_several_tables(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """Status 0 after each cut: rows of the busy table were `gap` and `foreign`."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    client.command(f"CREATE TABLE {pipeline.database}.quiet AS {pipeline.table}")
    config = sealed_apart(pipeline)
    assert once(config, "--deep")[::2] == (0, [])
    journal = names.journal_topic(pipeline.app)
    offsets = [offset for offset, _, _ in pipeline.read(journal, pipeline.partitions)[0]]
    commits = pipeline.journal()[0]
    seals = [at for at, commit in enumerate(commits) if commit.blocks]
    assert len(seals) >= 4
    assert [len(commits[at].marks) for at in seals[1:3]] == [1, 1]
    assert commits[seals[-1]].floor > 150

    for at in (seals[1], seals[2], seals[-1]):
        gone = [b for commit in commits[:at] for b in commit.blocks if b.table == pipeline.table]
        unknown = sum(block.messages for block in gone)
        delete(pipeline, journal, offsets[at])
        status, heard = spoken(config, "--deep")
        assert status == 0, heard
        assert f"{several(unknown, 'source message')} of 1 table, from source offset 0 to" in heard
        assert "source topic" not in heard
    assert unknown == 150
    assert once(config, "--deep")[::2] == (0, [])


def test_retention_that_cuts_the_source_within_a_block(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """The rest of that block was a `gap` for each of its messages."""
    client.command(f"CREATE TABLE {pipeline.database}.quiet AS {pipeline.table}")
    config = sealed_apart(pipeline)
    (first, *_) = [b for commit in pipeline.journal()[0] for b in commit.blocks]
    delete(pipeline, pipeline.source, first.first_source_offset + 20)
    assert once(config, "--deep")[::2] == (0, [])


def test_whether_the_source_is_compacted_is_asked_of_the_brokers(
    pipeline: Pipeline,  # noqa: F811
) -> None:
    """None where no broker tells."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    with contextlib.closing(TopicReader(load(pipeline.config()))) as reader:
        assert reader.compacted(pipeline.source) is False
        set_topic(admin, pipeline.source, cleanup_policy="compact,delete")
        assert reader.compacted(pipeline.source) is True
        assert reader.compacted(f"{pipeline.app}.none") is None


@pytest.mark.long  # 20 s: the broker looks every 15 s for what to compact
def test_a_source_that_was_compacted_since(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """Status 0 and one sentence: it was `overlap`, as it is where compaction is no reason."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config = pipeline.config()
    keyed(pipeline, range(10))
    relay = pipeline.start("a", config)
    pipeline.exactly_once()
    relay.terminate()
    assert pipeline.end_of(relay, 30) == 0
    unsparked.load(load(config))
    assert once(config, "--deep")[::2] == (0, [])

    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    compact = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "segment_ms": 1}
    set_topic(admin, pipeline.source, **compact)
    keyed(pipeline, [10])  # the segment that is written to is not compacted: this begins another
    left = partial(pipeline.read, pipeline.source, pipeline.partitions)
    wait_until(lambda: len(left()[0]) < 10, "compaction", 90)

    status, heard = spoken(config, "--deep")
    assert status == 0, heard
    assert "not judged: partition 0: " in heard
    assert "the source topic has fewer messages than the journal lists" in heard
    set_topic(admin, pipeline.source, cleanup_policy="delete")
    status, _, found = once(config, "--deep")
    assert (status, {one["kind"] for one in found}) == (1, {"overlap"})


def keyed(pipeline: Pipeline, ids: Iterable[int]) -> None:  # noqa: F811
    """Rows with these ids to one partition; each key has several."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    for one in ids:
        headers: list[tuple[str, str | bytes | None]] = [("table", pipeline.table.encode())]
        key = b"%d" % (one % 4)
        producer.produce(pipeline.source, row_batch([one]), key, partition=0, headers=headers)
    assert producer.flush(30) == 0
    pipeline.sent.update(ids)
