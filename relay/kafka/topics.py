"""Topics of one app: created and grown by the relay, never by the broker's auto-creation.

Receives names, gives what the cluster has. The journal and the dead letters have as many
partitions as the source topic, because partition p of the source goes to partition p of each.
A block topic begins with one partition and grows as relay.blocks.placement wants more; with as
many as the source where this user may not grow it later.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # documented, not in __all__

from relay import names
from relay.config.settings import Settings
from relay.config.topic_settings import BY_KEY
from relay.errors import (
    NUMBERS_LOST,
    ConfigError,
    ContractBroken,
    ErrorPage,
    Refused,
    Unavailable,
)
from relay.kafka.admin import (
    ABSENT,
    APPEAR_SECONDS,
    LOOK_SECONDS,
    REQUEST_SECONDS,
    Rights,
    TopicFacts,
    TopicRequests,
    code_of,
    description,
    in_requests,
    lacking_rights,
)
from relay.kafka.errors import answering
from relay.kafka.partition_ends import TopicEnds
from relay.program.waiting import Lateness

GROW_SECONDS = 60.0
"""How long a topic may stay narrower than the group's assignment asks for, before a person has to
act: brokers learn of new partitions within a second or two."""
_LOOKS = 20  # until it is said that a topic has not grown yet

MAX_DEAD_LETTER_BYTES = 100 * 2**20
"""A source message may be small only while it is compressed; its dead letter is not. As the
brokers' default socket.request.max.bytes, above which no request gets through."""

READ, WRITE = AclOperation.READ, AclOperation.WRITE


