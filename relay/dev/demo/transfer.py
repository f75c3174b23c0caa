"""The demo's rows on their way: watch, kill in the middle, start again, compare at the end.

Receives the parts that relay.dev.demo.run puts together; every turn of events is decided by how
far the rows have come, none by time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pyarrow as pa
from rich.console import Console

from relay.config.settings import Settings
from relay.dev.demo import data
from relay.dev.demo.compare import Difference, compare, row_hashes
from relay.dev.demo.feed import Feed
from relay.dev.demo.programs import Program
from relay.dev.demo.show import Bars, RowCounts
from relay.dev.demo.watch import JournalWatch, Warehouse
from relay.errors import NotExactlyOnce

OPEN_GATE_AT = 0.2  # of all rows in ClickHouse: the loader has loaded before it is killed
KILL_AFTER_GATE = 0.05  # of all rows sent behind the gate: the relay has rows in its buffers
LOOK_SECONDS = 0.2
IDLE_SECONDS = 300.0  # without any progress: give up and say so; Spark once took 120 to start
STOP_SECONDS = 30.0


@dataclass
class Demo:
    """One run's parts, once the servers are up."""

    settings: Settings
    console: Console
    feed: Feed
    journal: JournalWatch
    warehouse: Warehouse
    relays: list[Program]
    loader: Program
    bars: Bars
    killed_at: RowCounts | None = field(default=None, init=False)

    def look(self) -> RowCounts:
        """Return the counts of this moment; raise if a program ended by itself."""
        for program in (*self.relays, self.loader):
            program.check()
        self.journal.catch_up()
        seen = RowCounts(
            sum(self.feed.delivered().values()),
            self.journal.rows.total(),
            sum(self.warehouse.counts().values()),
        )
        self.bars.show(seen)
        return seen

    def move(self) -> None:
        """Wait until every row is in ClickHouse; kill and restart on the way.

        Raises:
            NotExactlyOnce: a program ended by itself, or nothing moved for IDLE_SECONDS.
        """
        total = sum(self.feed.total.values())
        last, moved_at = RowCounts(0, 0, 0), time.monotonic()
        self.feed.start()
        gate_at = 0
        while True:
            seen = self.look()
            if seen != last:
                last, moved_at = seen, time.monotonic()
            elif time.monotonic() - moved_at > IDLE_SECONDS:
                raise NotExactlyOnce(
                    f"no progress for {IDLE_SECONDS:g} s: {seen.sent} of {total} rows sent, "
                    f"{seen.in_blocks} in blocks, {seen.in_clickhouse} in ClickHouse, "
                    f"{self.journal.dead} dead letters; last lines of the loader:\n"
                    + self.loader.last_lines(),
                    f"read the logs beside {self.loader.log}",
                )
            if not self.feed.gate.is_set() and seen.in_clickhouse >= OPEN_GATE_AT * total:
                gate_at = seen.sent
                self.feed.gate.set()
            if (
                self.killed_at is None
                and self.feed.gate.is_set()
                and seen.sent >= min(gate_at + KILL_AFTER_GATE * total, total)
            ):
                self._kill_and_restart(seen)
            if self.feed.done.is_set() and self._all_there(seen, total):
                return
            time.sleep(LOOK_SECONDS)  # the pace of looking; the conditions are above

    def _all_there(self, seen: RowCounts, total: int) -> bool:
        return (
            self.killed_at is not None
            and seen.sent == total
            and seen.in_blocks + self.journal.dead >= total
            and seen.in_clickhouse >= total
            # The loader that was started again must have had its chance to load one twice.
            and self.warehouse.decided_blocks() >= self.journal.blocks.total()
        )

    def _kill_and_restart(self, seen: RowCounts) -> None:
        self.killed_at = seen
        relay = self.relays[0]
        processes = relay.kill() + self.loader.kill()
        self.console.print(
            f"[bold]SIGKILL[/bold] to {relay.name} and the loader ({processes} processes): "
            f"{seen.sent:,} rows sent, {seen.in_blocks:,} in blocks, "
            f"{seen.in_clickhouse:,} in ClickHouse; starting both again"
        )
        relay.start()
        self.loader.start()

    def stop(self) -> None:
        """End feed, relays and loader; comparing begins when nothing can change any more."""
        self.feed.stop()
        for program in (*self.relays, self.loader):
            status = program.stop(STOP_SECONDS)
            if status:
                self.console.print(f"{program.name} ended with exit status {status}, not 0")


def differences(warehouse: Warehouse, sent: dict[str, pa.Table]) -> dict[str, Difference]:
    """Return contents of the tables in `sent` against ClickHouse's."""
    result = {}
    for table in data.TABLES:
        name = table.full_name
        if name in sent:
            columns = ", ".join(_plain(*column) for column in table.columns.items())
            received = warehouse.rows(f"SELECT {columns} FROM {name}")
            result[name] = compare(
                row_hashes(sent[name].to_pandas(), table.columns),
                row_hashes(received.to_pandas(), table.columns),
            )
    return result


def _plain(name: str, type_: str) -> str:
    """The column so that Arrow holds its meaning and no encoding of ClickHouse's."""
    if type_.startswith("DateTime"):
        return f"toUnixTimestamp({name}) AS {name}"
    return f"toString({name}) AS {name}" if type_.startswith("Enum") else name
