"""Writes blocks and journal records by hand, as the relay would, and runs the loader."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)

from loader.clickhouse.ledger import Ledger
from relay import names
from relay.blocks import chunks, message_rows
from relay.blocks.dead_letter import DeadLetter
from relay.config import settings
from relay.config.server_settings import ClickHouse
from relay.dev.clickhouse import toml
from relay.operate.dead.reader import DeadReader
from relay.records_pb2 import Block, Commit
from tests.broker.pipeline import create_topics, is_stable, wait_until
from tests.broker.topic_changes import set_topic

DEADLINE = 240.0
"""Seconds for one run of the loader: 15 on an idle machine, far more on a crowded one."""

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={b"clickhouse": b"Int64"}),
        pa.field("name", pa.string(), metadata={b"clickhouse": b"LowCardinality(String)"}),
    ]
)


def batch(first: int, rows: int) -> pa.RecordBatch:
    columns = [
        pa.array(range(first, first + rows), pa.int64()),
        pa.array([f"name {i % 7}" for i in range(rows)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _messages(first: int, rows: int, each: int) -> message_rows.MessageRows:
    """Messages of `each` rows; the one with a block's row n, from 0, has offset first + n."""
    starts = np.arange(0, rows, each or rows)
    return message_rows.MessageRows(first + starts, np.diff(starts, append=rows))


