"""Asks about consumer groups; for repeated questions, in a process of its own.

Receives brokers, gives what a group's coordinator answers. Where the connection to a coordinator is
lost at the wrong moment, as when brokers come back from an outage, librdkafka ends the process that
asked (`Assertion eonce->refcnt > 0`: its issue 4605 and pull request 5397, open with 2.16). A
program that lasts has to outlive that: a child asks for it, and is started again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from relay import log
from relay.config import kafka_clients
from relay.config.kafka_clients import ClientSettings
from relay.config.settings import Brokers
from relay.kafka.connection_errors import Heard, Unconnected
from relay.kafka.reconnect import Renewal

_LASTING_SECONDS = 10.0
"""For one request of a program that asks again: one that is under way as brokers come back may get
no answer, and a new client would."""
_SPARE_SECONDS = 10.0
"""That an answer may take beyond its request's time: the child has to start."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member: `instance` is its group.instance.id or empty, `partitions` are those it owns.

    They have their topics: a group may read others than the source.
    """

    id: str
    instance: str
    client: str
    host: str
    partitions: tuple[tuple[str, int], ...]


class GroupDescription(NamedTuple):
    """A group."""

    state: str
    members: tuple[MemberDescription, ...]


class GroupOffset(NamedTuple):
    """A group's offset of a partition, and its leader epoch; negative: none.

    Attributes:
        error: the code of why it is not known.
    """

    partition: int
    offset: int
    metadata: str | None
    error: int
    why: str
    leader_epoch: int = -1


class Groups:
    """What the coordinators of one cluster's groups say.

    Args:
        lasting: whether the program is to outlive an outage; else it asks by itself, which saves
            the child's start.

    Raises (every method):
        KafkaException: as they answer; _TRANSPORT where the asking process ended.
    """

    def __init__(self, brokers: Brokers, seconds: float, *, lasting: bool) -> None:
        self._brokers, self._lasting = brokers, lasting
        self._seconds = min(seconds, _LASTING_SECONDS) if lasting else seconds
        self._own: _Client | None = None
        self._child: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None

    def describe(self, group: str) -> GroupDescription:
        """Return the group's state and members."""
        answer: GroupDescription = self._ask(_describe, group)
        return answer

    def committed(self, group: str, topic: str, partitions: Collection[int]) -> list[GroupOffset]:
        """Return the group's stable offsets; an error for a partition with a transaction open."""
        if not partitions:  # the client refuses to ask for none
            return []
        answer: list[GroupOffset] = self._ask(_committed, group, topic, tuple(partitions))
        return answer

    def close(self) -> None:
        """Let go of what asks."""
        self._own = None
        child, self._child = self._child, None
        if self._connection is not None:
            self._connection.close()
        if child is not None:
            child.kill()  # it holds nothing, and may be waiting for an answer
            child.join()

    def _ask(self, question: Callable[..., Any], *about: object) -> Any:
        if self._lasting:
            answer = self._of_child(question, about)
        else:
            self._own = self._own or _Client(kafka_clients.admin(self._brokers), self._seconds)
            answer = self._own.ask(question, about)
        if isinstance(answer, _Refusal):
            # No broker's answer: such a client may never get another one. And one that asks a
            # broker that is the coordinator no more goes on asking that.
            if answer.code < 0 or answer.code == KafkaError.NOT_COORDINATOR:
                self.close()
            raise KafkaException(KafkaError(answer.code, answer.text))
        return answer

    def _of_child(self, question: Callable[..., Any], about: tuple[object, ...]) -> Any:
        if self._child is None or not self._child.is_alive():
            self._start()
        assert self._connection is not None
        try:
            self._connection.send((question, about))
            if self._connection.poll(self._seconds + _SPARE_SECONDS):
                return self._connection.recv()
        except (EOFError, OSError):
            return _nobody(f"the process that asks about groups ended with {self._ended()}")
        self.close()
        return _nobody("the process that asks about groups does not answer")

    def _start(self) -> None:
        self.close()
        context = multiprocessing.get_context("spawn")  # a fork would take half of librdkafka along
        self._connection, theirs = context.Pipe()
        self._child = context.Process(
            target=_serve,
            # Not the settings themselves: to import what they are made of takes most of its start.
            args=(theirs, kafka_clients.admin(self._brokers), self._seconds, log.in_use()),
            daemon=True,
        )
        self._child.start()
        theirs.close()  # so that the end of either process is the other's end of file

    def _ended(self) -> str:
        child = self._child
        if child is None:
            return "not started"
        child.join(_SPARE_SECONDS)
        status = child.exitcode
        self.close()
        return f"status {status}"


class _Refusal(NamedTuple):
    """An error in place of an answer."""

    code: int
    text: str


def _nobody(why: str) -> _Refusal:
    return _Refusal(KafkaError._TRANSPORT, why)  # noqa: SLF001


class _Client:
    """Asks by itself."""

    def __init__(self, of_cluster: ClientSettings, seconds: float) -> None:
        self._heard, self._seconds = Heard(), seconds
        config: ClientSettings = {**of_cluster, "error_cb": self._heard.listen}
        self._client, self._renewal = AdminClient(config), Renewal(config)

    def ask(self, question: Callable[..., Any], about: tuple[object, ...]) -> Any:
        """The answer, or a _Refusal."""
        self._renewal.look(self._client)
        self._client.poll(0)
        self._heard.error = None  # an earlier one; error_cb repeats it if it still holds
        begun = time.monotonic()
        try:
            return question(self._client, self._heard, self._seconds, *about)
        except Unconnected as silence:
            return _Refusal(silence.error.code(), silence.error.str())
        except KafkaException as error:
            cause = self._heard.explained(error.args[0], begun)
            return _Refusal(cause.code(), cause.str())


def _serve(
    connection: Connection[Any, Any],
    of_cluster: ClientSettings,
    seconds: float,
    log_in_use: bool | None,  # noqa: FBT001 - of relay.log
) -> None:
    """Answer until the other end is closed; runs in the child, and logs as its parent does."""
    log.as_parent(log_in_use)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends this
    client = _Client(of_cluster, seconds)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(client.ask(*connection.recv()))


def _describe(client: AdminClient, heard: Heard, seconds: float, group: str) -> GroupDescription:
    futures = client.describe_consumer_groups([group], request_timeout=seconds)
    answer = heard.answer(client, futures[group])
    return GroupDescription(answer.state.name.lower(), tuple(map(_member, answer.members)))


def _member(member: Any) -> MemberDescription:
    assigned = member.assignment.topic_partitions if member.assignment else []
    owned = tuple((place.topic, place.partition) for place in assigned)
    instance = member.group_instance_id or ""
    return MemberDescription(member.member_id, instance, member.client_id, member.host, owned)


def _committed(
    client: AdminClient, heard: Heard, seconds: float, group: str, topic: str, of: Sequence[int]
) -> list[GroupOffset]:
    places = [TopicPartition(topic, partition) for partition in of]
    futures = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, places)], require_stable=True, request_timeout=seconds
    )
    answer = heard.answer(client, futures[group]).topic_partitions
    return [
        GroupOffset(
            place.partition,
            place.offset,
            place.metadata,
            0 if place.error is None else place.error.code(),
            "" if place.error is None else str(place.error),
            -1 if place.leader_epoch is None else place.leader_epoch,
        )
        for place in answer
    ]
