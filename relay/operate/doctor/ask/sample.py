"""Decodes messages of the source topic as the relay would, and changes nothing.

The row messages are what the registry has, or would get from the tables' columns at the first
start; nothing is proposed to it, no topic is made, no group is joined.
"""

from __future__ import annotations

from relay.config.settings import Settings
from relay.intake import sample
from relay.intake.foreign_formats import explained
from relay.names import NO_TABLE
from relay.operate.doctor.judge.sample import OfTable, tallied
from relay.produce.codecs import codecs_unproposed
from relay.schema.dead_reason import DeadReason


def look(settings: Settings, wanted: int) -> list[OfTable]:
    """Return what was seen in up to `wanted` of the newest messages.

    Raises:
        Unavailable: Kafka or ClickHouse did not answer.
        Refused: one of them said no.
    """
    by_table = sample.by_table(sample.sample(settings, wanted))
    codecs = codecs_unproposed(settings, by_table.keys())
    return tallied(
        (table, message.partition, message.offset, _explained(table, message, reason))
        for table, messages in by_table.items()
        for message, reason in sample.judged(messages, codecs[table], settings)
    )


def _explained(
    table: str, message: sample.SampledMessage, reason: DeadReason | None
) -> DeadReason | None:
    headers = message.headers if table == NO_TABLE else None
    return explained(reason, message.value, headers) if reason else None
