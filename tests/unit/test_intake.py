from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Message

from relay.intake.buffers import Buffers
from relay.intake.message_batch import TableHeaders, of_messages
from relay.intake.sort_poll import HEADER_BYTES, Intake, Poll, RowDensity
from relay.names import NO_TABLE
from tests.broker.pipeline import row_batch


def message(
    partition: int, offset: int, headers: object, value: bytes | None, key: bytes | None = None
) -> Message:
    return Message(
        key=key,
        topic="s",
        partition=partition,
        offset=offset,
        value=value,
        headers=headers,
        timestamp=(1, 1000 + offset),
    )


def sort(messages: list[Message], headers: TableHeaders, density: RowDensity) -> Poll:
    """One poll, its messages in batches of two."""
    intake = Intake(headers, density)
    for at in range(0, len(messages), 2):
        intake.add(of_messages(messages[at : at + 2], headers))
    return intake.sorted()


def named(table: str) -> list[tuple[str, bytes]]:
    return [("table", table.encode())]


def test_messages_are_sorted_by_partition_and_table() -> None:
    """Each group keeps its messages in order, with rows and the first timestamp."""
    poll = sort(
        [
            message(0, 5, named("d.a"), row_batch([1, 2])),
            message(0, 6, named("d.b"), row_batch([3])),
            message(1, 9, named("d.a"), row_batch([4])),
            message(0, 8, named("d.a"), row_batch([5])),
        ],
        TableHeaders(),
        RowDensity("batch"),
    )

    found = {(a.partition, a.table): (list(a.offsets), a.rows) for a in poll.arrivals}
    assert found == {(0, "d.a"): ([5, 8], 3), (0, "d.b"): ([6], 1), (1, "d.a"): ([9], 1)}
    assert {p: list(one) for p, one in poll.offsets.items()} == {0: [5, 6, 8], 1: [9]}
    assert poll.arrivals[0].first_timestamp_ms == 1005


def test_what_names_no_table_belongs_together() -> None:
    """Missing, doubled, empty, foreign and unreadable headers share the nameless table."""
    bad = [None, [], named("d.a") * 2, [("table", None)], [("other", b"d.a")], [("table", b"\xff")]]
    poll = sort(
        [message(0, i, h, b"") for i, h in enumerate(bad)], TableHeaders(), RowDensity("batch")
    )

    assert [(a.table, list(a.offsets)) for a in poll.arrivals] == [(NO_TABLE, list(range(6)))]


def test_further_headers_do_not_hide_the_table() -> None:
    """Only the header `table` counts; tracing headers and the like are free."""
    headers = [("trace", b"1"), *named("d.a")]

    assert TableHeaders().table(headers) == "d.a"


def test_buffers_give_back_what_was_kept_once() -> None:
    """Passed-over messages are left out; a dropped partition holds nothing."""
    buffers = Buffers()
    poll = sort(
        [message(0, i, named("d.a"), row_batch([i])) for i in range(5)],
        TableHeaders(),
        RowDensity("batch"),
    )
    arrival = replace(poll.arrivals[0])  # equal, and another object: the core may copy it
    buffers.keep(arrival, poll, 2)

    held = buffers.take(0, "d.a")

    assert list(held.offsets) == [2, 3, 4]
    assert held.column().to_pylist() == [row_batch([i]) for i in (2, 3, 4)]


def test_what_only_a_dead_letter_needs_is_kept_with_its_message() -> None:
    """Value, key and headers come back for each message, in one buffer out of several polls."""
    traced = [("trace", b"1"), *named("d.a"), ("trace", None)]
    sent: list[tuple[object, bytes | None]] = [
        (named("d.a"), None),
        (traced, b"k1"),
        (named("d.a"), b""),
        (traced, None),
    ]
    buffers = Buffers()
    for at, (headers, key) in enumerate(sent):
        poll = sort(
            [message(0, 10 + at, headers, row_batch([at]), key)],
            TableHeaders(),
            RowDensity("batch"),
        )
        buffers.keep(poll.arrivals[0], poll, 0)
    held = buffers.take(0, "d.a")

    assert [held.origin(10 + at) for at in range(4)] == [(k, h) for h, k in sent]
    assert [held.value(10 + at) for at in range(4)] == [row_batch([at]) for at in range(4)]


