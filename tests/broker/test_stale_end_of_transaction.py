"""An EndTxn that was lost on the way and arrives inside a later transaction ends nothing.

librdkafka repeats a lost EndTxn silently and keeps its producer epoch (librdkafka#5423), so
that the copy still under way could end half of what the producer sends next.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.config import kafka_clients, settings_file
from relay.kafka import transaction_evidence
from relay.kafka.transactional_producer import TransactionalProducer, TransactionFailed
from tests.broker.pipeline import create_topics
from tests.chaos.proxy_wire import Api, error_of_end_txn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.proxied_pipeline import ProxiedPipeline

SECONDS = 40.0


def patient(pipeline: ProxiedPipeline) -> Path:
    """No timeout may end a transaction here, however slow the machine is."""
    return pipeline.config(session_timeout_seconds=90.0, transaction_timeout_seconds=80.0)


def stale_commit(pipeline: ProxiedPipeline) -> None:
    """Held back, repeated by the client, released inside the next transaction: rejected."""
    proxy = pipeline.proxy
    process = pipeline.start("a", patient(pipeline))
    pipeline.started()

    stale = proxy.hold(Api.END_TXN, pipeline.client("a"))
    pipeline.send(range(100))
    stale.wait_until_held(SECONDS)
    stale.cut_client()
    pipeline.until(lambda: sum(pipeline.rows().values()) == 100, "the commit, sent again")

    # Blocks and journal record of the next transaction are in; its offsets are not.
    offsets = proxy.hold(Api.ADD_OFFSETS_TO_TXN, pipeline.client("a"))
    pipeline.send(range(100, 200), per_message=100)  # it cannot be split
    offsets.wait_until_held(SECONDS)
    stale.release()
    error = error_of_end_txn(stale.answer(SECONDS))
    if error == KafkaError.NO_ERROR:
        pipeline.until(lambda: sum(pipeline.rows().values()) == 200, "half a transaction")
    pipeline.committed_is_journal_head()
    assert error == KafkaError.INVALID_PRODUCER_EPOCH

    offsets.release()
    pipeline.exactly_once()
    assert "replacing the producer" in pipeline.log(process)


@pytest.mark.long  # 18 s
def test_stale_commit_cannot_end_a_later_transaction(proxied_pipeline: ProxiedPipeline) -> None:
    """The relay took a new epoch before the next transaction: nothing of it shows early."""
    stale_commit(proxied_pipeline)


def test_without_a_new_epoch_the_stale_commit_tears(proxied_pipeline: ProxiedPipeline) -> None:
    """Negative control: blocks and journal record are visible, the offsets are not committed."""
    proxied_pipeline.without = "epoch_bump"

    with pytest.raises(AssertionError) as found:
        stale_commit(proxied_pipeline)

    assert found.traceback[-1].name == "committed_is_journal_head"


@pytest.mark.parametrize("guarded", [True, False])
def test_stale_abort_cannot_take_what_came_later(
    proxied_pipeline: ProxiedPipeline, monkeypatch: pytest.MonkeyPatch, *, guarded: bool
) -> None:
    """An abort sent twice loses acknowledged records of a committed transaction, unguarded."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    if not guarded:
        monkeypatch.setattr(transaction_evidence.TransactionEvidence, "suspect", lambda *_: None)
    settings = settings_file.load(patient(pipeline), {"relay": {"member": "a"}})
    topic = names.journal_topic(pipeline.app)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    create_topics(admin, NewTopic(topic, 2, 1))
    member = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": pipeline.app})
    producer = TransactionalProducer(kafka_clients.producer(settings), SECONDS, pipeline.app)

    def put(partition: int, value: bytes) -> None:
        producer.produce(TopicPartition(topic, partition), value, b"", [], lambda _: None)
        producer.flush()

    producer.replace()
    producer.begin(member.consumer_group_metadata())
    put(0, b"aborted")
    stale = proxy.hold(Api.END_TXN, pipeline.client("a"))
    with ThreadPoolExecutor(1) as pool:
        aborting = pool.submit(producer.abort)
        stale.wait_until_held(SECONDS)
        stale.cut_client()
    if guarded:
        with pytest.raises(TransactionFailed, match="doubt"):
            aborting.result()
        producer.replace()
    else:
        aborting.result()
    producer.begin(member.consumer_group_metadata())
    put(0, b"first")
    stale.release()
    error = error_of_end_txn(stale.answer(SECONDS))
    put(1, b"second")
    producer.commit()

    def visible() -> set[bytes | None]:
        return {value for records in pipeline.read(topic, 2).values() for _, value, _ in records}

    wanted = {b"first", b"second"} if guarded else {b"second"}  # the control loses one
    # It is committed before its markers are in the log.
    pipeline.until(lambda: visible() >= wanted, "what was committed")
    assert visible() == wanted
    assert error == (KafkaError.INVALID_PRODUCER_EPOCH if guarded else KafkaError.NO_ERROR)
    producer.close()
    member.close()
