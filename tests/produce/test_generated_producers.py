"""Producers written from the printed .proto, in Python and Java, are read before and after an
ALTER: real generated code of both languages' own protobuf libraries makes the bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from relay.cli import cli
from relay.config import settings_file
from relay.config.server_settings import ClickHouse
from relay.dev.clickhouse import toml
from relay.operate.dead.wire import fields
from relay.produce.codecs import table_codecs
from relay.program import java
from relay.program.command import run_main
from relay.rows.decode import decode
from tests.broker.pipeline import create_topics
from tests.produce import protoc

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

PEERS = Path(__file__).parent / "peer"
LANGUAGES = ("python", "java")
CREATE = (
    "CREATE TABLE {table} (id Int64, name String, price Nullable(Float64), at DateTime64(3), "
    "paid Bool, count UInt64, small Int8, tags Array(String), amounts Map(String, Int64)) "
    "ENGINE = MergeTree ORDER BY id"
)
ALTER = (
    "ALTER TABLE {table} DROP COLUMN small, MODIFY COLUMN price Nullable(Float32), "
    "ADD COLUMN note String DEFAULT 'none'"
)
FIRST_ROWS = [
    {
        "id": -(2**63),
        "name": "grüße ✓ 🦊",
        "price": -0.5,
        "at": 1_700_000_000_123,
        "paid": True,
        "count": 2**64 - 1,
        "small": -128,
        "tags": ["a", ""],
        "amounts": [{"key": "x", "value": 7}],
    },
    {"id": 0, "name": "", "paid": False, "small": 0, "tags": [], "amounts": []},
]
SECOND_ROWS = [
    {"id": 3, "name": "new", "price": 1.5, "note": "first", "tags": [], "amounts": []},
    {"id": 4, "tags": [], "amounts": []},
]


class Producers:
    """Generated code of one version of the table's `.proto`, and programs that use it."""

    def __init__(self, compiler: Path, directory: Path, database: str, proto: str) -> None:
        self._directory = directory
        self._database = database
        directory.mkdir()
        (directory / "rows.proto").write_text(proto, encoding="utf-8")
        outputs = [f"--python_out={directory}", f"--java_out={directory}"]
        run([str(compiler), f"-I{directory}", *outputs, "rows.proto"])

    def value(self, language: str, program: str) -> bytes:
        """A message's value."""
        return {"python": self._python, "java": self._java}[language](program)

    def _python(self, program: str) -> bytes:
        file = shutil.copy(PEERS / f"{program}.py", self._directory)
        return run([sys.executable, str(file)])

    def _java(self, program: str) -> bytes:
        name = program.capitalize()
        text = (PEERS / f"{name}.java").read_text(encoding="utf-8")
        file = self._directory / f"{name}.java"
        file.write_text(text.replace("DATABASE", self._database), encoding="utf-8")
        path = os.pathsep.join(map(str, [*protoc.java_library(), self._directory]))
        generated = self._directory / self._database / "orders" / "Rows.java"
        compiler = java.require().resolve().parent / "javac"
        run([str(compiler), "-encoding", "UTF-8", "-cp", path, str(generated), str(file)])
        return run([str(java.require()), "-cp", path, name])


def run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture
def config_file(tmp_path: Path, bootstrap: str, clickhouse: ClickHouse, app: str) -> Path:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topics(admin, NewTopic(f"{app}-rows", 1, 1))
    path = tmp_path / "relay.toml"
    path.write_text(
        f'app = "{app}"\n[kafka]\nbootstrap = "{bootstrap}"\n[source]\ntopic = "{app}-rows"\n'
        f'[clickhouse]\n{toml(clickhouse)}[loader]\ncheckpoint = "{tmp_path}/c"\n'
    )
    return path


def test_generated_code_is_read_before_and_after_an_alter(
    tmp_path: Path,
    config_file: Path,
    client: Client,
    database: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both languages' bytes give the rows that were set: before; after by the new file; and those
    of producers that still have the old one, but for the columns that went."""
    table = f"{database}.orders"

    def printed() -> str:
        assert run_main(cli, "relay", ["schema", "proto", table, "--config", str(config_file)]) == 0
        return capsys.readouterr().out

    client.command(CREATE.format(table=table))
    compiler = protoc.program(tmp_path)
    first = Producers(compiler, tmp_path / "first", database, printed())
    old_values = {language: first.value(language, "first") for language in LANGUAGES}
    for language in LANGUAGES:
        assert read(config_file, table, old_values[language]) == FIRST_ROWS, language

    client.command(ALTER.format(table=table))
    second = Producers(compiler, tmp_path / "second", database, printed())
    new_values = {language: second.value(language, "second") for language in LANGUAGES}
    kept = [without(row, "small") for row in FIRST_ROWS[1:]]
    for language in LANGUAGES:
        assert read(config_file, table, new_values[language]) == SECOND_ROWS, language
        # The old first row has a price, whose type is another now: its message is a dead letter.
        assert "price" in complaint(config_file, table, old_values[language]), language
        second_row = list(fields(old_values[language]))[1]
        value = old_values[language][second_row.start :]
        assert read(config_file, table, value) == kept, language


def without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def read(config_file: Path, table: str, value: bytes) -> list[dict[str, Any]]:
    """The rows as they are in blocks, by the table's columns as they are now; no nulls."""
    decoded = decode(pa.chunked_array([[value]], pa.binary()), codec(config_file, table), "batch")
    assert not decoded.bad
    rows = decoded.batch.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def complaint(config_file: Path, table: str, value: bytes) -> str:
    [bad] = decode(pa.chunked_array([[value]], pa.binary()), codec(config_file, table), "batch").bad
    return bad.reason.text


def codec(config_file: Path, table: str) -> Any:
    return table_codecs(settings_file.load(config_file))(table)
