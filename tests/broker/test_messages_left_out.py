"""From source to table: the messages that a CHECK refuses are known by their source offsets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from loader.cli import loader
from relay.cli import cli
from relay.config import settings_file
from relay.names import LEFT_OUT
from tests.broker.test_topics_made_anew import relayed
from tests.loader.unsparked import load

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


def checked(pipeline: Pipeline, client: Client, *more: str) -> Path:
    """The configuration of a table that refuses 17 and 42; `more`: lines of [loader]."""
    table = pipeline.table
    client.command(f"DROP TABLE {table}")
    client.command(
        f"CREATE TABLE {table} (id Int64, v String, _block String, "
        "CONSTRAINT known CHECK id NOT IN (17, 42)) ENGINE = MergeTree ORDER BY id"
    )
    path = pipeline.config()
    lines = "\n".join(["[loader]", f'database = "{pipeline.database}"', *more, ""])
    path.write_text(path.read_text("utf-8").replace("[loader]\n", lines), "utf-8")
    return path


def ran(path: Path, *command: str) -> tuple[int, str]:
    if command[0] == "dead":
        relay = Path(sys.executable).parent / "relay"
        by = subprocess.run(
            [relay, *command, "--config", path], capture_output=True, text=True, check=False
        )
        return by.returncode, by.stdout + by.stderr
    program = loader if command[0] == "parked" else cli
    of = 2 if command[0] in {"parked", "blocks"} else 1
    done = CliRunner().invoke(program, [*command[:of], str(path), *command[of:]])
    return done.exit_code, f"{done.output}{done.exception or ''}"


def test_a_row_that_a_check_refuses(pipeline: Pipeline, client: Client) -> None:
    table, path = pipeline.table, checked(pipeline, client)
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
    status, output = ran(path, "blocks", "ls", "--state", "parked", "--json")
    assert [json.loads(line)["id"] for line in output.splitlines()] == [waiting[0]["id"]], output

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


@pytest.mark.parametrize("kind", ["pipeline", pytest.param("crossing", marks=pytest.mark.long)])
def test_it_becomes_a_dead_letter_and_is_replayed(
    kind: str, client: Client, request: pytest.FixtureRequest
) -> None:
    """As the relay's are, also with the source in another cluster; the verifier looks at both."""
    pipeline: Pipeline = request.getfixturevalue(kind)
    table, path = pipeline.table, checked(pipeline, client, 'rejected = "dead"')
    relayed(pipeline, path, range(100))
    said = load(settings_file.load(path))
    assert any(f"dead letters of {pipeline.app}.dead, 0:" in line for line in said), said
    status, output = ran(path, "dead", "ls", "--json")
    assert status == 0, output
    letters = [json.loads(line) for line in output.splitlines()]
    assert [(one["table"], one["source_offset"]) for one in letters] == [(table, 17), (table, 42)]
    assert all(one["block"].endswith(LEFT_OUT) for one in letters)
    status, output = ran(path, "dead", "show", letters[0]["place"])
    assert f"block        {letters[0]['block']}" in output
    assert "1: id: 17" in output
    status, output = ran(path, "blocks", "show", letters[0]["block"])
    assert "state        dead" in output
    whole = letters[0]["block"].removesuffix(LEFT_OUT)
    assert f"made of      messages that its table refused, left out of {whole}" in output
    assert f"dead letters of {pipeline.app}.dead, 0:" in output
    assert ran(path, "verify", "--once", "--deep")[0] == 0

    client.command(f"ALTER TABLE {table} DROP CONSTRAINT known")
    if kind == "crossing":
        return  # a replay is within one cluster
    status, output = ran(path, "dead", "replay", "--run")
    assert status == 0, output
    relayed(pipeline, path, range(100, 110))
    load(settings_file.load(path))
    assert client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows == [(110, 110)]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output

    # Negative control: a letter of the block is there once more, and a row of it.
    again = Producer({"bootstrap.servers": pipeline.bootstrap})
    headers = [("block", letters[0]["block"]), ("source_offset", "17")]
    again.produce(f"{pipeline.app}.dead", b"", partition=0, headers=headers)
    assert again.flush(30) == 0
    client.command(f"INSERT INTO {table} VALUES (17, '', '{letters[0]['block']}')")
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 1, output
    assert "messages 17 are dead letters more than once" in output
    assert "messages 17, 42 are dead letters, and rows as well" in output
