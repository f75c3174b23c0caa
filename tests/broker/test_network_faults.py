"""A network between relay and broker that stalls, breaks or crawls: each row once, and on again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from relay import names
from relay.kafka.partition_ends import TopicEnds
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, is_stable
from tests.chaos.proxy_wire import Api, error_of_end_txn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.proxied_pipeline import ProxiedPipeline

SESSION, TRANSACTION = 6.0, 5.0
"""Seconds; those of `Pipeline.config`."""
PROMISED = SESSION + TRANSACTION + 15.0
"""Progress again within this, on a machine that has nothing else to do."""
ALLOWED = 3 * PROMISED
"""What is asserted."""
READERS = "rdkafka"
"""Client id of those that read what was committed, and of admin clients: the library's own."""


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Notes how long progress took, and holds it against the bound."""

    def note(fault: str, seconds: float) -> None:
        record_property("progress_seconds", round(seconds, 1))
        print(f"{fault}: progress after {seconds:.1f} s, promised {PROMISED:g} s")
        assert seconds < ALLOWED

    return note


@pytest.mark.long  # 27 s; campaigns cut members off, too
def test_one_member_cut_off_for_longer_than_its_session(
    proxied_pipeline: ProxiedPipeline, report: Callable[[str, float], None]
) -> None:
    """Half-open inside a commit, and replaced: its EndTxn comes too late, it comes back itself."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    # Its client does not give the held request up before the coordinator does.
    pipeline.supervise("a", pipeline.config('[kafka.client]\n"socket.timeout.ms" = 5000'))
    pipeline.started()
    late = proxy.hold(Api.END_TXN, pipeline.client("a"))
    pipeline.send(range(100))
    late.wait_until_held(WAIT_SECONDS)
    proxy.half_open(True, pipeline.client("a"))
    pipeline.supervise("b", pipeline.config())
    pipeline.until(lambda: pipeline.floor(0) == 100, "the other member has the partition")
    assert not pipeline.has_blocks_of("a"), "committed by nobody's request"
    late.release()
    assert error_of_end_txn(late.answer(WAIT_SECONDS)) == KafkaError.INVALID_PRODUCER_EPOCH

    begun = time.monotonic()
    proxy.half_open(False, pipeline.client("a"))
    pipeline.send_until(lambda: pipeline.has_blocks_of("a"), "the member is back")
    report("half-open", time.monotonic() - begun)
    pipeline.exactly_once()


@pytest.mark.parametrize("twin", [False, True])
def test_a_transaction_that_its_coordinator_ended(
    proxied_pipeline: ProxiedPipeline, *, twin: bool
) -> None:
    """Its end comes late, and is refused as an older producer's would be: the relay goes on by
    itself, where it ended with status 7. Where another process has its member, it still ends."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    # Its client does not give the held request up before the coordinator does.
    relay = pipeline.start("a", pipeline.config('[kafka.client]\n"socket.timeout.ms" = 5000'))
    pipeline.started()
    late = proxy.hold(Api.END_TXN, pipeline.client("a"))
    pipeline.send(range(100))
    late.wait_until_held(WAIT_SECONDS)
    proxy.half_open(True, pipeline.client("a"))
    if twin:
        other = pipeline.start("a", Pipeline.config(pipeline))
        pipeline.until(lambda: pipeline.floor(0) == 100, "the other process has the partition")
    journal = TopicPartition(names.journal_topic(pipeline.app), 0)
    pipeline.until(lambda: is_stable(admin, journal), "the end of the transaction by the broker")
    late.release()
    assert error_of_end_txn(late.answer(WAIT_SECONDS)) == KafkaError.INVALID_PRODUCER_EPOCH
    proxy.half_open(False, pipeline.client("a"))

    if twin:
        pipeline.until(lambda: relay.poll() is not None, "the end of the first process")
        assert relay.poll() == 7, pipeline.log(relay)
        # Its producer or its consumer hears of it first.
        hears = "another process took over", "Static consumer fenced"
        assert any(one in pipeline.log(relay) for one in hears), pipeline.log(relay)
        assert other.poll() is None, pipeline.log(other)
        return
    pipeline.send(range(100, 200), partition=1)
    pipeline.exactly_once()
    assert "no other process has this member: the coordinator ended" in pipeline.log(relay)
    assert relay.poll() is None


def test_all_cut_off_for_longer_than_the_session(
    proxied_pipeline: ProxiedPipeline, report: Callable[[str, float], None]
) -> None:
    """Every connection is closed at once, until the broker has ended the session."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    pipeline.supervise("a", pipeline.config())
    pipeline.started()
    proxy.refuse()
    pipeline.send(range(100))
    pipeline.until(lambda: pipeline.members() == 0, "the broker ends the session")
    proxy.heal()

    report("partition", pipeline.progress_seconds(range(100, 200)))
    pipeline.exactly_once()


