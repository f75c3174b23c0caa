"""Which dead letters are meant."""

from __future__ import annotations

import re

import pytest

from relay.blocks.dead_letter import RecordPlace
from relay.operate.dead.selection import Selection, instant_ms, summary
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.dead.letters import letter

NOW = 1_754_000_000_000
UNFIT = DeadReason(DeadKind.DOES_NOT_FIT, "row 1: bad", "day")
UNKNOWN = DeadReason(DeadKind.UNKNOWN_TABLE, "unknown table d.b")
LETTERS = [
    letter(0, table="d.a", reason=UNFIT, when_ms=10),
    letter(1, table="d.b", reason=UNKNOWN, when_ms=20),
    letter(
        2,
        table="",
        reason=DeadReason(DeadKind.NO_TABLE, "no header"),
        when_ms=30,
        source=RecordPlace(0, 5),
    ),
]


@pytest.mark.parametrize(
    ("selection", "meant"),
    [
        (Selection(), [0, 1, 2]),
        (Selection(table="d.a"), [0]),
        (Selection(table=""), [2]),
        (Selection(reason=re.compile("^unknown|head")), [1, 2]),
        (Selection(kinds=frozenset({DeadKind.UNKNOWN_TABLE, DeadKind.NO_TABLE})), [1, 2]),
        (Selection(kinds=frozenset({DeadKind.REJECTED})), []),
        (Selection(since_ms=20), [1, 2]),
        (Selection(until_ms=20), [0]),
        (Selection(since_ms=20, until_ms=30), [1]),
        (Selection(partition=0), [2]),
        (Selection(partition=1), [0, 1]),
        (Selection(places=frozenset({RecordPlace(0, 2), RecordPlace(0, 9)})), [2]),
        (Selection(table="d.a", partition=0), []),
    ],
)
def test_each_criterion_has_to_hold(selection: Selection, meant: list[int]) -> None:
    """Alone and together; the time's end is excluded."""
    assert [one.place.offset for one in LETTERS if selection.means(one)] == meant


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("90s", NOW - 90_000),
        ("30m", NOW - 1_800_000),
        ("2h", NOW - 7_200_000),
        ("7d", NOW - 604_800_000),
    ],
)
def test_times_are_iso_or_ages(text: str, ms: int) -> None:
    """Without a zone they are UTC."""
    assert instant_ms(text, NOW) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2w", "-2h", "12:00", "h"])
def test_no_time_is_refused(text: str) -> None:
    """With its text."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        instant_ms(text, NOW)


def test_summary_counts_by_table_and_kind() -> None:
    """The largest group first, with its times, bytes, replayed ones and an example; values of a
    message make no kind, another field does."""
    many = [
        letter(i, reason=UNFIT._replace(text=f"row {i}: bad"), when_ms=100 - i) for i in range(12)
    ]
    other = letter(5, reason=UNFIT._replace(field="price"))
    groups = summary((one, one.place.offset < 3) for one in [LETTERS[1], *many, other])

    assert [(g.table, g.kind, g.about, g.count, g.replayed) for g in groups] == [
        ("shop.orders", DeadKind.DOES_NOT_FIT, "day", 12, 3),
        ("d.b", DeadKind.UNKNOWN_TABLE, "", 1, 1),
        ("shop.orders", DeadKind.DOES_NOT_FIT, "price", 1, 0),
    ]
    assert groups[0].reason == "row 0: bad"
    assert (groups[0].first_ms, groups[0].last_ms, groups[0].example) == (
        89,
        100,
        RecordPlace(0, 0),
    )
    assert groups[0].bytes == sum(len(one.value or b"") for one in many)
