"""The group's offsets and the ends of topics against the journal, without a broker."""

from __future__ import annotations

import json

import pytest

from relay.verify.anomaly import Kind
from relay.verify.audit import GRACE_SECONDS, Audit
from tests.verify.histories import APP, SOURCE, clean

HISTORY = clean(3, 50)


def metadata(n: int, offset: int) -> str:
    return json.dumps({"n": n, "journal": offset})


def audited(upto: int) -> Audit:
    """Has read the first `upto` records, in an earlier round."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    for offset, commit in HISTORY[:upto]:
        assert audit.record(0, offset, commit) == []
    audit.begin_round()
    return audit


def entry(at: int, shift: int = 0) -> tuple[int, str]:
    offset, commit = HISTORY[at]
    return commit.floor + shift, metadata(commit.n, offset)


@pytest.mark.parametrize("at", [19, 20, 24])
def test_an_offset_between_the_heads_before_and_after_is_right(at: int) -> None:
    audit = audited(20)
    for offset, commit in HISTORY[20:25]:
        audit.record(0, offset, commit)
    assert audit.committed({0: entry(at)}, 0.0) == []
    assert not audit.waits()


@pytest.mark.parametrize(
    ("moved", "kind"),
    [
        (entry(18), Kind.BACKWARD),
        (entry(19, shift=1), Kind.TORN),
        (entry(19, shift=-1), Kind.TORN),
        ((HISTORY[19][1].floor, None), Kind.TORN),
        ((HISTORY[19][1].floor, "by hand"), Kind.TORN),
        ((HISTORY[19][1].floor, metadata(HISTORY[19][1].n, 3)), Kind.TORN),
        (None, Kind.BACKWARD),
    ],
)
def test_a_moved_offset_is_found_once(moved: tuple[int, str | None] | None, kind: Kind) -> None:
    audit = audited(20)
    found = audit.committed({0: moved}, 0.0)
    assert [anomaly.kind for anomaly in found] == [kind]
    audit.begin_round()
    assert audit.committed({0: moved}, 1.0) == []
    assert audit.committed({0: entry(19)}, 2.0) == []
    assert len(audit.committed({0: moved}, 3.0)) == 1, "moved once more"


def test_an_offset_ahead_of_the_journal_waits_for_it_and_no_longer() -> None:
    audit = audited(20)
    assert audit.committed({0: entry(21)}, 0.0) == []
    assert audit.waits()
    assert audit.committed({0: entry(21)}, GRACE_SECONDS) == []
    found = audit.committed({0: entry(21)}, GRACE_SECONDS + 1)
    assert [anomaly.kind for anomaly in found] == [Kind.GAP]

    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    audit.begin_round()
    for offset, commit in HISTORY[20:22]:
        audit.record(0, offset, commit)
    assert audit.committed({0: entry(21)}, GRACE_SECONDS + 1) == []
    assert not audit.waits()


def test_nothing_committed_and_nothing_read_agree() -> None:
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    audit.begin_round()
    assert audit.committed({0: None, 1: None}, 0.0) == []


def test_an_open_transaction_is_stuck_once_it_is_older_than_it_may_be() -> None:
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    place = ("app.journal", 0)
    assert audit.ends({place: 5}, {place: 9}, 0.0) == []
    assert audit.ends({place: 6}, {place: 9}, 9.0) == []
    assert audit.ends({place: 6}, {place: 12}, 19.0) == []
    assert [a.kind for a in audit.ends({place: 6}, {place: 12}, 19.5)] == [Kind.STUCK]
    assert audit.ends({place: 6}, {place: 12}, 60.0) == [], "said once"
    assert audit.ends({place: 12}, {place: 12}, 61.0) == []
    audit.ends({place: 12}, {place: 15}, 62.0)
    assert [a.kind for a in audit.ends({place: 12}, {place: 15}, 73.0)] == [Kind.STUCK]
