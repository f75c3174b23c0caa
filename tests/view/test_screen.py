"""`relay status` as rows, without servers: from nothing at all to a bad night."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from relay.cli.output import status
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.view.facts import (
    ConsumerGroup,
    GroupMember,
    LedgerFacts,
    ParkedBlock,
    StatusFacts,
)
from relay.operate.view.journal_state import JournalState
from relay.operate.view.missing_programs import NO_RELAY
from relay.operate.view.status import Screen, as_json, assemble, at_rest, of_tables
from relay.program.console import print_parts
from tests.docs import documents
from tests.view.records import TABLE, block, commit, dead

NOW_MS = 12_000
EMPTY = StatusFacts("shop", "rows", NOW_MS, False, ConsumerGroup("dead"), {}, LedgerFacts(), 0)


def shown(screen: Screen, width: int = 200, *, every: bool = False) -> str:
    """As people see it."""
    output = io.StringIO()
    console = Console(file=output, width=width)
    print_parts(console, status.screen_parts(screen, width, every=every))
    return output.getvalue()


def night() -> tuple[JournalState, StatusFacts]:
    """Two partitions, one without a relay; five blocks in every state; dead letters."""
    seen = JournalState()
    blocks = [block(at) for at in (0, 10, 20, 30)]
    seen.add(0, 0, commit(1, blocks[0], floor=5, at_ms=3_000))
    seen.add(0, 2, commit(2, *blocks[1:], floor=35, position=50, at_ms=9_000))
    seen.add(0, 4, commit(3, floor=35, position=60, at_ms=11_000, dead=[dead("", 2, "no header")]))
    states = dict(zip((one.id for one in blocks), ("loaded", "prepared", "parked"), strict=False))
    ledger = LedgerFacts(
        there=True,
        states=states,
        counts=(
            (TABLE, "dead", 2, 3),
            (TABLE, "discarded", 1, 10),
            (TABLE, "loaded", 7, 70),
            (TABLE, "parked", 1, 10),
            ("d.old", "loaded", 1, 1),
        ),
        parked=(ParkedBlock(blocks[2].id, TABLE, 10, "there is no table", 5_000),),
    )
    members = (GroupMember("a", "/127.0.0.1", (0,)),)
    anomaly = Anomaly(AnomalyKind.GAP, 0, 3, 4, "n=3 after n=1")
    facts = StatusFacts(
        "shop",
        "rows",
        NOW_MS,
        True,
        ConsumerGroup("stable", members),
        {0: 100, 1: 7},
        ledger,
        3,
        (anomaly,),
    )
    return seen, facts


def test_an_app_that_has_nothing_yet() -> None:
    """No journal, no ledger, no member: said, not guessed."""
    screen = assemble(JournalState(), EMPTY)
    assert (screen.partitions, screen.tables, screen.dead) == ((), (), ())
    text = shown(screen)
    assert [one.kind for one in screen.troubles] == [NO_RELAY]
    for line in (
        "no relay has run",
        "no relay is in the group",
        "no ledger yet: no loader has run",
        "group dead, 0 members",
        "0 messages",
    ):
        assert line in text
    found = json.loads(json.dumps(as_json(screen)))
    assert found["journal"] is False
    assert found["last_anomaly"] is None


def test_a_bad_night() -> None:
    """Every figure of partitions and tables."""
    screen = assemble(*night())
    first, second = screen.partitions
    assert (first.member, first.floor, first.position, first.end) == ("a", 35, 60, 100)
    assert (first.lag, first.held, first.n, first.epoch) == (40, 25, 3, 0)
    assert (first.held_seconds, first.quiet_seconds) == (3.0, 1.0)
    assert (second.member, second.end, second.position, second.lag) == ("", 7, None, None)

    tables = {row.table: row for row in screen.tables}
    assert set(tables) == {"", "d.old", TABLE}
    row = tables[TABLE]
    assert row.lag_seconds == 11.0, "from the oldest message of the blocks that wait"
    assert (row.waiting_blocks, row.waiting_rows, row.claimed_blocks) == (2, 20, 1)
    assert (row.parked_blocks, row.parked_rows, row.discarded_blocks) == (1, 10, 1)
    assert row.dead_blocks == 2
    assert (row.loaded_blocks, row.loaded_rows, row.rows_lately) == (7, 70, 40)
    assert tables["d.old"].lag_seconds == 0.0
    assert tables[""].dead_letters == 2
    assert screen.lately.messages == 22


def test_messages_that_are_held_back_are_told_from_an_app_at_rest() -> None:
    """Before an app is removed: they are in no lag, and become no rows any more."""
    step = documents.text_of("relay/docs/operations.md").split("## Remove an app")[1]
    asked = re.search(r"jq '\.partitions\[\] \| select\((.+?)\)'", step)
    assert asked is not None
    names = re.findall(r"\.(\w+) != 0", asked[1])
    for floor, unlike in ((200, []), (100, ["held"])):
        seen = JournalState()
        seen.add(0, 0, commit(1, floor=floor, position=200))
        screen = assemble(seen, dataclasses.replace(EMPTY, journal=True, ends={0: 200}))
        (row,) = as_json(screen)["partitions"]
        assert row["lag"] == 0
        assert [name for name in names if row[name] != 0] == unlike


def test_people_and_programs_see_all_of_it() -> None:
    screen = assemble(*night())
    text = shown(screen)
    assert "shop:d.t:0:0:20  10 rows  there is no table" in text
    assert "not published" in text, "what only a relay's memory knows"
    assert "the last anomaly: gap: partition 0, n=3: n=3 after n=1" in text
    assert "2  (no table)  first reason: no header" in text, "the other's is not in the journal"
    assert "`relay dead ls --summary` counts each reason" in text
    found = json.loads(json.dumps(as_json(screen)))
    assert found["buffers"] is None
    assert found["last_anomaly"]["kind"] == "gap"
    assert [row["lag"] for row in found["partitions"]] == [40, None]
    assert found["parked"][0]["id"] == "shop:d.t:0:0:20"
    (letters,) = found["dead_letters"]
    assert letters == {
        "table": "",
        "kind": "unknown",
        "reason": "no header",
        "messages": 2,
        "exact": False,
    }


def test_what_people_took_note_of_is_shown_beside_anomalies() -> None:
    seen, facts = night()
    assert "acknowledged" not in shown(assemble(seen, facts))
    told = tuple(f"partition 0, n={n}: rewound from 9: why: [red]" for n in range(12))
    screen = assemble(seen, dataclasses.replace(facts, acknowledged=told))
    text = shown(screen)
    assert "acknowledged by a person: 12, in the journal records that were read" in text
    assert told[11] in text, "the latest"
    assert told[1] not in text
    assert "and 2 earlier ones: relay verify --once" in text
    assert as_json(screen)["acknowledged"] == list(told)


def test_a_loader_that_never_started_leaves_everything_waiting() -> None:
    """A journal and no ledger: all blocks count as sealed and not loaded."""
    seen, facts = night()
    screen = assemble(seen, dataclasses.replace(facts, ledger=LedgerFacts()))
    (row,) = [row for row in screen.tables if row.table == TABLE]
    assert (row.waiting_blocks, row.loaded_blocks, row.parked_blocks) == (4, 0, 0)
    assert "no ledger in loader.database: no loader has run yet, or it was lost" in shown(screen)


def test_a_ledger_that_was_lost_is_no_loader_that_never_ran() -> None:
    """Said in red, with what tells it; which blocks wait is not known then."""
    seen, facts = night()
    lost = LedgerFacts(lost="there is no ledger d.ledger, but checkpoint /c stands at offset 7")
    later = dataclasses.replace(facts, now_ms=NOW_MS + 900_000, ledger=lost)
    screen = assemble(seen, later)
    assert [one.kind for one in screen.troubles] == ["partitions_without_relay", "ledger_lost"]
    text = shown(screen)
    assert "checkpoint /c stands at offset 7 (relay docs backup)" in text
    assert "no loader has" not in text


def test_without_clickhouse_its_figures_are_not_known() -> None:
    """What Kafka says stays; nothing reads as zero."""
    seen, facts = night()
    screen = assemble(seen, dataclasses.replace(facts, ledger=LedgerFacts("it did not answer")))
    row = next(row for row in screen.tables if row.table == TABLE)
    assert (row.lag_seconds, row.waiting_blocks, row.parked_blocks) == (None, None, None)
    assert row.rows_lately == 40
    assert screen.partitions[0].lag == 40
    assert "it did not answer" in shown(screen)
    assert as_json(screen)["clickhouse"] == "it did not answer"


def test_no_relay_and_an_empty_source() -> None:
    """A topic, no record, no member."""
    screen = assemble(
        JournalState(),
        dataclasses.replace(EMPTY, journal=True, group=ConsumerGroup("empty"), ends={0: 0}),
    )
    assert screen.partitions[0].member == ""
    assert "group empty" in shown(screen)


def test_a_timestamp_that_is_none() -> None:
    """A producer's mistake must not hide a block."""
    assert status.clock(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert status.clock(1_700_000_000_123_456_789) == "1700000000123456789 ms"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (99.9, "99.9 s"), (100, "2 min"), (7_200, "2 h"), (864_000, "10 d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert status.seconds(seconds) == text


# ---- nobody runs, and no record says so


def test_the_oldest_message_that_nobody_polled_tells_the_lag_in_seconds() -> None:
    seen, facts = night()
    first, second = assemble(seen, facts).partitions
    assert (first.lag, first.lag_seconds) == (40, None), "not read, or not readable"
    screen = assemble(seen, dataclasses.replace(facts, unread_ms={0: NOW_MS - 7_000}))
    assert (screen.partitions[0].lag, screen.partitions[0].lag_seconds) == (40, 7.0)
    assert "40 (7.0 s)" in shown(screen)
    screen = assemble(seen, dataclasses.replace(facts, unread_ms={0: NOW_MS + 5_000}))
    assert screen.partitions[0].lag_seconds == 0.0, "a producer's clock may be ahead"
    screen = assemble(seen, dataclasses.replace(facts, unread_ms={0: 0}))
    assert (screen.partitions[0].lag, screen.partitions[0].lag_seconds) == (0, 0.0), "markers"
    screen = assemble(seen, dataclasses.replace(facts, ends={0: 60, 1: 7}))
    assert (screen.partitions[0].lag, screen.partitions[0].lag_seconds) == (0, 0.0)
    assert second.lag_seconds is None


def test_nobody_runs_and_it_is_red() -> None:
    """A relay killed, no loader for a quarter of an hour."""
    seen, facts = night()
    ledger = dataclasses.replace(facts.ledger, settled_ms=NOW_MS)
    later = dataclasses.replace(
        facts, now_ms=NOW_MS + 900_000, group=ConsumerGroup("empty"), ledger=ledger, ends={0: 100}
    )
    screen = assemble(seen, later)
    text = shown(screen)
    assert "no relay is in the group; 40 offsets wait to be read" in text
    assert "no loader has settled a block since 00:00 UTC while 2 blocks wait" in text
    assert [one["kind"] for one in as_json(screen)["troubles"]] == ["no_relay", "no_loader"]
    styled = [part for part in status.screen_parts(screen) if "no loader" in str(part)]
    assert styled
    assert all(str(part).startswith("[red]") for part in styled)


def test_somebody_runs_and_nothing_is_red() -> None:
    """The second partition's relay is there, and blocks wait for a moment only."""
    seen, facts = night()
    members = (GroupMember("a", "/127.0.0.1", (0, 1)),)
    well = dataclasses.replace(facts, group=ConsumerGroup("stable", members))
    assert assemble(seen, well).troubles == ()


def test_what_clickhouse_does_not_say_is_no_trouble_of_the_loader() -> None:
    seen, facts = night()
    later = dataclasses.replace(facts, now_ms=NOW_MS + 900_000, ledger=LedgerFacts("away"))
    assert [one.kind for one in assemble(seen, later).troubles] == ["partitions_without_relay"]


# ---- on a terminal of 80 columns, which is what ssh gives

LONG = ("museum_of_natural_history.gapminder_life_expectancy", "museum_of_natural_history.cars")
MEMBER = "relay-production-eu-central-1-statefulset-0"


def museum() -> Screen:
    """Long names, large offsets, two tables that something is about and nine at rest."""
    seen = JournalState()
    blocks = [block(1_002_000 + at, table) for at, table in enumerate(LONG)]
    floor = 1_001_000
    seen.add(0, 0, commit(812, *blocks, floor=floor, position=floor + 19, at_ms=3_000))
    counts = [(table, "loaded", 564, 40_250) for table in LONG]
    counts += [(LONG[1], "parked", 1, 10)]
    counts += [(f"museum.t{at}", "loaded", 10, 1_000) for at in range(9)]
    parked = ParkedBlock(blocks[1].id, LONG[1], 10, "Weight_in_lbs = 5140 is above 5000", 5_000)
    ledger = LedgerFacts(
        there=True, states={blocks[1].id: "parked"}, counts=tuple(counts), parked=(parked,)
    )
    members = (GroupMember(MEMBER, "/10.0.0.7", (0,)),)
    return assemble(
        seen,
        StatusFacts(
            app="museum",
            source="rows",
            now_ms=3_600_000,
            journal=True,
            group=ConsumerGroup("stable", members),
            ends={0: 1_002_345},
            ledger=ledger,
            audited=1,
        ),
    )


@pytest.mark.parametrize("width", [80, 60])
def test_names_ids_and_offsets_are_whole_on_a_narrow_terminal(width: int) -> None:
    screen = museum()
    for every in (False, True):
        text = shown(screen, width, every=every)
        assert "…" not in text
        names = (*LONG, MEMBER, f"shop:{LONG[1]}:0:0:1002001")
        assert [name for name in names if name not in text] == []
        assert "1,001,019" in text or not every
        assert "564 (40,250 rows)" in text
    assert "partition 0" in shown(screen, 60).splitlines()
    widest = [line for line in shown(screen, width).splitlines() if len(line) > width]
    assert [line for line in widest if " " in line.strip()] == [], "but for one long word"


def test_a_narrow_screen_says_nothing_of_what_is_zero() -> None:
    text = shown(museum(), 80)
    for heading in ("discarded", "claimed", "dead letters 0"):
        assert heading not in text
    assert "sealed, not loaded 1 (10 rows)" in text


def test_tables_at_rest_are_counted() -> None:
    screen = museum()
    text = shown(screen)
    assert "9 tables at rest, 90 blocks (9,000 rows) loaded: --all shows them" in text
    assert "museum.t3" not in text
    assert "museum.t3" in shown(screen, every=True)
    rows = {row.table: row for row in screen.tables}
    assert at_rest(rows["museum.t3"])
    assert not at_rest(rows[LONG[1]]), "a block of it is parked"
    for change in (
        {"dead_letters": 1},
        {"rows_lately": 1},
        {"waiting_blocks": None},
        {"dead_blocks": 1},
    ):
        changed: Any = change
        assert not at_rest(dataclasses.replace(rows["museum.t3"], **changed))


def test_one_table_alone() -> None:
    """With what is about the app as a whole; others' parked blocks are left out."""
    one = of_tables(museum(), ["museum.t3"])
    text = shown(one, 80, every=True)
    assert "museum.t3" in text
    assert MEMBER in text
    assert not any(name in text for name in LONG)
    assert "parked shop" not in shown(one)
    assert "parked shop" in shown(of_tables(museum(), [LONG[1]]))
