"""Ends what members that are gone have left open in Kafka.

Receives settings and retirements, gives the brokers a newer producer under each transactional
id: its start aborts an open transaction and fences whatever still runs under that id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay import names
from relay.config import kafka_clients
from relay.errors import RelayError
from relay.kafka.errors import TransactionFailed, ended
from relay.kafka.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.process.retire_plan import Retirement


def end(settings: Settings, retirement: Retirement) -> None:
    """End the member's transactions; a second call does no harm.

    Raises:
        ValueError: the retirement has an obstacle.
        Unavailable: the brokers did not answer within twice the transaction timeout.
        Refused: they answered no.
        Fenced: another producer started under the id at the same moment.
    """
    if retirement.obstacle is not None:
        raise ValueError(retirement.obstacle)
    identity = retirement.transactional_id
    client = kafka_clients.producer_under(settings, identity)
    deadline_seconds = 2 * settings.relay.transaction_timeout_seconds
    producer = TransactionalProducer(client, deadline_seconds, names.group_id(settings.app))
    try:
        producer.replace()
    except TransactionFailed as failed:
        raise _error(failed, identity) from failed
    finally:
        producer.close()


def _error(failed: TransactionFailed, identity: str) -> RelayError:
    return ended(
        failed,
        fenced=f"a relay with identity {identity} runs again: leave it, or stop it first",
        refused=f"grant Write on transactional id {identity}",
        unknown="check kafka.bootstrap and the brokers, then run it again",
    )
