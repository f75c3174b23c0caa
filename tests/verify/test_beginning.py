"""Where the audited history begins, what lay before, and what went before it was settled."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from loader.journal import begin_plan
from loader.journal.startup import ledger_of
from relay import names
from relay.blocks.placement import place
from relay.cli.verify import command
from relay.config.settings_file import load
from relay.errors import ContractBroken, NotExactlyOnce
from relay.kafka.topics import READ, Topics
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.judge.beginning import (
    First,
    JournalBeginning,
    LedgerReach,
    as_json,
    beginnings,
    gaps,
    history_lines,
    reaches,
)
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.loader import unsparked
from tests.verify.test_live import RELAY, once, ran, spoken

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

WHOLE = First(0, 1, 0, 1_700_000_000_000)
CUT = First(16_822, 8_412, 120_400, 1_700_000_000_000)


def test_nothing_lies_before_the_first_record() -> None:
    every = beginnings({0: WHOLE, 1: WHOLE}, {0: 0, 1: 0}, {0: 0, 1: 0}, {0: 9, 1: 9}, {})
    assert list(history_lines(every)) == [
        "history: all partitions from the journal's first record on"
    ]
    assert list(gaps(every)) == []


def test_what_retention_took_is_said_with_its_place() -> None:
    every = beginnings({0: WHOLE, 3: CUT}, {0: 0, 3: 16_820}, {3: 118_000}, {3: 130_000}, None)
    assert list(history_lines(every)) == [
        "history: 1 partition from the journal's first record on",
        (
            "history: partition 3 begins at n=8412, journal offset 16822, written 2023-11-14 "
            "22:13:20 UTC: 8,411 records before it are deleted, so source offsets "
            "before 120400 are not judged"
        ),
    ]
    assert list(gaps(every)) == [], "the ledger was not asked"
    found = as_json(every[1])
    assert found["first"]["n"] == 8_412
    assert (found["journal_start"], found["source_start"], found["settled"]) == (
        16_820,
        118_000,
        None,
    )
    assert (found["whole"], found["unsettled"]) == (False, False)


def test_a_partition_of_which_nothing_is_left() -> None:
    every = beginnings({}, {1: 900}, {}, {}, None)
    assert "partition 1 has no history: the journal's log begins at offset 900" in "".join(
        history_lines(every)
    )
    assert not every[0].whole


def test_a_source_that_begins_later_is_said_too() -> None:
    every = beginnings({0: WHOLE}, {0: 0}, {0: 50}, {0: 50}, None)
    assert "partition 0: the source log begins at offset 50" in list(history_lines(every))[-1]


@pytest.mark.parametrize(
    ("settled", "lost"),
    [
        (None, True),
        (16_000, True),
        (16_818, True),
        (16_819, False),  # where the marker of the record before stands
        (16_820, False),
        (20_000, False),
    ],
)
def test_a_gap_is_what_nobody_settled(settled: int | None, lost: bool) -> None:
    one = JournalBeginning(3, CUT, 16_820, settled=settled, asked=True)
    assert one.unsettled == lost
    told = list(gaps([one]))
    assert bool(told) == lost
    if lost:
        assert "begins at offset 16820" in told[0]
        assert ("no position" if settled is None else f"offset {settled}") in told[0]


def test_where_the_first_loader_began_is_known_by_what_it_noted_at_once() -> None:
    """Not from a position that is left after the older were cleaned, nor if a person knows."""
    rows = [
        ("j:0", 90, 16, 1_000),
        ("j#unsure:0", 40, 40, 1_000),
        ("j:1", 90, 80, 5_000),
        ("j#unsure:1", 40, 40, 1_000),
        ("j:2", 90, 16, 1_000),
        ("j#unsure:2", 40, 40, 1_000),
        ("j#lost:2", 50, 50, 2_000),
        ("other:3", 7, 7, 1_000),
        ("other#gone:0", 0, 0, 1_000),
    ]
    assert reaches("j", rows) == {
        0: LedgerReach(90, 16),
        1: LedgerReach(90),
        2: LedgerReach(90),
    }


@pytest.mark.parametrize(
    ("first", "began", "lost"),
    [(CUT, 16_820, True), (CUT, 0, False), (CUT, None, False), (WHOLE, 16_820, False)],
)
def test_a_loader_that_began_behind_a_gap(first: First, began: int | None, lost: bool) -> None:
    reach = {3: LedgerReach(20_000, began)}
    (one,) = beginnings({3: first}, {3: 16_820}, {}, {}, reach)
    assert one.passed_over == lost
    assert [f"began at journal offset {began}, behind" in told for told in gaps([one])] == (
        [True] if lost else []
    )


def test_a_partition_that_is_whole_has_no_gap_before_any_loader_ran() -> None:
    assert not JournalBeginning(0, WHOLE, 0, asked=True).unsettled
    assert not JournalBeginning(0, None, 0, asked=True).unsettled


@pytest.mark.parametrize(
    ("start", "floor", "lost"), [(50, 20, True), (50, 49, True), (50, 50, False), (0, 20, False)]
)
def test_messages_that_nobody_read_are_a_gap_too(start: int, floor: int, lost: bool) -> None:
    """As `relay run` stops there: the log's start lies behind the floor."""
    every = beginnings({0: WHOLE}, {0: 0}, {0: start}, {0: floor}, None)
    assert every[0].unread == lost
    told = list(gaps(every))
    assert bool(told) == lost
    if lost:
        assert f"begins at offset {start}, but the journal's floor is {floor}" in told[0]
    assert list(gaps(beginnings({0: WHOLE}, {0: 0}, {}, {0: floor}, None))) == [], "not known"


