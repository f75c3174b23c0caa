"""Before the first block the loader inserts twice under one token, and looks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from loader import cli
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import dedup_trial
from relay.clickhouse import dedup_trial as trials
from relay.errors import ContractBroken, Unavailable
from tests.versions.engines import ADMIN, Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

READER = User("reader", "r", ("GRANT SELECT ON relay.*",))
FIXED = User("fixed", "f", settings={"deduplicate_insert_select": "disable"})
"""Whose profile turns deduplication off, where the INSERT says nothing."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("trial"), (READER, FIXED)) as server:
        yield server


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    made = clickhouse_client.connect(engine.reached_as(ADMIN), 30)
    made.command("CREATE DATABASE IF NOT EXISTS relay")
    made.command("DROP TABLE IF EXISTS relay.trial")
    yield made
    made.close()


def broken(client: Client) -> None:
    """The same table, that remembers no token: as a server that ignores them."""
    client.command(
        "CREATE TABLE relay.trial (token String, at DateTime DEFAULT now()) ENGINE = MergeTree "
        "ORDER BY token SETTINGS non_replicated_deduplication_window = 0"
    )


def test_a_repeat_is_dropped_and_little_is_left(client: Client) -> None:
    """One table that stays, in which rows expire; no right to drop anything is needed."""
    for starts in (1, 2, 3):
        assert dedup_trial.check(client, "relay") == ""
        assert client.command("SELECT count() FROM relay.trial") == trials.ROWS * starts
    assert client.query("SHOW TABLES FROM relay").result_rows == [("trial",)]
    created = str(client.command("SHOW CREATE TABLE relay.trial"))
    assert "TTL at + toIntervalDay(1)" in created


def test_a_server_that_doubles_is_refused(client: Client) -> None:
    broken(client)
    with pytest.raises(ContractBroken) as error:
        dedup_trial.check(client, "relay")
    assert "4 rows instead of 2" in error.value.message
    assert NOW.engine in error.value.message
    assert "relay doctor CONFIG --try" in error.value.next_step


def test_what_the_profile_says_is_not_asked(engine: Engine, client: Client) -> None:
    """B1: what decides is sent with the statement, and wins."""
    assert dedup_trial.check(client, "relay") == ""  # makes the table
    with contextlib.closing(clickhouse_client.connect(engine.reached_as(FIXED), 30)) as fixed:
        assert dedup_trial.check(fixed, "relay") == ""


def test_without_these_settings_the_profile_decides(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the token alone is ignored then."""
    real = trials.deduplicated

    def fewer(token: str, rows: int) -> dict[str, object]:
        return {k: v for k, v in real(token, rows).items() if k != "deduplicate_insert_select"}

    monkeypatch.setattr(trials, "deduplicated", fewer)
    assert dedup_trial.check(client, "relay") == ""
    made = clickhouse_client.connect(engine.reached_as(FIXED), 30)
    with contextlib.closing(made) as fixed, pytest.raises(ContractBroken):
        dedup_trial.check(fixed, "relay")


def test_a_user_who_may_not_try_is_told_why(engine: Engine, client: Client) -> None:
    assert client.command("EXISTS TABLE relay.trial") == 0
    with contextlib.closing(clickhouse_client.connect(engine.reached_as(READER), 30)) as reader:
        said = dedup_trial.check(reader, "relay")
    assert "the trial whether repeated INSERTs are dropped failed" in said
    assert "CREATE TABLE ON relay.trial" in said


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with running(NOW, tmp_path) as server:
        away = clickhouse_client.connect(server.reached_as(ADMIN), 5)
        server.kill()
        with contextlib.closing(away), pytest.raises(Unavailable):
            dedup_trial.check(away, "relay")


@pytest.mark.long  # 41 s, with Spark
def test_the_loader_does_not_start(
    engine: Engine, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, before Kafka or Spark are asked anything."""
    broken(client)
    path = tmp_path / "relay.toml"
    (tmp_path / "held").write_text(ADMIN.password)
    path.write_text(
        'app = "shop"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[source]\ntopic = "rows"\n'
        f'[clickhouse]\nurl = "{engine.url}"\nuser = "{ADMIN.name}"\npassword_file = "held"\n'
        '[loader]\ncheckpoint = "checkpoint"\n'
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(path), "--once"])
    said = capsys.readouterr().err
    assert ended.value.code == 6, said
    assert "4 rows instead of 2" in said
