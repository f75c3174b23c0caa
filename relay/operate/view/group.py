"""The relay's consumer group, as its coordinator describes it, and as journal records name it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection

from relay import names
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.intake.membership import described
from relay.kafka import group_queries
from relay.kafka.connection_errors import name_unresolved_brokers
from relay.kafka.topics import READ, Topics
from relay.operate.verify.judge.record import by_person
from relay.operate.verify.read.journal import Reader, from_the_start
from relay.operate.view import start
from relay.operate.view.facts import ConsumerGroup, GroupMember
from relay.program.waiting import ServerWait

SECONDS = 30.0
_MOVING_SECONDS = 10.0
"""A coordinator that moves, or is made for the first group of a cluster, takes moments."""


class GroupReader:
    """Describes the group; `lasting` as of relay.kafka.group_queries."""

    def __init__(self, settings: Settings, *, lasting: bool = False) -> None:
        self._app, self._source = settings.app, settings.source.topic
        self._brokers = settings.source_kafka
        self._groups = group_queries.Groups(settings.source_kafka, SECONDS, lasting=lasting)

    def read(self) -> ConsumerGroup:
        """Return the group now.

        Raises:
            Unavailable: the brokers did not answer, or have no coordinator for it.
            Refused: they answered no.
        """
        return ServerWait(threading.Event())(self._described, _MOVING_SECONDS)

    def close(self) -> None:
        """End what asks."""
        self._groups.close()

    def _described(self) -> ConsumerGroup:
        try:
            group = described(self._groups, names.group_id(self._app))
        except Unavailable as error:
            raise name_unresolved_brokers(error, self._brokers) from error
        members = [self._member(member) for member in group.members]
        return ConsumerGroup(group.state, tuple(sorted(members, key=lambda m: m.name)))

    def _member(self, found: group_queries.MemberDescription) -> GroupMember:
        partitions = sorted(p for topic, p in found.partitions if topic == self._source)
        name = (found.instance or found.client).removeprefix(f"{self._app}.")
        return GroupMember(name, found.host, tuple(partitions))


def journal_members(settings: Settings, wanted: Collection[str]) -> set[str]:
    """Return the members that records in the journal name.

    Reads all that is retained, unless the newest records already name everyone who is wanted.

    Raises:
        ConfigError: the app has no journal.
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """
    Topics(settings).describe(names.journal_topic(settings.app), (READ,))  # names a missing right
    found: set[str] = set()
    for begin in (start.last(start.RECORDS), from_the_start):
        with contextlib.closing(Reader(settings, begin)) as reader:
            reader.grow()
            found |= {commit.member for _, _, commit in reader.records() if not by_person(commit)}
        if found.issuperset(wanted):
            break
    return found
