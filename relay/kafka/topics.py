"""Topics of one app: created and grown by the relay, never by the broker's auto-creation.

Receives names, gives what the cluster has. Every block topic, the journal and the dead
letters have as many partitions as the source topic, because partition p of the source
goes to partition p of each.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AclOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from relay import names
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.admin import Admin
from relay.kafka.errors import answered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from relay.config.settings import Settings

REQUEST_SECONDS = 10.0
METADATA_SECONDS = 2.0  # no signal is handled meanwhile
GROW_SECONDS = 60.0
"""How long a topic may stay narrower than the group's assignment asks for, before a person has to
act: brokers learn of new partitions within a second or two."""
APPEAR_SECONDS = 10.0  # until all brokers list a topic that was just created
_LOOK_SECONDS = 0.1  # between two checks whether it is listed

MAX_MESSAGE_BYTES = 16 * 2**20
"""Of topics the relay creates: chunks stay near block.chunk_bytes, but one row, like one
dead letter, is as large as its producer made it."""

MAX_DEAD_LETTER_BYTES = 100 * 2**20
"""A source message may be small only while it is compressed; its dead letter is not. As the
brokers' default socket.request.max.bytes, above which no request gets through."""

READ, WRITE = AclOperation.READ, AclOperation.WRITE
Rights = tuple[AclOperation, ...]

_ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic's id, which a recreated topic of the same name does not have, and its partitions."""

    topic_id: str
    partitions: int


