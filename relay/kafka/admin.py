"""An AdminClient that says why it gets no answer, and what is asked of it about topics.

Receives a request under way, gives what the brokers answer, or the error for people. Which topics
there have to be, and how wide, relay.kafka.topics decides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from relay import names
from relay.config import kafka_clients, topic_settings
from relay.config.settings import Brokers, Settings
from relay.errors import Refused, Unavailable
from relay.kafka.connection_errors import Heard, Unconnected, name_unresolved_brokers
from relay.kafka.errors import answered
from relay.kafka.partition_ends import Place, dark_places
from relay.kafka.reconnect import Renewal
from relay.program.plural import several

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
METADATA_SECONDS = 2.0  # no signal is handled meanwhile
APPEAR_SECONDS = 10.0  # until all brokers list a topic that was just created
LOOK_SECONDS = 0.1  # between two checks whether it is listed

MAX_MESSAGE_BYTES = 16 * 2**20
"""Of topics the relay creates: chunks stay near block.chunk_bytes, but one row, like one
dead letter, is as large as its producer made it."""

_INSTEAD: Sequence[Mapping[str, str | None]] = (
    {},
    {"message.timestamp.type": None},
    {"max.message.bytes": str(MAX_MESSAGE_BYTES)},  # dead letters are larger
    {"max.message.bytes": str(8 * 2**20)},
    {"max.message.bytes": None},
    {"max.message.bytes": None, "message.timestamp.type": None},
    {"max.message.bytes": None, "message.timestamp.type": None, topic_settings.IN_SYNC: None},
)
"""What a topic is created with where the brokers refuse its settings: the first of these that they
accept; None: the cluster's own. Hosted clusters bound a topic's records, at 8 MiB or above, and
some decide about copies themselves."""
_OF_SETTINGS = {KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG}
"""What brokers answer that refuse a setting; which one, only their text says."""

_MOST_RECORDS = 9_000
"""Of the controller's log, for one request. It refuses the whole of one that takes more than 10,000
(MAX_RECORDS_PER_USER_OP, and as many partitions in all), as a policy would."""
_RECORDS_OF_A_TOPIC = 4
"""Beside its partitions: itself and its settings."""

Rights = tuple[AclOperation, ...]
T = TypeVar("T")

ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001


class Admin:
    """An AdminClient, with what its error_cb said and with a changed password."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._heard = Heard()
        config: dict[str, Any] = {**kafka_clients.admin(brokers), "error_cb": self._heard.listen}
        self.client, self._renewal = AdminClient(config), Renewal(config)

    def look(self) -> None:
        """Take a changed password; this costs little, so every question can begin with it."""
        self._renewal.look(self.client)

    def answer(
        self, what: str, future: Future[Any], refusal: str, fine: Collection[int] = ()
    ) -> Any:
        """Return what the brokers answer; None for an error code in `fine`.

        Without a connection a request only times out, and does not say why: error_cb does.

        `what` is the request, as an infinitive with what it concerns; `refusal` is the next step
        where the brokers say no.

        Raises:
            Unavailable: the brokers did not answer.
            Refused: they answered no, or the credentials are wrong.
        """
        try:
            return self._answer(what, future, refusal, fine)
        except Unavailable as error:
            raise name_unresolved_brokers(error, self._brokers) from error

    def _answer(self, what: str, future: Future[Any], refusal: str, fine: Collection[int]) -> Any:
        begun = time.monotonic()
        self.look()
        self.client.poll(0)
        if self._heard.refused():
            self._heard.error = None  # an earlier one; error_cb repeats it if it still holds
        try:
            return self._heard.answer(self.client, future)
        except Unconnected as silence:
            self._heard.error = None
            raise answered(what, silence.error, refusal) from None
        except KafkaException as error:
            if error.args[0].code() in fine:
                return None
            raise answered(what, self._heard.explained(error.args[0], begun), refusal) from error


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What brokers say of a topic: its id, its width, and copies of the partition with fewest.

    A topic that was made anew under the same name has another id.
    """

    topic_id: str
    partitions: int
    copies: int = 1


class TopicRequests:
    """Requests about the topics of one app.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: they answered no, the credentials are wrong, or a right is missing.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = Admin(settings.kafka)
        self._of_source = Admin(settings.source_kafka) if settings.crosses else None
        self._ready: set[str] = set()
        self._instead = 0  # of _INSTEAD
        self._source_copies = 0  # until the source topic is looked at

    def describe(self, topic: str, rights: Rights = ()) -> TopicFacts | None:
        """Return id and width of a topic; None where there is no such topic.

        Raises:
            Refused: also where the brokers say that this user lacks one of `rights`.
        """
        needed = " and ".join(right.name.capitalize() for right in rights) or "Describe"
        grant = f"grant {needed} on topic {topic} to the user of kafka.client, then start again"
        elsewhere = self._of_source if topic == self._settings.source.topic else None
        admin = elsewhere or self._admin
        self._look_for_controller(elsewhere)
        future = description(admin, [topic])[topic]
        answer = admin.answer(f"describe topic {topic}", future, grant, fine=ABSENT)
        if answer is None:
            return None
        if lacking := lacking_rights(answer, rights):
            text = f"topic {topic}: this user may not {' nor '.join(lacking)}"
            raise Refused(text, grant, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
        copies = min((len(partition.replicas) for partition in answer.partitions), default=0)
        return TopicFacts(str(answer.topic_id), len(answer.partitions), copies)

    def most_bytes(self, topic: str) -> int | None:
        """Return the topic's limit for a record batch; None where the brokers do not say."""
        limits = self._numbers([topic], ("max.message.bytes", "segment.bytes"), REQUEST_SECONDS)
        return min(limits[topic].values(), default=None)

    def least_in_sync(self, copies: Mapping[str, int]) -> dict[str, int]:
        """Return min.insync.replicas of topics with so many copies.

        Where brokers do not say it is what relays ask for.
        """
        name = topic_settings.IN_SYNC
        answers = self._numbers(copies, (name,), METADATA_SECONDS)
        usual = {topic: topic_settings.of_copies(of).get(name, 1) for topic, of in copies.items()}
        return {topic: answers[topic].get(name, int(usual[topic])) for topic in copies}

    def dark(self, places: Collection[Place]) -> frozenset[Place] | None:
        """Return those of these partitions that take no records; None where no broker says so."""
        self._admin.look()
        with contextlib.suppress(KafkaException):
            return dark_places(self._admin.client, places, METADATA_SECONDS, self.least_in_sync)
        return None

    def _numbers(
        self, topics: Collection[str], settings: Collection[str], seconds: float
    ) -> dict[str, dict[str, int]]:
        """Return those of these settings that the brokers tell, by topic.

        The right to ask is asked of nobody: what is not told is found by trying.
        """
        self._admin.look()
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        futures = self._admin.client.describe_configs(resources, request_timeout=seconds)
        wait(futures.values())
        numbers: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        for resource, future in futures.items():
            if code_of(future) is None:
                entries = future.result()
                known = [name for name in settings if name in entries]
                numbers[resource.name] = {name: int(entries[name].value) for name in known}
        return numbers

    def _look_for_controller(self, elsewhere: Admin | None = None) -> None:
        """Hear which broker answers; librdkafka (2.16) waits for a broker that is gone.

        `elsewhere`: of the source's cluster, if that is another and is to be asked.
        """
        topic = journal = names.journal_topic(self._settings.app)
        if elsewhere is not None:
            topic = self._settings.source.topic
        if journal in self._ready:  # before, the client has just begun and knows no broker as gone
            with contextlib.suppress(KafkaException):  # the request itself says what is wrong
                (elsewhere or self._admin).client.list_topics(topic, timeout=METADATA_SECONDS)

    def _growable(self, topics: Collection[str]) -> set[str]:
        """Return those of these topics, none of which exists yet, that this user may grow later.

        Nothing grows: a broker first checks the right, and then says that there is no such topic.
        """
        new = [NewPartitions(topic, 2) for topic in sorted(topics)]
        answers = self._admin.client.create_partitions(
            new, request_timeout=REQUEST_SECONDS, validate_only=True
        )
        wait(answers.values())
        codes = {topic: code_of(future) for topic, future in answers.items()}
        # Who has not heard whether it may grow later must not make it too wide for ever.
        if silent := [t for t, code in codes.items() if code not in ABSENT and (code or 0) < 0]:
            self._admin.answer(f"ask whether {silent[0]} could grow", answers[silent[0]], "")
        return {topic for topic, code in codes.items() if code in ABSENT}

    def _grow_all(self, topics: Collection[str], wanted: int) -> dict[str, Refused]:
        """Grow them in few requests; return those that cannot be grown.

        Another relay may do it at the same time.
        """
        refused = {}
        for some in in_requests(topics, wanted):
            new = [NewPartitions(topic, wanted) for topic in some]
            answers = self._admin.client.create_partitions(new, request_timeout=REQUEST_SECONDS)
            for topic, future in answers.items():
                try:
                    self._admin.answer(
                        f"grow topic {topic} to {wanted} partitions",
                        future,
                        f"grant Alter on topic {topic} to the user of kafka.client, or grow it "
                        f"yourself (kafka-topics --alter --topic {topic} --partitions {wanted})",
                        fine={KafkaError.INVALID_PARTITIONS},
                    )
                except Refused as error:
                    refused[topic] = error
        return refused

    def _grow(self, topic: str, partitions: int) -> None:
        for why in self._grow_all([topic], partitions).values():
            raise why

    def _create(
        self, topic: str, partitions: int, rights: Rights, config: Mapping[str, str] | None = None
    ) -> TopicFacts:
        """Create a topic, and wait until it is known, so that its rights can be asked for.

        Where the brokers refuse a setting, this topic and all later ones get another (_INSTEAD).
        """
        instead = self._instead
        while not self._try_to_create(self._new(topic, partitions, config)):
            pass
        if self._instead > instead:
            log.warning(
                "the brokers refuse settings of a topic, so the app's topics have these instead; "
                "`relay doctor` says what follows",
                extra={"topic": topic, **_shown(_INSTEAD[self._instead])},
            )
        return until_listed(topic, lambda: self.describe(topic, rights))

    def _try_to_create(self, new: NewTopic) -> bool:
        """Return whether it is created; where a setting is refused, the next try has another."""
        try:
            self._admin.answer(
                f"create topic {new.topic}",
                self._admin.client.create_topics([new], request_timeout=REQUEST_SECONDS)[new.topic],
                f"grant Create on topics that begin with {self._settings.app}. to the user of "
                f"kafka.client; or, if {several(new.replication_factor, 'copy', 'copies')} of it "
                "cannot be had, set kafka.replication; or create the topic yourself, with "
                f"{several(new.num_partitions, 'partition')}",
                fine={KafkaError.TOPIC_ALREADY_EXISTS},
            )
        except Refused as error:
            if error.code not in _OF_SETTINGS or self._instead + 1 == len(_INSTEAD):
                self._instead = 0  # what was left out was not the reason
                raise
            self._instead += 1
            return False
        return True

    def _new(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> NewTopic:
        replication = topic_settings.copies(self._settings.kafka.replication, self._source_copies)
        wanted: dict[str, str | None] = {
            **topic_settings.BY_TIME,
            **topic_settings.BY_BROKERS_CLOCK,
            **topic_settings.of_copies(replication),
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            **(config or {}),
        }
        wanted |= {k: v for k, v in _INSTEAD[self._instead].items() if k in wanted}
        return NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication,
            config={name: value for name, value in wanted.items() if value is not None},
        )


def _shown(settings: Mapping[str, str | None]) -> dict[str, str]:
    """As fields of a log line."""
    return {k.replace(".", "_"): v or "the cluster's own" for k, v in settings.items()}


def in_requests(topics: Collection[str], partitions: int) -> Iterator[Sequence[str]]:
    """Yield these topics by as many as one request may make or grow to so many partitions."""
    ordered = sorted(topics)
    per_request = max(1, _MOST_RECORDS // (partitions + _RECORDS_OF_A_TOPIC))
    for start in range(0, len(ordered), per_request):
        yield ordered[start : start + per_request]


def until_listed(topic: str, look: Callable[[], T | None]) -> T:
    """Look until the brokers list a topic that was just created; return what was found.

    Raises:
        Unavailable: `look` returned None for APPEAR_SECONDS.
    """
    deadline = time.monotonic() + APPEAR_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"topic {topic} was created, but the brokers do not list it after "
                f"{APPEAR_SECONDS:g} s",
                "check that the brokers reach each other",
            )
        time.sleep(LOOK_SECONDS)
    return found


def description(admin: Admin, topics: Collection[str]) -> Mapping[str, Future[Any]]:
    """Ask about topics, and what this user may do there, in one request."""
    return admin.client.describe_topics(
        TopicCollection(sorted(topics)),
        request_timeout=REQUEST_SECONDS,
        include_authorized_operations=True,
    )


def lacking_rights(description: TopicDescription, rights: Rights) -> list[str]:
    """Return the names of rights that this user lacks."""
    granted = description.authorized_operations  # empty where the brokers do not say
    return [right.name.capitalize() for right in rights if right not in (granted or rights)]


def code_of(future: Future[Any]) -> int | None:
    """The code of the brokers' error; None where there is none."""
    error = future.exception()
    return error.args[0].code() if isinstance(error, KafkaException) else None
