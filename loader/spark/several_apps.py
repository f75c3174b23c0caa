"""Several pipelines loaded by one Spark session, each with a streaming query of its own.

Receives pipelines, gives one exit status for all. What ends one ends no other: it is begun
again as relay.program.supervision says. Their tasks share Spark's slots, and a task may wait long
for a server that is away; so each pipeline has its share of them and never takes more.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from loader.clickhouse.client import one_line
from loader.console import say
from loader.spark.micro_batch import Stopped
from loader.spark.one_app import Load
from loader.spark.session import session, widened
from relay.errors import EXIT_BUG, RelayError, Unavailable
from relay.program.command import show_error
from relay.program.serving import behind
from relay.program.supervision import Past, after, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from relay.config.pipelines import Pipeline

LOOK_SECONDS = 0.2
LEAVE_SECONDS = 5.0
"""For one that waits for a server and has no query: nothing is at stake."""


def load(
    pipelines: Sequence[Pipeline],
    master: str | None,
    listen: str | None,
    *,
    once: bool,
    json_log: bool,
) -> int:
    """Load all of them until SIGTERM or SIGINT, or until all have ended; return the worst status.

    The first serves metrics and health at `listen`, HOST:PORT, the others behind it. With `once`
    what is sealed now is loaded, and then all end; none is begun again.
    """
    stop = threading.Event()

    def ask(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    settings = pipelines[0].settings
    where = widened(master or settings.loader.master, len(pipelines))
    spark = session(settings, where, json_log=json_log)
    signal.signal(signal.SIGINT, ask)  # Spark has set a handler of its own
    turn = threading.Lock()
    loads = [
        Loading(pipeline, spark, len(pipelines), turn, stop, behind(listen, index), once=once)
        for index, pipeline in enumerate(pipelines)
    ]
    try:
        for loading in loads:
            loading.start()
        while any(loading.is_alive() for loading in loads) and not stop.wait(LOOK_SECONDS):
            pass
        for loading in loads:
            loading.end()
    finally:
        with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended by itself
            spark.stop()
    say("ended")
    return worst(loading.status for loading in loads)


class Loading(threading.Thread):
    """Load one pipeline, and start it again where that may help.

    Attributes:
        status: of the last that ended by itself; 0 while one goes on.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        beside: int,
        turn: threading.Lock,
        stop: threading.Event,
        listen: str | None,
        *,
        once: bool,
    ) -> None:
        # One that waits for a server is left behind, see `end`.
        super().__init__(name=pipeline.name, daemon=True)
        self._settings, self._spark, self._ending = pipeline.settings, spark, stop
        self._once, self._without_engine = once, False
        self._load = Load(pipeline.settings, self._say, listen, beside, turn)
        self.status = 0

    def run(self) -> None:
        """Run until stopped, or until a restart cannot help."""
        past = Past()
        while not self._ending.is_set():
            start = time.monotonic()
            self.status = 0
            status = self._run_once()
            pause, past = after(status, time.monotonic() - start, past)
            if status == 0 or (self._ending.is_set() and not self._without_engine):
                return
            self.status = status
            if self._once or pause is None or self._without_engine:
                self._say(
                    "is not started again; the others continue", level=logging.ERROR, status=status
                )
                return
            self._say(f"starts again in {pause:g} s", level=logging.WARNING, status=status)
            self._ending.wait(pause)

    def end(self) -> None:
        """Ask the pipeline to end, and wait for it."""
        self._load.stop()
        while self.is_alive() and self._load.runs:
            self.join(LOOK_SECONDS)
        self.join(LEAVE_SECONDS)

    def _run_once(self) -> int:
        checkpoint = self._settings.loader.checkpoint
        try:
            self._load.run(lambda: self._spark, checkpoint, once=self._once)
        except Stopped:
            return 0
        except RelayError as error:
            show_error(f"loader: {self.name}", error)
            return self._engine_status() or error.exit_code
        except Exception as error:  # noqa: BLE001 - it must not end the others
            self._say(
                f"a bug in block-relay: {type(error).__name__}: {one_line(error)}",
                level=logging.ERROR,
            )
            return self._engine_status() or EXIT_BUG
        return 0

    def _engine_status(self) -> int:
        """Return the status if Spark itself has ended, for then all pipelines end; else 0."""
        try:
            if not self._spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001 - nobody else tells
                return 0
        except (Py4JError, ConnectionError):
            pass
        self._without_engine = True
        self._ending.set()
        return Unavailable.exit_code

    def _say(self, text: str, level: int = logging.INFO, **fields: object) -> None:
        say(f"{self.name}: {text}", level=level, pipeline=self.name, **fields)
