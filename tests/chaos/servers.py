"""Brokers, ClickHouse, topics and tables of one campaign, and the configuration that its
programs get.

Receives a directory and sizes, gives servers that answer. With a proxy, every broker has a
second way in (tests.chaos.proxied): programs take it, source and judges go straight.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from relay.dev import broker, layout, process, stack
from tests import reach
from tests.broker.pipeline import create_topics
from tests.chaos import tables
from tests.chaos.lost import Deleted, Dropped
from tests.chaos.proxied import proxied
from tests.chaos.rows import TABLES
from tests.chaos.tables import DATABASE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from relay.dev.stack import Stack
    from tests.chaos.proxy import Proxy

LEDGER = "ledger"
PARTITIONS = 4
MOST_PARTITIONS = 10
"""That the source grows to."""
SESSION_SECONDS = 6.0
TRANSACTION_SECONDS = 5.0


@dataclass
class Servers:
    """The servers of a campaign.

    Attributes:
        window: deduplication window of the stamped tables, in parts.
        dropped: what the tables held that faults dropped.
        deleted: the records that retention deleted, by topic and partition.
    """

    directory: Path
    brokers: int
    app: str
    window: int
    progress: Callable[[str], None]
    proxied: bool = False
    proxies: list[Proxy] = field(default_factory=list)
    dropped: Dropped = field(default_factory=Dropped)
    deleted: dict[tuple[str, int], Deleted] = field(default_factory=dict)
    stack: Stack | None = None
    _owned: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def place(self) -> Path:
        return self.directory / "servers"

    @property
    def bootstrap(self) -> str:
        assert self.stack is not None, "not started"
        return self.stack.bootstrap

    @property
    def source(self) -> str:
        return f"{self.app}.source"

    @property
    def journal(self) -> str:
        return f"{self.app}.journal"

    def up(self) -> None:
        """Start all, make topic and tables."""
        if self.proxied:
            found = self._owned.enter_context(proxied(self.place, self.brokers, self.progress))
            self.stack, self.proxies = found.stack, list(found.proxies)
        else:
            self._owned.callback(stack.down, self.place)
            self.stack = stack.up(self.place, brokers=self.brokers, progress=self.progress)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(self.source, PARTITIONS, min(3, self.brokers))
        create_topics(admin, topic)
        self.make_tables()

    def grow(self) -> int:
        """Add a partition to the source, unless it has the most; how many it has then.

        Raises:
            KafkaException: no answer; the topic may have grown.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        count = len(admin.list_topics(self.source, timeout=10).topics[self.source].partitions)
        if count < MOST_PARTITIONS:
            wider = NewPartitions(self.source, count + 1)
            admin.create_partitions([wider], request_timeout=10)[self.source].result(15)
            count += 1
        return count

    def make_tables(self) -> None:
        """Make the tables that are not there."""
        with contextlib.closing(self.clickhouse()) as client:
            client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            for table in TABLES:
                for statement in tables.statements(table, self.window):
                    client.command(statement)

    def clickhouse(self) -> Client:
        """A client of the server, that does not wait for it for long."""
        assert self.stack is not None, "not started"
        return reach.client(self.stack.clickhouse, compress=False, autogenerate_session_id=False)

    def config(self, **relay: float | str) -> Path:
        """The configuration file of all programs; sessions are short, so that faults are dense."""
        assert self.stack is not None, "not started"
        behind_proxies = ",".join(proxy.address for proxy in self.proxies)
        sections: dict[str, dict[str, Any]] = {
            "kafka": {
                "bootstrap": behind_proxies or self.bootstrap,
                "replication": min(3, self.brokers),
            },
            "source": {"topic": self.source, "start": "earliest"},
            "clickhouse": {
                "url": self.stack.clickhouse.url,
                "user": self.stack.clickhouse.user,
                "password_file": str(self.stack.clickhouse.password_file),
            },
            # ClickHouse takes some ten blocks a second beside everything else on the machine.
            "block": {"max_age_seconds": 0.5, "max_per_second": 5.0},
            # The quiet tables' buffers outlive many transactions: marks are needed for them.
            "block.tables.'chaos.people'": {"max_age_seconds": 2.0},
            "block.tables.'chaos.countries'": {"max_age_seconds": 4.0},
            "relay": {
                "commit_interval_seconds": 0.1,
                "session_timeout_seconds": SESSION_SECONDS,
                "transaction_timeout_seconds": TRANSACTION_SECONDS,
                "flush_point_interval_seconds": 5.0,
                "wait_for_servers_seconds": 30.0,
                **relay,
            },
            "loader": {
                "database": LEDGER,
                "checkpoint": str(self.directory / "checkpoint"),
                "master": "local[2]",
            },
        }
        text = f'app = "{self.app}"\n'
        for name, values in sections.items():
            text += f"[{name}]\n"
            text += "".join(f"{k} = {v!r}\n" for k, v in values.items())
        path = self.directory / "relay.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def heal(self) -> None:
        """Start what does not run."""
        plan = layout.read(self.place)
        assert plan is not None, "not started"
        for proxy in self.proxies:
            proxy.heal()
        for index in range(self.brokers):
            if process.find(self.place, broker.name(index)) is None:
                broker.launch(self.place, index, plan)
        for index in range(self.brokers):
            broker.await_ready(self.place, index, plan)
        self.start_endpoint()

    def start_endpoint(self) -> None:
        """Start ClickHouse if it does not run, and wait until it answers."""
        stack.up(self.place, progress=lambda _: None)

    def end_endpoint(self, *, kill: bool) -> bool:
        return process.end(self.place, stack.CLICKHOUSE, kill=kill)

    def down(self) -> None:
        """End everything."""
        self._owned.close()
