"""Finds or creates the block topic of each table, and remembers which tables have none and why.

Receives tables, gives the topic of each. What the brokers say against one table's topic is that
table's affair: its messages become dead letters with the reason. While it cannot be made or grown,
or a partition of it is dark (no broker takes records there), they wait. The others' rows go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError

from relay import names
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.connection_errors import CREDENTIALS
from relay.kafka.errors import TOO_LARGE, Lost, TransactionFailed, describe
from relay.kafka.partition_ends import Place, dark_text, listed_places
from relay.kafka.record_limits import RecordLimits
from relay.kafka.topics import Topics
from relay.program.waiting import Retry

log = logging.getLogger(__name__)

DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_SINGLY_SECONDS = 5.0
"""In which brokers that did not do one thing are asked for the next; what is left waits with it."""
_REST = 4  # times what a try in vain took, until the next one: nobody polls meanwhile


class BlockTopics:
    """The block topics of one app, as one process has found them.

    Attributes:
        limits: what topics take, as refusals taught; all producers of the process go by it.

    Raises (ensure, have and retry):
        Refused: the brokers let this user in nowhere, or write no block topic at all.
    """

    def __init__(
        self, app: str, topics: Topics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._topics = topics
        self._clock = clock
        self._waiting = set[str]()
        self._making, self._retrying = Retry(clock), Retry(clock)
        self._found: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._least = 1
        self._grow_soon, self._stay_narrow = set[str](), set[str]()
        self.limits = RecordLimits()
        self._dark: dict[str, frozenset[Place]] = {}
        self._led, self._journal_led = set[str](), False
        self._owned = frozenset[int]()
        self._leaders = Retry(clock)

    def of(self, table: str) -> str:
        """Return the table's block topic; empty where it has none."""
        return self._found.get(table, "")

    def refusal(self, table: str) -> str:
        """Return why the table has no block topic; empty where it has one, or was not asked for."""
        return self._refused.get(table, "")

    def width(self, table: str) -> int:
        """Return how many partitions the table's block topic has; 0 where it has none."""
        topic = self.of(table)
        return self._topics.width(topic) if topic else 0

    def need(self, partitions: int) -> None:
        """Note how many partitions each block topic has to have, for this relay to write there."""
        self._least = partitions

    def lacking(self, tables: Collection[str]) -> set[str]:
        """Return those of these tables of which it is not known which topic they have, if any."""
        return {table for table in tables if not self.of(table) and not self.refusal(table)}

    def have(self, tables: Collection[str]) -> frozenset[str]:
        """Have topics of these tables, as wide as needed; return the tables that wait for theirs.

        Brokers that could not make or grow one just now are asked again seldom: each try may take
        as long as they may answer. A table that is new meanwhile may have its topic already.
        """
        unready = self._unready(tables)
        if unready and self._making.due:
            started = self._clock()
            failed = self._make(self.lacking(unready)) | self._grow_narrow(unready)
            _say(failed, self._making, _REST * (self._clock() - started))
            self._waiting = self._unready(self._waiting | failed.keys())
            if not self._waiting:
                self._making.answered()
        elif new := self.lacking(unready) - self._waiting:
            self._find(new)
            self._waiting |= self._unready(new)
        return frozenset(self._unready(tables))

    def _find(self, tables: Collection[str]) -> None:
        """Find those of these tables' topics that are there; none is made."""
        of = {table: names.blocks_topics(self._app, table) for table in tables}
        absent, ready = self._topics.look_for({name for either in of.values() for name in either})
        for table, (plain, dashed) in of.items():
            topic = dashed if plain in absent else plain
            if topic in ready:
                self._found[table] = topic

    def _unready(self, tables: Collection[str]) -> set[str]:
        return self.lacking(tables) | (self._narrow(tables) - self._refused.keys())

    def _narrow(self, tables: Collection[str]) -> set[str]:
        return {table for table in tables if 0 < self.width(table) < self._least}

    def _grow_narrow(self, tables: Collection[str]) -> dict[str, Unavailable]:
        """Grow the block topics of these tables, where they are narrower than needed.

        One that cannot be grown is its table's affair. Returns what has to wait, and why.
        """
        narrow = self._narrow(tables)
        by_topic = {self._found[table]: table for table in narrow}
        try:
            refused = self._topics.widen(by_topic, self._least)
        except Unavailable as error:
            return dict.fromkeys(self._narrow(narrow), error)
        for topic, why in refused.items():
            del self._found[by_topic[topic]]
            self._refuse(by_topic[topic], why)
        return {}

    def widen_soon(self, table: str) -> None:
        """Have `retry` grow the table's block topic to as many partitions as the source has.

        Its large blocks then lie in as many, on several brokers. Until then, and where it may not
        be grown, they lie where the small ones do.
        """
        if table not in self._stay_narrow:
            self._grow_soon.add(table)

    def ensure(self, tables: Collection[str]) -> None:
        """Find, create or grow the block topics of these tables.

        Raises:
            Unavailable: the brokers could not do so for all of them just now.
        """
        for why in self._make(tables).values():
            raise why

    def _make(self, tables: Collection[str]) -> dict[str, Unavailable]:
        """As `ensure`; return the tables for which the brokers could not do so now, and why."""
        refused: dict[str, ConfigError | Refused] = {}
        silent: dict[str, Unavailable] = {}
        of = {table: names.blocks_topics(self._app, table) for table in tables}
        wanted = {names.blocks_topic(self._app, t): of[t] for t in of.keys() - self._refused.keys()}
        absent = set[str]()
        if of:
            absent = (
                self._topics.make_block_topics(wanted, self._least)
                if len(wanted) > 1
                else self._topics.look_for({name for either in of.values() for name in either})[0]
            )
        begun = self._clock()
        # Those that are there first: they need no broker that makes topics.
        for table in sorted(tables, key=lambda t: (absent.issuperset(of[t]), t)):
            if silent and self._clock() - begun > _SINGLY_SECONDS:
                silent[table] = next(iter(silent.values()))
                continue
            try:
                self._found[table] = self._ensured(table, absent)
            except (ConfigError, Refused) as error:
                refused[table] = error
            except Unavailable as error:
                silent[table] = error
        for table, why in refused.items():  # once it is known whether any could be had
            try:
                concerns_all = isinstance(why, Refused) and self._concerns_all(why)
            except Unavailable as error:
                silent[table] = error
                continue
            if concerns_all:
                raise why
            self._refuse(table, why)
        silent |= self._grow_narrow(tables)
        for table in (self._found.keys() & set(tables)) - silent.keys():
            self._refused.pop(table, None)
        return silent

    def retry(self) -> None:
        """Try again what was refused: a right may have been granted, a name be free.

        What brokers cannot do just now is left for a moment.
        """
        if self._retrying.due:
            failed = self._make(tuple(self._refused)) | self._grow_busy()
            _say(failed, self._retrying)
            if not failed:
                self._retrying.answered()
        for topic in self.limits.known():
            self.limits.look_again(topic, self._topics.most_bytes(topic))

    def _grow_busy(self) -> dict[str, Unavailable]:
        """Grow what `widen_soon` noted; return what has to wait, and why."""
        by_topic = {topic: table for table in self._grow_soon if (topic := self.of(table))}
        try:
            refused = self._topics.widen(by_topic)
        except Unavailable as error:
            return dict.fromkeys(self._grow_soon, error)
        for topic, why in refused.items():
            self._stay_narrow.add(by_topic[topic])
            log.warning(
                "a busy table's block topic cannot be grown, so its large blocks go to few "
                "partitions",
                extra={"topic": topic, "why": why.message, "next": why.next_step},
            )
        self._grow_soon.clear()
        return {}

    def least_in_sync(self, copies: Mapping[str, int]) -> Mapping[str, int]:
        """Return min.insync.replicas of topics with so many copies."""
        return self._topics.least_in_sync(copies)

    def dark(self, tables: Collection[str], owned: frozenset[int]) -> frozenset[str]:
        """Return those of these tables that have to wait, as their blocks' partitions are dark.

        The brokers are asked about a table once, and again behind `doubt`: a record for such a
        partition keeps its transaction from ending, and the transaction its id from all others.

        Args:
            tables: whose blocks are to be written, all of which have topics or are refused.
            owned: partitions that this relay writes, where a topic has them.

        Raises:
            Unavailable: one of the journal is dark, which no table does without.
        """
        self.own(owned)
        if not self._journal_led:
            self._see_journal(owned)
        topics = {self.of(table): table for table in set(tables) - self._led if self.of(table)}
        places = [(t, p) for t, table in topics.items() for p in owned if p < self.width(table)]
        self._led.update(tables)
        dark = self._topics.dark(places) if places else None
        for topic in {topic for topic, _ in dark or ()}:
            self._hold(topics[topic], frozenset(p for p in dark or () if p[0] == topic))
        return frozenset(self._dark.keys() & set(tables))

    def own(self, partitions: frozenset[int]) -> None:
        """Note which partitions this relay writes from now on: for others no table waits.

        While all of its tables wait no transaction begins, so `dark` alone would not hear of it.
        """
        if partitions == self._owned:
            return
        self._owned = partitions
        self.doubt()
        for table, places in tuple(self._dark.items()):
            self._dark[table] = frozenset(place for place in places if place[1] in partitions)
            if not self._dark[table]:
                del self._dark[table]

    def still_dark(self, tables: Collection[str]) -> frozenset[str]:
        """Return those of these tables that `dark` gave and that have to wait on."""
        dark = self._dark.keys() & set(tables)
        if dark and self._leaders.due:
            places = frozenset[Place]().union(*(self._dark[table] for table in dark))
            answer = self._topics.dark(places)
            still_dark = places if answer is None else answer
            self._dark = {t: of for t, of in self._dark.items() if t not in dark or still_dark & of}
            if still_dark:
                self._leaders.failed()
            else:
                self._leaders.answered()
        return frozenset(self._dark.keys() & dark)

    def doubt(self) -> None:
        """Have `dark` ask about everything again: a transaction has failed."""
        self._led, self._journal_led = set(), False

    def _see_journal(self, owned: Collection[int]) -> None:
        places = {(names.journal_topic(self._app), partition) for partition in owned}
        if dark := self._topics.dark(places):
            step = "start the brokers that have copies of these partitions"
            raise Unavailable(dark_text(dark), step)
        self._journal_led = True

    def _hold(self, table: str, places: frozenset[Place]) -> None:
        log.warning(
            "no broker takes records for a partition of a table's block topic, so the table's "
            "messages wait in the source until the brokers with its copies are back",
            extra={"table": table, "partitions": listed_places(places)},
        )
        self._dark[table] = places

    def learn(self, failed: TransactionFailed, tables: Collection[str]) -> bool:
        """Return whether a transaction failed of one table or record; it is left out from now on.

        `tables`: whose blocks were in it.
        """
        whose = {self._found[table]: table for table in tables if table in self._found}
        limits = {t: self._topics.most_bytes(t) for t in {of.topic for of in failed.lost}}
        first = self.limits.first(limits)
        learned = [self._learn(of, whose.get(of.topic, ""), limits, first) for of in failed.lost]
        if failed.code in DENIED:
            learned.append(self._denied_since())
        return any(learned)

    def _learn(
        self, lost: Lost, table: str, limits: Mapping[str, int | None], first: Collection[str]
    ) -> bool:
        """One record that was refused, of this table or of none; `first`: RecordLimits.first."""
        limit = limits[lost.topic]
        if lost.error.code() in TOO_LARGE:
            less = self.limits.refused(lost.topic, lost.size, limit, alone=lost.alone)
            if less or lost.topic in first:
                return True
            if not table and lost.topic == names.dead_topic(self._app):
                self.limits.halve(lost.topic, lost.size)
                return True
        if not table:
            return False
        why = f"{describe(f'delivery to {lost.topic}', lost.error)}; its limit is {limit}"
        self._refuse(table, Refused(why, "correct the settings of the topic"))
        return True

    def _denied_since(self) -> bool:
        """Ask for all rights again, as at the start; whether they are missing for some only."""
        tables = tuple(self._found)
        for topic in self._found.values():
            self._topics.forget(topic)
        self._found = {}
        try:
            self._make(tables)  # those of which the brokers say nothing now are asked about again
        except Refused:
            return False
        return len(self._found) < len(tables)

    def _refuse(self, table: str, error: ConfigError | Refused) -> None:
        why = f"no block topic for {table}: {error.message}; next: {error.next_step}"
        if self._refused.get(table) != why:
            log.error(
                "a table has no block topic, so its messages become dead letters",
                extra={"table": table, "why": error.message, "next": error.next_step},
            )
        self._refused[table] = why

    def _ensured(self, table: str, absent: Collection[str]) -> str:
        """Create the table's block topic if it is missing; return its name.

        `absent`: names that no topic had just now. A topic that it has by the other name is kept.
        """
        plain, dashed = names.blocks_topics(self._app, table)
        wanted = names.blocks_topic(self._app, table)
        if wanted == dashed:
            if plain not in absent and self._topics.describe(plain) is not None:
                wanted = plain
        elif plain in absent and dashed not in absent and self._topics.look_for({dashed})[1]:
            wanted = dashed
        try:
            self._topics.ensure_block_topic(wanted, self._least)
        except Refused as error:
            # Another table's topic is there under a plain name that Kafka takes for this one.
            if wanted == dashed or error.code != KafkaError.TOPIC_EXCEPTION:
                raise
            wanted = dashed
            self._topics.ensure_block_topic(wanted, self._least)
        return wanted

    def _concerns_all(self, error: Refused) -> bool:
        """Return whether the refusal concerns more than this table.

        A right that is missing for one topic may be missing for all of them; where another block
        topic can be written it is not. For anything else, the app's other topics were made.
        """
        if error.code in CREDENTIALS:
            return True
        return error.code in DENIED and not (self._found or self._topics.one_can_be_written())


def _say(failed: Mapping[str, Unavailable], retry: Retry, rest: float = 0.0) -> None:
    """Log which tables' topics brokers could not make or grow; note when to ask again."""
    pause = retry.failed(rest) if failed else 0.0
    for table, why in failed.items():
        log.warning(
            "cannot make or grow the block topic of a table now; what needs that waits",
            extra={"table": table, "why": why.message, "next": why.next_step, "again_in_s": pause},
        )