UNREAD = JournalBeginning(0, WHOLE, 0, source_start=20, floor=10)
UNSETTLED = JournalBeginning(3, CUT, 16_820, settled=16_000, asked=True)
PASSED_OVER = JournalBeginning(4, CUT, 16_820, settled=20_000, asked=True, began=16_820)
ANOMALY = Anomaly(AnomalyKind.GAP, 0, 3, 7, "something")


@pytest.mark.parametrize(
    ("history", "anomalies", "words"),
    [
        ([UNREAD], [], ["relay accept"]),
        ([UNSETTLED], [], ["--ledger-lost"]),
        ([PASSED_OVER], [], ["--ledger-lost"]),
        ([UNSETTLED, UNREAD], [], ["relay accept", "--ledger-lost"]),
        ([UNSETTLED], [ANOMALY], ["do not restart", "--ledger-lost"]),
        ([], [ANOMALY], ["do not restart"]),
    ],
)
def test_each_kind_of_gap_has_a_next_step_of_its_own(
    history: list[JournalBeginning], anomalies: list[Anomaly], words: list[str]
) -> None:
    """What keeps the evidence comes first; nothing is advised that would change nothing."""
    audit = Audit("a", "s", 1.0)
    audit.history, audit.anomalies = history, anomalies
    with pytest.raises((ContractBroken, NotExactlyOnce)) as raised:
        command._judge([audit])
    step = raised.value.next_step
    found = {step.find(word): word for word in ("do not restart", "relay accept", "--ledger-lost")}
    assert [found[at] for at in sorted(found) if at >= 0] == words
    assert raised.value.exit_code == (6 if history else 1)
    assert ("1 anomaly; the first: gap" in raised.value.message) == bool(anomalies)
    assert ("(and 1 more gap)" in raised.value.message) == (len(history) > 1)


def test_retention_passes_a_relay_that_is_away(pipeline: Pipeline) -> None:  # noqa: F811
    """Status 6 with both numbers; 0 once a person has taken note of it."""
    config = ran(pipeline)
    floor = pipeline.floor(0)
    pipeline.send(range(300, 350), per_message=10)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    place = TopicPartition(pipeline.source, 0, floor + 2)
    for future in admin.delete_records([place]).values():
        future.result(30)
    status, heard = spoken(config)
    assert status == 6, heard
    assert (
        f"the source log begins at offset {floor + 2}, but the journal's floor is {floor}" in heard
    )
    command = [RELAY, "accept", config, "--run", "--why", "retention of a test"]
    subprocess.run(command, check=True, timeout=240)
    status, heard = spoken(config)
    assert status == 0, heard
    assert "acknowledged" in heard


