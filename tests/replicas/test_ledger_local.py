"""A ledger that one replica alone has, or some: what the doctor prints puts it on all of them."""

from __future__ import annotations

import contextlib

import pytest

from loader.core.entries import NewEntry
from loader.core.plan import PREPARED, Entry
from loader.journal.startup import ledger_of
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.findings import Finding
from relay.operate.doctor.judge.clickhouse import judge
from relay.records_pb2 import Block
from tests.replicas.journal import Replicated
from tests.replicas.rig import Rig

pytestmark = pytest.mark.long  # three servers and their coordinator, half a minute


@pytest.fixture
def journal(bootstrap: str, rig: Rig, app: str, tmp_path: object) -> Replicated:
    """An app whose ledger the loader made, on the first replica."""
    made = Replicated(bootstrap, rig, app, tmp_path)  # type: ignore[arg-type] # a Path
    made.quorum, made.url = None, rig.replicas[0].url
    block = Block(id=f"{app}:d{app}.t:0:0:0", table=f"d{app}.t")
    ledger_of(made.settings(), make=True).write([NewEntry(block, Entry(PREPARED, 1, "c"))])
    return made


def told(journal: Replicated, table: str) -> list[Finding]:
    settings = journal.settings()
    with contextlib.closing(ClickHouseQuestions(settings)) as doctor:
        facts = doctor.look([table])
    assert facts.unasked == ()
    return [one for one in judge(settings, facts, 60.0) if one.code == "ledger-local"]


def test_what_is_printed_puts_a_local_ledger_on_every_replica(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """One replica after the other. Red before: a CREATE without a path is refused (36)."""
    first, second, third = rig.replicas
    place = f"{journal.settings().loader.database}.ledger"
    (local,) = told(journal, table)
    here, _, elsewhere = local.mend.removeprefix("with the loader stopped: ").partition("; then ")
    for statement in here.split("; "):
        first.command(statement)
    assert elsewhere == f"on each other replica what SHOW CREATE TABLE {place} shows here"
    second.command(f"CREATE DATABASE {place.partition('.')[0]}")
    second.command(first.rows(f"SHOW CREATE TABLE {place}")[0][0])
    (fewer,) = told(journal, table)
    assert fewer.what == f"{place} has 2 replicas, although {table} has 3"
    third.command(f"CREATE DATABASE {place.partition('.')[0]}")
    third.command(first.rows(f"SHOW {fewer.mend.partition(': SHOW ')[2]}")[0][0])
    assert told(journal, table) == []
    for one in (second, third):
        one.command(f"SYSTEM SYNC REPLICA {place}")
        assert one.rows(f"SELECT count(), any(state) FROM {place}") == [(1, "prepared")]


def test_a_replicated_ledger_whose_path_no_other_server_has(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """Its path has the UUID of the table in it. Red before: nothing was told."""
    first, *others = rig.replicas
    place = f"{journal.settings().loader.database}.ledger"
    first.command(f"RENAME TABLE {place} TO {place}_local")
    own = "UUID '61f0c404-5cb3-11e7-907b-a6006ad3dba0'"
    engine = "ReplicatedMergeTree('/{uuid}', '{replica}') ORDER BY (app, table, block, attempt)"
    first.command(f"CREATE TABLE {place} {own} AS {place}_local ENGINE = {engine}")
    (alone,) = told(journal, table)
    assert alone.what == f"{place} has 1 replica, although {table} has 3"
    made = first.rows(f"SHOW {alone.mend.partition(': SHOW ')[2]}")[0][0]
    for one in others:
        one.command(f"CREATE DATABASE {place.partition('.')[0]}")
        one.command(made)
    assert told(journal, table) == []
