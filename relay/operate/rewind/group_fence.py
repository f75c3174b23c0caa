"""Keeps relays away from source partitions: membership of their consumer group.

Receives partitions, gives the group metadata under which their offsets may be committed. Every
relay is a static member. Whoever joins under a member's name takes its place at once: the broker
refuses the relay's next heartbeat and commit, and it ends with status 7. So all partitions come
to this process. A relay that is started again takes its name back, and then the broker refuses
the offsets that this process sends for that member: nothing rests on timing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import ErrorPage, Fenced, Refused
from relay.intake.membership import session_refused
from relay.kafka.admin import Admin
from relay.kafka.errors import REFUSED, describe, ends_reading, is_final

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.05
_DESCRIBE_SECONDS = 1.0


class _Member:
    """One membership, under a relay's name or under none ("")."""

    def __init__(self, settings: Settings, name: str) -> None:
        config = {**kafka_clients.consumer(settings), "error_cb": self._on_error}
        del config["group.instance.id"]
        if name:
            config["group.instance.id"] = name
        self.name = name
        self.partitions: frozenset[int] = frozenset()
        self.error: KafkaError | None = None
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            [settings.source.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.partitions = frozenset(place.partition for place in places)
        consumer.assign([])  # a member that reads nothing

    def _revoked(self, *_: Any) -> None:
        self.partitions = frozenset()

    def _on_error(self, error: KafkaError) -> None:
        if ends_reading(error):
            self.error = error


class GroupFence:
    """All memberships that it takes until it owns the partitions.

    Raises (every method):
        Unavailable, Refused: as the brokers answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._group = names.group_id(settings.app)
        self._admin = Admin(settings.kafka)
        self._members: dict[str, _Member] = {}
        self._cause = ""  # why the group admits nobody

    def take(self, partitions: Collection[int]) -> dict[int, Any]:
        """Group metadata by partition, of the member that owns it now.

        Raises:
            Fenced: relays are started again and again.
        """
        # A member that is not taken over, as one that joins now, holds its own for a session.
        session = self._settings.relay.session_timeout_seconds
        deadline = time.monotonic() + session + _ANSWER_SECONDS
        described = float("-inf")
        while True:
            if time.monotonic() - described > _DESCRIBE_SECONDS:
                self._join()
                described = time.monotonic()
            for member in list(self._members.values()):
                self._serve(member)
            owners = {p: m for m in self._members.values() for p in m.partitions}
            if owners.keys() >= set(partitions):
                return {p: owners[p].consumer.consumer_group_metadata() for p in partitions}
            if time.monotonic() > deadline:
                missing = sorted(set(partitions) - owners.keys())
                raise Fenced(
                    f"relays of group {self._group} keep source partitions {missing}{self._cause}",
                    "stop the relays (scale them to 0), then run this command again",
                    page=ErrorPage.REWIND,
                )

    def close(self) -> None:
        """Leave; relays take their places back when they are started."""
        for member in self._members.values():
            member.consumer.close()
        self._members = {}

    def _join(self) -> None:
        """Join under every name that is in the group; under none where there is no name."""
        for name in sorted(self._described() - self._members.keys()):
            log.info("taking over a relay's membership in the group", extra={"member": name})
            self._members[name] = _Member(self._settings, name)
        if not self._members:
            self._members[""] = _Member(self._settings, "")

    def _described(self) -> set[str]:
        group = self._admin.answer(
            f"describe group {self._group}",
            self._admin.client.describe_consumer_groups(
                [self._group], request_timeout=_ANSWER_SECONDS
            )[self._group],
            f"grant Read and Describe on group {self._group} to the user of kafka.client",
            fine={KafkaError.GROUP_ID_NOT_FOUND},
        )
        members = [] if group is None else group.members
        return {member.group_instance_id for member in members if member.group_instance_id}

    def _serve(self, member: _Member) -> None:
        message = member.consumer.poll(_POLL_SECONDS)
        error = member.error or (None if message is None else message.error())
        if error is None:
            return
        if error.code() in REFUSED:
            text = describe(f"consumer in group {self._group}", error)
            if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
                raise session_refused(text, self._settings)
            raise Refused(text, f"grant Read on group {self._group} and on the source topic")
        if is_final(error):
            log.warning("a relay took its membership back", extra={"member": member.name})
            del self._members[member.name]
            member.consumer.close()
        else:
            self._cause = f"; it said: {describe('join', error)}"
