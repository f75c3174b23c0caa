"""The group's offsets and the ends of topics against the journal, without a broker."""

from __future__ import annotations

import copy
import json
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay import names
from relay.operate.verify.audit import GRACE_SECONDS, Audit
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.records_pb2 import Accept, Commit
from tests.profiles import is_long
from tests.verify.histories import APP, SOURCE, History, clean

HISTORY = clean(3, 50)
JOURNAL = names.journal_topic(APP), 0
END = 1_000


def metadata(n: int, offset: int) -> str:
    return json.dumps({"n": n, "journal": offset})


def audited(upto: int) -> Audit:
    """Has read the first `upto` records, in an earlier round."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    for offset, commit in HISTORY[:upto]:
        assert audit.record(0, offset, commit) == []
    audit.begin_round()
    return audit


def look(audit: Audit, now: float, stable: int = END) -> None:
    """Look where the journal is stable; by default no transaction is open."""
    assert audit.ends({JOURNAL: stable}, {JOURNAL: END}, now) == []


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
        (entry(18), AnomalyKind.BACKWARD),
        (entry(19, shift=1), AnomalyKind.TORN),
        (entry(19, shift=-1), AnomalyKind.TORN),
        ((HISTORY[19][1].floor, None), AnomalyKind.TORN),
        ((HISTORY[19][1].floor, "by hand"), AnomalyKind.TORN),
        ((HISTORY[19][1].floor, metadata(HISTORY[19][1].n, 3)), AnomalyKind.TORN),
        (None, AnomalyKind.BACKWARD),
    ],
)
def test_a_moved_offset_is_found_once(
    moved: tuple[int, str | None] | None, kind: AnomalyKind
) -> None:
    audit = audited(20)
    found = audit.committed({0: moved}, 0.0)
    assert [anomaly.kind for anomaly in found] == [kind]
    audit.begin_round()
    assert audit.committed({0: moved}, 1.0) == []
    assert audit.committed({0: entry(19)}, 2.0) == []
    assert len(audit.committed({0: moved}, 3.0)) == 1, "moved once more"


LONG = is_long()


@cache
def long_audit() -> tuple[History, Audit]:
    """A history, and an audit that has read all but its last 50 records, in an earlier round."""
    history = clean(4, 10_000 if LONG else 200)
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    for offset, commit in history[:-50]:
        assert audit.record(0, offset, commit) == []
    audit.begin_round()
    for offset, commit in history[-50:]:
        audit.record(0, offset, commit)
    return history, audit


@given(
    at=st.integers(0, 50),
    floor=st.integers(-9, 9),
    n=st.integers(-60, 60),
    journal=st.integers(-9, 9),
)
@settings(max_examples=20_000 if LONG else 200)
def test_every_offset_but_those_of_the_round_is_found(
    at: int, floor: int, n: int, journal: int
) -> None:
    """Moved by any tool: to another floor, another record, or another place in the journal."""
    history, read = long_audit()
    offset, commit = history[-51 + at]
    moved = commit.floor + floor, metadata(commit.n + n, offset + journal)
    right = {(c.floor, metadata(c.n, o)) for o, c in history[-51:]}
    audit = copy.deepcopy(read)
    found = audit.committed({0: moved}, 0.0)
    if moved in right:
        assert found == []
    elif commit.n + n > history[-1][1].n:
        assert found == [], "perhaps the journal is not read yet"
        look(audit, 1.0)
        found = audit.committed({0: moved}, GRACE_SECONDS + 1)
        assert [anomaly.kind for anomaly in found] == [AnomalyKind.GAP]
    elif commit.n + n < history[-51][1].n:
        assert [anomaly.kind for anomaly in found] == [AnomalyKind.BACKWARD]
    else:
        assert [anomaly.kind for anomaly in found] == [AnomalyKind.TORN]


@pytest.mark.parametrize("at", [19, 22, 24, 27])
def test_only_the_record_that_is_named_is_kept(at: int) -> None:
    """An audit of all that is retained must not hold all of it."""
    audit = audited(20)
    audit.begin_round({0: entry(at)})
    for offset, commit in HISTORY[20:25]:
        audit.record(0, offset, commit)
    assert sum(map(len, audit._recent.values())) <= 1
    assert audit.committed({0: entry(at)}, 0.0) == []
    assert audit.waits() == (at == 27)
    audit.begin_round({0: entry(at, shift=1)})
    found = audit.committed({0: entry(at, shift=1)}, 1.0)
    assert [anomaly.kind for anomaly in found] == {
        19: [AnomalyKind.BACKWARD], 22: [AnomalyKind.BACKWARD], 24: [AnomalyKind.TORN], 27: [],
    }[at]  # fmt: skip


def test_an_offset_ahead_of_the_journal_waits_for_it_and_no_longer() -> None:
    audit = audited(20)
    assert audit.committed({0: entry(21)}, 0.0) == []
    assert audit.waits()
    look(audit, 1.0)
    assert audit.committed({0: entry(21)}, GRACE_SECONDS) == []
    found = audit.committed({0: entry(21)}, GRACE_SECONDS + 1)
    assert [anomaly.kind for anomaly in found] == [AnomalyKind.GAP]

    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    audit.begin_round()
    for offset, commit in HISTORY[20:22]:
        audit.record(0, offset, commit)
    assert audit.committed({0: entry(21)}, GRACE_SECONDS + 1) == []
    assert not audit.waits()


@pytest.mark.parametrize("before", [0, 1])
def test_a_record_that_an_open_transaction_may_hide_is_not_missing(before: int) -> None:
    """Its own marker is late, or a transaction before it is open: it was a `gap`, for good."""
    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    assert audit.committed({0: entry(21)}, GRACE_SECONDS + 1) == [], "nobody looked since"
    look(audit, 7.0, stable=HISTORY[21][0] - before)
    assert audit.committed({0: entry(21)}, 60.0) == []
    assert audit.waits()
    look(audit, 61.0)
    (missing,) = audit.committed({0: entry(21)}, 61.0)
    assert missing.kind is AnomalyKind.GAP


def test_what_is_open_behind_a_record_hides_it_not() -> None:
    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    look(audit, 1.0, stable=HISTORY[21][0] + 1)
    assert len(audit.committed({0: entry(21)}, GRACE_SECONDS + 1)) == 1


def test_a_look_that_lacks_the_partition_tells_nothing_of_it() -> None:
    """Its leader was away, and is back when the journal is read."""
    audit = audited(20)
    look(audit, 0.0)
    audit.committed({0: entry(21)}, 0.1)
    audit.ends({}, {}, 5.0)
    assert audit.committed({0: entry(21)}, 60.0) == []


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
    assert [a.kind for a in audit.ends({place: 6}, {place: 12}, 19.5)] == [AnomalyKind.STUCK]
    assert audit.ends({place: 6}, {place: 12}, 60.0) == [], "said once"
    assert audit.ends({place: 12}, {place: 12}, 61.0) == []
    audit.ends({place: 12}, {place: 15}, 62.0)
    assert [a.kind for a in audit.ends({place: 12}, {place: 15}, 73.0)] == [AnomalyKind.STUCK]


@pytest.mark.parametrize("told", [None, entry(3), entry(19), (7, "a tool's"), (7, None)])
def test_a_group_that_is_only_told_may_lag(told: tuple[int, str | None] | None) -> None:
    """In another cluster than the journal: nobody believes it."""
    audit = Audit(APP, SOURCE, stuck_seconds=10, may_lag=True)
    for offset, commit in HISTORY[:20]:
        assert audit.record(0, offset, commit) == []
    audit.begin_round({0: told})

    assert audit.committed({0: told}, 0.0) == []
    assert not audit.waits()


def test_a_group_that_is_only_told_must_not_lead() -> None:
    """Nor name a record that is not there as it says."""
    audit = Audit(APP, SOURCE, stuck_seconds=10, may_lag=True)
    for offset, commit in HISTORY[:20]:
        audit.record(0, offset, commit)
    audit.begin_round()

    assert audit.committed({0: entry(24)}, 0.0) == []
    assert audit.waits()
    look(audit, 1.0)
    (ahead,) = audit.committed({0: entry(24)}, GRACE_SECONDS + 1)
    assert ahead.kind is AnomalyKind.GAP
    (torn,) = audit.committed({0: entry(19, shift=1)}, 0.0)
    assert torn.kind is AnomalyKind.TORN


# ---- what passes


def accepted(n: int) -> Commit:
    """A record of `relay accept`."""
    return Commit(n=n, accept=Accept(kinds=["offsets"], found="both", why="I know"))


def open_kinds(audit: Audit) -> dict[str, int]:
    """As the metric verifier_anomalies_open has them."""
    told = Counter(one.kind for one in audit.anomalies)
    return {kind.value: n for kind in told if (n := told[kind] - audit.totals.settled[kind])}


def test_what_relay_accept_takes_note_of_is_settled() -> None:
    """The offset's anomaly of that partition; it is told all the same."""
    audit = audited(20)
    audit.committed({0: None, 1: (3, "by hand")}, 0.0)
    assert len(audit.open()) == 2
    audit.begin_round()
    audit.record(0, HISTORY[19][0] + 1, accepted(HISTORY[19][1].n + 1))
    about = [one for one in audit.open() if "committed offset" in one.text]
    assert [one.partition for one in about] == [1], "the other partition's stays"
    assert len([one for one in audit.anomalies if one.partition == 0]) >= 1


