"""One campaign: servers, programs and source, and rounds of faults.

Receives options and faults; a round performs them at their times, and undoes them all. What
follows a round is in tests.chaos.pauses.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from clickhouse_connect.driver.exceptions import ClickHouseError
from kafka.errors import KafkaError

from tests.chaos import ends, facts
from tests.chaos.crew import Crew
from tests.chaos.history import History, versions
from tests.chaos.servers import PARTITIONS, SESSION_SECONDS, TRANSACTION_SECONDS, Servers
from tests.chaos.source import Source
from tests.chaos.truth import ABORTED, COMMITTED

if TYPE_CHECKING:
    from tests.chaos.options import Options
    from tests.chaos.schedule import Fault

Task = tuple[float, str, Callable[[], "Sequence[Task] | None"]]
"""Seconds from now, what it is, and what to do then; which may give further tasks."""

TICK_SECONDS = 0.05
PROGRESS_SECONDS = 10.0
SETTLE_SECONDS = SESSION_SECONDS + TRANSACTION_SECONDS + 15.0
"""From the last fault until there is progress again, as promised; see also `patience`."""


class Campaign(Crew):
    """A running campaign; use as a context manager, which ends whatever it started.

    Attributes:
        performed: faults by kind.
        pauses: how long each took, in seconds.
        tried: parked blocks that a person had tried again once.
        settled: nothing was sent and no fault done since the last pause ended.
    """

    def __init__(
        self,
        options: Options,
        say: Callable[[str], None],
        keep: Path | None = None,
        command: tuple[str, dict[str, Any]] = ("", {}),
    ) -> None:
        directory = (keep or Path(tempfile.mkdtemp(prefix="block-relay-chaos-"))).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        servers = Servers(
            directory, options.brokers, "chaos", options.window, say, proxied=options.proxied
        )
        super().__init__(options, servers, History(directory / "history.jsonl"), say)
        self.directory, self.command = directory, command
        self.performed: Counter[str] = Counter()
        self.pauses: list[float] = []
        self.tried: set[str] = set()
        self._keep = keep
        self._tasks: list[tuple[float, int, str, Callable[[], Sequence[Task] | None]]] = []
        self._numbers = itertools.count()
        self.begun = time.monotonic()
        self._told_at = 0.0
        self.settled = True
        self._warm = False

    def __enter__(self) -> Self:
        options = {k: v for k, v in asdict(self.options).items() if k not in ("shape", "code")}
        name, arguments = self.command
        self.history.write("campaign", command=name, options=arguments)
        self.history.write("begun", options=options, versions=versions())
        try:
            self.servers.up()
            self.start()
            self.source = Source(
                self.servers.bootstrap,
                self.servers.source,
                PARTITIONS,
                self.options.seed,
                self.options.shape,
            )
            self.source.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; what was written stays if anything is off, or if asked for."""
        with contextlib.ExitStack() as ended:
            ended.callback(self._forget)
            ended.callback(self.history.close)
            ended.callback(self.servers.down)
            for program in self.programs():
                program.wanted = False
                ended.callback(program.kill)
        self.say(f"ended after {time.monotonic() - self.begun:.0f} s")

    def _forget(self) -> None:
        if self._keep is None and not self.anomalies:
            shutil.rmtree(self.directory)
        else:
            shutil.rmtree(self.directory / "servers", ignore_errors=True)
            self.say(f"history and logs are in {self.directory}")

    def round(
        self,
        faults: Iterable[Fault],
        perform: Callable[[Campaign, Fault], Sequence[Task]],
        seconds: float,
        done: Callable[[], bool] = lambda: False,
    ) -> None:
        """Faults at their times, until `seconds` are over or `done`, then all of it undone."""
        self.settled = False
        self._warm_up()
        self.source.resume()
        begun = time.monotonic()
        for fault in faults:
            self.later([(fault.at, fault.kind, lambda f=fault: self.fault(f, perform))])
        try:
            while time.monotonic() < begun + seconds and not done():
                self.turn()
        finally:
            self.heal()

    def _warm_up(self) -> None:
        """Once: a fault before the first rows arrive would meet programs that only start.

        The source rests while the loader starts: what it sent meanwhile would be a backlog.
        """
        if self._warm:
            return
        self._warm, limit = True, SETTLE_SECONDS * self.options.patience

        def begun() -> bool:
            sent = self.source.truth.rows(COMMITTED) > 0
            return sent and len(ends.floors(self.servers)) == PARTITIONS

        self.source.resume()
        self.until(begun, limit, "a start of relays")
        self.source.pause()
        there = facts.count_rows
        self.until(lambda: any(there(self.servers).values()), limit, "a start of the loader")

    def later(self, tasks: Sequence[Task] | None) -> None:
        """Do these when their time has come; `heal` does at once what is still to come."""
        for delay, what, task in tasks or ():
            at = time.monotonic() + delay
            heapq.heappush(self._tasks, (at, next(self._numbers), what, task))

    def turn(self) -> None:
        """What is due, whatever ended, a line for people."""
        while self._tasks and self._tasks[0][0] <= time.monotonic():
            _, _, _, task = heapq.heappop(self._tasks)
            begun = time.monotonic()
            further = task()
            self._delay(time.monotonic() - begun)
            self.later(further)
        self.tend()
        if self.source.error is not None:
            raise AssertionError("the source failed") from self.source.error
        if time.monotonic() - self._told_at > PROGRESS_SECONDS:
            self._told_at = time.monotonic()
            self.say(self._line())
        time.sleep(TICK_SECONDS)

    def _delay(self, seconds: float) -> None:
        """A broker that takes long to start must not bring all later faults down at once."""
        if seconds > TICK_SECONDS:
            self._tasks = [(at + seconds, *what) for at, *what in self._tasks]

    def idle(self) -> bool:
        """Whether no fault is under way or to come."""
        return not self._tasks

    def fault(
        self, fault: Fault, perform: Callable[[Campaign, Fault], Sequence[Task]]
    ) -> Sequence[Task]:
        """Perform one, and write it down."""
        self.history.write("fault", **fault.record())
        tasks = perform(self, fault)
        self.performed[fault.kind] += 1
        return tasks

    def heal(self) -> None:
        """Undo all faults at once; faults that did not come to pass are left out."""
        undo = [entry for entry in sorted(self._tasks) if entry[2].startswith("undo")]
        self._tasks = []
        for _, _, _, task in undo:
            task()
        self._tasks = []
        for gate in self.directory.glob("*.gate"):
            gate.unlink()
        for program in self.programs():
            program.signal(signal.SIGCONT)
            if ":stop" in program.armed:
                program.kill()  # it would stop in the pause, with nobody there to wake it
        self.servers.heal()
        self.tend()
        self.history.write("healed")

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        """Tend until a condition holds; False, and an anomaly, if it does not in time."""
        deadline = time.monotonic() + seconds
        while not self.holds(condition):
            if time.monotonic() > deadline:
                self.anomaly(f"not within {seconds:g} s: {what}", self.where())
                return False
            self.turn()
        return True

    def holds(self, condition: Callable[[], bool]) -> bool:
        """Whether it holds; no, where a server that just came back gives no answer."""
        try:
            return condition()
        except (KafkaError, ClickHouseError, OSError) as error:
            self.history.write("asked in vain", error=repr(error))
            return False

    def where(self) -> str:
        """Where everything stands, for whoever reads the history."""
        heads = "\n".join(map(str, ends.heads(self.servers)))
        logs = "\n".join(f"== {p.name}\n{p.last_lines(12)}" for p in self.programs())
        return f"{heads}\n{logs}"

    def figures(self) -> dict[str, Any]:
        """Of what was done so far."""
        truth = self.source.truth
        return {
            "faults": dict(sorted(self.performed.items())),
            "kills": sum(p.kills for p in [*self.members, *self.loaders]),
            "watchdog_ends": sum(p.watchdogs for p in self.members),
            "source_transactions": dict(truth.transactions),
            "pauses": len(self.pauses),
            "longest_pause_seconds": round(max(self.pauses, default=0.0), 1),
        }

    def _line(self) -> str:
        truth = self.source.truth
        running = sum(p.runs() for p in self.programs())
        faults = " ".join(f"{k}={n}" for k, n in sorted(self.performed.items()))
        return (
            f"{time.monotonic() - self.begun:6.0f} s  messages {len(truth.told):,}  transactions "
            f"{sum(truth.transactions.values()):,} ({truth.transactions[ABORTED]:,} aborted)  "
            f"running {running}  {faults}"
        )
