"""What is judged of programs while servers are away, and what is cut of a dead broker's files; no
servers."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.absences import (
    BROKERS,
    CLICKHOUSE,
    KINDS,
    ONE,
    UNTRUE,
    Absence,
    Words,
    judge_screen,
    judge_words,
    speaks,
)
from tests.chaos.outages import Rest, judge_rest
from tests.chaos.segments import CHECKPOINTS, METADATA, cut_ends

if TYPE_CHECKING:
    from pathlib import Path

WAITING = Rest(seconds=300.0, busy_seconds=6.0, grown=2_000_000, lines=60)


def test_a_program_that_waits_is_as_promised() -> None:
    assert judge_rest("relay-m0", WAITING) == []


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (Rest(300.0, 290.0, 0, 0), "took 97% of a processor"),
        (Rest(300.0, 0.0, 300_000_000, 0), "grew by 300 MB"),
        (Rest(300.0, 0.0, 0, 30_000), "wrote 100 lines a second"),
    ],
)
def test_a_program_that_spins_or_grows_is_named(rest: Rest, says: str) -> None:
    """Negative control of each bound."""
    (found,) = judge_rest("relay-m0", rest)

    assert says in found


def test_the_end_of_each_newest_segment_is_cut(tmp_path: Path) -> None:
    """Older segments, the brokers' own metadata and empty partitions stay as they are."""
    for partition, segments in {
        "t-0": {"00000000000000000000.log": 5000, "00000000000000000100.log": 3000},
        "t-1": {"00000000000000000000.log": 600},
        "t-2": {"00000000000000000000.log": 0},
        METADATA: {"00000000000000000000.log": 9000},
    }.items():
        (tmp_path / partition).mkdir()
        for name, size in segments.items():
            (tmp_path / partition / name).write_bytes(b"x" * size)
    for name in CHECKPOINTS:
        (tmp_path / name).write_text("0\n0\n")

    assert cut_ends(tmp_path, 1000) == {"t-0": 1000, "t-1": 300}

    sizes = {
        f"{path.parent.name}/{path.name}": path.stat().st_size for path in tmp_path.rglob("*.log")
    }
    assert sizes == {
        "t-0/00000000000000000000.log": 5000,
        "t-0/00000000000000000100.log": 2000,
        "t-1/00000000000000000000.log": 300,
        "t-2/00000000000000000000.log": 0,
        f"{METADATA}/00000000000000000000.log": 9000,
    }
    assert not any((tmp_path / name).exists() for name in CHECKPOINTS)


AWAY = "127.0.0.1:9092"
TRUE = f"a server is unavailable, waiting for it why=no broker answers: {AWAY}: Connection refused"


def test_who_names_the_broker_that_refuses_says_the_truth() -> None:
    assert judge_words(Words("relay-m0", f"joined\n{TRUE}\n"), [AWAY, "127.0.0.1:9093"]) == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        "waiting",
        "_ALL_BROKERS_DOWN (0/2 brokers are down)",
        "127.0.0.1:9999: Connection refused",
        f"joined at {AWAY}\nsomething was refused",
    ],
)
def test_who_does_not_say_who_is_away_and_why_is_named(said: str) -> None:
    """Negative control; the last has both, of two things."""
    (found,) = judge_words(Words("status", said), [AWAY])

    assert found == f"status did not say that {AWAY} is away, and why"


@pytest.mark.parametrize("untrue", UNTRUE)
def test_a_false_cause_is_named_beside_a_true_one(untrue: str) -> None:
    (found,) = judge_words(Words("relay-m0", f"{TRUE}\nrelay: {untrue} x"), [AWAY])

    assert repr(untrue) in found


def test_nobody_has_to_speak_of_one_broker_of_three_nor_a_relay_of_clickhouse() -> None:
    assert judge_words(Words("relay-m0", "joined", speaks=False), [AWAY]) == []
    assert [kind for kind in KINDS if speaks(kind, "relay-m0")] == [BROKERS]
    assert [kind for kind in KINDS if speaks(kind, "loader")] == [BROKERS, CLICKHOUSE]
    assert not any(speaks(ONE, name) for name in ("relay-m0", "loader", "verify", "status"))


def shown(**other: Any) -> str:
    """The last of two screens."""
    well = {"at_ms": 5, "group": {"members": [1, 2]}, "clickhouse": "ok", "anomalies": 0}
    away = {**well, "at_ms": 3, "clickhouse": "connection refused"}
    return f"{json.dumps(away)}\nwaiting: nobody answers\n{json.dumps({**well, **other})}\n"


def test_the_last_screen_of_an_app_that_is_well_is_the_truth() -> None:
    assert judge_screen(shown(), 2, 4) == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("waiting: nobody answers", "none"),
        (shown(at_ms=3), "old"),
        (shown(group={"members": [1]}), "1 members of 2"),
        (shown(clickhouse="connection refused"), "ClickHouse: connection refused"),
        (shown(anomalies=1), "1 anomalies"),
    ],
)
def test_a_screen_that_is_not_true_is_named(text: str, says: str) -> None:
    assert says in judge_screen(text, 2, 4)


class Ended:
    """A program that ended twice, once since the outage began."""

    name = "relay-m0"
    ends = ((-9, True), (7, True))

    def __init__(self, log: Path) -> None:
        self.log = log


class Ran:
    """A campaign of that program."""

    def __init__(self, program: Ended) -> None:
        self._programs = [program]

    def programs(self) -> list[Ended]:
        return self._programs


def test_an_end_that_a_supervisor_would_mend_is_one_too_many(tmp_path: Path) -> None:
    """Other campaigns expect 4 and 7; here nobody may have been restarted."""
    log = tmp_path / "relay.log"
    log.write_text(f"before\n{TRUE}\n")
    ran: Any = Ran(Ended(log))
    absence = Absence(BROKERS, 70.0, random.Random(1))
    absence.away, absence.marks, absence.ends = [AWAY], {"relay-m0": 7}, {"relay-m0": 1}

    assert absence.judge(ran) == ["brokers away for 70 s: relay-m0 ended with 7"]