class Topics:
    """Looks at, creates and grows topics.

    It checks each right when it first describes the topic, not when the right is first needed:
    otherwise a relay would run for weeks and stop at its first dead letter or second start.

    Raises (every method):
        Unavailable: the brokers did not answer.
        Refused: they answered no, the credentials are wrong, or a right is missing.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = Admin(settings.kafka)
        self._of_source = Admin(settings.source_kafka) if settings.crosses else None
        self._ready: set[str] = set()
        self._partitions = 0
        self._followed = 0
        self._narrow_since: float | None = None
        self.behind: dict[str, Refused] = {}
        """Block topics that did not grow with the source, and why; whoever knows their tables
        takes them away."""

    def source(self) -> TopicFacts:
        """Return the source topic as it is now.

        Raises:
            Refused: it is not there.
        """
        topic = self._settings.source.topic
        facts = self.describe(topic, (READ,))
        if facts is None:
            raise Refused(
                f"source topic {topic!r} does not exist (bootstrap = "
                f"{self._settings.source_kafka.bootstrap})",
                "create it with `relay topic create`, or correct source.topic; relays only read it",
            )
        self._partitions = facts.partitions
        return facts

    def ensure_own(self) -> TopicFacts:
        """Create journal, dead letters and schema registry where they are missing."""
        facts = self.source()
        app = self._settings.app
        self._ensure(names.journal_topic(app), facts.partitions, (READ, WRITE))
        large = {"max.message.bytes": str(MAX_DEAD_LETTER_BYTES)}
        self._ensure(names.dead_topic(app), facts.partitions, (WRITE,), large)
        compact = {"cleanup.policy": "compact"}
        self._ensure(names.schemas_topic(app), 1, (READ, WRITE), compact)
        self._followed = facts.partitions
        return facts

    def follow(self, partitions: Collection[int]) -> bool:
        """See that the source and the app's topics have these partitions, that the group gave.

        The source may have been grown since the topics were made; they grow with it.

        Returns:
            Whether they were looked at, as some are new: what clients know of them may be old.

        Raises:
            Unavailable: one is narrower still; asked again, for GROW_SECONDS.
            Refused: for longer, or one may not be grown, and it is no block topic (see `behind`);
                or one was deleted.
        """
        needed = max(partitions, default=-1) + 1
        if needed <= self._followed:
            return False
        wide = self.source().partitions
        if wide < needed:
            raise self._narrow(self._settings.source.topic, wide, needed)
        for topic in sorted(self._ready - {names.schemas_topic(self._settings.app)}):
            facts = self.describe(topic)
            if facts is None:
                raise _deleted(topic)
            if facts.partitions < wide:
                self._widen(topic, wide)
        self._followed, self._narrow_since = wide, None
        return True

    def _widen(self, topic: str, wanted: int) -> None:
        """Grow a topic, and see that it has grown; of a block topic its table alone depends."""
        try:
            self._grow(topic, wanted)
            facts = self.describe(topic)
            if facts is not None and facts.partitions < wanted:
                raise self._narrow(topic, facts.partitions, wanted)
        except Refused as error:
            if not topic.startswith(names.blocks_prefix(self._settings.app)):
                raise
            self._ready.discard(topic)
            self.behind[topic] = error

    def _narrow(self, topic: str, found: int, needed: int) -> Unavailable | Refused:
        """What is waited for, and after GROW_SECONDS not any more."""
        since = self._narrow_since = self._narrow_since or time.monotonic()
        text = (
            f"topic {topic} has {found} partitions, but needs {needed}: the source topic has grown"
        )
        if time.monotonic() - since < GROW_SECONDS:
            return Unavailable(
                text, "wait: the relay asks again until all brokers know the new partitions"
            )
        bootstrap = self._settings.kafka_of(topic).bootstrap
        return Refused(
            f"{text}, and after {GROW_SECONDS:g} s the brokers still say so",
            f"kafka-topics --bootstrap-server {bootstrap} --alter --topic {topic} --partitions "
            f"{needed}, then start again; if it cannot be grown now, see whether its partitions "
            "are being moved (kafka-reassign-partitions --list)",
        )

    def ensure_replayed(self) -> None:
        """Create the topic of the replays' marks where it is missing."""
        topic = names.replayed_topic(self._settings.app)
        self._ensure(topic, 1, (READ, WRITE), {"cleanup.policy": "compact"})

    def make_block_topics(self, wanted: Mapping[str, Collection[str]]) -> set[str]:
        """Create many in one request, as one for each takes as long as its brokers need.

        What is wrong with one is not said here: ensure_block_topic looks at each topic that is not
        ready by then, and reports it.

        Args:
            wanted: topics, each with all names that it may be there by; those are left alone.

        Returns:
            Those of all these names that no topic had before.
        """
        self._look_for_controller()
        asked = {name for names_of_it in wanted.values() for name in names_of_it}
        absent = self._look_at(asked)
        new = [
            self._new(topic, self._partitions)
            for topic in wanted
            if absent.issuperset(wanted[topic])
        ]
        if new:
            created = self._admin.client.create_topics(new, request_timeout=REQUEST_SECONDS)
            wait(created.values())
            self._await_all({topic for topic, future in created.items() if not future.exception()})
        return absent

    def _await_all(self, created: Collection[str]) -> None:
        """Wait until these are listed, so that ensure_block_topic does not create them again."""
        deadline = time.monotonic() + APPEAR_SECONDS
        while created and (created := self._look_at(created)) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _look_at(self, topics: Collection[str]) -> set[str]:
        """Note which of these topics are ready; return which the brokers do not list."""
        absent = set()
        for topic, future in _description(self._admin, topics).items():
            code = _code(future)
            if code in _ABSENT:
                absent.add(topic)
            elif code is None and self._is_as_wanted(future.result()):
                self._ready.add(topic)
        return absent

    def _is_as_wanted(self, found: TopicDescription) -> bool:
        return len(found.partitions) == self._partitions and not _lacking(found, (WRITE,))

    def ensure_block_topic(self, topic: str) -> None:
        """Create or grow a block topic; relay.kafka.block_topics says by which name."""
        if topic not in self._ready:
            self._ensure(topic, self._partitions, (WRITE,))

    def forget(self, topic: str) -> None:
        """Look at it again when it is needed next: what was granted may be gone."""
        self._ready.discard(topic)

    def most_bytes(self, topic: str) -> int | None:
        """Return the topic's limit for a record batch; None where the brokers do not say."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        future = self._admin.client.describe_configs([asked], request_timeout=REQUEST_SECONDS)
        try:
            entries = self._admin.answer(f"settings of topic {topic}", future[asked], "")
        except (Unavailable, Refused):
            return None  # the right is asked of nobody: then it is found by trying
        known = ("max.message.bytes", "segment.bytes")
        values = [int(entries[name].value) for name in known if name in entries]
        return min(values, default=None)

    def one_can_be_written(self) -> bool:
        """Return whether there is a block topic that this user may write."""
        prefix = names.blocks_prefix(self._settings.app)
        try:
            listed = self._admin.client.list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            raise answered("list the topics", error.args[0], "") from error
        return any(map(self._can_be_written, sorted(t for t in listed if t.startswith(prefix))))

    def _can_be_written(self, topic: str) -> bool:
        try:
            return self.describe(topic, (WRITE,)) is not None
        except Refused:
            return False

    def still_there(self) -> None:
        """Look again at the topics that were ready.

        A producer hears of a deleted topic only that its records time out.

        Raises:
            Refused: one of them was deleted.
        """
        for topic in sorted(self._ready):
            if self.describe(topic) is None:
                raise _deleted(topic)

    def describe(self, topic: str, rights: Rights = ()) -> TopicFacts | None:
        """Return id and width of a topic; None where there is no such topic.

        Raises:
            Refused: also where the brokers say that this user lacks one of `rights`.
        """
        needed = " and ".join(right.name.capitalize() for right in rights) or "Describe"
        grant = f"grant {needed} on topic {topic} to the user of kafka.client, then start again"
        elsewhere = self._of_source if topic == self._settings.source.topic else None
        admin = elsewhere or self._admin
        self._look_for_controller()
        future = _description(admin, [topic])[topic]
        found = admin.answer(f"describe topic {topic}", future, grant, fine=_ABSENT)
        if found is None:
            return None
        if lacking := _lacking(found, rights):
            text = f"topic {topic}: this user may not {' nor '.join(lacking)}"
            raise Refused(text, grant, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return TopicFacts(str(found.topic_id), len(found.partitions))

    def _look_for_controller(self) -> None:
        """Hear which broker answers; librdkafka (2.16) waits for a broker that is gone."""
        journal = names.journal_topic(self._settings.app)
        if journal in self._ready:  # asking for another could create it
            with contextlib.suppress(KafkaException):  # the request itself says what is wrong
                self._admin.client.list_topics(journal, timeout=METADATA_SECONDS)

    def _ensure(
        self, topic: str, partitions: int, rights: Rights, config: dict[str, str] | None = None
    ) -> None:
        facts = self.describe(topic, rights)
        if facts is None:
            self._create(topic, partitions, config or {})
            self._await(topic, rights)
        elif facts.partitions < partitions:
            self._grow(topic, partitions)
        elif facts.partitions > partitions and self._too_wide(facts, partitions):
            raise ConfigError(
                f"topic {topic} has {facts.partitions} partitions, the source {partitions}",
                "set another `app`: the topics of this one belong to another source topic",
            )
        self._ready.add(topic)

    def _too_wide(self, facts: TopicFacts, partitions: int) -> bool:
        """Not where another relay has seen the source grow since this one asked."""
        along = partitions == self._partitions
        return not along or facts.partitions > self.source().partitions

    def _grow(self, topic: str, partitions: int) -> None:
        """Another relay may do it at the same time."""
        self._admin.answer(
            f"grow topic {topic} to {partitions} partitions",
            self._admin.client.create_partitions(
                [NewPartitions(topic, partitions)], request_timeout=REQUEST_SECONDS
            )[topic],
            f"grant Alter on topic {topic} to the user of kafka.client, or grow it yourself "
            f"(kafka-topics --alter --topic {topic} --partitions {partitions})",
            fine={KafkaError.INVALID_PARTITIONS},
        )

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = self._new(topic, partitions, config)
        self._admin.answer(
            f"create topic {topic}",
            self._admin.client.create_topics([new], request_timeout=REQUEST_SECONDS)[topic],
            f"grant Create on topics that begin with {self._settings.app}. to the user of "
            f"kafka.client, or create the topic yourself with {partitions} partitions",
            fine={KafkaError.TOPIC_ALREADY_EXISTS},
        )

    def _new(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> NewTopic:
        return NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._settings.kafka.replication,
            config={"max.message.bytes": str(MAX_MESSAGE_BYTES), **(config or {})},
        )

    def _await(self, topic: str, rights: Rights) -> None:
        """Until a topic just created is known, so that its rights can be asked for."""
        deadline = time.monotonic() + APPEAR_SECONDS
        while self.describe(topic, rights) is None:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"topic {topic} was created, but the brokers do not list it after "
                    f"{APPEAR_SECONDS:g} s",
                    "check that the brokers reach each other",
                )
            time.sleep(_LOOK_SECONDS)


def _description(admin: Admin, topics: Collection[str]) -> Mapping[str, Future[Any]]:
    """Ask about topics, and what this user may do there, in one request."""
    return admin.client.describe_topics(
        TopicCollection(sorted(topics)),
        request_timeout=REQUEST_SECONDS,
        include_authorized_operations=True,
    )


def _lacking(found: TopicDescription, rights: Rights) -> list[str]:
    """Return the names of rights that this user lacks."""
    granted = found.authorized_operations  # empty where the brokers do not say
    return [right.name.capitalize() for right in rights if right not in (granted or rights)]


def _code(future: Future[Any]) -> int | None:
    """The code of the brokers' error; None where there is none."""
    error = future.exception()
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _deleted(topic: str) -> Refused:
    return Refused(
        f"topic {topic} does not exist any more: somebody deleted it",
        "find out who deleted it, then start again: the relay creates it again, empty. What the "
        "loader had not loaded from it is lost (`relay verify CONFIG --deep` lists it)",
    )
