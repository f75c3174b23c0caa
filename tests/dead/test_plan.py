"""What a replay does with each dead letter."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from relay.blocks.dead_letter import DeadLetter, Origin, RecordPlace
from relay.cli.output.dead import tally_as_json
from relay.operate.dead import replay_plan
from relay.operate.dead.replay_plan import (
    ReplayMark,
    ReplayMessage,
    ReplayTally,
    Why,
    batches,
    decide,
    mark_key,
)
from tests.dead.letters import TABLE, letter

MARK = ReplayMark(RecordPlace(0, 1), RecordPlace(1, 101), RecordPlace(1, 500), TABLE, 12)


def sent(answer: ReplayMessage | Why) -> ReplayMessage:
    assert isinstance(answer, ReplayMessage)
    return answer


def test_a_message_goes_again_as_it_was() -> None:
    """Key and headers, in order."""
    origin = Origin(b"k", [("trace", b"1"), ("table", TABLE.encode()), ("trace", None)])
    message = sent(decide(letter(origin=origin), {}, "rows"))
    assert (message.key, message.headers, message.table) == (b"k", origin.headers, TABLE)


def test_another_table_replaces_every_table_header() -> None:
    """However many there were; the others stay."""
    origin = Origin(None, [("table", b"x.y"), ("trace", b"1"), ("table", b"\xff")])
    message = sent(decide(letter(table="", origin=origin), {}, "rows", as_table="d.t"))
    assert message.headers == [("trace", b"1"), ("table", b"d.t")]
    assert message.table == "d.t"


def test_one_of_an_earlier_release_gets_the_header_that_is_known() -> None:
    """Only the table, which its dead letter names; no key."""
    old = letter()
    object.__setattr__(old, "origin", None)
    message = sent(decide(old, {}, "rows"))
    assert (message.key, message.headers) == (None, [("table", TABLE.encode())])


@pytest.mark.parametrize(
    ("which", "why"),
    [
        (letter(1), Why.DONE),
        (letter(2, table=""), Why.NO_TABLE),
        (letter(2, source_topic="other"), Why.OTHER_SOURCE),
        (replace(letter(2), whole=False), Why.LEFT_OUT),
    ],
)
def test_what_is_not_sent_says_why(which: object, why: Why) -> None:
    """Replayed already, without a table, of another source."""
    assert decide(which, {MARK.dead: MARK}, "rows") is why  # type: ignore[arg-type]


def test_what_a_rewind_had_read_again_is_not_sent() -> None:
    """It is a row by now, or another letter; what was replayed before is named as that."""

    def left_out(one: DeadLetter) -> Why | None:
        return Why.READ_AGAIN if one.place.offset < 3 else None

    again = decide(letter(2), {}, "rows", left_out=left_out)
    done = decide(letter(1), {MARK.dead: MARK}, "rows", left_out=left_out)
    later = decide(letter(3), {}, "rows", left_out=left_out)
    assert (again, done) == (Why.READ_AGAIN, Why.DONE)
    assert sent(later).letter.place.offset == 3


def test_a_replayed_one_is_never_sent_again_under_another_table() -> None:
    """The mark is of the dead letter, not of what became of it."""
    assert decide(letter(1), {MARK.dead: MARK}, "rows", as_table="d.t") is Why.DONE


def test_the_tally_counts_answers() -> None:
    """By table and by reason."""
    tally = ReplayTally()
    for one in (letter(1), letter(2), letter(3, table="d.t"), letter(4, table="")):
        tally.add(decide(one, {MARK.dead: MARK}, "rows"))
    assert (tally.sent, tally.bytes) == (2, 4)
    assert tally.tables == {TABLE: 1, "d.t": 1}
    assert tally.left == {Why.DONE: 1, Why.NO_TABLE: 1}


def test_what_is_not_sent_after_all_is_counted_as_that() -> None:
    """Of two tables; a rewind was begun between the decision and the transaction."""
    tally = ReplayTally()
    messages = [sent(decide(letter(n, table=t), {}, "rows")) for n, t in ((1, "d.a"), (2, "d.b"))]
    for message in messages:
        tally.add(message)
    tally.take_back(messages[0], Why.READ_AGAIN)
    assert tally == ReplayTally(1, 2, {Why.READ_AGAIN: 1}, {"d.b": 1})


def test_what_is_too_large_is_counted_with_the_bytes_that_it_needs() -> None:
    """Value, key and headers, and the room that the brokers' format takes around them."""
    tally = ReplayTally()
    headers: list[tuple[str, bytes | None]] = [*[("h", b"") for _ in range(1_000)], ("table", b"t")]
    message = sent(decide(letter(7, value=b"x" * 90, origin=Origin(b"key", headers)), {}, "rows"))
    tally.add(message)
    tally.take_back(message, Why.TOO_LARGE)
    assert (tally.sent, tally.left) == (0, {Why.TOO_LARGE: 1})
    [(place, size)] = tally.too_large.items()
    assert place == message.letter.place
    assert 90 + 3 + 1_000 * 3 + 6 < size < 20_000


def test_batches_are_bounded_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """By messages and by bytes; a message larger than the bound is a batch by itself."""
    monkeypatch.setattr(replay_plan, "BATCH_MESSAGES", 3)
    monkeypatch.setattr(replay_plan, "BATCH_BYTES", 10)
    sizes = [1, 1, 1, 1, 9, 2, 50, 1]
    messages = [sent(decide(letter(i, value=b"x" * n), {}, "rows")) for i, n in enumerate(sizes)]

    cut = [[one.letter.size for one in batch] for batch in batches(iter(messages))]

    assert cut == [[1, 1, 1], [1, 9], [2], [50], [1]]
    assert list(batches(iter([]))) == []


def test_a_mark_reads_as_it_is_written() -> None:
    """And its key tells topics of one name apart."""
    for mark in (MARK, replace(MARK, letter_table="d.t"), replace(MARK, letter_table="")):
        assert ReplayMark.decode(mark.encode()) == mark
    older = json.loads(MARK.encode())
    del older["letter_table"]
    assert ReplayMark.decode(json.dumps(older).encode()) == MARK
    assert mark_key("id1", MARK.dead) == b"id1/0:1" != mark_key("id2", MARK.dead)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"1", b'{"dead": 1}', b"\xff"])
def test_a_foreign_mark_is_refused(value: bytes) -> None:
    """Nothing is taken for a mark that is none."""
    with pytest.raises(ValueError, match=re.compile(r"mark|Expecting|codec|PARTITION", re.DOTALL)):
        ReplayMark.decode(value)


def test_programs_are_told_what_people_are() -> None:
    """Of a replay and of a dry run."""
    tally = ReplayTally(2, 30, {Why.DONE: 1}, {"shop.orders": 2})
    told = tally_as_json(tally, "rows", done=False)
    assert told == {
        "topic": "rows",
        "sent": False,
        "messages": 2,
        "bytes": 30,
        "tables": {"shop.orders": 2},
        "left": {Why.DONE.value: 1},
        "too_large": [],
    }
    tally.too_large[RecordPlace(0, 7)] = 1_000
    told = tally_as_json(tally, "rows", done=True)
    assert told["too_large"] == [{"place": "0:7", "bytes": 1_000}]
    assert tally_as_json(tally, "rows", done=True)["sent"] is True
