"""The verifier's rounds: read, judge, say; once over all that is retained, or until stopped.

Receives a reader and an audit, gives anomalies to `say` as they are found.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from relay.errors import Unavailable
from relay.operate.verify.audit import GRACE_SECONDS, Audit
from relay.operate.verify.read.journal import NoJournal, overtaken

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from relay.operate.verify.judge.anomaly import Anomaly
    from relay.operate.verify.progress import AuditProgress
    from relay.operate.verify.read.journal import Deleted, Reader
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

    deadline = time.monotonic() + 2 * GRACE_SECONDS
    reader.grow()
    # What the group has now is judged by a head that was there before it was asked.
    audit.begin_round({})
    _read(reader, audit, say, keep, refuse)
    _round(reader, audit, say, keep, refuse)
    while audit.waits() and time.monotonic() < deadline:
        time.sleep(ROUND_SECONDS)
        _round(reader, audit, say, keep, refuse)
    _look_for_hidden(reader, audit, say)


def _look_for_hidden(reader: Reader, audit: Audit, say: Callable[[Anomaly], None]) -> None:
    """Say where open transactions hide records; those of a relay at work end within moments."""
    began = time.monotonic()
    try:
        _tell(audit.ends(*reader.ends(), began), say)
        while audit.hidden(began) and time.monotonic() < began + GRACE_SECONDS:
            time.sleep(ROUND_SECONDS)
            _tell(audit.ends(*reader.ends(), time.monotonic()), say)
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
    """Round after round until `stop` is set; servers that are away are waited for.

    Args:
        reader: not started yet.
        audit: gets all of it.
        say: gets anomalies as they are found.
        stop: set from outside.
        progress: gets how far this is.
        keep: gets partition, offset and record, in order.

    Raises:
        ConfigError: the app has no journal any more.
    """

    def kept(partition: int, offset: int, commit: Commit) -> None:
        progress.record(partition, offset, commit, time.monotonic())
        keep(partition, offset, commit)

    looked = float("-inf")
    while not stop.is_set():
        try:
            if time.monotonic() - looked > ENDS_SECONDS:
                looked = time.monotonic()
                reader.grow()
                _tell(audit.ends(*reader.ends(), looked), say)
                if reader.silent:
                    first = next(iter(reader.silent.values()))
                    log.warning(
                        "the verifier cannot see in every partition whether a transaction is open",
                        extra={"why": first.message},
                    )
            _round(reader, audit, say, kept, audit.note_deleted)
            progress.turned(time.monotonic(), time.time())
        except Unavailable as error:
            log.warning("the verifier waits for a server", extra={"why": error.message})
            progress.turned(time.monotonic(), time.time(), error.message)
        except NoJournal as error:
            why = {"why": error.message, "next": error.next_step}
            log.warning("the verifier waits for the app's first relay", extra=why)
            progress.turned(time.monotonic(), time.time(), error.message)
            looked = float("-inf")
            stop.wait(FIRST_RELAY_SECONDS)
        stop.wait(ROUND_SECONDS)


def _round(
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    keep: Keep,
    deleted: Deleted,
) -> None:
    """Offsets first, then the journal up to where it is stable after that."""
    committed = reader.committed()
    audit.begin_round(committed)
    _read(reader, audit, say, keep, deleted)
    _tell(audit.committed(committed, time.monotonic()), say)


def _read(
    reader: Reader, audit: Audit, say: Callable[[Anomaly], None], keep: Keep, deleted: Deleted
) -> None:
    """The journal up to where it is stable now."""

    def foreign(partition: int, offset: int) -> None:
        _tell(audit.foreign(partition, offset), say)

    for partition, offset, commit in reader.records(deleted, foreign):
        keep(partition, offset, commit)
        _tell(audit.record(partition, offset, commit), say)


def _tell(found: list[Anomaly], say: Callable[[Anomaly], None]) -> None:
    for anomaly in found:
        say(anomaly)
