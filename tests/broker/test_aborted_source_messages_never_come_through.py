"""The source may itself be transactional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.broker.pipeline import row_batch

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def test_aborted_source_messages_never_come_through(pipeline: Pipeline) -> None:
    """Of transactions committed and aborted in turn, exactly the committed rows arrive."""
    pipeline.start("a")
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{pipeline.app}.test"}
    )
    producer.init_transactions(30)
    for number in range(20):
        ids = range(number * 10, number * 10 + 10)
        producer.begin_transaction()
        for i in ids:
            pipeline.produce(producer, row_batch([i]), i % 2)
        producer.flush(30)
        if number % 3:
            producer.commit_transaction(30)
            pipeline.sent.update(ids)
        else:
            producer.abort_transaction(30)

    pipeline.exactly_once()
