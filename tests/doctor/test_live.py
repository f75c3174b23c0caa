"""`relay doctor` beside a real broker and engine: quiet where all is well, and only there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
)

from loader.journal.startup import ledger_of, topic_id
from relay import names
from relay.clickhouse import http_pool
from relay.config import settings_file
from relay.operate.doctor import examine
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.examine import ExaminationScope
from relay.operate.doctor.judge import rights
from relay.operate.view import missing_programs
from relay.operate.view.ask import StatusReader
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, wait_until
from tests.broker.topic_changes import set_topic
from tests.doctor.healthy import codes
from tests.view.test_lost_ledger import BATCHES, checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

RELAY = Path(sys.executable).parent / "relay"
SMALL = frozenset({"replication-low", "state-replication", "topic-replication"})
"""What is true of every stack of one broker."""
ALWAYS = frozenset({"journal-retention", "async-insert"})


def relay_doctor(config: Path, *options: str) -> tuple[int, str]:
    """Exit status and output."""
    done = subprocess.run(
        [RELAY, "doctor", config, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "RELAY_TRACEBACK": "1"},
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


Found = dict[str, list[dict[str, str]]]


def examined(config: Path, *options: str) -> tuple[int, Found]:
    """Exit status, and the findings by their kind."""
    status, output = relay_doctor(config, "--json", *options)
    *lines, totals = map(json.loads, output.splitlines())
    found: Found = {}
    for line in lines:
        found.setdefault(line["finding"]["code"], []).append(line["finding"])
    assert totals["errors"] + totals["warnings"] + totals["notes"] == len(lines)
    assert totals["status"] == status
    found.pop("decided-by", None)  # is said of each table
    return status, found


def whats(found: Found, code: str) -> list[str]:
    return [finding["what"] for finding in found[code]]


def own_ledger(pipeline: Pipeline, **relay: float) -> Path:  # noqa: F811
    """A configuration whose ledger is nobody else's, and has yet to be made."""
    config = pipeline.config(**relay)
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace("[loader]", f'[loader]\ndatabase = "{pipeline.app}"'), encoding="utf-8"
    )
    return config


def ran(pipeline: Pipeline, **relay: float) -> Path:  # noqa: F811
    """A relay that moved rows and stopped as asked; its configuration."""
    config = own_ledger(pipeline, **relay)
    process = pipeline.start("a", config)
    pipeline.send(range(10))
    pipeline.exactly_once()
    process.send_signal(signal.SIGTERM)
    assert pipeline.end_of(process) == 0
    return config


