"""A journal whose loader writes to the rig's replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from loader import ledger_table
from relay.settings import Settings
from tests.loader.blocks import SCHEMA, Journal
from tests.replicas.rig import Rig
from tests.replicas.server import USER

COLUMNS = "id Int64, name LowCardinality(String)"
STAMPED = f"{COLUMNS}, _block String"


def spread(first: int, rows: int) -> pa.RecordBatch:
    """Rows of three names in turn, for tables that are partitioned by them."""
    columns = [
        pa.array(range(first, first + rows), pa.int64()),
        pa.array([f"name {i % 3}" for i in range(rows)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Replicated(Journal):
    """One app's topics, whose rows go to replicas.

    Attributes:
        quorum: clickhouse.insert_quorum; None: none.
        url: clickhouse.url, one or several.
    """

    def __init__(self, bootstrap: str, rig: Rig, app: str, directory: Path) -> None:
        super().__init__(bootstrap, "", app, directory)
        self.rig, self.url = rig, rig.urls()
        self.quorum: int | str | None = "auto"
        self._secret = directory / "clickhouse-password"
        self._secret.write_text(rig.password, encoding="utf-8")

    def make_ledger(self) -> None:
        """On each replica."""
        columns = ", ".join(f"{name} {kind}" for name, kind in ledger_table.COLUMNS.items())
        database = self.settings().loader.database
        self.rig.make(f"{database}.ledger", columns, "ORDER BY (app, table, block)")

    def settings(self, *, url: str = "", **loader: Any) -> Settings:
        """Of the loader; `url`: another than the journal's."""
        clickhouse: dict[str, Any] = {
            "url": url or self.url,
            "user": USER,
            "password_file": str(self._secret),
            "insert_quorum": self.quorum,
        }
        given = {"checkpoint": str(self.directory / "checkpoint"), "master": "local[4]"}
        return Settings.model_validate(
            {
                "app": self.app,
                "kafka": {"bootstrap": self._bootstrap},
                "source": {"topic": "source"},
                "clickhouse": clickhouse,
                "loader": {
                    "database": f"ledger_{self.app}".replace("-", "_"),
                    **given,
                    **loader,
                },
            }
        )

    def configuration(self, name: str = "relay", **loader: Any) -> Path:
        """A file of these settings, for `loader` as a process."""
        now = self.settings(**loader)
        lines = [
            f'app = "{now.app}"',
            "[kafka]",
            f'bootstrap = "{now.kafka.bootstrap}"',
            "[source]",
            'topic = "source"',
            "[clickhouse]",
            f'url = "{now.clickhouse.url}"',
            f'user = "{USER}"',
            f'password_file = "{self._secret}"',
            *([f'insert_quorum = "{self.quorum}"'] if self.quorum == "auto" else []),
            *([f"insert_quorum = {self.quorum}"] if isinstance(self.quorum, int) else []),
            "[loader]",
            f'database = "{now.loader.database}"',
            f'master = "{now.loader.master}"',
            f'checkpoint = "{now.loader.checkpoint}"',
            f"wait_for_servers_seconds = {self.patience}",
            f"insert_timeout_seconds = {now.loader.insert_timeout_seconds}",
        ]
        path = self.directory / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path
