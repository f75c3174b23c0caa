"""How far the rows have come: sent, in blocks, in ClickHouse.

Receives the running system, gives counts by table. Only looks: reads the journal as any
`read_committed` consumer does, commits nothing, asks ClickHouse for counts and contents.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import clickhouse_connect
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.dev.demo.data import DATABASE, TABLES
from relay.records_pb2 import Commit

POLL_RECORDS = 500


class JournalWatch:
    """Follows the app's journal, which must exist, from its beginning."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        self._consumer = Consumer(kafka_clients.reader(settings.kafka))
        journal = names.journal_topic(settings.app)
        self._consumer.assign([TopicPartition(journal, p, 0) for p in range(partitions)])
        self.rows: Counter[str] = Counter()
        """Rows in blocks, by table."""
        self.blocks: Counter[str] = Counter()
        self.dead = 0
        """Messages that became dead letters; the demo sends none that should."""

    def catch_up(self) -> None:
        """Take what has become visible."""
        while records := self._consumer.consume(POLL_RECORDS, timeout=0.05):
            for record in records:
                if record.error() is None:
                    commit = Commit.FromString(record.value() or b"")
                    for block in commit.blocks:
                        self.rows[block.table] += block.rows
                        self.blocks[block.table] += 1
                    self.dead += sum(letters.messages for letters in commit.dead)

    def close(self) -> None:
        """Let go of the reader."""
        self._consumer.close()


class Warehouse:
    """The demo's tables in ClickHouse."""

    def __init__(self, settings: Settings) -> None:
        self._app = settings.app
        self._ledger = f"{settings.loader.database}.ledger"
        self._client: Any = clickhouse_connect.get_client(
            dsn=settings.clickhouse.url,
            username=settings.clickhouse.user,
            password=settings.clickhouse.secret(),
            autogenerate_session_id=False,
        )

    def create(self) -> None:
        """Make the database and the five tables."""
        self._client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        for table in TABLES:
            self._client.command(table.create())

    def counts(self) -> dict[str, int]:
        """Return rows by table, of one moment."""
        names = [table.full_name for table in TABLES]
        query = " UNION ALL ".join(f"SELECT '{name}', count() FROM {name}" for name in names)
        return {name: int(count) for name, count in self._client.query(query).result_rows}

    def decided_blocks(self) -> int:
        """Return blocks that the loader's ledger calls loaded or parked, and so is done with."""
        question = (
            f"SELECT uniqExact(block) FROM {self._ledger} "
            "WHERE app = {app:String} AND state IN ('loaded', 'parked')"
        )
        return int(self._client.query(question, {"app": self._app}).result_rows[0][0])

    def rows(self, query: str) -> pa.Table:
        """Return a query's result as Arrow."""
        result: pa.Table = self._client.query_arrow(query, use_strings=True)
        return result

    def close(self) -> None:
        """Let go of the client."""
        self._client.close()
