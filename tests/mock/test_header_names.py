"""Headers whose names are not UTF-8, as producers in other languages may send them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from relay.intake.bulk import Bulk
from relay.intake.message_batch import TableHeaders, of_messages
from relay.kafka import librdkafka
from relay.names import header_bytes
from tests.broker import raw_headers
from tests.mock.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.intake.message_batch import Headers
    from tests.broker.raw_headers import Named

TABLE = (b"table", b"d.t")
ODD: list[Named] = [
    [TABLE],
    [(b"a\xff", b"1"), TABLE],
    [TABLE],
    [TABLE, ("\u00e4".encode(), None), ("\u00e4".encode("latin-1"), None), (b"b", b"")],
    [(b"\xed\xb3\xbf", b"of a lone surrogate")],
    [],
]
SEVERAL: Named = [(b"a\xff", b"1"), TABLE, (b"b\xfe", None), (b"c", b"3")]


def raw(headers: Headers) -> list[tuple[bytes, bytes | None]]:
    return [(header_bytes(name), value) for name, value in headers or []]


@pytest.fixture
def messages() -> Iterator[tuple[Consumer, int]]:
    """A consumer that is assigned what has ODD and SEVERAL, and how many they are."""
    with Cluster(1) as cluster:
        cluster.create_topic("s")
        sent = [*ODD, SEVERAL]
        raw_headers.send(cluster.bootstrap, "s", [(b"v", headers) for headers in sent])
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        yield consumer, len(sent)
        consumer.close()


def consumed(messages: tuple[Consumer, int]) -> list[Message]:
    consumer, count = messages
    consumer.assign([TopicPartition("s", 0, 0)])
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 10)
    return found


def test_each_is_read(messages: tuple[Consumer, int]) -> None:
    """Of several in one message the binding tells the first; asked again, it says the same."""
    found = consumed(messages)
    for _ in range(2):
        read = [librdkafka.headers(message) for message in found]
        assert [raw(headers) for headers in read[:-1]] == ODD
        lost = librdkafka.LOST_NAME.encode()
        assert raw(read[-1]) == [SEVERAL[0], TABLE, (lost, None), SEVERAL[3]]
    assert [message.headers() or [] for message in found] == read


def test_a_poll_of_the_binding_goes_on(messages: tuple[Consumer, int]) -> None:
    """The table is what its own header says, before and behind such a message."""
    tables = TableHeaders()
    batch = of_messages(consumed(messages), tables)
    named = [tables.tables[number] for number in batch.numbers]
    assert named == ["d.t", "d.t", "d.t", "d.t", "", "", "d.t"]
    assert raw(batch.headers[1]) == ODD[1]
    assert raw(batch.headers[4]) == ODD[4]


def test_a_call_that_python_has_specialized(messages: tuple[Consumer, int]) -> None:
    """Such a call of the binding does not see its error; what it leaves would come out later."""
    found = consumed(messages)
    for _ in range(100):
        for message in (found[0], found[2]):
            assert librdkafka.headers(message) == [("table", b"d.t")]
    (headers,) = map(librdkafka.headers, [found[-1]])
    assert len(headers) == len(SEVERAL)


def test_another_failure_of_the_binding_stays_one(messages: tuple[Consumer, int]) -> None:
    found = consumed(messages)
    with pytest.raises(SystemError, match="another"):
        librdkafka.mended_headers(found[0], SystemError("another"))


def test_in_bulk_each_name_is_read(messages: tuple[Consumer, int]) -> None:
    consumer, count = messages
    tables = TableHeaders()
    bulk = Bulk(consumer, "s", tables, count)
    bulk.own([0])
    consumer.assign([TopicPartition("s", 0, 0)])
    found: list[Headers] = []
    while len(found) < count:
        assert consumer.poll(0) is None
        bulk.begin()
        batch, failed, got = bulk.poll(count - len(found), 1)
        assert not failed
        found += [batch.headers.get(at, [("table", b"d.t")]) for at in range(got)]
    bulk.close()
    assert [raw(headers) for headers in found] == [*ODD, SEVERAL]
