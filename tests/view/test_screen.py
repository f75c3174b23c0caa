"""`relay status` as rows, without servers: from nothing at all to a bad night."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from relay.cli import statustext
from relay.verify.anomaly import Anomaly, Kind
from relay.view.facts import Facts, Group, LedgerFacts, Member, Parked
from relay.view.screen import Screen, as_json, assemble
from relay.view.seen import Seen
from relay.view.troubles import NO_RELAY
from tests.view.records import TABLE, block, commit, dead

NOW_MS = 12_000
EMPTY = Facts("shop", "rows", NOW_MS, False, Group("dead"), {}, LedgerFacts(), 0)


def shown(screen: Screen) -> str:
    """As people see it."""
    output = io.StringIO()
    console = Console(file=output, width=200)
    for part in statustext.whole(screen):
        console.print(part)
    return output.getvalue()


def night() -> tuple[Seen, Facts]:
    """Two partitions, one without a relay; five blocks in every state; dead letters."""
    seen = Seen()
    blocks = [block(at) for at in (0, 10, 20, 30)]
    seen.add(0, 0, commit(1, blocks[0], floor=5, at_ms=3_000))
    seen.add(0, 2, commit(2, *blocks[1:], floor=35, position=50, at_ms=9_000))
    seen.add(0, 4, commit(3, floor=35, position=60, at_ms=11_000, dead=[dead("", 2, "no header")]))
    states = dict(zip((one.id for one in blocks), ("loaded", "prepared", "parked"), strict=False))
    ledger = LedgerFacts(
        there=True,
        states=states,
        counts=(
            (TABLE, "discarded", 1, 10),
            (TABLE, "loaded", 7, 70),
            (TABLE, "parked", 1, 10),
            ("d.old", "loaded", 1, 1),
        ),
        parked=(Parked(blocks[2].id, TABLE, 10, "there is no table", 5_000),),
    )
    members = (Member("a", "/127.0.0.1", (0,)),)
    anomaly = Anomaly(Kind.GAP, 0, 3, 4, "n=3 after n=1")
    facts = Facts(
        "shop",
        "rows",
        NOW_MS,
        True,
        Group("stable", members),
        {0: 100, 1: 7},
        ledger,
        3,
        (anomaly,),
    )
    return seen, facts


def test_an_app_that_has_nothing_yet() -> None:
    """No journal, no ledger, no member: said, not guessed."""
    screen = assemble(Seen(), EMPTY)
    assert (screen.partitions, screen.tables, screen.dead) == ((), (), ())
    text = shown(screen)
    assert [one.kind for one in screen.troubles] == [NO_RELAY]
    for line in (
        "no relay has run",
        "no relay is in the group",
        "no loader has run",
        "group dead, 0 member(s)",
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
    assert (row.loaded_blocks, row.loaded_rows, row.rows_lately) == (7, 70, 40)
    assert tables["d.old"].lag_seconds == 0.0
    assert tables[""].dead_letters == 2
    assert screen.lately.messages == 22


def test_people_and_programs_see_all_of_it() -> None:
    screen = assemble(*night())
    text = shown(screen)
    assert "shop:d.t:0:0:20  10 rows  there is no table" in text
    assert "not published" in text, "what only a relay's memory knows"
    assert "the last: gap: partition 0, n=3: n=3 after n=1" in text
    assert "2  (no table)  no header" in text
    found = json.loads(json.dumps(as_json(screen)))
    assert found["buffers"] is None
    assert found["last_anomaly"]["kind"] == "gap"
    assert [row["lag"] for row in found["partitions"]] == [40, None]
    assert found["parked"][0]["id"] == "shop:d.t:0:0:20"


def test_what_people_took_note_of_is_shown_beside_anomalies() -> None:
    seen, facts = night()
    assert "acknowledged" not in shown(assemble(seen, facts))
    told = tuple(f"partition 0, n={n}: rewound from 9: why: [red]" for n in range(12))
    screen = assemble(seen, dataclasses.replace(facts, acknowledged=told))
    text = shown(screen)
    assert "acknowledged by a person: 12, in the records read" in text
    assert told[11] in text, "the latest"
    assert told[1] not in text
    assert "and 2 before: relay verify --once" in text
    assert as_json(screen)["acknowledged"] == list(told)


def test_a_loader_that_never_started_leaves_everything_waiting() -> None:
    """A journal and no ledger: all blocks count as sealed and not loaded."""
    seen, facts = night()
    screen = assemble(seen, dataclasses.replace(facts, ledger=LedgerFacts()))
    (row,) = [row for row in screen.tables if row.table == TABLE]
    assert (row.waiting_blocks, row.loaded_blocks, row.parked_blocks) == (4, 0, 0)
    assert "no loader has run" in shown(screen)


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
        Seen(), dataclasses.replace(EMPTY, journal=True, group=Group("empty"), ends={0: 0})
    )
    assert screen.partitions[0].member == ""
    assert "group empty" in shown(screen)


def test_a_timestamp_that_is_none() -> None:
    """A producer's mistake must not hide a block."""
    assert statustext.clock(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert statustext.clock(1_700_000_000_123_456_789) == "1700000000123456789 ms"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (99.9, "99.9 s"), (100, "2 min"), (7_200, "2 h"), (864_000, "10 d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert statustext.seconds(seconds) == text


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
        facts, now_ms=NOW_MS + 900_000, group=Group("empty"), ledger=ledger, ends={0: 100}
    )
    screen = assemble(seen, later)
    text = shown(screen)
    assert "no relay is in the group; 40 offsets wait to be read" in text
    assert "no loader has settled a block since 00:00 UTC while 2 blocks wait" in text
    assert [one["kind"] for one in as_json(screen)["troubles"]] == ["no_relay", "no_loader"]
    styled = [part for part in statustext.whole(screen) if "no loader" in str(part)]
    assert styled
    assert all(str(part).startswith("[red]") for part in styled)


def test_somebody_runs_and_nothing_is_red() -> None:
    """The second partition's relay is there, and blocks wait for a moment only."""
    seen, facts = night()
    members = (Member("a", "/127.0.0.1", (0, 1)),)
    well = dataclasses.replace(facts, group=Group("stable", members))
    assert assemble(seen, well).troubles == ()


def test_what_clickhouse_does_not_say_is_no_trouble_of_the_loader() -> None:
    seen, facts = night()
    later = dataclasses.replace(facts, now_ms=NOW_MS + 900_000, ledger=LedgerFacts("away"))
    assert [one.kind for one in assemble(seen, later).troubles] == ["partitions_without_relay"]
