"""The relay's consumer group, as its coordinator describes it.

Receives settings, gives members and their partitions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay import kafka_settings, names
from relay.failures import answered
from relay.view.facts import Group, Member
from relay.waiting import until_available

if TYPE_CHECKING:
    from relay.settings import Settings

SECONDS = 30.0
_MOVING_SECONDS = 10.0
"""A coordinator that moves, or is made for the first group of a cluster, takes moments."""


class GroupReader:
    """Describes the group, again and again."""

    def __init__(self, settings: Settings) -> None:
        self._app, self._source = settings.app, settings.source.topic
        self._admin = AdminClient(kafka_settings.admin(settings.kafka))

    def read(self) -> Group:
        """The group now.

        Raises:
            Unavailable: the brokers did not answer, or have no coordinator for it.
            Refused: they answered no.
        """
        return until_available(self._described, threading.Event(), _MOVING_SECONDS)

    def _described(self) -> Group:
        group = names.group_id(self._app)
        future = self._admin.describe_consumer_groups([group], request_timeout=SECONDS)[group]
        try:
            found: Any = future.result()
        except KafkaException as error:
            grant = f"grant Describe on group {group} to the user of kafka.client"
            raise answered(f"describe group {group}", error.args[0], grant) from error
        members = [self._member(one) for one in found.members]
        return Group(found.state.name.lower(), tuple(sorted(members, key=lambda m: m.name)))

    def _member(self, found: Any) -> Member:
        assigned = found.assignment.topic_partitions if found.assignment else []
        partitions = sorted(p.partition for p in assigned if p.topic == self._source)
        name = (found.group_instance_id or found.client_id).removeprefix(f"{self._app}.")
        return Member(name, found.host, tuple(partitions))
