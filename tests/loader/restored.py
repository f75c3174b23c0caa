"""ClickHouse set back to what it was: tables copied away and put back, as a backup is restored."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client


class Backup:
    """Rows of some tables as they are now.

    Args:
        client: of ClickHouse.
        tables: database.table of each.
    """

    def __init__(self, client: Client, *tables: str) -> None:
        self._client, self._tables = client, tables
        for table in tables:
            client.command(f"CREATE TABLE {table}_copy AS {table}")
            client.command(f"INSERT INTO {table}_copy SELECT * FROM {table}")

    def restore(self, *tables: str) -> None:
        """Puts back these tables; all of them, if none is named."""
        for table in tables or self._tables:
            self._client.command(f"TRUNCATE TABLE {table}")
            self._client.command(f"INSERT INTO {table} SELECT * FROM {table}_copy")

    def replace(self, *tables: str) -> None:
        """The same partition by partition, as from tables that were restored under other names."""
        for table in tables or self._tables:
            found = self._client.query(
                "SELECT DISTINCT partition_id FROM system.parts WHERE active "
                "AND database || '.' || table IN {tables:Array(String)}",
                {"tables": [table, f"{table}_copy"]},
            )
            for (one,) in found.result_rows:
                self._client.command(
                    f"ALTER TABLE {table} REPLACE PARTITION ID '{one}' FROM {table}_copy"
                )

    def make_anew(self, *tables: str) -> None:
        """The same by tables that are dropped and made anew, as RESTORE does it."""
        for table in tables or self._tables:
            self._client.command(f"DROP TABLE {table} SYNC")
            self._client.command(f"CREATE TABLE {table} AS {table}_copy")
            self._client.command(f"INSERT INTO {table} SELECT * FROM {table}_copy")
