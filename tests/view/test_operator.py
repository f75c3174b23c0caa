"""The operator's commands beside a real relay and the loader's worker, over an app's whole life.

What `loader status` says of Spark's checkpoint is in tests/loader/test_run.py.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from loader.blocks.worker import Worker
from loader.cli import main as loader_main
from loader.core.set_aside_plan import Aside
from loader.journal.source import JournalReader
from loader.journal.startup import ledger_of, start
from loader.spark.set_aside import set_aside
from relay.cli import cli
from relay.config.settings_file import load as load_config
from relay.errors import Unavailable
from relay.operate.view import ask
from relay.program.command import run_main
from relay.records_pb2 import Block
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, row_batch, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client


TABLES = ("t", "mended", "gone", "byhand")
ROWS = 10  # of each message, and each table


class Operator:
    """Types commands, in this process; reads what they print."""

    def __init__(self, config: Path, printed: pytest.CaptureFixture[str]) -> None:
        self._config, self._printed = config, printed

    def relay(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output, errors."""
        self._printed.readouterr()
        status = run_main(cli, "relay", [*command.split(), str(self._config), *arguments])
        return status, *self._printed.readouterr()

    def loader(self, command: str, *arguments: str) -> tuple[int, str, str]:
        self._printed.readouterr()
        with pytest.raises(SystemExit) as end:
            loader_main([*command.split(), str(self._config), *arguments])
        code = end.value.code
        return int(code or 0), *self._printed.readouterr()

    def json(self, program: str, command: str, *arguments: str) -> list[Any]:
        """The objects that it prints, after status 0."""
        run = self.relay if program == "relay" else self.loader
        status, output, errors = run(command, *arguments, "--json")
        assert status == 0, errors
        return [json.loads(line) for line in output.splitlines()]

    def follow(self, output: Path, command: str, *options: str) -> subprocess.Popen[bytes]:
        """A `relay` command that goes on, as a process."""
        program = Path(sys.executable).parent / "relay"
        with output.open("wb") as opened:
            return subprocess.Popen(
                [program, *command.split(), self._config, *options], stdout=opened, stderr=opened
            )


@pytest.fixture
def operator(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Operator]:
    """With a ledger of its own: that of other tests may be there already."""
    config, ledger = pipeline.config(), f"{pipeline.database}_ledger"
    text = config.read_text()
    config.write_text(text.replace("[loader]\n", f'[loader]\ndatabase = "{ledger}"\n', 1))
    yield Operator(config, capsys)
    client.command(f"DROP DATABASE IF EXISTS {ledger}")


def make(client: Client, table: str, value: str = "String") -> None:
    client.command(f"DROP TABLE IF EXISTS {table} SYNC")
    client.command(f"CREATE TABLE {table} (id Int64, v {value}) ENGINE = MergeTree ORDER BY id")


def send(pipeline: Pipeline) -> None:  # noqa: F811
    """One message for each table, and one that holds no rows."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    for number, name in enumerate(TABLES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        headers: Any = [("table", f"{pipeline.database}.{name}".encode())]
        pipeline.produce(producer, row_batch(ids), number % 2, headers)
        pipeline.sent.update(ids)
    pipeline.produce(producer, b"\xff", 0)
    assert producer.flush(30) == 0


def load(config: Path) -> None:
    """As a loader does, without Spark: the worker, what stands aside, then the position."""
    settings = load_config(config)
    ledger = ledger_of(settings, make=True)
    begun = start(settings, ledger)
    reader = JournalReader(begun)
    ends = reader.ends()
    rows = list(reader.readBetweenOffsets(reader.initialOffset(), ends))
    blocks = [Block.FromString(row[2]) for row in rows if row[2] is not None]
    with contextlib.closing(Worker(settings)) as worker:
        outcomes = worker.load(blocks)
        assert len(outcomes) == len(TABLES)
    by_id = {block.id: block for block in blocks}
    left = [one for one in outcomes if one.outcome == "retry"]
    set_aside(ledger, [Aside(by_id[one.block], one.reason, one.about) for one in left])
    positions = {partition: offset + 1 for partition, offset, _ in rows}
    ledger.save_positions(begun.journal, positions)


def by_table(found: dict[str, Any]) -> dict[str, Any]:
    return {row["table"].rpartition(".")[2]: row for row in found["tables"]}


def count(client: Client, table: str) -> int:
    return int(client.query(f"SELECT count() FROM {table}").result_rows[0][0])


def nothing_yet(operator: Operator) -> None:
    (found,) = operator.json("relay", "status")
    assert (found["journal"], found["ledger"], found["tables"]) == (False, False, [])
    (found,) = operator.json("loader", "status")
    assert (found["journal"], found["tables"]) == (False, [])
    assert operator.loader("parked ls")[::2] == (0, "no parked blocks\n")
    assert operator.relay("journal tail")[0] == 2
    assert operator.relay("blocks ls")[0] == 2


def relayed(operator: Operator, pipeline: Pipeline) -> None:  # noqa: F811
    """While the relay runs, watched and followed; then nothing is loaded yet."""
    process = pipeline.start("a", operator._config)
    wait_until(lambda: (operator.relay("journal tail")[0]) == 0, "the journal")
    watched, followed = pipeline.directory / "watched", pipeline.directory / "followed"
    commands = [
        operator.follow(watched, "status", "--watch", "0.2", "--json"),
        operator.follow(followed, "journal tail", "--follow", "--json"),
    ]
    pipeline.processes += commands
    send(pipeline)
    pipeline.exactly_once()
    (found,) = operator.json("relay", "status")
    assert [(m["name"], m["partitions"]) for m in found["group"]["members"]] == [("a", [0, 1])]
    wait_until(lambda: f'"rows": {ROWS * len(TABLES)}' in watched.read_text(), "rows of a minute")
    wait_until(lambda: f"{pipeline.app}:{pipeline.table}:0:" in followed.read_text(), "its block")
    for command in [*commands, process]:
        command.send_signal(signal.SIGTERM)
        assert command.wait(120) == 0
    (found,) = operator.json("relay", "status")
    assert [row["lag"] for row in found["partitions"]] == [0, 0]
    assert [row["held"] for row in found["partitions"]] == [0, 0]
    assert {(row["table"], row["messages"]) for row in found["dead_letters"]} == {
        (pipeline.table, 1)
    }
    assert (found["ledger"], found["anomalies"]) == (False, 0)
    for row in by_table(found).values():
        assert (row["waiting_blocks"], row["waiting_rows"]) == (1, ROWS)
        assert row["lag_seconds"] > 0
    (found,) = operator.json("loader", "status")
    assert {row["sealed_blocks"] for row in found["tables"]} == {1}


def away_at_first(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ClickHouse Kafka's figures are shown; once it is back, all that waits is found."""

    def away(_: Any) -> None:
        raise Unavailable("ClickHouse is away", "start it")

    with contextlib.closing(ask.StatusReader(load_config(operator._config), 1)) as looking:
        with monkeypatch.context() as patch:
            patch.setattr(ask, "LandedBlocks", away)
            screen = looking.screen()
        assert screen.facts.ledger.problem == "ClickHouse is away"
        assert sum(screen.facts.ends.values()) > 0
        screen = looking.screen()
    assert screen.facts.ledger.problem == ""
    assert sum(row.waiting_blocks or 0 for row in screen.tables) == len(TABLES)


