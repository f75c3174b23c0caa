"""Tells a member whose own past the group refuses from one whose place another has taken.

Receives the ids that a member had and who holds its `group.instance.id` now, gives the answer. A
session that ends while the brokers are away leaves them with the member's old id: their clocks
stood still with them. librdkafka has forgotten it by then, and its next heartbeat, which names no
id, is refused as another's (FENCED_INSTANCE_ID, which ends the client). A twin has an id that this
process never had. The transactional id fences a twin all the same, whatever is answered here.

A transaction that is open for longer than its timeout is ended by the coordinator in a new epoch,
and its producer's next call is refused as that of an older one. The group knows here, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from relay import names
from relay.core.effects import ONE_PROCESS
from relay.errors import Fenced, Refused
from relay.kafka.errors import answered
from relay.kafka.group_queries import Groups

if TYPE_CHECKING:
    from collections.abc import Collection

    from relay.config.settings import Settings
    from relay.kafka.group_queries import GroupDescription
    from relay.program.waiting import ServerWait

log = logging.getLogger(__name__)

_REQUEST_SECONDS = 15.0
_INSTANCE = "same group.instance.id"
"""In the text of a fatal error, whose code hides which it is (librdkafka 2.16)."""


class MemberFenced(Fenced):
    """The group refuses this process's member.

    Attributes:
        mine: ids that the group gave this process.
    """

    def __init__(self, message: str, mine: Collection[str]) -> None:
        super().__init__(message, ONE_PROCESS)
        self.mine = frozenset(mine)


def concerns_member(error: KafkaError) -> bool:
    """Return whether a consumer's error says that another holds its group.instance.id."""
    if error.code() == KafkaError.FENCED_INSTANCE_ID:
        return True
    return error.code() == KafkaError._FATAL and _INSTANCE in error.str()  # noqa: SLF001


def is_own_past(holder: str | None, mine: Collection[str]) -> bool:
    """Return whether nobody else has the member's place.

    Args:
        holder: id of who holds the group.instance.id; None: nobody does any more.
        mine: ids that this process had.
    """
    return holder is None or holder in mine


def described(groups: Groups, group: str) -> GroupDescription:
    """Describe the group as Groups.describe does.

    Raises:
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """
    try:
        return groups.describe(group)
    except KafkaException as error:
        grant = f"grant Describe on group {group} to the user of kafka.client"
        raise answered(f"describe group {group}", error.args[0], grant) from error


def nobody_else(settings: Settings, mine: Collection[str], wait: ServerWait) -> bool:
    """Ask the group whether another process has the member's place; wait while nobody answers.

    Args:
        settings: of the app.
        mine: ids that the group gave this process.
        wait: for the brokers.
    """
    try:
        return is_own_past(wait(lambda: holder(settings)), mine)
    except Refused as refused:  # without the right to ask, believe who fenced this process
        log.warning("cannot ask which process holds this member", extra={"why": refused.message})
        return False


def holder(settings: Settings) -> str | None:
    """Ask the group who holds the member's group.instance.id.

    Raises:
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """
    group = names.group_id(settings.app)
    instance = names.instance_id(settings.app, settings.relay.member)
    groups = Groups(settings.source_kafka, _REQUEST_SECONDS, lasting=True)
    try:
        members = described(groups, group).members
    finally:
        groups.close()
    return next((one.id for one in members if one.instance == instance), None)