def delete_records(pipeline: Pipeline, topic: str) -> None:  # noqa: F811
    """All of partition 0, as retention does."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        future.result(30)


def test_a_healthy_stack_has_no_error(pipeline: Pipeline, client: Client) -> None:  # noqa: F811
    """Before the first start and after it; what is left is that there is but one broker."""
    client.command(
        f"ALTER TABLE {pipeline.table} MODIFY SETTING non_replicated_deduplication_window = 10000"
    )
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")

    status, found = examined(pipeline.config(), "--table", pipeline.table)
    assert found.keys() == {*SMALL, "async-insert", "unasked"}
    assert whats(found, "unasked") == [
        "the brokers' clock: no request of Kafka's protocol returns it"
    ]
    assert status == 8

    config = ran(pipeline)
    status, found = examined(config, "--probe")
    assert found.keys() == SMALL | ALWAYS | {"ledger-missing"}
    assert status == 8
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    wait_until(
        lambda: f"{pipeline.app}.doctor" not in admin.list_topics(timeout=WAIT_SECONDS).topics,
        "the end of the probe's topic",
    )
    # Negative control: the table was looked at, found by its block topic.
    client.command(
        f"ALTER TABLE {pipeline.table} MODIFY SETTING non_replicated_deduplication_window = 0"
    )
    assert "window-zero-stamped" in examined(config)[1]
    # And no relay was disturbed: the next one starts under the same identity.
    process = pipeline.start("a", config)
    pipeline.send(range(10, 20))
    pipeline.exactly_once()
    process.send_signal(signal.SIGTERM)
    assert pipeline.end_of(process) == 0


@pytest.mark.long  # 21 s; tests/doctor/test_each_finding.py judges each
def test_faults_of_topics_and_tables_are_named(pipeline: Pipeline, client: Client) -> None:  # noqa: F811
    """Window 0, a view that doubles, what topics refuse and delete; ALTERs that mend do mend."""
    config = ran(pipeline, journal_keepalive_seconds=7200.0)
    app, table = pipeline.app, pipeline.table
    client.command(f"CREATE TABLE {table}_sums (n UInt64) ENGINE = SummingMergeTree ORDER BY n")
    client.command(
        f"CREATE MATERIALIZED VIEW {table}_v TO {table}_sums AS SELECT rand() AS n FROM {table}"
    )
    pipeline.send(range(10, 20))
    delete_records(pipeline, pipeline.source)
    delete_records(pipeline, f"{app}.journal")
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    set_topic(admin, f"{app}.blocks.{table}", max_message_bytes="1000")
    set_topic(admin, pipeline.source, retention_ms="3600000")
    set_topic(admin, f"{app}.journal", retention_ms="3600000", cleanup_policy="compact,delete")
    set_topic(admin, f"{app}.schemas", cleanup_policy="delete")

    status, found = examined(config, "--table", f"{table}_gone")

    assert status == 1
    errors = {
        "window-zero",
        "view-window",
        "table-missing",
        "topic-message-bytes",
        "topic-retention",
        "topic-compacted",
        "journal-keepalive",
        "registry-deleted",
        "journal-passed",
        "source-passed",
        "ledger-lost",
    }
    beside = {"view-varies", "block-column-missing", "unasked"}
    assert found.keys() == SMALL | ALWAYS | errors | beside
    assert whats(found, "window-zero") == [f"{table}: non_replicated_deduplication_window = 0"]
    assert [what.partition(":")[0] for what in whats(found, "topic-retention")] == [
        pipeline.source,
        f"{app}.journal",
    ]
    assert "max.message.bytes = 1000" in found["topic-message-bytes"][0]["what"]
    status, shown = relay_doctor(config)
    assert status == 1
    assert f"fix: ALTER TABLE {table} MODIFY SETTING" in shown
    assert shown.splitlines()[-1].startswith("11 errors, ")

    mended = ("window-zero", "view-window", "block-column-missing")
    for finding in (finding for code in mended for finding in found[code]):
        client.command(finding["mend"])
    assert not set(mended) & examined(config)[1].keys()


@pytest.mark.long  # 23 s
def test_a_ledger_that_was_lost_is_told_from_one_that_was_never_made(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """By entries in another database, and by the checkpoint; `relay status` says so, too."""
    config = ran(pipeline)
    settings, app = settings_file.load(config), pipeline.app

    def told() -> tuple[set[str], str]:
        """What the doctor finds of the ledger, and what is wrong on the screen of the status."""
        found = codes(examine.examine(settings, ExaminationScope(3600.0)))
        with contextlib.closing(StatusReader(settings)) as looking:
            troubles = looking.screen().troubles
        lost = [one.text for one in troubles if one.kind == missing_programs.LEDGER]
        return found & {"ledger-missing", "ledger-lost"}, " ".join(lost)

    assert told() == ({"ledger-missing"}, "")
    ledger = ledger_of(settings, make=True)
    assert told() == (set(), "")

    ledger.save_positions("journal", {0: 5})
    client.command(f"CREATE DATABASE {app}_old")
    client.command(f"RENAME TABLE {app}.ledger TO {app}_old.ledger")
    found, text = told()
    assert found == {"ledger-lost"}
    assert f"{app}_old.ledger has entries of app {app}" in text

    client.command(f"DROP DATABASE {app}_old")
    assert told() == ({"ledger-missing"}, "")
    directory = Path(settings.loader.checkpoint)
    directory.mkdir()
    checkpoint(directory, BATCHES, [0, 1])
    assert told() == ({"ledger-missing"}, ""), "it is of another journal"
    own = topic_id(settings, names.journal_topic(app))
    batch = directory / "offsets" / "1"
    batch.write_text(batch.read_text(encoding="utf-8").replace('"J"', f'"{own}"'), encoding="utf-8")
    found, text = told()
    assert found == {"ledger-lost"}
    assert "stands at offset 7 of the journal's partition 0" in text
    client.command(f"DROP DATABASE {app}")


def test_servers_that_are_away(pipeline: Pipeline) -> None:  # noqa: F811
    """Status 4; the one that is there is looked at all the same."""
    config = pipeline.config()
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace(pipeline.bootstrap, "127.0.0.1:1"), encoding="utf-8")
    status, found = examined(config, "--table", pipeline.table)
    assert status == 4
    assert {"kafka-away", "window-zero"} <= found.keys()

    config.write_text(text.replace(pipeline.clickhouse.url, "http://127.0.0.1:1"), encoding="utf-8")
    status, found = examined(config)
    assert status == 4
    assert {"clickhouse-away", "replication-low"} <= found.keys()


@pytest.fixture
def server(pipeline: Pipeline) -> Iterator[ClickHouseQuestions]:  # noqa: F811
    made = ClickHouseQuestions(settings_file.load(own_ledger(pipeline)))
    yield made
    made.close()


def answering(
    server: ClickHouseQuestions, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]
) -> None:
    """A server that gives these answers to commands that end so; the others it answers itself."""
    command = server._client.command

    def answer(sql: str, **arguments: Any) -> Any:
        for ending, value in answers.items():
            if sql.endswith(ending):
                if isinstance(value, Exception):
                    raise value
                return value
        return command(sql, **arguments)

    monkeypatch.setattr(server._client, "command", answer)


def test_missing_rights_in_clickhouse(
    pipeline: Pipeline,  # noqa: F811
    server: ClickHouseQuestions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user of the tests has all rights, so the answers to CHECK GRANT are replaced.

    What the loader works without is a note: system.parts was an error, which stopped roll-outs.
    """
    answers = {
        f"INSERT ON {pipeline.table}": 0,
        "SELECT ON system.parts": 0,
        f"TABLE ON {pipeline.app}.*": 0,
    }
    answering(server, monkeypatch, answers)
    found = list(rights.judge_clickhouse(server.look([pipeline.table])))
    assert [(finding.code, finding.mend) for finding in found] == [
        ("right-table", f"GRANT INSERT ON {pipeline.table} TO dev"),
        ("right-table", f"GRANT CREATE TABLE ON {pipeline.app}.* TO dev"),
        ("right-evidence", "GRANT SELECT ON system.parts TO dev"),
    ]


