"""The page of what programs import: its examples are run, and no argument is left out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader import dataframe
from relay import config, produce
from relay.cli import cli
from relay.config.server_settings import ClickHouse
from relay.dev.clickhouse import toml
from relay.produce import Batching, RowProducer
from relay.produce.codecs import table_codecs
from relay.program.command import run_main
from tests.docs import api, documents
from tests.produce.test_producer import messages, rows

PAGE = documents.text_of("relay/docs/api.md")


@pytest.fixture
def file(
    bootstrap: str,
    clickhouse: ClickHouse,
    client: Client,
    database: str,
    app: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A configuration in the working directory, its topic, and the table."""
    client.command(
        f"CREATE TABLE {database}.orders (id UInt64, customer String, price Decimal(9, 2)) "
        "ENGINE = MergeTree ORDER BY id"
    )
    path = tmp_path / "relay.toml"
    path.write_text(
        f'app = "{app}"\n[kafka]\nbootstrap = "{bootstrap}"\n[source]\ntopic = "{app}.source"\n'
        f'[clickhouse]\n{toml(clickhouse)}[loader]\ncheckpoint = "{tmp_path}/checkpoint"\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert run_main(cli, "relay", ["topic", "create", "--partitions", "2"]) == 0
    return path


def test_the_examples_work(file: Path, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The row that does not fit is left out, and all others are in the topic once."""
    capsys.readouterr()
    for block in documents.fences(PAGE, "python"):
        exec(compile(block.replace("shop.orders", f"{database}.orders"), "api.md", "exec"), {})
    printed = capsys.readouterr().out
    assert f"left out: {database}.orders, column 'price': 'a lot' does not fit" in printed
    assert f"acknowledged: {{'{database}.orders': 1}}" in printed

    settings = config.load(file)
    codec = table_codecs(settings)(f"{database}.orders")
    found = rows(messages(settings.kafka.bootstrap, settings.source.topic), codec)
    assert sorted((row["id"], row["customer"], row["price"]) for row in found) == [
        (1, "Ada", "9.50"),
        (3, "Edsger", "0.99"),
        (4, "Barbara", "7"),
        (5, "Alan", "12.25"),
    ]


def test_what_is_exported_is_on_the_page() -> None:
    exported = [
        *(f"relay.produce.{name}" for name in produce.__all__),
        *(f"loader.dataframe.{name}" for name in dataframe.__all__),
        "relay.config.load",
    ]
    assert [name for name in exported if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("of", [RowProducer, Batching])
def test_every_argument_is_explained(of: Callable[..., Any]) -> None:
    _, parts = api.sections(inspect.getdoc(of) or "")
    explained = {**api.entries(parts.get("Args", "")), **api.entries(parts.get("Attributes", ""))}
    assert explained.keys() == inspect.signature(of).parameters.keys()


def test_a_docstring_is_taken_apart() -> None:
    text, parts = api.sections(
        "Write it.\n\nMore: much.\n\nArgs:\n    a: one\n        line: more.\n    b: two.\n\n"
        "Raises (every method):\n    A, B: no.\n"
    )
    assert text == "Write it.\n\nMore: much."
    assert api.entries(parts["Args"]) == {"a": "one line: more.", "b": "two."}
    assert api.entries(parts["Raises"]) == {"A, B": "no."}
    assert api.sections("Write it.") == ("Write it.", {})
