"""A table, a ledger and a loader by hand: every state that a loader may leave, right or wrong."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from loader.clickhouse import ledger_table
from loader.core import left_out
from relay import names
from relay.config.settings import Settings
from relay.errors import RelayError
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.ledger_history import WaitingBlock
from relay.operate.verify.judge.operator_records import Superseded
from relay.operate.verify.landing import Landing
from relay.records_pb2 import Block, Commit
from tests.verify.realserver import OFFICE, client

ROWS = 10
"""Of every block."""
DDL = "(id UInt64, day Date, sign Int8 DEFAULT 1, v UInt64 DEFAULT 1"
STAMPED = f"{DDL}, _block LowCardinality(String))"
BARE = f"{DDL})"
AS_THE_LOADER = {
    "insert_deduplicate": 1,
    "deduplicate_insert_select": "enable_even_for_bad_queries",
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "async_insert": 0,
}
WINDOW = "non_replicated_deduplication_window = 100"


class Shop:
    """One app with tables in a database of its own.

    Attributes:
        database: of the tables.
        client: with all rights.
        ledger: its whole name.
        waiting: blocks, by table, as they were last judged.
    """

    def __init__(self, port: int, app: str) -> None:
        self.app, self.port = app, port
        self.database, self._ledger = f"d{app}", f"l{app}"
        self.ledger = f"{self._ledger}.ledger"
        self.client = client(port)
        for database in (self.database, self._ledger):
            self.client.command(f"CREATE DATABASE {database}")
        self.client.command(ledger_table.create(self.ledger))
        self._blocks = 0
        self.waiting: Mapping[str, Sequence[WaitingBlock]] = {}
        self.failed: Mapping[str, RelayError] = {}

    def moved(self, port: int) -> Shop:
        """The same after the server was started anew at another port."""
        self.client.close()
        self.port, self.client = port, client(port)
        return self

    def close(self) -> None:
        for database in (self.database, self._ledger, OFFICE):
            self.client.command(f"DROP DATABASE IF EXISTS {database} SYNC")
        self.client.close()

    def table(
        self,
        name: str = "t",
        engine: str = "MergeTree",
        columns: str = STAMPED,
        more: str = "",
        *,
        window: bool = True,
        key: str = "id",
    ) -> str:
        """Make a table; its whole name."""
        table = f"{self.database}.{name}"
        settings = f"SETTINGS {WINDOW}" if window else ""
        self.client.command(
            f"CREATE TABLE {table} {columns} ENGINE = {engine} ORDER BY {key} {more} {settings}"
        )
        return table

    def in_office(self, name: str, columns: str = STAMPED) -> str:
        """Make a table that users with few rights may read; its whole name."""
        self.client.command(f"CREATE DATABASE IF NOT EXISTS {OFFICE}")
        table = f"{OFFICE}.{name}"
        self.client.command(f"CREATE TABLE {table} {columns} ENGINE = MergeTree ORDER BY id")
        return table

    def flushed(self, where: str) -> int:
        """Rows of one of the server's logs, all that is to come now being there."""
        self.client.command("SYSTEM FLUSH LOGS")
        return self.count(where)

    def view(self, table: str, columns: str = "n UInt64", *, window: bool = True) -> str:
        """A view behind the table that counts rows; the table that it writes to."""
        into = f"{table}_counts"
        settings = f"SETTINGS {WINDOW}" if window else ""
        self.client.command(
            f"CREATE TABLE {into} ({columns}) ENGINE = SummingMergeTree ORDER BY tuple() {settings}"
        )
        self.client.command(
            f"CREATE MATERIALIZED VIEW {table}_view TO {into} AS SELECT count() AS n FROM {table}"
        )
        return into

    def block(self, table: str, *, sealed_ago: float = 0.0, partition: int = 0) -> Block:
        """A block that was sealed just now."""
        self._blocks += 1
        return Block(
            id=str(names.BlockId(self.app, table, partition, 0, self._blocks)),
            table=table,
            partition=partition,
            rows=ROWS,
            sealed_at_ms=time.time_ns() // 1_000_000 - int(sealed_ago * 1e3),
        )

    def insert(
        self,
        *blocks: Block,
        age_days: int = 0,
        token: bool = True,
        claim: str = "c",
        holds: bool = True,
    ) -> None:
        """The loader's INSERT of one block or of several together.

        Args:
            blocks: of one table.
            age_days: of their rows.
            token: the blocks' own; else one that nobody has used.
            claim: that it is made under.
            holds: whether the claim holds, which is the statement's condition.
        """
        table = blocks[0].table
        stamped = self._stamped(table)
        selects = " UNION ALL ".join(
            f"SELECT {i * ROWS} + number AS id, today() - {age_days} AS day"
            + (f", '{block.id}' AS _block" if stamped else "")
            + f" FROM numbers({ROWS})"
            for i, block in enumerate(blocks)
        )
        own = blocks[0].id if len(blocks) == 1 else uuid.uuid4().hex
        wanted = {
            **AS_THE_LOADER,
            "insert_deduplication_token": own if token else uuid.uuid4().hex,
            "log_comment": names.insert_comment([block.id for block in blocks], claim),
        }
        named = "(id, day, _block)" if stamped else "(id, day)"
        order = "" if len(blocks) == 1 else " ORDER BY id"
        self.client.command(
            f"INSERT INTO {table} {named} SELECT * FROM ({selects}) WHERE {holds:d}{order}",
            settings=wanted,
        )

    def load(self, *blocks: Block, age_days: int = 0) -> None:
        """As the loader does it where nothing goes wrong."""
        self.claim(*blocks)
        self.insert(*blocks, age_days=age_days)
        self.mark(*blocks)

    def claim(self, *blocks: Block, **more: Any) -> None:
        """Claim them; `more` are columns of the ledger, as `attempt` and `claim`."""
        for block in blocks:
            self._write(block, "prepared", **{"stamped": self._stamped(block.table), **more})

    def mark(self, *blocks: Block, state: str = "loaded", reason: str = "") -> None:
        for block in blocks:
            self._write(block, state, reason=reason)

    def _write(self, block: Block, state: str, **more: Any) -> None:
        waits = left_out.record(block) if state in {"parked", "aside"} else ""
        row = {
            "app": self.app,
            "table": block.table,
            "block": block.id,
            "state": state,
            "attempt": 1,
            "claim": "c",
            "rows": block.rows,
            "record": waits,
            **more,
        }
        self.client.insert(self.ledger, [[*row.values()]], column_names=[*row])

    def forget(self) -> None:
        """Empty the ledger."""
        self.client.command(f"TRUNCATE TABLE {self.ledger}")

    def sql(self, text: str, **settings: Any) -> None:
        """A person's statement."""
        self.client.command(text, settings=settings)

    def count(self, table: str, column: str = "count()") -> int:
        return int(self.client.query(f"SELECT {column} FROM {table}").result_rows[0][0])

    def stamp(self, table: str) -> None:
        """Add the block-id column; nothing on this server records it, as where a replica did it."""
        self.sql(f"ALTER TABLE {table} ADD COLUMN _block LowCardinality(String)", log_queries=0)

    def _stamped(self, table: str) -> bool:
        columns = self.client.query(f"DESCRIBE TABLE {table}").result_rows
        return "_block" in [row[0] for row in columns]

    def judge(
        self,
        *blocks: Block,
        user: str = "default",
        superseded: Sequence[Sequence[Commit]] = (),
        removed: Sequence[str] = (),
    ) -> tuple[list[AnomalyKind], str]:
        """Kinds of all anomalies, and all text: of anomalies and of what is not judged."""
        self.client.command("SYSTEM FLUSH LOGS")
        # The logs' newest records must be younger than what is judged.
        self.client.command("SELECT 1 SETTINGS log_comment = 'later'")
        self.client.command("SYSTEM FLUSH LOGS")
        landing = Landing(
            self.settings(user),
            {i: Superseded(list(some)) for i, some in enumerate(superseded)},
            removed,
        )
        found = list(landing.judge(blocks))
        self.waiting, self.failed = landing.waiting, landing.failed
        text = "\n".join([*map(str, found), *landing.not_judged])
        return [one.kind for one in found], text

    def settings(self, user: str = "default") -> Settings:
        where = {"url": f"http://127.0.0.1:{self.port}", "user": user}
        return Settings.model_validate(
            {
                "app": self.app,
                "kafka": {"bootstrap": "127.0.0.1:1"},
                "source": {"topic": "source"},
                "clickhouse": where,
                "loader": {"database": self._ledger, "checkpoint": "/nowhere"},
            }
        )
