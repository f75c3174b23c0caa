"""The relay process: polls, asks the core, performs what it answers.

    poll ─► intake ─► step(state, event) ─► effects ─► Kafka ─► answers ─► step …

No decision is made here: every branch below is a translation.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from typing import TYPE_CHECKING

from relay import intake, memory
from relay.catalogue import Catalogue
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.state import Limits, Phase, RelayState
from relay.core.step import step
from relay.errors import (
    ConfigError,
    ContractBroken,
    Fenced,
    Refused,
    RelayError,
    Unavailable,
)
from relay.performer import Performer
from relay.registry import Registry
from relay.source import Source
from relay.tables import Tables
from relay.topics import Topics
from relay.truth import TruthReader
from relay.waiting import StoppedWaiting, until_available

if TYPE_CHECKING:
    from relay.settings import Settings

log = logging.getLogger(__name__)

ERRORS: dict[ef.StopKind, type[RelayError]] = {
    ef.StopKind.CONTRACT_BROKEN: ContractBroken,
    ef.StopKind.FENCED: Fenced,
    ef.StopKind.REFUSED: Refused,
    ef.StopKind.UNAVAILABLE: Unavailable,
    ef.StopKind.CONFIG: ConfigError,
}


def now_ms() -> int:
    """Unix milliseconds: for the core's ages, and shown in records."""
    return time.time_ns() // 1_000_000


class Relay:
    """One relay process of an app.

    Args:
        settings: of the app.
        stop: set by a signal; the process finishes or aborts its transaction and leaves.
    """

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._state = RelayState(limits=limits(settings), committed_at_ms=0)
        self._headers = intake.TableHeaders()
        self._assigning: dict[int, int] | None = None
        self._leaving = False
        self._error: RelayError | None = None
        self._refreshed_at = time.monotonic()
        topics = Topics(settings)
        self._topics = topics
        self._tables = Tables(
            Catalogue(settings.clickhouse),
            Registry(settings.kafka, settings.app),
            topics,
            settings.loader.block_column,
        )
        self._source = Source(settings, self._assigned, self._revoked)
        self._performer = Performer(settings, self._tables, self._source, stop)
        self._truth = TruthReader(settings, topics, self._performer.deadline_seconds)

    def run(self) -> None:
        """Until stopped or stopped by an error.

        Raises:
            RelayError: why it ended by itself.
        """
        limit = self._settings.relay.wait_for_servers_seconds
        try:
            until_available(self._topics.ensure_own, self._stop, limit)
            until_available(self._performer.start, self._stop, limit)
            self._source.join()
            log.info("joined", extra={"member": self._settings.relay.member})
            while self._state.phase is not Phase.STOPPED:
                self._turn()
        except StoppedWaiting:
            log.info("stopped while a server was away")
        finally:
            self._leave()
        if self._error is not None:
            raise self._error

    def _turn(self) -> None:
        if self._stop.is_set() and not self._state.stopping:
            self._dispatch(ev.StopRequested())
            return
        self._refresh_tables()
        polled = intake.Intake(self._headers, self._performer.density)
        self._source.poll(polled.add)
        if self._source.rebalanced:
            # Some may have been fetched before a partition went and came back; taken for new
            # ones, they would hide the messages between its floor and them.
            polled = intake.Intake(self._headers, self._performer.density)
            for index, partition in self._state.partitions.items():
                self._source.seek(index, partition.position)
        poll = polled.sorted()
        self._source.learn_size(sum(map(len, poll.offsets.values())), poll.bytes)
        self._performer.polled(poll)
        if self._state.phase is not Phase.STOPPED:
            self._dispatch(ev.Polled(now_ms(), tuple(poll.arrivals), poll.offsets))

    def _refresh_tables(self) -> None:
        """A changed row message: seal what was read under the old one, then use the new."""
        if time.monotonic() - self._refreshed_at < self._settings.relay.schema_refresh_seconds:
            return
        self._refreshed_at = time.monotonic()
        try:
            changed = self._tables.refresh()
        except Unavailable as error:  # what is known stays valid; loading waits, not the relay
            log.warning("ClickHouse is away", extra={"why": error.message})
            return
        if changed:
            log.info("row messages changed", extra={"tables": ",".join(sorted(changed))})
            self._dispatch(ev.SchemaChanged(changed))
            self._tables.adopt()

    def _assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        """Inside poll: read the truth of what the group gave; where to begin each."""
        self._assigning = {}
        with contextlib.suppress(StoppedWaiting):  # the loop sees the stop next
            self._dispatch(ev.Assigned(partitions))
        starts, self._assigning = self._assigning, None
        log.info("assigned", extra={"partitions": sorted(partitions), "floors": starts})
        return starts

    def _revoked(self, partitions: frozenset[int]) -> None:
        """Inside poll, and before it returns: the group may give the partitions away then."""
        if self._leaving:
            return  # the group hears of it by our leaving; a transaction ends with its producer
        log.info("revoked", extra={"partitions": sorted(partitions)})
        self._dispatch(ev.Revoked(partitions))

    def _dispatch(self, event: ev.Event) -> None:
        """One event and whatever its effects answer."""
        pending: list[ev.Event] = [event]
        while pending:
            self._state, effects = step(self._state, pending.pop(0))
            for effect in effects:
                answer = self._perform(effect)
                if answer is not None:
                    pending.append(answer)

    def _perform(self, effect: ef.Effect) -> ev.Event | None:
        match effect:
            case ef.ReadTruth(partitions):
                found = until_available(
                    lambda: self._truth.read(partitions, self._source.consumer), self._stop
                )
                return ev.TruthRead(found, now_ms())
            case ef.Seek(partition, offset):
                if self._assigning is not None:
                    self._assigning[partition] = offset
                else:
                    self._source.seek(partition, offset)
                return None
            case ef.Exit(error):
                if error is not None:
                    self._error = ERRORS[error.kind](error.message, error.next_step)
                return None
            case _:
                return self._performer.perform(effect)

    def _leave(self) -> None:
        """Leave the group and let go of the producer, whatever happened before."""
        self._leaving = True
        with contextlib.ExitStack() as stack:
            stack.callback(self._truth.close)
            stack.callback(self._performer.close)
            stack.callback(self._source.close)
        log.info("left", extra={"member": self._settings.relay.member})


def limits(settings: Settings) -> Limits:
    """The core's limits, in its units."""
    block, relay = settings.block, settings.relay
    return Limits(
        app=settings.app,
        max_bytes=block.max_bytes,
        max_rows=block.max_rows,
        max_age_ms=round(block.max_age_seconds * 1000),
        table_max_age_ms={t: round(b.max_age_seconds * 1000) for t, b in block.tables.items()},
        max_per_second=block.max_per_second,
        commit_interval_ms=round(relay.commit_interval_seconds * 1000),
        max_buffer_bytes=relay.max_buffer_bytes,
        max_reread=relay.max_reread,
        flush_point_interval_ms=round(relay.flush_point_interval_seconds * 1000),
        keepalive_ms=round(relay.journal_keepalive_seconds * 1000),
    )


def run(settings: Settings) -> None:
    """Run a relay until SIGTERM or SIGINT."""
    memory.prepare()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Relay(settings, stop).run()
