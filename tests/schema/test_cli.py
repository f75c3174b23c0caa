"""`relay schema`, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from grpc_tools import protoc

from relay import names
from relay.cli import cli
from relay.config.allowed_tables import LEDGER_COLUMNS
from relay.dev.clickhouse import toml
from relay.program.command import run_main
from tests.broker.pipeline import WAIT_SECONDS, create_topics

if TYPE_CHECKING:
    from relay.config.server_settings import ClickHouse


@pytest.fixture
def config_file(tmp_path: Path, bootstrap: str, clickhouse: ClickHouse, app: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topics(admin, NewTopic(f"{app}-rows", 1, 1))
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
        ): f"the schema registry has no table {database}.no",
        ("show", f"{database}.t", "--version", "7"): "has no version 7",
    }.items():
        capsys.readouterr()
        assert relay_schema(*arguments, "--config", config_file) == 2
        assert complaint in capsys.readouterr().err
    assert (
        relay_schema("check", str(file), "--table", f"{database}.t", "--config", config_file) == 0
    )


def of_database(config_file: str, database: str) -> str:
    """The same configuration, but that only this database's tables take rows."""
    path = Path(config_file)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[source]", f'[source]\ntables = ["{database}.*"]'))
    return config_file


def test_the_files_of_all_tables_in_one_go(
    config_file: str,
    client: Any,
    database: str,
    bootstrap: str,
    app: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One a table, in the directory of its package; one that cannot be carried stops no other, a
    view and a ledger are none, and no block topic is made."""
    for name, columns in {
        "t": "a Int64, v LowCardinality(String)",
        "Words": "w String",
        "bad": "a IntervalDay",
        "ledger_of_others": ", ".join(f"{column} String" for column in LEDGER_COLUMNS),
    }.items():
        client.command(f"CREATE TABLE {database}.`{name}` ({columns}) ENGINE = Memory")
    client.command(f"CREATE VIEW {database}.v AS SELECT * FROM {database}.t")
    out = tmp_path / "proto"
    config_file = of_database(config_file, database)
    arguments = ("proto", "--all", "--out", str(out), "--config", config_file)
    assert relay_schema(*arguments, "--json") == 2
    captured = capsys.readouterr()
    told = {one["table"]: one for one in map(json.loads, captured.out.splitlines())}
    assert {table.partition(".")[2]: one["outcome"] for table, one in told.items()} == {
        "t": "written",
        "Words": "written",
        "bad": "refused",
    }
    assert "IntervalDay" in told[f"{database}.bad"]["why"]
    assert "1 of 3 tables have no up-to-date file" in captured.err
    assert {path.relative_to(out) for path in out.rglob("*.proto")} == {
        Path(database, "t", "row.proto"),
        Path(database, "Words", "row.proto"),
    }
    for path in out.rglob("*.proto"):
        package = ".".join(path.parent.relative_to(out).parts)
        assert f"\npackage {package};\n" in path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o777 == 0o644
    compiled = [str(path) for path in out.rglob("*.proto")]
    assert protoc.main(["", f"-I{out}", f"--python_out={tmp_path}", *compiled]) == 0
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_SECONDS).topics
    assert not [name for name in topics if name.startswith(f"{app}.blocks.")]

    client.command(f"DROP TABLE {database}.bad")
    assert relay_schema(*arguments) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["unchanged"] * 2


def test_a_file_that_somebody_edited_is_kept_and_an_older_one_is_replaced(
    config_file: str,
    client: Any,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others are written all the same; --force overwrites."""
    for name in ("older", "edited"):
        client.command(f"CREATE TABLE {database}.{name} (a Int64) ENGINE = MergeTree ORDER BY a")
    out = tmp_path / "proto"
    tables = (f"{database}.older", f"{database}.edited", f"{database}.nowhere")
    arguments = ("proto", *tables, "--out", str(out), "--config", config_file)
    assert relay_schema(*arguments) == 2
    assert f"{database}.nowhere: unknown table" in capsys.readouterr().out
    edited, older = (out / database / name / "row.proto" for name in ("edited", "older"))
    ours = edited.read_text(encoding="utf-8") + 'option go_package = "example.org/rows";\n'
    edited.write_text(ours, encoding="utf-8")
    for name in ("older", "edited"):
        client.command(f"ALTER TABLE {database}.{name} ADD COLUMN b Int8")

    assert relay_schema(*arguments) == 2
    lines = capsys.readouterr().out
    assert f"kept       {edited} ({database}.edited): somebody wrote or edited it" in lines
    assert f"written    {older}" in lines
    assert edited.read_text(encoding="utf-8") == ours
    assert "b = 2" in older.read_text(encoding="utf-8")

    assert relay_schema(*arguments[:2], arguments[2], *arguments[4:], "--force") == 0
    assert "b = 2" in edited.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [(), ("--all",), ("--all", "a.b", "--out", "x"), ("a.b", "a.c"), ("a.b", "--force")],
)
def test_what_is_to_be_written_where_has_to_be_said(
    config_file: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert relay_schema("proto", *arguments, "--config", config_file) == 2
    assert "--all" in capsys.readouterr().err


def test_seed_gives_another_app_the_same_numbers(
    config_file: str,
    client: Any,
    database: str,
    app: str,
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A new app that is not seeded numbers by the table's order of today; one that has numbers of
    its own is left alone."""
    table, text = f"{database}.t", Path(config_file).read_text()
    others = [Path(config_file).with_name(f"{one}.toml") for one in ("second", "third", "fourth")]
    second, third, fourth = others
    for path in others:
        path.write_text(text.replace(f'app = "{app}"', f'app = "{app}-{path.stem}"'))

    def said(path: object, *arguments: str, status: int = 0) -> str:
        assert relay_schema(*arguments, "--config", str(path)) == status
        out, error = capsys.readouterr()
        return out + error

    def numbers(path: object) -> dict[str, int]:
        told = json.loads(said(path, "show", table, "--json"))
        return {c["name"]: c["number"] for c in told["columns"]}

    client.command(f"CREATE TABLE {table} (n UInt64, a String) ENGINE = MergeTree ORDER BY n")
    said(config_file, "proto", table)
    client.command(f"ALTER TABLE {table} ADD COLUMN b String AFTER n")
    said(config_file, "proto", table)
    said(third, "proto", table)
    assert numbers(config_file) == {"n": 1, "a": 2, "b": 3}
    assert numbers(third) == {"n": 1, "b": 2, "a": 3}

    assert "would be written" in said(second, "seed", "--from-app", app)
    assert "does not exist" in said(config_file, "seed", "--from-app", f"{app}-second", status=2)
    lines = said(second, "seed", "--from-app", app, "--run", "--json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"table": table, "version": 2, "columns": 3, "outcome": "written"}
    ]
    assert "there" in said(second, "seed", "--from-app", app, "--run")
    said(second, "proto", table)
    assert numbers(second) == {"n": 1, "a": 2, "b": 3}
    assert "stay for ever" in said(third, "seed", "--from-app", app, "--run", status=2)
    new, old = (Path(config_file).with_name(name) for name in ("new.proto", "old.proto"))
    new.write_text(said(third, "proto", table))
    old.write_text(said(config_file, "proto", table))
    refused = said(fourth, "seed", str(new), str(old), "--run", status=2)
    assert f"{new} and {old} are both of {table}" in refused
    told = said(fourth, "seed", str(old), str(old))
    assert "would be written" in told, "and nothing is yet"
    assert "no field numbers" not in told
    blocks = names.blocks_topic(f"{app}-fourth", f"{database}.other")
    create_topics(AdminClient({"bootstrap.servers": bootstrap}), NewTopic(blocks, 1, 1))
    assert f"no field numbers for {database}.other: " in said(fourth, "seed", str(old))
    assert "not both" in said(third, "seed", status=2)
    assert "the app itself" in said(third, "seed", "--from-app", f"{app}-third", status=2)
