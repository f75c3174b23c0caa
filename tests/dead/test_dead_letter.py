"""What a dead letter says is what its source message was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.blocks.dead_letter import MANY, Origin, RecordPlace, headers_of, headers_without, parse
from relay.names import header_bytes, header_name
from relay.schema.dead_reason import DeadKind, DeadReason

HEADERS = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4)
NO_TABLE = Origin(None, [])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NO = DeadReason(DeadKind.DOES_NOT_FIT, "no", "day")


@settings(deadline=None)
@given(
    key=st.none() | st.binary(max_size=9),
    headers=HEADERS,
    reason=st.builds(DeadReason, st.sampled_from(DeadKind), TEXT, TEXT),
    value=st.none() | st.binary(max_size=9),
)
def test_parse_gives_back_what_was_written(
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    reason: DeadReason,
    value: bytes | None,
) -> None:
    """Key, headers in order and repeated, even those named as a dead letter's own, and reason."""
    written = headers_of("rows", RecordPlace(3, 41), "d.t", reason, Origin(key, headers))
    found = parse(RecordPlace(1, 7), 99, value, written)

    assert found.origin == Origin(key, headers)
    assert (found.source_topic, found.source, found.table) == ("rows", RecordPlace(3, 41), "d.t")
    assert (found.place, found.when_ms, found.value, found.reason) == (
        RecordPlace(1, 7),
        99,
        value,
        reason,
    )


def test_names_that_are_not_utf8_come_back_byte_for_byte() -> None:
    """The client library writes text alone in names, so they are in a value."""
    headers = [(header_name(b"caf\xe9"), b"x"), ("table", b"d.t"), (header_name(b"\xff"), None)]
    written = headers_of("rows", RecordPlace(3, 41), "d.t", NO, Origin(None, headers))
    assert all(name.encode() for name, _ in written)
    kept = [(name, value) for name, value in written if isinstance(value, bytes)]
    found = parse(RecordPlace(0, 0), 0, b"", kept).origin
    assert found == Origin(None, headers)
    assert found is not None
    assert header_bytes(found.headers[0][0]) == b"caf\xe9"


@pytest.mark.parametrize("more", [0, 1])
def test_very_many_headers_come_back_and_take_few_of_the_dead_letters_own(more: int) -> None:
    """librdkafka reads none of a record with more than 100,000: there is room for its own."""
    some: list[tuple[str, bytes | None]] = [("table", b"d.t"), ("ä", None), ("", b""), ("x", b"12")]
    origin = Origin(None, some * (MANY // 4) + some[:more])
    written = headers_of("rows", RecordPlace(3, 41), "d.t", NO, origin)
    assert len(written) == (9 if more else MANY + 8)
    assert parse(RecordPlace(1, 7), 99, b"", written).origin == origin
    if more:
        name, packed = written[-1]
        assert isinstance(packed, bytes)
        for cut in (1, 2, 3, len(packed) - 1):
            with pytest.raises(ValueError, match=r"end early|source headers"):
                parse(RecordPlace(1, 7), 99, b"", [*written[:-1], (name, packed[:-cut])])


def test_one_of_an_earlier_release_has_no_origin() -> None:
    """Without the count of headers nothing is known of them: not that there were none. Its kind is
    not guessed."""
    written = headers_of("rows", RecordPlace(0, 1), "d.t", NO, NO_TABLE)[:5]
    found = parse(RecordPlace(0, 0), 0, b"", written)
    assert found.origin is None
    assert found.reason == DeadReason(DeadKind.UNKNOWN, "no")
    assert parse(RecordPlace(0, 0), 0, b"", [*written, ("source_headers", b"0")]).origin == NO_TABLE


def test_a_kind_of_a_later_release_is_none_that_is_known() -> None:
    written = headers_of("rows", RecordPlace(0, 1), "d.t", NO, NO_TABLE)
    later = [(name, b"later" if name == "kind" else value) for name, value in written]
    assert parse(RecordPlace(0, 0), 0, b"", later).reason == NO._replace(kind=DeadKind.UNKNOWN)


def test_names_of_kinds_are_for_ever() -> None:
    """They are in records and in people's alerts: a test that is changed with them is no help."""
    assert [kind.value for kind in DeadKind] == [
        *("no-table", "unknown-table", "table-refused", "unsupported-type", "no-block-topic"),
        *("null-value", "empty-batch", "not-a-batch", "too-many-rows"),
        *("unreadable-row", "wrong-wire-type"),
        *("unknown-field", "outdated-field", "does-not-fit", "uneven-nested", "missing-value"),
        *("row-too-large", "rejected", "unknown"),
    ]


@pytest.mark.parametrize("missing", range(5))
def test_a_foreign_record_is_refused(missing: int) -> None:
    """Each header is needed, and named where it is missing."""
    written = headers_of("rows", RecordPlace(0, 1), "d.t", NO, NO_TABLE)
    name = written.pop(missing)[0]
    with pytest.raises(ValueError, match=f"no header '{name}'"):
        parse(RecordPlace(0, 0), 0, b"", written)


def test_a_lost_header_is_noticed() -> None:
    """Where one of the source's headers is gone, the message is not sent without it."""
    written = headers_of(
        "rows", RecordPlace(0, 1), "d.t", NO, Origin(None, [("a", b""), ("b", b"")])
    )
    with pytest.raises(ValueError, match="1 of 2 source headers"):
        parse(RecordPlace(0, 0), 0, b"", written[:-1])


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "1:2:3", "-1:2", "a:b", "1: 2"])
def test_only_places_are_places(text: str) -> None:
    """Whatever is not PARTITION:OFFSET is refused with its text."""
    with pytest.raises(ValueError, match="not PARTITION:OFFSET"):
        RecordPlace.parse(text)


def test_a_place_reads_as_it_is_written() -> None:
    """Both ways."""
    assert RecordPlace.parse(str(RecordPlace(12, 345))) == RecordPlace(12, 345)


def test_one_without_its_message_says_where_that_is() -> None:
    """Whatever the reason's length; and it is not taken for one of a null value."""
    reason = NO._replace(text="long " * 10_000)
    written = headers_without("rows", RecordPlace(3, 41), "d.t", reason, 20_000_000)
    found = parse(RecordPlace(1, 7), 99, None, written)
    assert not found.whole
    assert found.origin is None
    assert found.source == RecordPlace(3, 41)
    assert "(a value of 20,000,000 bytes) is only in the source topic" in found.reason.text
    assert len(found.reason.text) < 1_500
    assert found.reason.group == NO.group
    assert parse(
        RecordPlace(1, 7), 99, None, headers_of("rows", RecordPlace(3, 41), "d.t", NO, NO_TABLE)
    ).whole
