"""The relay's consumer group, as its coordinator describes it.

Receives settings, gives members and their partitions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from relay import names
from relay.admin import Admin
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
        self._admin = Admin(settings.source_kafka)

    def read(self) -> Group:
        """The group now.

        Raises:
            Unavailable: the brokers did not answer, or have no coordinator for it.
            Refused: they answered no.
        """
        return until_available(self._described, threading.Event(), _MOVING_SECONDS)

    def _described(self) -> Group:
        group = names.group_id(self._app)
        asked = self._admin.client.describe_consumer_groups([group], request_timeout=SECONDS)
        grant = f"grant Describe on group {group} to the user of kafka.client"
        found = self._admin.answer(f"describe group {group}", asked[group], grant)
        members = [self._member(one) for one in found.members]
        return Group(found.state.name.lower(), tuple(sorted(members, key=lambda m: m.name)))

    def _member(self, found: Any) -> Member:
        assigned = found.assignment.topic_partitions if found.assignment else []
        partitions = sorted(p.partition for p in assigned if p.topic == self._source)
        name = (found.group_instance_id or found.client_id).removeprefix(f"{self._app}.")
        return Member(name, found.host, tuple(partitions))