@pytest.mark.parametrize("shift", [0, 1])
def test_a_missing_record_that_shows_is_settled(shift: int) -> None:
    """Not by another of its number, which a relay may have written where it was lost."""
    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    look(audit, 1.0)
    (missing,) = audit.committed({0: entry(21)}, GRACE_SECONDS + 1)
    audit.begin_round()
    for offset, commit in HISTORY[20:22]:
        audit.record(0, offset + shift, commit)
    audit.committed({0: entry(21)}, GRACE_SECONDS + 2)
    assert (missing in audit.open()) == bool(shift)
    assert open_kinds(audit).get("gap", 0) == shift


def test_a_missing_record_is_settled_by_relay_accept_too() -> None:
    audit = audited(20)
    audit.committed({0: entry(21)}, 0.0)
    look(audit, 1.0)
    (missing,) = audit.committed({0: entry(21)}, GRACE_SECONDS + 1)
    audit.record(0, HISTORY[19][0] + 1, accepted(HISTORY[19][1].n + 1))
    assert missing not in audit.open()


def test_what_the_journal_says_for_good_is_not_settled_by_it() -> None:
    """Rows may be lost or doubled, whatever a person says of the group's offset."""
    audit = audited(20)
    offset, commit = HISTORY[10]
    assert audit.record(0, offset + 1000, commit) != []
    before = Counter(one.text for one in audit.open())
    audit.record(0, offset + 1001, accepted(HISTORY[19][1].n + 1))
    assert before <= Counter(one.text for one in audit.open())
    assert not audit.totals.settled


@pytest.mark.parametrize("end", [12, 13])
def test_an_open_transaction_that_has_ended_is_settled(end: int) -> None:
    """At the log's end, or with another open one behind it."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    place, beside = ("app.journal", 0), ("app.journal", 1)
    audit.ends({place: 6, beside: 6}, {place: 12, beside: 12}, 0.0)
    audit.ends({place: 6, beside: 6}, {place: 12, beside: 12}, 20.0)
    assert open_kinds(audit) == {"stuck": 2}
    audit.ends({place: 12, beside: 6}, {place: end, beside: 12}, 21.0)
    assert open_kinds(audit) == {"stuck": 1}
    assert [one.partition for one in audit.open()] == [1]
    assert len(audit.anomalies) == 2
