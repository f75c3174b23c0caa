"""Ends what members that are gone have left open in Kafka.

Receives members' names, who is in the group now and who is in the journal; gives what would be done
with each, and which of them nobody knows. `end` gives the brokers a newer producer under a member's
transactional id: its start aborts an open transaction and fences whatever still runs under that id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.kafka.errors import TransactionFailed, ended
from relay.kafka.transactional_producer import TransactionalProducer
from relay.program.spelling import did_you_mean

_LISTED = 20
"""So many known names are listed; members that are started under ever new names are many."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """A member that will not come back.

    Attributes:
        partitions: that the group still assigns to it; None: it is no longer a member.
    """

    member: str
    transactional_id: str
    partitions: tuple[int, ...] | None

    @property
    def obstacle(self) -> str | None:
        """Return why the member must not be retired now; None if it may."""
        if self.partitions is None:
            return None
        owned = ", ".join(map(str, self.partitions)) or "none"
        return (
            f"{self.member} is in the group (partitions: {owned}): ending its transactions would "
            "fence a relay that works"
        )


def plan(
    app: str, members: Collection[str], group: Mapping[str, tuple[int, ...]]
) -> list[Retirement]:
    """Plan the retirement of each named member once, in the order given.

    `group`: partitions by member, as the group's coordinator says.
    """
    return [
        Retirement(member, names.transactional_id(app, member), group.get(member))
        for member in dict.fromkeys(members)
    ]


def unknown(
    members: Collection[str], group: Collection[str], recorded: Collection[str]
) -> Iterator[str]:
    """Yield a line for each member that nobody knows, with the names that are known.

    Kafka does not say which transactional ids there are.

    `group` and `recorded`: names of the group's members, and of those in the journal.
    """
    known = sorted({*group, *recorded})
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    names_known = f"they name {', '.join(known[:_LISTED])}{more}" if known else "they name nobody"
    for member in dict.fromkeys(members):
        if member not in known:
            yield (
                f"neither the group nor the journal names a member {member!r}; {names_known}"
                f"{did_you_mean(member, known)}"
            )


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
        raise ended(
            failed,
            fenced=f"a relay with identity {identity} runs again: leave it, or stop it first",
            refused=f"grant Write on transactional id {identity}",
            unknown="check kafka.bootstrap and the brokers, then run it again",
        ) from failed
    finally:
        producer.close()
