"""A producer names the table of its rows; the ledger, which says what is loaded, is no target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer

from loader.clickhouse import ledger_table
from tests.broker.pipeline import length_prefixed, row_batch, varint

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


def forged(app: str, table: str, offset: int) -> bytes:
    """A RowBatch of one ledger row, by the ledger's columns: the block is loaded."""
    texts = {1: app, 2: table, 3: f"{app}:{table}:0:0:{offset}", 4: "loaded", 6: "forged"}
    row = b"".join(
        varint(number << 3 | 2) + length_prefixed(text.encode()) if number != 5 else b"\x28\x01"
        for number, text in sorted({**texts, 5: ""}.items())
    )
    return b"\x0a" + length_prefixed(row)


def test_rows_for_a_ledger_are_dead_letters(pipeline: Pipeline, client: Client) -> None:
    """The app's own, and any other that its columns show to be one; other tables' rows go on."""
    books = f"{pipeline.database}_books"
    for name in (f"{books}.ledger", f"{pipeline.database}.old_ledger"):
        client.command(f"CREATE DATABASE IF NOT EXISTS {name.split('.')[0]}")
        client.command(ledger_table.create(name))
    try:
        config = pipeline.config("")
        config.write_text(
            config.read_text("utf-8").replace("[loader]\n", f'[loader]\ndatabase = "{books}"\n'),
            "utf-8",
        )
        producer = Producer({"bootstrap.servers": pipeline.bootstrap})
        tables = {
            f"{books}.ledger": "a loader's ledger",
            f"{pipeline.database}.old_ledger": "a loader's ledger",
            "system.query_log": "ClickHouse's own",
            f"`{books}`.ledger": "no header",
        }
        for table in tables:
            for at in range(5):
                value = forged(pipeline.app, pipeline.table, at)
                pipeline.produce(producer, value, 0, [("table", table.encode())])
        producer.flush(30)
        pipeline.send(range(100))
        pipeline.start("a", config)
        pipeline.until(lambda: sum(pipeline.rows().values()) >= 100, "the table's rows")
        pipeline.until(lambda: len(pipeline.dead()) >= 20, "dead letters")
    finally:
        client.command(f"DROP DATABASE {books} SYNC")
    reasons = [headers["reason"] for _, headers in pipeline.dead()]
    assert len(reasons) == 20
    for table, why in tables.items():
        assert sum(why in reason for reason in reasons) >= 5, (table, reasons)
    pipeline.exactly_once()


def test_a_list_of_tables_keeps_all_others_out(pipeline: Pipeline, client: Client) -> None:
    """The ledger's database is where the tables live, and the list names it: not the ledger."""
    client.command(ledger_table.create(f"{pipeline.database}.ledger"))
    client.command(f"CREATE TABLE {pipeline.database}.other AS {pipeline.table}")
    config = pipeline.config("")
    text = config.read_text("utf-8")
    text = text.replace("[loader]\n", f'[loader]\ndatabase = "{pipeline.database}"\n')
    patterns = f'tables = ["{pipeline.database}.t*", "*.ledger"]'
    config.write_text(text.replace("[source]\n", f"[source]\n{patterns}\n"), "utf-8")
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for table in ("other", "ledger"):
        headers: list[tuple[str, str | bytes | None]] = [("table", f"{pipeline.database}.{table}")]
        pipeline.produce(producer, row_batch([7]), 0, headers)
    producer.flush(30)
    pipeline.send(range(10))
    pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) >= 2, "dead letters")
    reasons = sorted(headers["reason"] for _, headers in pipeline.dead())
    assert "is a loader's ledger" in reasons[0]
    assert "is not among source.tables" in reasons[1]
    pipeline.exactly_once()