def parked(operator: Operator, pipeline: Pipeline) -> dict[str, str]:  # noqa: F811
    """The three that could not be loaded, by table; every command says the same."""
    (found,) = operator.json("relay", "status")
    rows = by_table(found)
    assert (rows["t"]["loaded_rows"], rows["t"]["lag_seconds"]) == (ROWS, 0)
    for name in TABLES[1:]:
        assert (rows[name]["parked_blocks"], rows[name]["waiting_blocks"]) == (1, 0)
    assert len(found["parked"]) == 3
    (found,) = operator.json("loader", "status")
    waiting = {n: (r["parked_blocks"], r["aside_blocks"]) for n, r in by_table(found).items()}
    assert waiting == {"t": (0, 0), "mended": (1, 0), "byhand": (1, 0), "gone": (0, 1)}
    assert [one["tries"] for one in found["aside"]] == [1]
    for row in found["positions"]:
        assert 0 < row["ledger"] <= row["end"]
    listed = operator.json("loader", "parked ls")
    reasons = {one["table"]: one["reason"] for one in listed}
    assert "no table" in reasons[f"{pipeline.database}.gone"]
    assert "Code:" in reasons[f"{pipeline.database}.mended"]
    blocks = [
        one
        for state in ("parked", "aside")
        for one in operator.json("relay", "blocks ls", "--state", state, "--since", "1h")
    ]
    assert len(blocks) == 3
    assert {one["id"] for one in blocks} == {one["id"] for one in listed}
    return {one["table"].rpartition(".")[2]: one["id"] for one in listed}


def one_story(operator: Operator, pipeline: Pipeline) -> None:  # noqa: F811
    """The loaded block, from source offsets to parts."""
    (block,) = operator.json("relay", "blocks ls", "--table", pipeline.table)
    (told,) = operator.json("relay", "blocks show", block["id"])
    assert (told["state"], told["chunks"]["problems"]) == ("loaded", [])
    assert told["sealed"]["source"]["topic"] == pipeline.source
    assert [change["state"] for change in told["landed"]["ledger"]] == ["prepared", "loaded"]
    assert told["landed"]["rows"] == ROWS
    assert sum(part["rows"] for part in told["landed"]["parts"]) == ROWS
    status, output, _ = operator.relay("blocks show", block["id"])
    assert status == 0
    assert f"{ROWS} rows in the table carry this block's id, of {ROWS}" in output
    status, _, errors = operator.relay("blocks show", f"{block['id']}9")
    assert (status, "is not known" in errors) == (2, True)


