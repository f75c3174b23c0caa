"""`relay schema`, from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from relay.cli import cli
from relay.cli_support import run_main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config_file(tmp_path: Path, bootstrap: str, clickhouse_url: str, app: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{app}-rows", 1, 1)])[f"{app}-rows"].result(30)
    path = tmp_path / "relay.toml"
    path.write_text(
        f'app = "{app}"\n'
        f'[kafka]\nbootstrap = "{bootstrap}"\n'
        f'[source]\ntopic = "{app}-rows"\nstart = "earliest"\n'
        f'[clickhouse]\nurl = "{clickhouse_url}"\n'
        f'[loader]\ncheckpoint = "{tmp_path}/checkpoint"\n'
    )
    return str(path)


def relay_schema(*arguments: str) -> int:
    return run_main(cli, "relay", ["schema", *arguments])


def test_proto_gives_numbers_and_ls_shows_them(
    config_file: str, client: Any, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The .proto of a new table fixes its field numbers, which stay when the table changes, and
    the list shows what is registered."""
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (a Int64, b Nullable(String), _block String) "
        "ENGINE = MergeTree ORDER BY a"
    )
    assert relay_schema("proto", table, "--config", config_file) == 0
    text = capsys.readouterr().out
    assert "  optional int64 a = 1;" in text
    assert "  optional string b = 2;" in text
    assert "_block" not in text

    client.command(f"ALTER TABLE {table} DROP COLUMN b, ADD COLUMN c Date FIRST")
    assert relay_schema("proto", table, "--config", config_file) == 0
    text = capsys.readouterr().out
    assert "  reserved 2;" in text
    assert "  optional int32 c = 3;" in text

    assert relay_schema("ls", "--json", "--config", config_file) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["table"], listed["version"], listed["problems"]) == (table, 2, [])
    assert [(c["name"], c["number"], c["dropped"]) for c in listed["columns"]] == [
        ("a", 1, False),
        ("b", 2, True),
        ("c", 3, False),
    ]
    assert relay_schema("ls", "--config", config_file) == 0
    assert capsys.readouterr().out.startswith(f"{table}  version 2      2 columns  since 20")


def test_errors_name_what_is_wrong(
    config_file: str, client: Any, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is not there, no table's name, and a type that rows cannot carry give one
    clear error, the last with the column's name and type."""
    client.command(f"CREATE TABLE {database}.t (a Array(Int8)) ENGINE = Memory")
    for table, said in {
        f"{database}.none": f"{database}.none",
        "a; DROP TABLE b": "not a table name: 'a; DROP TABLE b'",
        f"{database}.t": f"column a of {database}.t: type Array(Int8) is not supported",
    }.items():
        assert relay_schema("proto", table, "--config", config_file) != 0
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