class Journal:
    """One app's topics, of one partition each, and a transactional producer."""

    def __init__(self, bootstrap: str, clickhouse: ClickHouse, app: str, directory: Path) -> None:
        self.app, self.directory = app, directory
        self.source, self._source_id = "source", ""
        self._bootstrap, self._clickhouse = bootstrap, clickhouse
        self.patience, self.rejected = 0.0, "park"
        self._topics: set[str] = set()
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.topic(names.journal_topic(app))
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{app}-{uuid.uuid4()}"}
        )
        self.producer.init_transactions()

    def topic(self, name: str) -> None:
        if name not in self._topics:
            create_topics(self._admin, NewTopic(name, 1, 1))
            self._topics.add(name)

    def sources(self, table: str, messages: int, padding: int = 0) -> None:
        """Make the topic that blocks came from, with so many messages, and that of dead letters.

        The message at n has the key `key n`, the value `value n` and spaces behind it, and a header
        `trace` beside its table's.
        """
        self.source = f"{self.app}.source"
        self.topic(self.source)
        self.topic(names.dead_topic(self.app))
        described = self._admin.describe_topics(TopicCollection([self.source]))
        self._source_id = str(described[self.source].result().topic_id)
        with self.transaction():
            for n in range(messages):
                headers = [("table", table), ("trace", f"t{n}")]
                value = f"value {n}{' ' * padding}"
                self.producer.produce(self.source, value, f"key {n}", partition=0, headers=headers)
            self.producer.flush()

    def delete_sources(self, before: int) -> None:
        """As retention does."""
        place = TopicPartition(self.source, 0, before)
        for future in self._admin.delete_records([place]).values():
            future.result()

    def delete_journal(self, before: int) -> None:
        place = TopicPartition(names.journal_topic(self.app), 0, before)
        for future in self._admin.delete_records([place]).values():
            future.result(30)

    def await_markers(self, topic: str = "") -> None:
        """Wait until who reads committed records sees all that was committed to it.

        `topic`: the journal, where none is named.
        """
        place = TopicPartition(topic or names.journal_topic(self.app), 0)
        wait_until(lambda: is_stable(self._admin, place), "the markers of the transactions")

    def limit_letters(self, size: int) -> None:
        """Take no larger record than so many bytes from now on; the topic's log goes by it then."""
        topic = names.dead_topic(self.app)
        set_topic(self._admin, topic, max_message_bytes=size)
        wait_until(lambda: self._refuses(topic, size + 1), "a record that is refused")

    def _refuses(self, topic: str, size: int) -> bool:
        """Whether a record of so many bytes, of a transaction that is aborted, is refused."""
        said: list[bool] = []
        self.producer.begin_transaction()
        self.producer.produce(
            topic, bytes(size), partition=0, on_delivery=lambda e, _: said.append(e is not None)
        )
        self.producer.flush()
        self.producer.abort_transaction()
        return said == [True]

    def delete_letters(self) -> None:
        """All that are there, as retention does, and what was aborted."""
        with self.transaction():  # so that something lies behind
            self.producer.produce(names.dead_topic(self.app), "x", partition=0)
            self.producer.flush()
        place = TopicPartition(names.dead_topic(self.app), 0, -1)
        for future in self._admin.delete_records([place]).values():
            future.result()

    def letters(self) -> list[DeadLetter]:
        """All dead letters, as a read_committed reader sees them."""
        self.await_markers(names.dead_topic(self.app))
        reader = DeadReader(self.settings())
        try:
            return list(reader.letters())
        finally:
            reader.close()

    def forget(self, name: str) -> None:
        self._topics.remove(name)

    def seal(
        self, table: str, *batches: pa.RecordBatch, chunk_bytes: int = 2_000, each: int = 0
    ) -> list[Block]:
        """The batches as blocks of one transaction.

        `each`: rows of a message, so that blocks say whose their rows are; 0: they do not say.
        """
        self.topic(names.blocks_topic(self.app, table))
        with self.transaction():
            blocks = [self._block(table, one, chunk_bytes, each) for one in batches]
            self.commit(*blocks)
        return blocks

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.producer.begin_transaction()
        yield
        self.producer.commit_transaction()

    def commit(self, *blocks: Block) -> None:
        came = {"source_topic": self.source, "source_topic_id": self._source_id}
        record = Commit(app=self.app, partition=0, blocks=blocks, **came).SerializeToString()
        self.producer.produce(names.journal_topic(self.app), record, b"0", partition=0)
        self.producer.flush()

    def _block(self, table: str, one: pa.RecordBatch, chunk_bytes: int, each: int) -> Block:
        first, now_ms = one.column(0)[0].as_py(), int(time.time() * 1000)
        block = Block(
            id=str(names.BlockId(self.app, table, 0, 0, first)),
            table=table,
            topic=names.blocks_topic(self.app, table),
            rows=one.num_rows,
            sealed_at_ms=now_ms,
            first_timestamp_ms=now_ms,
            # As the loader's reader of the journal adds.
            source_topic=self.source if self._source_id else "",
            source_topic_id=self._source_id,
        )
        encoded = chunks.Encoder(chunk_bytes).encode(one)
        listed = _messages(first, one.num_rows, each)
        block.messages = len(listed.offsets)
        offsets: list[int] = []
        for sequence, (value, rows) in enumerate(encoded):
            headers: list[tuple[str, Any]] = [("seq", str(sequence)), ("rows", str(rows))]
            if each and not sequence:
                headers.append((message_rows.header(), message_rows.encode(listed)))
            self.producer.produce(
                block.topic,
                value,
                block.id.encode(),
                partition=0,
                headers=[*headers, ("schema", "1")],
                on_delivery=lambda _, message: offsets.append(message.offset()),
            )
        self.producer.flush()
        block.first_offset, block.next_offset = offsets[0], offsets[-1] + 1
        block.chunks = len(encoded)
        block.crc32c = chunks.crc32c(value for value, _ in encoded)
        return block

    def settings(self, **loader: Any) -> settings.Settings:
        checkpoint = str(self.directory / "checkpoint")
        own = {"checkpoint": checkpoint, "master": "local[2]", "rejected": self.rejected}
        loader = own | loader
        return settings.Settings.model_validate(
            {
                "app": self.app,
                "kafka": {"bootstrap": self._bootstrap},
                "source": {"topic": self.source},
                "clickhouse": self._clickhouse,
                "loader": {"database": f"ledger_{self.app}".replace("-", "_"), **loader},
            }
        )

    def without_clickhouse(self) -> None:
        """From now on the configuration names a port where nobody listens."""
        self._clickhouse = self._clickhouse.model_copy(update={"url": "http://127.0.0.1:1"})

    def configured(self) -> Path:
        """The configuration file of these settings."""
        now = self.settings()
        path = self.directory / "relay.toml"
        path.write_text(
            f'app = "{now.app}"\n[kafka]\nbootstrap = "{now.kafka.bootstrap}"\n'
            f'[source]\ntopic = "{now.source.topic}"\n[clickhouse]\n{toml(now.clickhouse)}'
            f'[loader]\ndatabase = "{now.loader.database}"\nmaster = "{now.loader.master}"\n'
            f'checkpoint = "{now.loader.checkpoint}"\n'
            f"wait_for_servers_seconds = {self.patience}\n"
            f'rejected = "{self.rejected}"\n'
        )
        return path

    def start(
        self, *arguments: str, failpoint: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`loader` with a configuration file of these settings."""
        path = self.configured()
        command, *options = arguments
        return subprocess.Popen(
            [sys.executable, "-m", "loader.cli", *command.split(), str(path), *options],
            env={**os.environ, "RELAY_FAILPOINT": failpoint, **(environment or {})},
            cwd=self.directory,
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, *arguments: str, failpoint: str = "") -> tuple[int, str]:
        """Exit status and both outputs of a `loader` that ends by itself."""
        process = self.start(*arguments, failpoint=failpoint)
        try:
            output, errors = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
        return process.returncode, output + errors


def clock_passes(client: Client, seconds: float) -> None:
    """Wait until the server's clock shows so many seconds more."""

    def now() -> float:
        return float(client.query("SELECT toFloat64(now64(3))").result_rows[0][0])

    end = now() + seconds
    wait_until(lambda: now() > end, f"{seconds:g} s of the server's clock")


def await_next_second(client: Client) -> None:
    """By the server's clock, in which a table's change and a block's claim are compared.

    A table has surely its tokens if it was made, or altered, in a second before the claim's.
    """

    def now() -> int:
        return int(client.query("SELECT toUnixTimestamp(now())").result_rows[0][0])

    before = now()
    wait_until(lambda: now() > before, "the server's next second")


def stands() -> None:
    """Check a rewind in the journal: it is still to be carried out."""


def parked_blocks(ledger: Ledger) -> list[tuple[Block, str]]:
    """The blocks that wait for a person, with reasons."""
    return [(entry.block, entry.reason) for entry in ledger.waiting(aside=False)]
