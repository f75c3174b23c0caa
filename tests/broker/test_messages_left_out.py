"""From source to table: the messages that a CHECK refuses are known by their source offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from loader.cli import loader
from relay.cli import cli
from relay.config import settings_file
from relay.names import LEFT_OUT
from tests.broker.test_topics_made_anew import relayed
from tests.loader.unsparked import load

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


def ran(path: Path, *command: str) -> tuple[int, str]:
    program = loader if command[0] == "parked" else cli
    of = 2 if command[0] == "parked" else 1
    done = CliRunner().invoke(program, [*command[:of], str(path), *command[of:]])
    return done.exit_code, done.output


def test_a_row_that_a_check_refuses(pipeline: Pipeline, client: Client) -> None:
    table = pipeline.table
    client.command(f"DROP TABLE {table}")
    client.command(
        f"CREATE TABLE {table} (id Int64, v String, _block String, "
        "CONSTRAINT known CHECK id NOT IN (17, 42)) ENGINE = MergeTree ORDER BY id"
    )
    path = pipeline.config()
    text = path.read_text("utf-8").replace(
        "[loader]\n", f'[loader]\ndatabase = "{pipeline.database}"\n'
    )
    path.write_text(text, "utf-8")
    relayed(pipeline, path, range(100))

    said = load(settings_file.load(path))
    assert any("without 2 messages that the table refuses" in line for line in said), said
    assert client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows == [(98, 98)]
    status, output = ran(path, "parked", "ls", "--json")
    waiting = [json.loads(line) for line in output.splitlines()]
    assert [(one["rows"], one["id"].endswith(LEFT_OUT)) for one in waiting] == [(2, True)]
    assert "offset 17: Code: 469. Constraint `known` for table" in waiting[0]["reason"]
    assert "Column values: id = 17" in waiting[0]["reason"]
    assert ran(path, "verify", "--once", "--deep")[0] == 0

    client.command(f"ALTER TABLE {table} DROP CONSTRAINT known")
    status, output = ran(path, "parked", "resolve", "all", "--retry")
    assert status == 0, output
    assert client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows == [(100, 100)]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output
    client.command(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 42")
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 1, output
    assert f"{LEFT_OUT}: the table has 3 of its rows, but the block has 2" in output
