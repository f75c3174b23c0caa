"""`relay doctor --grants`: the least rights of each role, without asking any server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relay.cli import cli
from relay.clickhouse.replica_log import SEES_LOGS
from relay.config.settings import Settings
from relay.operate.doctor import examine, grants
from relay.operate.doctor.findings import EXIT_WARNINGS, KINDS, report
from tests.config.test_kafka_clients import settings
from tests.config.test_load import GOOD, write
from tests.config.test_pipelines import TWO

ANYWHERE = {"CREATE TEMPORARY TABLE", "TABLE ENGINE", "SHOW ROW POLICIES", "SYSTEM FLUSH LOGS"}
ROOT = Path(grants.__file__).parents[3]
OPEN = {"tables", "columns", "databases", "settings"}
"""System tables that need no grant: they show everybody what he may see."""
_READS = re.compile(r"\b(?:FROM|JOIN) system\.([a-z_]+)")
_STATEMENT = re.compile(r'"(SYSTEM [A-Z ]+)"')


def doctor(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", str(write(directory, GOOD)), *arguments])


def test_every_right_is_for_something_of_this_app() -> None:
    """Nothing on all topics, groups or ids; the source is only read, looked at or written."""
    for role in grants.roles(settings(), ["shop.orders"]):
        assert role.kafka, role.name
        for right in role.kafka:
            assert right.why
            if right.kind == "cluster":
                assert right.operation == "DescribeConfigs"
                assert right.note.startswith("optional")
                continue
            assert right.name == "rows" or right.name.startswith("shop."), right
            assert right.name != "rows" or right.operation in {"Read", "Write", "DescribeConfigs"}
        for granted in role.clickhouse:
            database = granted.place.partition(".")[0]
            if granted.place in {"*.*", "MergeTree"}:  # not on data, and only for some servers
                assert granted.privileges in ANYWHERE
                assert granted.before or granted.note
                continue
            assert database in {"shop", "relay", "system"}, granted
            if database == "system":
                assert granted.privileges in {"SELECT", SEES_LOGS}


@pytest.mark.parametrize(
    ("role", "rooms"),
    [
        ("loader", ("loader", "relay/clickhouse")),
        ("relay", ("relay/schema",)),
        ("verifier", ("relay/operate/verify",)),
        ("operator", ("relay/operate/view",)),
    ],
)
def test_what_a_program_asks_of_the_server_itself_is_printed(
    role: str, rooms: tuple[str, ...]
) -> None:
    """Each system table, and each SYSTEM statement: SYSTEM FLUSH LOGS was not."""
    modules = [module for room in rooms for module in (ROOT / room).rglob("*.py")]
    text = "\n".join(module.read_text(encoding="utf-8") for module in modules)
    asked = {f"system.{name}" for name in set(_READS.findall(text)) - OPEN}
    asked |= set(_STATEMENT.findall(text))
    assert asked, "negative control"
    (found,) = [one for one in grants.roles(settings(), ["shop.orders"]) if one.name == role]
    printed = {name for right in found.clickhouse for name in (right.place, right.privileges)}
    assert asked - printed == set()


def test_to_have_the_logs_flushed_is_optional_and_says_what_it_is_for(tmp_path: Path) -> None:
    text = doctor(tmp_path, "--grants", "--role", "loader").output
    right = "GRANT SYSTEM FLUSH LOGS ON *.* TO default; -- optional: without it a log never proves"
    assert right in text


def test_the_ledgers_database_is_quoted_where_it_needs_quotes() -> None:
    """Red before: GRANT SELECT ON my-relay.* is no statement, of verifier and operator."""
    given = settings()
    loader = given.loader.model_copy(update={"database": "my-relay"})
    given = given.model_copy(update={"loader": loader})
    roles = grants.roles(given, ["shop.orders"])
    places = {one.place for role in roles for one in role.clickhouse}
    assert "`my-relay`.*" in places
    assert not [place for place in places if "my-relay" in place.replace("`my-relay`", "")]


def writes_of(given: Settings, name: str) -> set[tuple[str, str]]:
    """What a role may write in Kafka."""
    (role,) = [role for role in grants.roles(given) if role.name == name]
    return {(right.kind, right.name) for right in role.kafka if right.operation == "Write"}


def test_only_those_write_that_have_to() -> None:
    """Not the loader in Kafka, not the relay in ClickHouse, and readers nowhere."""
    by_name = {role.name: role for role in grants.roles(settings(), ["shop.orders"])}
    writers = {
        name
        for name, role in by_name.items()
        if {"Write", "Create"} & {right.operation for right in role.kafka}
    }
    assert writers == {"relay", "retirer", "replayer", "rewinder", "producer", "feeder"}
    given = settings()
    given = given.model_copy(
        update={"loader": given.loader.model_copy(update={"rejected": "dead"})}
    )
    assert writes_of(given, "loader") == {
        ("topic", "shop.dead"),
        ("transactional-id", "shop.left-out"),
    }
    own = {("topic", "shop.journal"), ("transactional-id", "shop.rewind")}
    assert writes_of(settings(), "rewinder") == own
    # Before it discards a block that was claimed for dead letters, it fences who may write some.
    assert writes_of(given, "rewinder") == own | {("transactional-id", "shop.left-out")}
    inserters = {
        name
        for name, role in by_name.items()
        if any("INSERT" in right.privileges for right in role.clickhouse)
    }
    assert inserters == {"loader", "rewinder"}  # it starts loader supersede


def test_tables_are_named_quoted_or_left_open() -> None:
    (loader,) = [r for r in grants.roles(settings(), ["a.b", "a.`"]) if r.name == "loader"]
    assert [r.place for r in loader.clickhouse if r.privileges == "SELECT, INSERT"] == [
        "a.`\\``",
        "a.b",
    ]
    (loader,) = [r for r in grants.roles(settings()) if r.name == "loader"]
    assert grants.ANY_TABLE in [right.place for right in loader.clickhouse]


@pytest.mark.parametrize("role", ["loader", "rewinder"])
def test_a_loader_sees_what_is_behind_its_tables(role: str) -> None:
    """Red before: what it does not see counts as without tokens, and blocks were parked."""
    tables = ["a.b", "a.c", "d.e"]
    (found,) = [one for one in grants.roles(settings(), tables) if one.name == role]
    shown = [one for one in found.clickhouse if one.privileges == "SHOW TABLES"]
    assert [one.place for one in shown] == ["a.*", "d.*"]
    assert {one.note[:8] for one in shown} == {"optional"}


def test_text_and_values_say_the_same(tmp_path: Path) -> None:
    text = doctor(tmp_path, "--grants", "--table", "shop.orders").output.splitlines()
    lines = doctor(tmp_path, "--grants", "--table", "shop.orders", "--json").output.splitlines()
    roles = [json.loads(line) for line in lines]
    assert sum(line.startswith("kafka-acls ") for line in text) == sum(
        len(role["kafka"]) for role in roles
    )
    assert sum(line.startswith("GRANT ") for line in text) == sum(
        len(role["clickhouse"]) for role in roles
    )
    assert {role["role"] for role in roles} == {role.name for role in grants.roles(settings())}
    assert [f"# {role['role']}: {role['runs']}" for role in roles] == [
        line for line in text if line.startswith("#")
    ]


def test_each_value_names_whom_and_where_to_tell(tmp_path: Path) -> None:
    """As the commands do: of two clusters, and of several pipelines."""
    across = f'{GOOD}\n[source.kafka]\nbootstrap = "other:9092"\n{TWO}source.topic = "more"\n'
    path = write(tmp_path, across)
    arguments = ["doctor", str(path), "--grants", "--table", "shop.t"]
    text = CliRunner().invoke(cli, arguments).output
    lines = CliRunner().invoke(cli, [*arguments, "--json"]).output.splitlines()
    roles = [json.loads(line) for line in lines]
    assert {role["pipeline"] for role in roles} == {"east", "west"}
    rights = [right for role in roles for right in role["kafka"]]
    assert {right["bootstrap"] for right in rights} == {"east:9092", "west:9092", "other:9092"}
    for right in rights:
        named = "" if right["resource"] == "cluster" else f" {right['name']}"
        assert (
            f"--bootstrap-server {right['bootstrap']} --add --allow-principal {right['principal']} "
            f"--operation {right['operation']} --{right['resource']}{named}"
        ) in text
    for right in [right for role in roles for right in role["clickhouse"]]:
        assert f"GRANT {right['privileges']} ON {right['on']} TO {right['to']};" in text


def test_only_what_the_version_asks_for(tmp_path: Path) -> None:
    """Without a version both are there, and what only some ask for says so."""
    given = ("--grants", "--table", "shop.t", "--role", "loader")
    both = doctor(tmp_path, *given).output.splitlines()
    old = doctor(tmp_path, *given, "--clickhouse-version", "26.3").output.splitlines()
    new = doctor(tmp_path, *given, "--clickhouse-version", "v26.5.1.1").output.splitlines()
    optional = "optional: without it a block whose INSERT got no answer may be parked"
    revoked = "needed if CREATE TABLE, which implies it, is revoked"
    grant = "GRANT CREATE TEMPORARY TABLE ON *.* TO default; --"
    needed = f"{grant} {revoked}"
    assert f"{grant} only before ClickHouse 26.5; {revoked}" in both
    assert needed in old
    assert set(old) - set(new) == {needed}
    assert len(both) == len(old)
    assert [line for line in new if "system.query_log" in line] == [
        f"GRANT SELECT ON system.query_log TO default; -- {optional}"
    ]


def test_a_version_that_is_none(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--grants", "--clickhouse-version", "new")
    assert done.exit_code == 2
    assert "'new' is not a version such as 26.3" in done.output
    assert doctor(tmp_path, "--clickhouse-version", "26.3").exit_code == 2


def test_a_role_that_there_is_not_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--grants", "--role", "king")
    assert done.exit_code == 2
    assert "'king'" in done.output
    assert "relay, loader" in done.output
    done = doctor(tmp_path, "--role", "operator")
    assert done.exit_code == 2
    assert "cannot judge role 'operator', only relay, loader, verifier" in done.output


@pytest.mark.parametrize(
    ("code", "as_is", "errors_only"), [("auto-create", EXIT_WARNINGS, 0), ("source-missing", 1, 1)]
)
def test_a_job_before_a_roll_out_may_pass_with_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, as_is: int, errors_only: int
) -> None:
    """Not with errors."""
    monkeypatch.setattr(examine, "examine", lambda *_: [report(code, "what", "mend")])
    path = str(write(tmp_path, GOOD))
    for arguments, status in (((), as_is), (("--errors-only",), errors_only)):
        done = CliRunner().invoke(
            cli, ["doctor", path, *arguments], standalone_mode=False, catch_exceptions=False
        )
        assert done.return_value == status


def test_findings_of_one_kind_are_one_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thing that was found, the reason once, the same command once; --json has each."""
    findings = [report("ttl", f"shop.t{n}: TTL", "let rows stay") for n in range(12)]
    findings += [report("window-zero", f"shop.t{n}: 0", f"ALTER TABLE shop.t{n}") for n in range(2)]
    monkeypatch.setattr(examine, "examine", lambda *_: findings)
    output = doctor(tmp_path).output
    assert output.count("let rows stay") == output.count(KINDS["ttl"].why[:20]) == 1
    assert output.count("shop.t") == 10 + 2 + 2
    assert "and 2 more: --json has all" in output
    assert "2 errors, 12 warnings" in output
    lines = doctor(tmp_path, "--json").output.splitlines()
    assert len(lines) == len(findings) + 1
