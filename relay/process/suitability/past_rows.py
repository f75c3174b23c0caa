"""Whether an app ever had a good message: what its block topics and its journal say.

Receives settings, gives yes or no. Asked at most once in a relay's life, and only where all that
it has seen is dead letters. Where the beginning of the history is gone, the answer is yes.
"""

from __future__ import annotations

import contextlib

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from relay import names
from relay.blocks import journal_record
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.kafka.errors import answering
from relay.kafka.partition_ends import TopicEnds
from relay.kafka.partition_reader import PartitionReader, records

SECONDS = 30.0
"""For one answer, and for the next record to come."""


def ever_good(settings: Settings) -> bool:
    """Return whether a block was ever written, as far as anybody can know.

    Raises:
        Unavailable: the brokers did not answer.
        Refused: they said no.
    """
    journal = names.journal_topic(settings.app)
    grant = f"grant Read on topic {journal} and the block topics to the user of kafka.client"
    with answering("find out whether a message of this app ever became a row", grant):
        admin = AdminClient(kafka_clients.admin(settings.kafka))
        topics = admin.list_topics(timeout=SECONDS).topics
        for name, topic in topics.items():
            if names.table_of_topic(settings.app, name):
                bounds = TopicEnds(admin, name, SECONDS).bounds(topic.partitions)
                if any(end > 0 for _, end in bounds.values()):
                    return True
        partitions = topics[journal].partitions if journal in topics else ()
        bounds = TopicEnds(admin, journal, SECONDS).bounds(partitions) if partitions else {}
        return any(low > 0 for low, _ in bounds.values()) or _names_a_block(settings, bounds)


def _names_a_block(settings: Settings, bounds: dict[int, tuple[int, int]]) -> bool:
    """Return whether a journal record names one, though no block topic is there any more."""
    journal = names.journal_topic(settings.app)
    with contextlib.closing(PartitionReader(kafka_clients.reader(settings.kafka))) as reader:
        for index, (_, end) in bounds.items():
            place = TopicPartition(journal, index, 0)
            for message in records(reader, place, end, SECONDS):
                record = message.value() or b"", journal, index, message.offset() or 0
                if journal_record.read(*record).blocks:
                    return True
    return False
