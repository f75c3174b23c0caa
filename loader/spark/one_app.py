"""Loads one app: opens the ledger, finds where to begin, runs Spark's query until it is stopped.

Receives settings and a Spark session, which other apps' loads may share. Raises what ended it
as this product's errors, also where Spark carries them as text.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from typing import TYPE_CHECKING, TypeVar

from loader.blocks.made_rows import transforms
from loader.clickhouse import dedup_trial, servers
from loader.journal import startup
from loader.journal.checkpoint import Checkpoint, alone, used
from loader.journal.startup import ledger_of, waited
from loader.metrics.observer import NOTHING, LoaderObserver
from loader.spark.job import Job
from loader.spark.micro_batch import Stopped
from relay import errors, names
from relay.errors import RelayError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from loader.clickhouse.ledger import Ledger
    from loader.console import Say
    from loader.journal.source import Start
    from relay.config.settings import Settings

T = TypeVar("T")
_TWO_WRITE = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's condition where another query has written the checkpoint's next batch."""
_RAISED = re.compile(
    r"relay\.errors\.(\w+): (.*?(?:\n  next: .*?)?(?:\n  more: .*?)?)(?:\n|$)", re.DOTALL
)


class Load:
    """Load the blocks of one app.

    Metrics and health are served at `listen`, HOST:PORT. `beside` and `turn`: as of
    loader.spark.job.Job. With `lost` a person says that the ledger was lost.
    """

    def __init__(
        self,
        settings: Settings,
        say: Say,
        listen: str | None = None,
        beside: int = 1,
        turn: threading.Lock | None = None,
        *,
        lost: bool = False,
    ) -> None:
        self._lost = lost
        self._settings, self._say, self._listen = settings, say, listen
        self._beside, self._turn = beside, turn
        self._stopping = threading.Event()
        self._job: Job | None = None
        self._observer: LoaderObserver = NOTHING

    @property
    def runs(self) -> bool:
        """Return whether a query runs that has to be stopped in order."""
        return self._job is not None

    def stop(self) -> None:
        """Ask the run to end; may be called from a signal handler."""
        self._stopping.set()
        if self._job is not None:
            self._job.stop()

    def run(self, engine: Callable[[], SparkSession], checkpoint: str, *, once: bool) -> None:
        """Load until stopped; with `once`, until what is sealed now is settled.

        Spark's session is asked for once the servers have answered.

        Raises:
            RelayError: as ledger, journal or a batch raised it, or another loader has this
                checkpoint; else Spark's exception.
        """
        transforms(self._settings.loader).check()
        with alone(checkpoint):
            self._run(engine, checkpoint, once=once)

    def _run(self, engine: Callable[[], SparkSession], checkpoint: str, *, once: bool) -> None:
        try:
            with self._watched() as look:
                ledger, start = self._open(Checkpoint(checkpoint, engine))
                look(start)
                spark = engine()
                self._job = Job(
                    self._settings, ledger, self._say, self._observer, self._beside, self._turn
                )
                if self._stopping.is_set():
                    return
                where = self._settings.clickhouse.url
                self._say(f"loading {names.journal_topic(self._settings.app)} into {where}")
                self._job.run(spark, start, checkpoint, once=once)
        except (RelayError, Stopped):
            raise
        except Exception as error:
            raise (_from_spark(error, checkpoint) or error) from error
        finally:
            self._job = None

    def _open(self, checkpoint: Checkpoint) -> tuple[Ledger, Start]:
        """Wait for the servers; return the ledger, and where to begin.

        Check meanwhile that this server drops repeated INSERTs, on which everything rests, and say
        it if not all replicas can be asked what runs.
        """
        ledger = self._wait_for(lambda: ledger_of(self._settings, make=True))
        clickhouse, database = self._settings.clickhouse, self._settings.loader.database
        if untried := self._wait_for(lambda: dedup_trial.check(ledger.client, database)):
            self._say(untried, level=logging.WARNING)
        if unmet := self._wait_for(lambda: servers.unmet(clickhouse, ledger)):
            self._say(unmet, level=logging.WARNING)
        start = startup.begin(
            self._settings, ledger, checkpoint, lost=self._lost, rest=self._rest, tell=self._say
        )
        self._observer.found()
        return ledger, start

    def _wait_for(self, ask: Callable[[], T]) -> T:
        return waited(self._settings, ask, self._rest, self._say)

    def _rest(self, seconds: float, why: str) -> None:
        if why:
            self._observer.waiting(why)
        if self._stopping.wait(seconds):
            raise Stopped

    @contextlib.contextmanager
    def _watched(self) -> Iterator[Callable[[Start], None]]:
        """Serve metrics and health meanwhile if asked to; yield what takes where to begin."""
        if self._listen is None:
            yield lambda _: None
            return
        from loader.metrics.endpoint import LoaderMonitor  # noqa: PLC0415 - heavy, and seldom wanted

        with LoaderMonitor(self._listen, self._settings) as watch:
            self._observer = watch.observer
            self._say(f"serving metrics and health at {watch.address}", address=watch.address)
            yield watch.look


def _from_spark(error: Exception, checkpoint: str) -> RelayError | None:
    """Extract the product's error from Spark's, which has a worker's traceback as text."""
    try:
        text = str(error)
    except ConnectionError:  # the text is in the JVM
        return Unavailable(
            "Spark's JVM has ended",
            "Find out what ended it (memory, a signal), then start the loader again.",
        )
    if _TWO_WRITE in text:
        return used(checkpoint)
    raised = _RAISED.search(text)
    kind = getattr(errors, raised[1], None) if raised else None
    if raised is None or not (isinstance(kind, type) and issubclass(kind, RelayError)):
        return None
    return kind.printed(raised[2])