class Topics(TopicRequests):
    """Looks at, creates and grows topics.

    It checks each right when it first describes the topic, not when the right is first needed:
    otherwise a relay would run for weeks and stop at its first dead letter or second start.
    Every method raises as those of TopicRequests.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._widths: dict[str, int] = {}  # of block topics that are ready
        self._partitions = 0
        self._followed = 0
        self._narrow_for = Lateness(GROW_SECONDS)

    def source(self, rights: Rights = (READ,)) -> TopicFacts:
        """Return the source topic as it is now.

        Raises:
            Refused: it is not there, or this user lacks one of these rights.
        """
        topic = self._settings.source.topic
        facts = self.describe(topic, rights)
        if facts is None:
            raise Refused(
                f"source topic {topic!r} does not exist (bootstrap = "
                f"{self._settings.source_kafka.bootstrap})",
                "create it with `relay topic create`, or correct source.topic; relays only read it",
            )
        self._partitions, self._source_copies = facts.partitions, facts.copies
        return facts

    @property
    def source_partitions(self) -> int:
        """How many partitions the source had when it was last looked at."""
        return self._partitions

    def ensure_own(self, *, grow: bool = True) -> TopicFacts:
        """Create journal, dead letters and schema registry where they are missing.

        Args:
            grow: whether those that are narrower than the source grow with it; what writes none of
                them leaves that to relays, which see first whether it is the app's source.
        """
        facts = self.source()
        app, wide = self._settings.app, facts.partitions
        grown = wide if grow else 0
        journal = self._ensure(names.journal_topic(app), wide, (READ, WRITE), least=grown)
        large = {"max.message.bytes": str(MAX_DEAD_LETTER_BYTES)}
        self._ensure(names.dead_topic(app), wide, (WRITE,), large, least=grown)
        if journal is not None:
            self._see_numbers(journal.partitions)
        self._ensure(names.schemas_topic(app), 1, (READ, WRITE), BY_KEY)
        self._followed = wide
        return facts

    def _see_numbers(self, partitions: int) -> None:
        """See that field numbers, which producers use, are not about to be given anew.

        Every app that has a journal record has had a registry before it.

        Raises:
            ContractBroken: the registry is gone.
        """
        app = self._settings.app
        topic, journal = names.schemas_topic(app), names.journal_topic(app)
        if self.describe(topic) is not None:
            return
        ends = TopicEnds(self._admin.client, journal, REQUEST_SECONDS)
        with answering(f"read the end of {journal}", f"grant Read on topic {journal}"):
            end = max(ends.stable(range(partitions)).values())
        deadline = time.monotonic() + APPEAR_SECONDS  # a broker may not know of it yet
        while end and self.describe(topic) is None:
            if time.monotonic() > deadline:
                raise ContractBroken(
                    f"{topic} does not exist, but {journal} holds records: the field numbers of "
                    "all tables are lost",
                    NUMBERS_LOST,
                    page=ErrorPage.GAP,
                )
            time.sleep(LOOK_SECONDS)

    def follow(self, partitions: Collection[int]) -> bool:
        """See that source, journal and dead letters have these partitions, that the group gave.

        The source may have been grown since the topics were made; they grow with it.

        Returns:
            Whether they were looked at, as some are new: what clients know of them may be old.

        Raises:
            Unavailable: one is narrower still; asked again, for GROW_SECONDS.
            Refused: for longer, or one may not be grown, or was deleted.
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
            if facts.partitions < wide and topic not in self._widths:
                self._follow_with(topic, wide)
        self._followed = wide
        return True

    def _follow_with(self, topic: str, wide: int) -> None:
        self._grow(topic, wide)
        facts = self.describe(topic)
        if facts is not None and facts.partitions < wide:
            raise self._narrow(topic, facts.partitions, wide)

    def width(self, topic: str) -> int:
        """Return how many partitions a block topic that is ready had when it was last looked at."""
        return self._widths[topic]

    def widen(self, topics: Collection[str], wanted: int = 0) -> dict[str, Refused]:
        """Grow block topics to so many partitions at least; return those that cannot be, and why.

        `wanted` 0: as many as the source has.

        Raises:
            Unavailable: the brokers do not show them yet; asked again, for GROW_SECONDS.
        """
        wanted = wanted or self._partitions
        narrow = {topic for topic in topics if self._widths[topic] < wanted}
        if not narrow:
            return {}
        try:
            refused = self._grow_all(narrow, wanted)
        except Unavailable:
            self._look_at(narrow)  # some may have grown
            raise
        narrow -= refused.keys()
        for look in range(_LOOKS + 1):
            refused |= {topic: _deleted(topic) for topic in self._look_at(narrow)}
            narrow = {t for t in narrow - refused.keys() if self._widths[t] < wanted}
            if not narrow:
                return refused
            if look < _LOOKS:
                time.sleep(LOOK_SECONDS)
        reasons = {t: self._narrow(t, self._widths[t], wanted) for t in sorted(narrow)}
        if waits := [why for why in reasons.values() if isinstance(why, Unavailable)]:
            raise waits[0]
        return refused | {topic: why for topic, why in reasons.items() if isinstance(why, Refused)}

    def _narrow(self, topic: str, partitions: int, needed: int) -> Unavailable | Refused:
        """Return the error of a topic that is too narrow: wait, or after GROW_SECONDS stop."""
        text = f"topic {topic} has {partitions} partitions, but needs {needed}"
        if not self._narrow_for.late((topic, needed)):
            step = "wait: the relay asks again until all brokers know the new partitions"
            return Unavailable(text, step)
        bootstrap = self._settings.kafka_of(topic).bootstrap
        return Refused(
            f"{text}, and after {GROW_SECONDS:g} s the brokers still say so",
            f"kafka-topics --bootstrap-server {bootstrap} --alter --topic {topic} --partitions "
            f"{needed}, then start again; if it cannot be grown now, see whether its partitions "
            "are being moved (kafka-reassign-partitions --list)",
        )

    def ensure_by_key(self, topic: str) -> None:
        """Create a topic of the app that is kept for ever, by key, where it is missing."""
        self.source(rights=())
        self._ensure(topic, 1, (READ, WRITE), BY_KEY)

    def make_block_topics(self, wanted: Mapping[str, Collection[str]], least: int) -> set[str]:
        """Create many in few requests, as one for each takes as long as its brokers need.

        What is wrong with one is not said here: ensure_block_topic looks at each topic that is not
        ready by then, and reports it.

        Args:
            wanted: topics, each with all names that it may be there by; those are left alone.
            least: partitions that each is to have.

        Returns:
            Those of all these names that no topic had before.
        """
        absent, _ = self.look_for({name for either in wanted.values() for name in either})
        missing = [topic for topic in wanted if absent.issuperset(wanted[topic])]
        if missing:
            client = self._admin.client
            created: dict[str, Future[Any]] = {}
            with suppress(Unavailable):
                widths = self._first_widths(missing, least)
                for some in in_requests(widths, max(widths.values())):
                    new = [self._new(topic, widths[topic]) for topic in some]
                    created |= client.create_topics(new, request_timeout=REQUEST_SECONDS)
                    wait(created.values())
            self._await_all({topic for topic, future in created.items() if not future.exception()})
        return absent

    def look_for(self, topics: Collection[str]) -> tuple[set[str], set[str]]:
        """Look at block topics, and make none; return those that no topic has, and those ready."""
        self._look_for_controller()
        return self._look_at(topics), self._ready.intersection(topics)

    def _first_widths(self, topics: Collection[str], least: int) -> dict[str, int]:
        """Return how many partitions each of these begins with.

        Across clusters each source partition has a transaction of its own, and who may not grow a
        topic later has to make it wide.
        """
        growable = set[str]() if self._settings.crosses else self._growable(topics)
        widths = {topic: 1 if topic in growable else self._partitions for topic in topics}
        return {topic: max(width, least) for topic, width in widths.items()}

    def _await_all(self, created: Collection[str]) -> None:
        """Wait until these are listed, so that ensure_block_topic does not create them again."""
        deadline = time.monotonic() + APPEAR_SECONDS
        while created and (created := self._look_at(created)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def _look_at(self, topics: Collection[str]) -> set[str]:
        """Note which of these topics are ready; return which the brokers do not list."""
        absent = set()
        for topic, future in description(self._admin, topics).items():
            code = code_of(future)
            if code in ABSENT:
                absent.add(topic)
            elif code is None:
                width = len(future.result().partitions)
                if 1 <= width <= self._partitions and not lacking_rights(future.result(), (WRITE,)):
                    self._ready.add(topic)
                    self._widths[topic] = width
        return absent

    def ensure_block_topic(self, topic: str, least: int) -> None:
        """Create a block topic that is not there, or grow it to `least` partitions.

        relay.kafka.block_topics says by which name; `widen` grows those that were ready before.
        """
        if topic not in self._ready:
            facts = self.describe(topic, (WRITE,))
            if facts is None:
                width = self._first_widths([topic], least)[topic]
                facts = self._create(topic, width, (WRITE,))
            else:
                facts = self._fitted(topic, facts, least, max(self._partitions, least))
            self._ready.add(topic)
            self._widths[topic] = facts.partitions

    def forget(self, topic: str) -> None:
        """Look at it again when it is needed next: what was granted may be gone."""
        self._ready.discard(topic)

    def one_can_be_written(self) -> bool:
        """Return whether there is a block topic that this user may write."""
        prefix = names.blocks_prefix(self._settings.app)
        with answering("list the topics", ""):
            listed = self._admin.client.list_topics(timeout=REQUEST_SECONDS).topics
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

    def _ensure(
        self,
        topic: str,
        partitions: int,
        rights: Rights,
        config: dict[str, str] | None = None,
        least: int = 0,
    ) -> TopicFacts | None:
        """Return what there was; None: it was made."""
        facts = self.describe(topic, rights)
        if facts is None:
            self._create(topic, partitions, rights, config)
        else:
            self._fitted(topic, facts, least, partitions)
        self._ready.add(topic)
        return facts

    def _fitted(self, topic: str, facts: TopicFacts, least: int, most: int) -> TopicFacts:
        """Grow a topic that is narrower than `least`; return what there is then."""
        if facts.partitions < least:
            self._grow(topic, least)
            return replace(facts, partitions=least)
        if facts.partitions > most and self._too_wide(facts, most):
            raise ConfigError(
                f"topic {topic} has {facts.partitions} partitions, the source {most}",
                "correct source.topic, or set another `app`: the topics of this one belong to "
                "another source topic",
            )
        return facts

    def _too_wide(self, facts: TopicFacts, partitions: int) -> bool:
        """Return whether it is too wide, and not the source that grew since it was asked for."""
        along = partitions == self._partitions
        return not along or facts.partitions > self.source().partitions


def _deleted(topic: str) -> Refused:
    return Refused(
        f"topic {topic} does not exist any more: somebody deleted it",
        "find out who deleted it, then start again: the relay creates it again, empty, or says why "
        "it must not. What the loader had not loaded from it is lost (`relay verify CONFIG --deep` "
        "lists it)",
    )
