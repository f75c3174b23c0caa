"""The verifier's rounds: read, judge, say; once over all that is retained, or until stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from relay.errors import Unavailable
from relay.operate.verify.audit import GRACE_SECONDS, Audit
from relay.operate.verify.judge.anomaly import Anomaly
from relay.operate.verify.progress import AuditProgress
from relay.operate.verify.read.journal import Deleted, NoJournal, Reader, overtaken
from relay.records_pb2 import Commit

Keep = Callable[[int, int, Commit], None]

log = logging.getLogger(__name__)

ROUND_SECONDS = 0.2
"""Between two looks at the committed offsets: an anomaly is told within a second."""
ENDS_SECONDS = 5.0
"""Between two looks at the last stable offsets, which cost a request per broker."""
FIRST_RELAY_SECONDS = 5.0
"""Between two looks for a journal that no relay has created yet."""


def once(
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    keep: Keep = lambda *_: None,
) -> None:
    """Audit all that is visible when it starts, then the committed offsets against it.

    What an open transaction hides is not judged, and said.

    Args:
        reader: not started yet.
        audit: gets all of it.
        say: gets anomalies as they are found.
        keep: gets partition, offset and record, in order.

    Raises:
        ConfigError, Unavailable: as the reader raises them; records were deleted between those
            that were read.
    """

    def refuse(partition: int, at: int, low: int) -> None:
        if partition in audit.floors():
            raise overtaken(partition, at, low)

    rounds = _Rounds(reader, audit, say, keep, refuse)
    reader.grow()
    # What the group has now is judged by a head that was there before it was asked.
    audit.begin_round({})
    rounds.audit_journal()
    rounds.run_one()
    deadline = time.monotonic() + 2 * GRACE_SECONDS  # the first look may have read for minutes
    while audit.waits() and time.monotonic() < deadline:
        time.sleep(ROUND_SECONDS)
        rounds.audit_ends()  # before the journal is read: whether it can show what is named
        rounds.run_one()
    _look_for_hidden(rounds)


def _look_for_hidden(rounds: _Rounds) -> None:
    """Say where open transactions hide records; those of a relay at work end within moments."""
    reader, audit, began = rounds.reader, rounds.audit, time.monotonic()
    try:
        rounds.audit_ends(began)
        while audit.hidden(began) and time.monotonic() < began + GRACE_SECONDS:
            time.sleep(ROUND_SECONDS)
            rounds.audit_ends()
    except Unavailable as error:
        audit.not_judged.append(f"whether open transactions hide records: {error.message}")
    else:
        audit.not_judged += audit.hidden(began)
        audit.not_judged += (
            f"{topic}[{partition}]: whether an open transaction hides records: {error.message}"
            for (topic, partition), error in sorted(reader.silent.items())
        )


def follow(
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    stop: threading.Event,
    progress: AuditProgress,
    keep: Keep = lambda *_: None,
) -> None:
    """Run round after round until `stop` is set, and wait for servers that are away.

    Reader, audit, `say` and `keep` are those of `once`; `progress` gets how far this is.

    Raises:
        ConfigError: the app has no journal any more.
    """

    def record(partition: int, offset: int, commit: Commit) -> None:
        progress.record(partition, offset, commit, time.monotonic())
        keep(partition, offset, commit)

    rounds = _Rounds(reader, audit, say, record, audit.note_deleted)
    ends_at = float("-inf")
    while not stop.is_set():
        try:
            if time.monotonic() - ends_at > ENDS_SECONDS:
                ends_at = time.monotonic()
                reader.grow()
                rounds.audit_ends(ends_at)
                if reader.silent:
                    first = next(iter(reader.silent.values()))
                    log.warning(
                        "the verifier cannot see in every partition whether a transaction is open",
                        extra={"why": first.message},
                    )
            rounds.run_one()
            progress.turned(time.monotonic(), time.time())
        except Unavailable as error:
            log.warning("the verifier waits for a server", extra={"why": error.message})
            progress.turned(time.monotonic(), time.time(), error.message)
        except NoJournal as error:
            why = {"why": error.message, "next": error.next_step}
            log.warning("the verifier waits for the app's first relay", extra=why)
            progress.turned(time.monotonic(), time.time(), error.message)
            ends_at = float("-inf")
            stop.wait(FIRST_RELAY_SECONDS)
        stop.wait(ROUND_SECONDS)


@dataclass(frozen=True, slots=True)
class _Rounds:
    reader: Reader
    audit: Audit
    say: Callable[[Anomaly], None]
    keep: Keep
    deleted: Deleted

    def run_one(self) -> None:
        """Read offsets first, then the journal up to where it is stable after that."""
        committed = self.reader.committed()
        self.audit.begin_round(committed)
        self.audit_journal()
        self._tell(self.audit.committed(committed, time.monotonic()))

    def audit_journal(self) -> None:
        """Audit the journal up to where it is stable now."""
        for partition, offset, commit in self.reader.records(self.deleted, self._foreign):
            self.keep(partition, offset, commit)
            self._tell(self.audit.record(partition, offset, commit))

    def audit_ends(self, now: float | None = None) -> None:
        """Look for transactions that hold the topics' last stable offsets."""
        stable, ends = self.reader.ends()
        self._tell(self.audit.ends(stable, ends, time.monotonic() if now is None else now))

    def _foreign(self, partition: int, offset: int) -> None:
        self._tell(self.audit.foreign(partition, offset))

    def _tell(self, anomalies: list[Anomaly]) -> None:
        for anomaly in anomalies:
            self.say(anomaly)