@pytest.mark.parametrize(
    "headers", [None, [], [("other", b"x")], [("table", b"\xff")], named("d.a") * 2]
)
def test_headers_that_name_no_table_are_kept_as_they_were(headers: object) -> None:
    """Where no table can be read, the dead letter still says what stood there."""
    poll = sort([message(0, at, headers, b"") for at in (1, 2)], TableHeaders(), RowDensity("row"))
    buffers = Buffers()
    buffers.keep(poll.arrivals[0], poll, 1)

    assert buffers.take(0, NO_TABLE).origin(2) == (None, headers or [])


def test_rows_are_counted_first_and_estimated_after() -> None:
    """A new table's messages are counted; later ones go by the last sealed buffer."""
    density = RowDensity("batch")
    values = pa.chunked_array([[row_batch([1, 2])], [None, b"no batch"]], pa.binary())

    assert density.rows("d.a", 100) is None
    assert density.count("d.a", values, 100) == 2
    density.learn("d.a", 10, 100)
    assert density.rows("d.a", 50) == 5


def test_a_poll_of_nothing_has_no_arrivals() -> None:
    """As when no message came for the time of a poll."""
    poll = sort([], TableHeaders(), RowDensity("batch"))
    assert (poll.arrivals, poll.offsets, poll.bytes) == ([], {}, 0)


def test_tables_remembered_do_not_grow_without_end() -> None:
    """Names that a producer invents are forgotten between polls, and read rightly after."""
    headers = TableHeaders()
    for at in range(3):
        named_here = [named(f"d.t{at}_{number}") for number in range(4_000)]
        messages = [message(0, number, one, b"") for number, one in enumerate(named_here)]
        intake = Intake(headers, RowDensity("row"))
        intake.add(of_messages(messages, headers))
        found = [arrival.table for arrival in intake.sorted().arrivals]
        assert sorted(found) == sorted(f"d.t{at}_{number}" for number in range(4_000))
    Intake(headers, RowDensity("row"))

    assert headers.tables == [NO_TABLE]


def test_keys_and_headers_count_towards_the_memory_and_not_towards_the_rows() -> None:
    """Red before: of keys nothing counted, and of headers only what weighed 4 kB in a message."""
    many = [*named("d.a"), *((f"h{n:03}", b"12345") for n in range(1_000))]
    few = [*named("d.a"), ("trace", b"x" * 100)]
    value = row_batch([1])
    messages = [
        message(0, 1, many, value),
        message(0, 2, few, value, b"k" * 100_000),
        message(1, 1, named("d.a"), value, b"key"),
        message(1, 2, named("d.a"), value),
        message(2, 1, few, None, b""),
    ]
    poll = sort(messages, TableHeaders(), RowDensity("batch"))
    of_table, of_few = HEADER_BYTES + 5 + 3, HEADER_BYTES + 5 + 100
    of_many = 1_000 * (HEADER_BYTES + 4 + 5)
    assert {a.partition: (a.bytes, a.beside) for a in poll.arrivals} == {
        0: (2 * len(value), of_many + of_few + 2 * of_table + 100_000),
        1: (2 * len(value), 3),
        2: (0, of_few + of_table),
    }
    assert poll.bytes == sum(a.bytes + a.beside for a in poll.arrivals)
    assert {a.partition: a.rows for a in poll.arrivals} == {0: 2, 1: 2, 2: 0}, "rows are in values"


def test_the_parts_of_what_is_held_have_the_sizes_that_the_buffer_counted() -> None:
    """Values, keys and headers; also once the first part is dropped."""
    traced = [*named("d.a"), ("trace", b"x")]
    messages = [
        message(0, 5, traced, b"12345"),
        message(0, 6, named("d.a"), b"123", b"key"),
        message(0, 7, named("d.a"), None),
        message(0, 9, traced, b"1", b"k"),
    ]
    poll = sort(messages, TableHeaders(), RowDensity("row"))
    [arrival] = poll.arrivals
    buffers = Buffers()
    buffers.keep(arrival, poll, 0)
    held = buffers.take(0, "d.a")
    weight = 5 + 3 + 5 + 1 + 2 * HEADER_BYTES
    counts = range(1, 5)
    assert [held.sizes(count) for count in counts] == [(5, 4), (8, 1), (8, 1), (9, 0)]
    beside = [held.beside(count) for count in counts]
    assert beside == [weight, weight + 3, weight + 3, arrival.beside]
    held.drop(1)
    assert held.sizes(2) == (3, 1)
    assert [held.beside(count) for count in (1, 3)] == [3, arrival.beside - weight]