@pytest.mark.long  # 21 s
def test_metadata_that_names_no_broker(
    proxied_pipeline: ProxiedPipeline, report: Callable[[str, float], None]
) -> None:
    """As brokers give it while all are fenced: clients forget them for good (librdkafka#5301)."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    often = '[kafka.client]\n"topic.metadata.refresh.interval.ms" = 500'
    pipeline.supervise("a", pipeline.config(often))
    pipeline.progress_seconds(range(100))
    before = proxy.counts()["emptied"]
    proxy.name_no_broker()
    pipeline.send(range(100, 200))
    pipeline.until(lambda: proxy.counts()["emptied"] > before + 4, "answers without brokers")
    pipeline.until(lambda: "a server is unavailable" in pipeline.logs(), "the relay says so")
    proxy.name_no_broker(False)
    report("no broker", pipeline.progress_seconds(range(200, 300)))
    pipeline.exactly_once()


@pytest.mark.long  # 24 s
def test_cut_off_while_an_assignment_waits(proxied_pipeline: ProxiedPipeline) -> None:
    """Inside a callback; the next one, of the lost connections, finds the client as it was."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    process = pipeline.start("a", pipeline.config())
    pipeline.started()
    proxy.refuse(client=READERS)
    pipeline.start("b", Pipeline.config(pipeline))  # for a rebalance
    pipeline.until(lambda: "a server is unavailable" in pipeline.log(process), "the relay waits")
    proxy.cut(pipeline.client("a"))
    proxy.refuse(False, READERS)

    pipeline.progress_seconds(range(100))
    assert process.poll() is None, pipeline.log(process)
    pipeline.exactly_once()


@pytest.mark.long  # 19 s
def test_half_a_second_of_latency(
    proxied_pipeline: ProxiedPipeline, report: Callable[[str, float], None]
) -> None:
    """A transaction takes seconds then; its timeout and the session are long enough for it."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    config = pipeline.config(session_timeout_seconds=40.0, transaction_timeout_seconds=30.0)
    pipeline.supervise("a", config)
    pipeline.progress_seconds(range(100))
    proxy.delay(250)
    report("500 ms latency", pipeline.progress_seconds(range(100, 200)))
    proxy.heal()
    pipeline.exactly_once()


def test_random_cuts(
    proxied_pipeline: ProxiedPipeline, report: Callable[[str, float], None]
) -> None:
    """Every hundredth message cuts its connection, somewhere inside it."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    pipeline.supervise("a", pipeline.config())
    pipeline.started()
    before = proxy.counts()["cut"]
    proxy.lossy(0.01, seed=20)
    pipeline.send_until(lambda: proxy.counts()["cut"] >= before + 5, "five cuts")
    proxy.heal()
    report("1 % cuts", pipeline.progress_seconds(range(100)))
    pipeline.exactly_once()


def test_a_log_whose_leader_did_not_say_where_it_ends(proxied_pipeline: ProxiedPipeline) -> None:
    """Its connection breaks before the answer: the end is not known.

    Seen in CI: a relay took the client library's -1001 for the end, its committed floor lay
    beyond it, and it stopped because the source had lost records.
    """
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    admin = AdminClient({"bootstrap.servers": proxy.address, "client.id": "ends"})
    ends = TopicEnds(admin, pipeline.source, WAIT_SECONDS)
    assert ends.stable([0]) == {0: 0}

    proxy.drop_answers(Api.LIST_OFFSETS, 100, "ends")
    with pytest.raises(KafkaException) as error:
        ends.stable([0])
    assert error.value.args[0].code() == KafkaError._TRANSPORT

    place = TopicPartition(pipeline.source, 0)
    admin.list_topics(pipeline.source, timeout=WAIT_SECONDS)
    asked = {place: OffsetSpec.latest()}
    bare = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    assert bare[place].result(WAIT_SECONDS).offset == OFFSET_INVALID, "the library says so itself"
    proxy.heal()
    assert ends.stable([0]) == {0: 0}
