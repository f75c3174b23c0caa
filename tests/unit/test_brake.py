"""When a relay asks whether its source is unsuitable, and with what words it stops."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from relay.blocks.dead_letter import RecordPlace
from relay.intake.sample import Range, shares
from relay.process.suitability import first_dead_letters
from relay.process.suitability.brake import ENOUGH, Brake
from relay.process.suitability.first_dead_letters import FirstDeadLetters
from relay.schema.dead_reason import DeadKind, DeadReason

if TYPE_CHECKING:
    import pytest


NO_HEADER = DeadReason(DeadKind.NO_TABLE, "no header")
NULL = DeadReason(DeadKind.NULL_VALUE, "null value")


def unfit(row: int, value: int) -> DeadReason:
    text = f"row {row}, column a: {value} does not fit Int8"
    return DeadReason(DeadKind.DOES_NOT_FIT, text, "a")


def transaction(brake: Brake, good: int, dead: int, reason: DeadReason = NO_HEADER) -> bool:
    """Whether the brake is due at its end; it is committed where not."""
    brake.begun()
    brake.add(good, "", [(reason, dead)])
    if due := brake.due:
        return due
    brake.committed()
    return False


def test_enough_dead_letters_and_nothing_good_is_the_moment_to_ask() -> None:
    """Over several transactions, too; one below that is not."""
    assert transaction(Brake(on=True), 0, ENOUGH)
    brake = Brake(on=True)
    assert not transaction(brake, 0, ENOUGH - 1)
    assert transaction(brake, 0, 1, NULL)
    error = brake.error("rows")
    assert error.exit_code == 2
    assert f"none of the first {ENOUGH} messages of topic rows" in error.message
    assert f"no header ({ENOUGH - 1}); null value (1)" in error.message
    assert 'source.all_dead = "continue"' in error.next_step


def test_one_good_message_is_enough_for_ever() -> None:
    brake = Brake(on=True)
    assert not transaction(brake, 1, ENOUGH)
    assert not transaction(brake, 0, 10 * ENOUGH)


def test_nothing_stops_where_somebody_said_so_or_the_app_had_rows_before() -> None:
    assert not transaction(Brake(on=False), 0, 10 * ENOUGH)
    brake = Brake(on=True)
    assert transaction(brake, 0, ENOUGH)
    brake.release()
    assert not transaction(brake, 0, ENOUGH)


def test_what_an_aborted_transaction_had_does_not_count_twice() -> None:
    brake = Brake(on=True)
    for _ in range(3):  # begun, and never committed
        brake.begun()
        brake.add(0, "", [(NO_HEADER, ENOUGH - 1)])
        assert not brake.due


def test_a_transaction_without_messages_asks_nothing() -> None:
    """Dead letters that are committed are not what it would stop before."""
    brake = Brake(on=True)
    brake.begun()
    brake.add(0, "", [(NO_HEADER, ENOUGH)])
    brake.committed()
    brake.begun()
    assert not brake.due


def test_an_error_names_few_kinds() -> None:
    brake = Brake(on=True)
    brake.begun()
    for at in range(ENOUGH * 30):
        table = f"a.t{at}"
        brake.add(0, table, [(DeadReason(DeadKind.UNKNOWN_TABLE, f"unknown table {table}"), 1)])
    text = brake.error("rows").message
    assert "unknown table a.t4 (1); and 995 more kinds" in text


def test_reasons_that_differ_in_values_are_one_kind_with_the_first_as_its_example() -> None:
    brake = Brake(on=True)
    brake.begun()
    brake.add(0, "d.t", [(unfit(at, 300 + at), 2) for at in range(ENOUGH)])
    assert f"row 0, column a: 300 does not fit Int8 ({2 * ENOUGH})" in brake.error("rows").message


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, int, int]]:
    return [
        (one.__dict__["table"], one.__dict__["reason"], one.__dict__["partition"], one.offset)
        for one in caplog.records
        if one.levelno == logging.WARNING and "table" in one.__dict__
    ]


def test_the_first_of_each_table_and_kind_is_a_warning_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its place; numbers and values make no kind; nothing before the commit."""
    first = FirstDeadLetters("rows")
    first.begun()
    first.add("d.t", [(RecordPlace(1, 5), unfit(1, 300))])
    assert not told(caplog)
    first.begun()  # it was aborted, and read again with others
    first.add(
        "d.t",
        [(RecordPlace(1, at), unfit(at, at)) for at in (5, 6)],
    )
    first.add("d.u", [(RecordPlace(0, 9), NULL)])
    first.add("", [(RecordPlace(0, 2), NO_HEADER)])
    first.committed()
    assert told(caplog) == [
        ("d.t", "row 5, column a: 5 does not fit Int8", 1, 5),
        ("d.u", "null value", 0, 9),
        ("(none)", "no header", 0, 2),
    ]
    caplog.clear()
    first.begun()
    first.add("d.t", [(RecordPlace(1, 8), unfit(8, 8))])
    first.committed()
    assert not caplog.records


def test_kinds_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_dead_letters, "MOST", 3)
    first = FirstDeadLetters("rows")
    for _ in range(3):
        first.begun()
        for at in range(10):
            reason = DeadReason(DeadKind.UNKNOWN_TABLE, "unknown table")
            first.add(f"a.{'x' * at}", [(RecordPlace(0, at), reason)])
        first.committed()
    assert len(told(caplog)) == 3
    assert len(caplog.records) == 4
    assert "further kinds" in caplog.records[-1].getMessage()


def test_a_sample_is_spread_and_takes_the_newest() -> None:
    """What a short partition lacks comes from the long ones."""
    assert shares({0: Range(0, 100), 1: Range(50, 52), 2: Range(7, 7)}, 30) == {
        1: Range(50, 52),
        0: Range(72, 100),
    }
    assert shares({0: Range(0, 100), 1: Range(0, 100)}, 5) == {0: Range(97, 100), 1: Range(98, 100)}
    assert shares({0: Range(3, 5)}, 100) == {0: Range(3, 5)}
    assert shares({0: Range(0, 0)}, 100) == {}
    assert shares({}, 100) == {}
