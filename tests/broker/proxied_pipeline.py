"""The app of tests.broker.pipeline with its relays behind a proxy; the judges go straight."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from relay import names
from tests.broker.pipeline import PARTITIONS, Pipeline

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.chaos.proxy import Proxy

START_AGAIN = frozenset({4, 7})
"""Exit statuses after which a supervisor starts the relay again, by the document `operations`: a
server was away for too long; the coordinator ended a transaction that took longer than allowed."""


@dataclass
class ProxiedPipeline(Pipeline):
    """A Pipeline whose relays reach the broker through `proxy` alone.

    Attributes:
        proxy: before the broker.
        supervised: relays started with `supervise`, by member, each with its configuration.
    """

    proxy: Proxy = field(kw_only=True)
    supervised: dict[str, tuple[Path, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: frozenset[int] = Pipeline.failed - START_AGAIN  # it starts those again

    def config(self, extra: str = "", **relay: float | str) -> Path:
        path = super().config(extra, **relay)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.bootstrap, self.proxy.address), encoding="utf-8")
        return path

    def client(self, member: str) -> str:
        """Client id of a relay's consumer and producer, to aim faults at it."""
        return names.transactional_id(self.app, member)

    def supervise(self, member: str, config: Path) -> None:
        """Start a relay, and again where it ends with a status that asks for it."""
        self.supervised[member] = config, self.start(member, config)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            for member, (config, process) in list(self.supervised.items()):
                if process.poll() in START_AGAIN:
                    self.supervise(member, config)
            return condition()

        super().until(holds, what)

    def logs(self) -> str:
        """Of all relays so far."""
        return "".join(map(self.log, self.processes))

    def started(self) -> None:
        """Wait for the first transaction, which records where the partitions begin."""
        self.until(
            lambda: sum(map(len, self.journal().values())) >= PARTITIONS, "the first transaction"
        )

    def members(self) -> int:
        """How many the broker counts in the relays' group."""
        group = names.group_id(self.app)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return len(admin.describe_consumer_groups([group])[group].result(30).members)

    def progress_seconds(self, ids: range) -> float:
        """How long rows in all partitions take from the source to visible blocks."""
        begun = time.monotonic()
        for partition in range(PARTITIONS):
            self.send(ids[partition::PARTITIONS], partition)
        self.until(lambda: self.rows().keys() >= set(ids), "progress")
        return time.monotonic() - begun

    def send_until(self, condition: Callable[[], bool], what: str) -> None:
        """Ever more rows into all partitions, until a condition holds."""
        fresh = count(1_000_000, 10)

        def holds() -> bool:
            for partition, first in zip(range(PARTITIONS), fresh, strict=False):
                self.send(range(first, first + 10), partition)
            return condition()

        self.until(holds, what)
