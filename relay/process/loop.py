"""The relay process: polls, asks the core, performs what it answers.

    poll ─► intake ─► step(state, event) ─► effects ─► Kafka ─► answers ─► step …

No decision is made here: every branch below is a translation.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from relay.config.settings import Settings
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.state import Fencing, Phase, RelayState, SealingLimits
from relay.core.step import step
from relay.errors import RelayError, Unavailable, WrongCredentials
from relay.intake import sort_poll
from relay.intake.membership import MemberFenced, nobody_else
from relay.intake.message_batch import TableHeaders
from relay.intake.source import SourceMember
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import Topics
from relay.operate.metrics.observer import NOTHING, RelayObserver
from relay.process import memory
from relay.process.coverage import Coverage, JoinWarning
from relay.process.perform import Performer
from relay.process.takeover import Ownership
from relay.program.monotonic import steady_ms
from relay.program.serving import Serving
from relay.program.waiting import (
    CredentialsWait,
    ServerWait,
    StoppedWaiting,
    stopped_by_signal,
)
from relay.rows.codecs_of_tables import PAUSE_SHARE, TableCodecs
from relay.schema.beside import Beside
from relay.schema.catalogue import Catalogue
from relay.schema.registry import Registry

log = logging.getLogger(__name__)

FULL = 0.5
"""A poll counts as full from this share of relay.intake.source.FULL_BYTES on: while a relay works
off a backlog, a fetch is often still under way."""
LONGEST_PAUSE_SECONDS = 60.0
"""Behind a slow refresh of the tables: an ALTER is seen within a minute or two, and a server that
fails slowly fails often enough for the alert."""
SEARCH_SHARE = 4
"""In the place of PAUSE_SHARE while one refresh after the other finds out which database is silent:
until then no ALTER of any table is seen."""


class RelayProcess:
    """One relay process of an app.

    Args:
        stop: set by a signal; the process finishes or aborts its transaction and leaves.
        observer: hears of every poll and step.
        let_in: called when the group has given it its partitions, so that all credentials are good.
    """

    def __init__(
        self,
        settings: Settings,
        stop: threading.Event,
        observer: RelayObserver = NOTHING,
        let_in: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._observer, self._let_in = observer, let_in
        fencing = Fencing.PARTITION if settings.crosses else Fencing.GROUP
        self._state = RelayState(limits=_limits(settings), fencing=fencing, committed_at_ms=0)
        self._headers = TableHeaders()
        self._assigning: dict[int, int] | None = None
        self._leaving = False
        self._error: RelayError | None = None
        self._refresh_at = time.monotonic() + settings.relay.schema_refresh_seconds
        self._topics = topics = Topics(settings)
        self._tables = TableCodecs(
            Catalogue(settings.clickhouse, Beside()),
            Registry(settings.kafka, settings.app),
            BlockTopics(settings.app, topics),
            settings.loader.block_column,
            settings.targets(),
        )
        watched = observer.settings("consumer")
        self._source = SourceMember(
            settings, self._assigned, self._revoked, self._headers, watched, observer.trouble
        )
        self._wait = ServerWait(stop, observer.away, lambda _: self._source.look_for_brokers())
        self._performer = Performer(settings, self._tables, self._source, self._wait, observer)
        self._coverage, self._join_warning = Coverage(settings), JoinWarning(settings)
        self._ownership = Ownership(settings, topics, self._source, self._performer.producers)

    def run(self, limit: float) -> None:
        """Run until stopped, by a person or by an error.

        Args:
            limit: seconds to wait for servers at the start; 0: for ever.

        Raises:
            RelayError: why it ended by itself.
        """
        try:
            self._wait(self._ownership.check_source, limit)
            self._wait(self._topics.ensure_own, limit)
            self._wait(self._ownership.start, limit)
            self._source.join()
            self._join_warning.joined()
            log.info("joined the consumer group", extra={"member": self._settings.relay.member})
            while self._state.phase is not Phase.STOPPED:
                self._turn()
        except StoppedWaiting:
            log.info("stopped while waiting for a server")
        finally:
            self._leave()
        if self._error is not None:
            raise self._error

    def _turn(self) -> None:
        if self._stop.is_set() and not self._state.stopping:
            self._dispatch(ev.StopRequested())
            return
        self._ask_about_held()
        self._refresh_tables()
        self._join_warning.look()
        polled = sort_poll.Intake(self._headers, self._performer.density)
        started = time.monotonic()
        self._source.poll(polled.add, self._state.most_bytes)
        seconds = time.monotonic() - started
        if self._source.rebalanced:
            # Some may have been fetched before a partition went and came back; taken for new
            # ones, they would hide the messages between its floor and them.
            polled = sort_poll.Intake(self._headers, self._performer.density)
            for index, partition in self._state.partitions.items():
                self._source.fetching.seek(index, partition.position)
            self._coverage.rebalanced()
        poll = polled.sorted()
        messages = sum(map(len, poll.offsets.values()))
        self._source.learn_size(messages, poll.bytes)
        self._observer.polled(seconds, messages, poll.bytes)
        self._performer.polled(poll)
        self._ownership.polled()
        if self._state.phase is not Phase.STOPPED:
            arrivals, full = tuple(poll.arrivals), self._source.filled >= FULL
            whose = self._state.reading if full or self._state.turns else ()
            ends = self._source.fetching.ends(whose)
            read_to = self._source.read_to
            self._dispatch(ev.Polled(steady_ms(), arrivals, poll.offsets, full, ends, read_to))
        if free := self._coverage.left_over(self._state.partitions, self._state.source_partitions):
            log.warning(
                "no relay of the group has some source partitions, joining again",
                extra={"partitions": sorted(free)},
            )
            self._source.join()

    def _refresh_tables(self) -> None:
        """Refresh the row messages: seal what was read under an old one, then use the new.

        Nobody polls meanwhile: what takes long is done seldom.
        """
        started = time.monotonic()
        if started < self._refresh_at:
            return
        changed, why = frozenset[str](), ""
        try:
            changed = self._tables.refresh()
        except Unavailable as error:  # what is known stays valid; loading waits, not the relay
            why = error.message
            # ClickHouse, or the broker that leads the registry's topic: the error says which.
            log.warning(
                "cannot read the tables' columns from ClickHouse; the relay keeps those it knows",
                extra={"why": why},
            )
        took = time.monotonic() - started
        share = SEARCH_SHARE if self._tables.is_searching() else PAUSE_SHARE
        pause = min(share * took, LONGEST_PAUSE_SECONDS)
        pause = max(pause, self._settings.relay.schema_refresh_seconds)
        self._refresh_at = started + took + pause
        self._observer.refreshed(took, len(changed), why)
        if changed:
            self._say_changed(changed)
            self._dispatch(ev.SchemaChanged(changed))
            self._tables.adopt()

    def _ask_about_held(self) -> None:
        """Ask again about tables that are held back while a server is away."""
        if held := self._state.held:
            decided = held - self._tables.still_undecided(held)
            if decided:
                log.info(
                    "messages of tables that were held back while a server was away go on",
                    extra={"tables": len(decided)},
                )
                self._dispatch(ev.TablesDecided(decided))

    def _say_changed(self, changed: frozenset[str]) -> None:
        gone = changed & self._tables.gone()
        if gone:
            why = (
                "their messages become dead letters and their blocks are set aside until the "
                "tables exist again"
            )
            log.warning("tables were dropped", extra={"tables": ",".join(sorted(gone)), "why": why})
        if changed - gone:
            log.info(
                "the row messages of tables changed",
                extra={"tables": ",".join(sorted(changed - gone))},
            )

    def _assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        """Read the truth of newly assigned partitions; return where to begin. Runs inside poll."""
        self._join_warning.assigned()
        self._let_in()
        self._performer.own(partitions)
        self._assigning = {}
        with contextlib.suppress(StoppedWaiting):  # the loop sees the stop next
            self._dispatch(ev.Assigned(partitions))
        starts, self._assigning = self._assigning, None
        log.info(
            "the group assigned source partitions",
            extra={"partitions": sorted(partitions), "floors": starts},
        )
        return starts

    def _revoked(self, partitions: frozenset[int]) -> None:
        """Let go of partitions. Runs inside poll: the group may give them away once it returns."""
        if self._leaving:
            return  # the group learns it when we leave; a transaction ends with its producer
        log.info("the group revoked source partitions", extra={"partitions": sorted(partitions)})
        self._dispatch(ev.Revoked(partitions))

    def _dispatch(self, event: ev.Event) -> None:
        """Handle one event, and every event that its effects answer with."""
        pending: list[ev.Event] = [event]
        while pending:
            before, now = self._state, pending.pop(0)
            self._state, effects = step(before, now)
            self._observer.stepped(before, now, self._state, effects)
            for effect in effects:
                answer = self._perform(effect)
                if answer is not None:
                    pending.append(answer)

    def _perform(self, effect: ef.Effect) -> ev.Event | None:
        match effect:
            case ef.Fence(partitions):
                return self._wait(lambda: self._ownership.fence(partitions))
            case ef.ReadTruth(partitions, ends):
                truths = self._wait(lambda: self._ownership.read(partitions, ends))
                return ev.TruthRead(truths, steady_ms(), self._topics.source_partitions)
            case ef.Seek(partition, offset):
                if self._assigning is not None:
                    self._assigning[partition] = offset
                else:
                    self._source.fetching.seek(partition, offset)
                return None
            case ef.Read(whom):
                self._source.fetching.only(whom)
                return None
            case ef.Exit(error):
                self._error = error
                return None
            case ef.Begin():
                return self._begin(effect)
            case ef.Replace():
                self._wait(self._topics.still_there)
                return self._performer.perform(effect)
            case _:
                return self._performer.perform(effect)

    def _begin(self, effect: ef.Begin) -> ev.Event | None:
        if not (topic_id := self._wait(self._ownership.source_id)):
            return ev.SourceUnseen()
        answer = self._performer.perform(effect)
        return replace(answer, source_topic_id=topic_id) if isinstance(answer, ev.Begun) else answer

    def _leave(self) -> None:
        """Leave the group and close the producer, whatever happened before."""
        self._leaving = True
        with contextlib.ExitStack() as stack:
            stack.callback(self._ownership.close)
            stack.callback(self._performer.producers.close)
            stack.callback(self._source.close)
        log.info("left the consumer group", extra={"member": self._settings.relay.member})


def _limits(settings: Settings) -> SealingLimits:
    """Convert an app's settings to the core's limits and units."""
    block, relay = settings.block, settings.relay
    return SealingLimits(
        app=settings.app,
        max_bytes=block.max_bytes,
        max_rows=block.max_rows,
        max_decoded_bytes=block.max_decoded_bytes,
        max_age_ms=round(block.max_age_seconds * 1000),
        table_max_age_ms={t: round(b.max_age_seconds * 1000) for t, b in block.tables.items()},
        max_per_second=block.max_per_second,
        commit_interval_ms=round(relay.commit_interval_seconds * 1000),
        max_buffer_bytes=relay.max_buffer_bytes,
        transaction_timeout_ms=round(relay.transaction_timeout_seconds * 1000),
        max_reread=relay.max_reread,
        flush_point_interval_ms=round(relay.flush_point_interval_seconds * 1000),
        keepalive_ms=round(relay.journal_keepalive_seconds * 1000),
    )


def until_ended(
    settings: Settings, stop: threading.Event, observer: RelayObserver = NOTHING
) -> None:
    """Run a relay; another one when an outage ended its session, or its password was changed.

    Raises:
        RelayError: why it ended by itself.
    """
    limit = settings.relay.wait_for_servers_seconds
    renewed = bool(settings.kafka.client_files or settings.source_kafka.client_files)
    credentials = CredentialsWait(stop, renewed=renewed)
    try:
        while not stop.is_set():
            try:
                return RelayProcess(settings, stop, observer, credentials.good).run(limit)
            except WrongCredentials as error:
                observer.away(error.message)
                credentials(error)
                limit = 0  # it has started once
            except MemberFenced as error:
                wait = ServerWait(stop, observer.away)
                if not nobody_else(settings, error.mine, wait):
                    raise
                limit = 0  # it has started once
                log.warning(
                    "the session in the group ended while no broker answered, joining again",
                    extra={"member": settings.relay.member, "why": error.message},
                )
    except StoppedWaiting:
        log.info("stopped while waiting for a server")
    except RelayError as error:
        observer.ended(error)
        raise


def run(settings: Settings, listen: str = "") -> None:
    """Run a relay until SIGTERM or SIGINT.

    `listen`: HOST:PORT for metrics and health; empty: nobody watches.
    """
    memory.prepare()
    stop = stopped_by_signal()
    if not listen:
        until_ended(settings, stop)
        return
    from relay.operate.metrics.endpoint import RelayMonitor  # noqa: PLC0415 - 0.1 s, for those who are watched

    watch = RelayMonitor(settings)
    with Serving(listen, watch.routes()) as serving:
        log.info("serving metrics and health", extra={"address": serving.address})
        until_ended(settings, stop, watch.observer)