@pytest.mark.long  # 23 s
def test_retention_passes_a_loader_that_never_ran(pipeline: Pipeline, client: Client) -> None:  # noqa: F811
    """Status 6 with both numbers, and 0 once what is gone was settled before."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config = ran(pipeline)
    settings = load(config)
    status, heard = spoken(config)
    assert status == 0
    assert "history: all partitions from the journal's first record on" in heard

    topic = names.journal_topic(pipeline.app)
    records = pipeline.journal()[0]
    offsets = [offset for offset, _, _ in pipeline.read(topic, pipeline.partitions)[0]]
    low = offsets[2]
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, low)]).values():
        future.result(30)

    status, heard = spoken(config)
    assert status == 0, "without --deep nobody asks what was settled"
    assert f"partition 0 begins at n=3, journal offset {low}" in heard
    assert f"source offsets before {records[2].previous_floor} are not judged" in heard
    status, heard = spoken(config, "--deep")
    assert status == 6, heard
    assert (
        f"the journal begins at offset {low}, but the ledger is settled up to no position" in heard
    )

    ledger = ledger_of(settings, make=True)
    journal = Topics(settings).describe(topic, (READ,))
    assert journal is not None
    ledger.save_positions(journal.topic_id, {0: offsets[0] + 1, 1: 0})
    status, heard = spoken(config, "--deep")
    assert status == 6, heard
    assert (
        f"begins at offset {low}, but the ledger is settled up to offset {offsets[0] + 1}" in heard
    )

    ledger.save_positions(journal.topic_id, {0: offsets[1] + 1, 1: 0})
    status, _, _ = once(config, "--deep")
    assert status != 6, "all that is gone was settled"


def test_c2_a_loader_that_began_behind_what_was_deleted(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guard: a first start where the journal's beginning is gone ends with both numbers."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config = ran(pipeline)
    topic = names.journal_topic(pipeline.app)
    records = pipeline.read(topic, pipeline.partitions)[0]
    low, rows = records[2][0], sum(pipeline.sent.values())
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, low)]).values():
        future.result(30)
    with pytest.raises(ContractBroken, match=f"begins at offset {low}, and no loader"):
        unsparked.load(load(config))

    with monkeypatch.context() as patch:
        patch.setattr(begin_plan, "_lost", lambda *_: None)
        unsparked.load(load(config))
    assert client.query(f"SELECT count() FROM {pipeline.table}").result_rows[0][0] < rows
    status, heard = spoken(config, "--deep")
    assert status == 6, heard
    assert f"the ledger's first loader began at journal offset {low}, behind records" in heard

    unsparked.load(load(config), lost=True)
    status, heard = spoken(config, "--deep")
    assert (status, f"begins at n=3, journal offset {low}" in heard) == (0, True), heard


def test_a_gap_in_the_source_may_be_of_markers_alone() -> None:
    """Of a floor that an earlier version left in front of them; nobody can tell any more."""
    [one] = beginnings({0: WHOLE}, {0: 0}, {0: 11}, {0: 10}, None)
    assert one.unread
    assert "perhaps only their markers and aborted records" in "".join(gaps([one]))


@pytest.mark.long  # 25 s
def test_blocks_that_wait_until_their_records_are_deleted(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """The table is gone: said with status 0 for as long as a loader can bring the rows, then 1."""
    config = ran(pipeline)
    settings = load(config)
    client.command(f"DROP TABLE {pipeline.table} SYNC")
    unsparked.load(settings)
    records = [commit for some in pipeline.journal().values() for commit in some]
    blocks = [block for commit in records for block in commit.blocks]
    said = "set aside, not loaded yet (`loader parked ls` says why)"
    rows = sum(pipeline.sent.values())
    waits = f"waiting: {pipeline.table}: {said}: {len(blocks)} blocks, {rows} rows"
    status, heard = spoken(config, "--deep")
    assert (status, waits in heard) == (0, True), heard

    topic = names.journal_topic(pipeline.app)
    journal = pipeline.read(topic, pipeline.partitions)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    lows = {p: [offset for offset, _, _ in some][-1] for p, some in journal.items() if some}
    deleted = [TopicPartition(topic, p, low) for p, low in lows.items()]
    for future in admin.delete_records(deleted).values():
        future.result(30)
    status, heard = spoken(config, "--deep")
    assert (status, waits in heard) == (0, True), heard

    ends: Counter[tuple[str, int]] = Counter()
    for block in blocks:
        ends[place(block)] = max(ends[place(block)], block.next_offset)
    deleted = [TopicPartition(*of, end) for of, end in ends.items()]
    for future in admin.delete_records(deleted).values():
        future.result(30)
    status, _, found = once(config, "--deep")
    assert status == 1
    assert {one["kind"] for one in found} == {"gap"}
    assert len(found) == len(blocks)
    assert all("is set aside, not loaded, and its records from" in one["text"] for one in found)