def given_up(operator: Operator, database: str, block: str) -> None:
    """No reason, no discard; without --run it says what would be lost, and touches nothing."""
    for wrong in (("--discard",), ("--discard", "--why", " ", "--run"), ("--retry", "--run")):
        status, _, errors = operator.loader("parked resolve", block, *wrong)
        assert (status, "--discard" in errors) == (2, True)
    status, output, _ = operator.loader("parked resolve", block, "--discard", "--why", "a test")
    assert status == 0
    assert f"--run would give up: {block}  {ROWS:,} rows of {database}.gone" in output
    assert output.endswith(
        f"{database}.gone: 1 block, {ROWS:,} rows\nnothing was done; add --run to do it\n"
    )
    status, output, _ = operator.loader("parked resolve", "all", "--discard", "--why", "a test")
    assert (status, f"{database}.byhand: 1 block, {ROWS:,} rows" in output) == (0, True)
    (told,) = operator.json("loader", "parked resolve", block, "--discard", "--why", "a test")
    table = f"{database}.gone"
    would = {"block": block, "table": table, "outcome": "discarded", "done": False, "rows": ROWS}
    assert told == would
    listed = {one["id"] for one in operator.json("loader", "parked ls")}
    assert block in listed


def misspelled(operator: Operator, table: str, hint: str) -> None:
    """Every command that looks for a table says which one may be meant."""
    for command in ("blocks ls", "status", "schema show"):
        place = (table,) if command == "schema show" else ("--table", table)
        _, output, errors = operator.relay(command, *place)
        assert hint in output + errors, command
    status, _, errors = operator.relay("rewind", "--table", table, "--to-offset", "earliest")
    assert (status, hint in errors) == (0, True)
    findings = operator.relay("doctor", "--table", table, "--json")[1]
    assert hint in findings
    _, _, errors = operator.relay("verify", "--deep", "--removed", table)
    assert f"--removed {table}: the journal that was read has no block of it{hint}" in errors


def resolved(operator: Operator, pipeline: Pipeline, client: Client, ids: dict[str, str]) -> None:  # noqa: F811
    database = pipeline.database
    assert operator.loader("parked resolve", ids["mended"], "--retry")[0] == 5, "nothing is mended"
    make(client, f"{database}.mended")
    status, output, _ = operator.loader("parked resolve", ids["mended"], "--retry")
    assert (status, output) == (0, f"{ids['mended']}: loaded\n")
    assert count(client, f"{database}.mended") == ROWS

    status, output, _ = operator.loader("parked resolve", ids["gone"], "--loaded", "--json")
    assert (status, json.loads(output)["done"]) == (5, False), "there is no table"
    given_up(operator, database, ids["gone"])
    misspelled(operator, f"{database}.mendde", f"; did you mean {database}.mended?")
    words = ("parked resolve", ids["gone"], "--discard", "--why", "rows of a test", "--run")
    status, output, _ = operator.loader(*words)
    assert (status, "discarded: a person gave it up; rows of a test" in output) == (0, True)

    make(client, f"{database}.byhand")
    values = ", ".join(f"({3 * ROWS + at}, 'v')" for at in range(ROWS))
    client.command(f"INSERT INTO {database}.byhand SETTINGS async_insert = 0 VALUES {values}")
    (told,) = operator.json("loader", "parked resolve", ids["byhand"], "--loaded")
    assert (told["block"], told["outcome"], told["done"]) == (ids["byhand"], "loaded", True)
    assert count(client, f"{database}.byhand") == ROWS

    for name, state in (("mended", "loaded"), ("gone", "discarded"), ("byhand", "loaded")):
        status, _, errors = operator.loader("parked resolve", ids[name], "--retry")
        assert (status, f"nothing to settle: {ids[name]} is {state}" in errors) == (2, True)
    assert operator.json("loader", "parked ls") == []


def test_the_whole_story(
    pipeline: Pipeline,  # noqa: F811
    operator: Operator,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing yet; sealed; loaded and parked; settled one way each; acknowledged for ever."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    for name in TABLES[1:]:
        make(client, f"{pipeline.database}.{name}")
    nothing_yet(operator)
    relayed(operator, pipeline)
    away_at_first(operator, monkeypatch)
    for name in ("mended", "byhand"):
        make(client, f"{pipeline.database}.{name}", "UInt8")
    client.command(f"DROP TABLE {pipeline.database}.gone SYNC")
    load(operator._config)
    ids = parked(operator, pipeline)
    one_story(operator, pipeline)
    resolved(operator, pipeline, client, ids)

    (found,) = operator.json("relay", "status")
    rows = by_table(found)
    assert {name: rows[name]["loaded_rows"] for name in TABLES} == {
        **dict.fromkeys(TABLES, ROWS),
        "gone": 0,
    }
    assert (rows["gone"]["discarded_blocks"], found["parked"]) == (1, [])
    (told,) = operator.json("relay", "blocks show", ids["gone"])
    assert told["state"] == "discarded"
    records = operator.json("relay", "journal tail", "-n", "1")
    assert sorted(one["partition"] for one in records) == [0, 1]
    assert all(one["record"]["flush_point"] for one in records)
    lines = operator.json("relay", "verify", "--once", "--deep")
    told_of = [line["acknowledged"] for line in lines if "acknowledged" in line]
    assert [ids["gone"] in text and "rows of a test" in text for text in told_of] == [True]
    assert lines[-1]["anomalies"] == 0