def test_a_server_that_cannot_say_which_rights(
    pipeline: Pipeline,  # noqa: F811
    server: ClickHouseQuestions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A note with its reason, once; no finding about rights, and no end."""
    answering(server, monkeypatch, {f"ON {pipeline.table}": DatabaseError("Code: 62. no CHECK")})
    facts = server.look([pipeline.table])
    assert list(rights.judge_clickhouse(facts)) == []
    (note,) = examine.unasked(facts.unasked)
    assert "Code: 62. no CHECK" in note.what


def test_system_tables_that_may_not_be_read(
    pipeline: Pipeline,  # noqa: F811
    server: ClickHouseQuestions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is a note with its reason and the right to grant; what is left is judged."""
    query = server._client.query

    def denied(sql: str, **arguments: Any) -> Any:
        if "FROM system.parts" in sql or "FROM system.settings" in sql:
            error = DatabaseError("Code: 497. Not enough privileges")
            error.code = 497
            raise error
        return query(sql, **arguments)

    monkeypatch.setattr(server._client, "query", denied)
    facts = server.look([pipeline.table])
    notes = list(examine.unasked(facts.unasked))
    assert [note.mend for note in notes] == [
        "GRANT SELECT ON system.settings TO dev",
        "GRANT SELECT ON system.parts TO dev",
    ]
    assert all("Not enough privileges" in note.what for note in notes)
    table = facts.tables[pipeline.table]
    assert table is not None
    assert table.partitions is None
    assert table.columns["id"] == ("Int64", "")


def test_tables_of_the_configuration_are_looked_at(pipeline: Pipeline) -> None:  # noqa: F811
    config = pipeline.config(f'[block.tables]\n"{pipeline.table}" = {{ max_age_seconds = 9.0 }}')
    found = examine.examine(settings_file.load(config), ExaminationScope(3600.0))
    assert "window-zero" in codes(found)


@pytest.mark.parametrize("denies", [False, True])
def test_more_tables_than_one_question_takes(
    pipeline: Pipeline,  # noqa: F811
    server: ClickHouseQuestions,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    *,
    denies: bool,
) -> None:
    """Each is looked at, and what this user may not read is said once."""
    other = f"{pipeline.database}.other"
    client.command(f"CREATE TABLE {other} (id Int64) ENGINE = MergeTree ORDER BY id")
    asked: list[str] = []
    query = server._client.query

    def noted(sql: str, **arguments: Any) -> Any:
        some = arguments.get("parameters", {}).get("tables")
        if "FROM system.columns" in sql and some:
            asked.extend(some)
            if denies:
                raise DatabaseError("Code: 497. Not enough privileges", code=497)
        return query(sql, **arguments)

    monkeypatch.setattr(server._client, "query", noted)
    monkeypatch.setattr(http_pool, "URL_BYTES", 1)
    facts = server.look([pipeline.table, other])
    assert sorted(asked) == [other, pipeline.table]
    assert len(facts.unasked) == denies
    found = [of.columns.keys() for of in (facts.tables[other], facts.tables[pipeline.table]) if of]
    assert found == ([{}.keys()] * 2 if denies else [{"id"}, {"id", "v"}])
