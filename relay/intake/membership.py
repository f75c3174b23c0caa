"""Explains why the group refuses this member: its own past, another in its place, its session.

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
from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException

from relay import names
from relay.config.settings import Settings
from relay.core.effects import ONE_PROCESS
from relay.errors import Fenced, Refused
from relay.kafka.errors import UNTOLD, answered, read_limits
from relay.kafka.group_queries import GroupDescription, Groups
from relay.program.waiting import ServerWait

log = logging.getLogger(__name__)

_REQUEST_SECONDS = 15.0
_SHORTEST, _LONGEST = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
_INSTANCE = "same group.instance.id"
"""In the text of a fatal error, whose code hides which it is (librdkafka 2.16)."""


class MemberFenced(Fenced):
    """The group refuses this process's member; `mine` are the ids that it gave this process."""

    def __init__(self, message: str, mine: Collection[str]) -> None:
        super().__init__(message, ONE_PROCESS)
        self.mine = frozenset(mine)


def concerns_member(error: KafkaError) -> bool:
    """Return whether a consumer's error says that another holds its group.instance.id."""
    if error.code() == KafkaError.FENCED_INSTANCE_ID:
        return True
    return error.code() == KafkaError._FATAL and _INSTANCE in error.str()  # noqa: SLF001


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
    """Ask the group whether nobody else has the member's place; wait while nobody answers.

    `mine` are the ids that the group gave this process.
    """
    try:
        member = wait(lambda: holder(settings))
    except Refused as refused:  # without the right to ask, believe who fenced this process
        log.warning("cannot ask which process holds this member", extra={"why": refused.message})
        return False
    return member is None or member in mine


def holder(settings: Settings) -> str | None:
    """Ask the group who holds the member's group.instance.id; None: nobody does any more.

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
    return next((member.id for member in members if member.instance == instance), None)


def session_refused(text: str, settings: Settings) -> Refused:
    """Return the error of a group that takes no session of this length, with the brokers' limits.

    If the user lacks DescribeConfigs on the cluster, the error names that right.
    """
    asked_ms = round(settings.relay.session_timeout_seconds * 1000)
    limits = read_limits(settings.source_kafka, _SHORTEST, _LONGEST)
    if limits.keys() >= {_SHORTEST, _LONGEST}:
        least_ms, most_ms = max(limits[_SHORTEST]), min(limits[_LONGEST])
        limit = f"{_SHORTEST} = {least_ms}, {_LONGEST} = {most_ms}"
        nearest_ms = min(max(asked_ms, least_ms), most_ms)
        remedy = f"set relay.session_timeout_seconds = {nearest_ms / 1000:g}"
    else:
        limit, remedy = UNTOLD, "change relay.session_timeout_seconds"
    return Refused(
        f"{text}: relay.session_timeout_seconds is {asked_ms} ms ({limit})",
        f"{remedy}, or change the brokers' limit, then start again",
        code=KafkaError.INVALID_SESSION_TIMEOUT,
    )
