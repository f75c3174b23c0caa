"""`relay schema`, from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from relay.cli import cli
from relay.cli_support import run_main
from relay.dev.clickhouse import toml

if TYPE_CHECKING:
    from pathlib import Path

    from relay.server_settings import ClickHouse


@pytest.fixture
def config_file(tmp_path: Path, bootstrap: str, clickhouse: ClickHouse, app: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{app}-rows", 1, 1)])[f"{app}-rows"].result(30)
    path = tmp_path / "relay.toml"
    path.write_text(
        f'app = "{app}"\n'
        f'[kafka]\nbootstrap = "{bootstrap}"\n'
        f'[source]\ntopic = "{app}-rows"\nstart = "earliest"\n'
        f"[clickhouse]\n{toml(clickhouse)}"
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
    client.command(f"CREATE TABLE {database}.t (a IntervalDay) ENGINE = Memory")
    for table, said in {
        f"{database}.none": f"{database}.none",
        "a; DROP TABLE b": "not a table name: 'a; DROP TABLE b'",
        f"{database}.t": f"column a of {database}.t: type IntervalDay is not supported",
    }.items():
        assert relay_schema("proto", table, "--config", config_file) != 0
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error


def test_show_diff_and_check_tell_what_became_of_a_table(
    config_file: str,
    client: Any,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After an ALTER a producer's old .proto is incompatible, with each problem named and exit
    status 1; the printed one is compatible. Both versions are shown, and what changed between."""
    table = f"{database}.t"

    def said(*arguments: str, status: int = 0) -> str:
        assert relay_schema(*arguments, "--config", config_file) == status
        return capsys.readouterr().out

    client.command(
        f"CREATE TABLE {table} (a Int64, b Nullable(String), c Date) ENGINE = MergeTree ORDER BY a"
    )
    old, new = tmp_path / "old.proto", tmp_path / "new.proto"
    old.write_text(said("proto", table))
    assert "compatible" in said("check", str(old))
    client.command(
        f"ALTER TABLE {table} DROP COLUMN b, MODIFY COLUMN c DateTime, ADD COLUMN d UUID"
    )
    printed = json.loads(said("proto", table, "--json"))
    new.write_text(printed["proto"])
    assert (printed["table"], printed["version"]) == (table, 2)

    assert json.loads(said("check", str(new), "--json"))["compatible"] is True
    found = json.loads(said("check", str(old), "--json", status=1))
    assert [(p["kind"], p["field"], p["number"]) for p in found["problems"]] == [
        ("reserved", "b", 2),
        ("reserved", "c", 3),
    ]
    text = said("check", str(old), status=1)
    assert "problem: b: field 2 is reserved: it was b Nullable(String)" in text
    assert text.endswith(f"{table}, version 2: 2 problems\n")

    assert [c["number"] for c in json.loads(said("show", table, "--json"))["columns"]] == [
        *(1, 2, 3, 4, 5)
    ]
    assert len(json.loads(said("show", table, "--version", "1", "--json"))["columns"]) == 3
    assert "dropped or changed: reserved" in said("show", table)
    changes = json.loads(said("diff", table, "--json"))["changes"]
    assert [(c["kind"], c["column"]) for c in changes] == [
        ("dropped", "b"),
        ("type", "c"),
        ("added", "d"),
    ]
    assert "type       c  Date → DateTime  4" in said("diff", table)
    assert said("diff", table, "--to", "1").count("added") == 3


def test_check_needs_a_table_and_a_version_that_are_there(
    config_file: str, client: Any, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 where the package names no table, the registry lacks it, or there is no version."""
    table = f"{database}.t"
    client.command(f"CREATE TABLE {table} (a Int64) ENGINE = MergeTree ORDER BY a")
    assert relay_schema("proto", table, "--config", config_file) == 0
    file = tmp_path / "rows.proto"
    file.write_text('syntax = "proto3"; message Row { optional int64 a = 1; }')
    for arguments, complaint in {
        ("check", str(file)): "package '' is not database.table",
        (
            "check",
            str(file),
            "--table",
            f"{database}.no",
        ): f"the registry has no table {database}.no",
        ("show", f"{database}.t", "--version", "7"): "has no version 7",
    }.items():
        capsys.readouterr()
        assert relay_schema(*arguments, "--config", config_file) == 2
        assert complaint in capsys.readouterr().err
    assert (
        relay_schema("check", str(file), "--table", f"{database}.t", "--config", config_file) == 0
    )
