"""A journal whose loader writes to the rig's replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from loader.clickhouse import ledger_table
from relay.config.server_settings import ClickHouse
from relay.config.settings import Settings
from relay.dev.clickhouse import toml
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
        user: clickhouse.user.
    """

    def __init__(self, bootstrap: str, rig: Rig, app: str, directory: Path) -> None:
        self._secret = directory / "clickhouse-password"
        self._secret.write_text(rig.password, encoding="utf-8")
        self.rig, self.url = rig, rig.urls()
        self.quorum: str | None = "auto"
        self.user = USER
        super().__init__(bootstrap, self.reached(), app, directory)

    def reached(self, url: str = "") -> ClickHouse:
        """How the loader reaches the replicas."""
        return ClickHouse(
            url=url or self.url,
            insert_quorum=self.quorum,  # type: ignore[arg-type] # "auto"
            user=self.user,
            password_file=self._secret,
        )

    def make_ledger(self) -> None:
        """On each replica, as people are told to."""
        self.rig.run(*ledger_table.create_replicated(self.settings().loader.database))

    def settings(self, *, url: str = "", **loader: Any) -> Settings:
        """Of the loader; `url`: another than the journal's."""
        self._clickhouse = self.reached(url)
        return super().settings(**{"master": "local[4]"} | loader)

    def configuration(self, name: str = "relay", **loader: Any) -> Path:
        """A file of these settings, for `loader` as a process."""
        now = self.settings(checkpoint=str(self.directory / f"checkpoint-{name}"), **loader)
        quorum = f'insert_quorum = "{self.quorum}"\n' if self.quorum else ""
        path = self.directory / f"{name}.toml"
        path.write_text(
            f'app = "{now.app}"\n[kafka]\nbootstrap = "{now.kafka.bootstrap}"\n'
            f'[source]\ntopic = "source"\n[clickhouse]\n{toml(now.clickhouse)}{quorum}'
            f'[loader]\ndatabase = "{now.loader.database}"\nmaster = "{now.loader.master}"\n'
            f'checkpoint = "{now.loader.checkpoint}"\n'
            f"wait_for_servers_seconds = {self.patience}\n"
            f"insert_timeout_seconds = {now.loader.insert_timeout_seconds}\n",
            encoding="utf-8",
        )
        return path
