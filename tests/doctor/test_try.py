"""`relay doctor --try` on ClickHouse's own server: two INSERTs under one token, and a look."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.clickhouse import dedup_trial
from relay.config.settings import Settings
from relay.operate.doctor.ask import deduplication
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.facts import ClickHouseFacts
from relay.operate.doctor.findings import Finding
from relay.operate.doctor.judge.deduplication import judge_tries
from tests.doctor import healthy
from tests.versions.engines import ADMIN, Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

MAKER = User("maker", "m", ("GRANT CREATE TABLE, CREATE VIEW, SELECT, INSERT ON relay.*",))
"""Who might make tables, and not drop them."""
READER = User("reader", "r", ("GRANT SELECT ON shop.*",))
HIDDEN = User("hidden", "h", policies={"shop.orders": "id > 5"})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(NOW, tmp_path_factory.mktemp("try"), (MAKER, HIDDEN, READER)) as server:
        with contextlib.closing(server.client()) as admin:
            for database in ("relay", "shop"):
                admin.command(f"CREATE DATABASE {database}")
            admin.command(
                "CREATE TABLE shop.orders (id Int64, day Date, _block String) ENGINE = MergeTree "
                "ORDER BY id SETTINGS non_replicated_deduplication_window = 3"
            )
        yield server


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    client = engine.client()
    yield client
    assert client.query("SHOW TABLES FROM relay").result_rows == []
    client.close()


def settings(engine: Engine, user: User = ADMIN) -> Settings:
    return healthy.settings().model_copy(update={"clickhouse": engine.reached_as(user)})


def looked(engine: Engine, user: User = ADMIN) -> ClickHouseFacts:
    with contextlib.closing(ClickHouseQuestions(settings(engine, user))) as server:
        return server.look(["shop.orders"])


def found(engine: Engine, user: User = ADMIN) -> list[Finding]:
    facts = looked(engine, user)
    tries = deduplication.tries(settings(engine, user), facts)
    return list(judge_tries(healthy.replace(facts, tries=tries), "relay"))


def spoil(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """The settings that are sent."""
    real = dedup_trial.deduplicated
    monkeypatch.setattr(dedup_trial, "deduplicated", lambda token, rows: real(token, rows) | values)


@pytest.mark.usefixtures("admin")
def test_a_server_that_deduplicates_is_no_finding(engine: Engine) -> None:
    assert found(engine) == []


@pytest.mark.usefixtures("admin")
def test_a_token_that_is_ignored(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with version, user and the settings in force."""
    spoil(monkeypatch, deduplicate_insert_select="disable", deduplicate_insert="disable")
    (finding,) = found(engine)
    assert finding.code == "deduplication-ignored"
    assert f"MergeTree on ClickHouse {NOW.engine}" in finding.what
    assert "each row 2 times in the table (user admin: " in finding.what
    assert "deduplicate_insert_select = " in finding.what
    assert "ALTER USER admin MODIFY SETTINGS" in finding.mend


@pytest.mark.usefixtures("admin")
def test_a_view_that_doubles(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server on which it does, the table has one copy and the view's table two."""
    real = dedup_trial._copies
    monkeypatch.setattr(
        dedup_trial,
        "_copies",
        lambda c, table, token: real(c, table, token) * (1 + ("_behind" in table)),
    )
    (finding,) = found(engine)
    assert finding.code == "deduplication-ignored-views"
    assert "2 times in a view's table" in finding.what


@pytest.mark.usefixtures("admin")
def test_tables_are_dropped_after_a_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ClickHouseError("no")

    monkeypatch.setattr(dedup_trial, "_copies", fail)
    with pytest.raises(Exception, match="no"):
        found(engine)


@pytest.mark.usefixtures("admin")
def test_nothing_is_made_that_may_not_be_dropped(engine: Engine) -> None:
    (finding,) = found(engine, MAKER)
    assert finding.code == "untried"
    assert "user maker has no DROP TABLE, DROP VIEW on relay.*" in finding.what
    assert "GRANT CREATE TABLE" in finding.mend


@pytest.mark.usefixtures("admin")
def test_replicated_tables_are_tried_as_such(engine: Engine, admin: Client) -> None:
    """Here is no Keeper: it says so, and leaves nothing."""
    kinds = [("ReplicatedMergeTree('{path}', 'doctor')", "replicated_deduplication_window = 10")]
    tried = deduplication._tried(admin, settings(engine), *kinds[0])
    assert tried.engine == "ReplicatedMergeTree"
    assert "zookeeper" in tried.problem.lower() or "keeper" in tried.problem.lower()


@pytest.mark.usefixtures("admin")
def test_a_row_policy_on_this_user_is_found(engine: Engine) -> None:
    """A2: said beforehand; and of another user's policy nothing is said."""
    told = healthy.of_clickhouse(looked(engine, HIDDEN), settings(engine, HIDDEN), decided=True)
    (policy,) = [one for one in told if one.code == "row-policy"]
    assert "shop.orders" in policy.what
    assert "hides rows from user hidden" in policy.what
    (decided,) = [one for one in told if one.code == "decided-by"]
    assert decided.what.endswith("hides them")
    assert "inside the window of 3 parts" in decided.what
    others = healthy.of_clickhouse(looked(engine), settings(engine))
    assert "row-policy" not in healthy.codes(others)


@pytest.mark.usefixtures("admin")
def test_a_user_who_may_not_see_policies_is_told_so(engine: Engine) -> None:
    told = healthy.of_clickhouse(looked(engine, MAKER), settings(engine, MAKER))
    assert "table-missing" in healthy.codes(told)
    asked = {one.what.partition(":")[0] for one in told if one.code == "unasked"}
    assert "row policies of this user" not in asked, "no table of theirs is seen"
    seen = healthy.of_clickhouse(looked(engine, READER), settings(engine, READER))
    (policies,) = [one for one in seen if one.what.startswith("row policies of this user")]
    assert "GRANT SELECT ON system.row_policies" in policies.mend
