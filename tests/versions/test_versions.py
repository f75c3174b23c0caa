"""The tool that runs guards on versions: its table, its verdicts, and that a red one is seen."""

from __future__ import annotations

import base64
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.operate.doctor.versions import OLDEST, parsed
from tests.versions import __main__ as tool
from tests.versions import users
from tests.versions.__main__ import Verdict, markdown
from tests.versions.engines import ADMIN, running
from tests.versions.guards import GUARDS, Absent, Bench, Red
from tests.versions.httpquery import assignments, identifier, parse
from tests.versions.releases import RELEASES
from tests.versions.rollback import rolled_back
from tests.versions.users import User

DOCUMENT = (Path(__file__).parents[2] / "relay/docs/clickhouse-versions.md").read_text()
NOW = RELEASES[-1]


def test_the_document_has_each_version_and_the_oldest_is_the_one_supported() -> None:
    table = DOCUMENT.partition("<!-- versions -->")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| (\d+\.\d+)[.\d]* \|.*\| green \|$", table, re.MULTILINE)
    assert listed == [release.engine for release in RELEASES]
    assert parsed(listed[0]) == OLDEST


def test_the_newest_is_the_one_that_everything_else_is_tested_on() -> None:
    assert NOW.installed
    assert [release.installed for release in RELEASES].count(True) == 1


def fails(error: Exception) -> Callable[[], None]:
    def check() -> None:
        raise error

    return check


@pytest.mark.parametrize(
    ("check", "green"),
    [
        (lambda: None, True),
        (fails(Red("(1000, 500)")), False),
        (fails(ValueError("broken")), False),
    ],
)
def test_a_guard_that_does_not_hold_or_breaks_is_red(
    check: Callable[[], None], green: bool
) -> None:
    verdict = Verdict(NOW, "26.9.2.1")
    tool._one(verdict, "holds", lambda: None)
    tool._one(verdict, "in question", check)
    assert verdict.green is green
    row = markdown([verdict]).splitlines()[-1]
    assert row.startswith("| 26.9.2.1 | `chdb-core` 26.9.0, whole server | 2 guards |")
    assert row.endswith("| green |" if green else "| red: in question |")


def test_nothing_run_is_not_green() -> None:
    """Negative control: an engine that did not start has no red guard."""
    verdict = Verdict(NOW)
    tool._one(verdict, "in question", fails(Absent("no such thing here")))
    assert not verdict.green
    assert "no such thing here" in markdown([verdict])


def test_what_is_not_run_is_a_guard_and_has_a_reason() -> None:
    known = {*GUARDS, tool.ROLLBACK}
    for engine, guards in tool.NOT_ON.items():
        assert engine in {release.engine for release in RELEASES}
        assert guards.keys() <= known
        assert all(guards.values())


def test_the_guards_hold_here_and_see_what_does_not(bootstrap: str, tmp_path: Path) -> None:
    """Where a table remembers nothing, what is repeated is doubled, and the guard says so."""
    with running(NOW, tmp_path / "server") as engine:
        bench = Bench(engine, bootstrap, tmp_path / "app")
        for name in ("the answer says how many rows were written", "what a view writes, once"):
            GUARDS[name](bench)
        bench.client.command(
            f"CREATE TABLE {bench.settings.loader.database}.trial (token String, at DateTime) "
            "ENGINE = MergeTree ORDER BY token"
        )
        verdict = Verdict(NOW)
        repeated = "a repeated INSERT is dropped"
        tool._one(verdict, repeated, lambda: GUARDS[repeated](bench))
        assert "4 rows instead of 2" in verdict.red[repeated]
        bench.close()


def test_an_embedded_engine_and_a_roll_back_work_on_the_installed_version(
    bootstrap: str, tmp_path: Path
) -> None:
    """What older versions alone go through: a fault here shows without their environments."""
    rolled_back(NOW, _behind_front(), bootstrap, tmp_path)


def test_the_front_answers_only_who_is_meant(tmp_path: Path) -> None:
    """No page of a browser, no other name of this machine, nobody without password, no GET."""
    front = tmp_path / "front"
    reader = User("reader", "r", ("GRANT SELECT ON system.one",))
    with running(_behind_front(), front, (reader,)) as engine:
        assert _asked(engine.url, "SELECT currentRoles()") == (200, "['admin']\n")
        assert _asked(engine.url, "SELECT 1", Origin="http://evil.example")[0] == 403
        assert _asked(engine.url, "SELECT 1", Host="evil.example")[0] == 403
        assert _asked(engine.url, "SELECT 1", password="guess")[0] == 403
        assert _asked(f"{engine.url}/?query=SELECT+1", None)[0] == 403
        status, said = _asked(engine.url, "CREATE DATABASE d", reader)
        assert (status, "CREATE DATABASE ON d" in said) == (403, True)


def _behind_front() -> Any:
    """The installed engine, as if it had no listener: no other is fetched for this."""
    return replace(NOW, listens=False)


def _asked(
    url: str, sql: str | None, user: User = ADMIN, password: str = "", **headers: str
) -> tuple[int, str]:
    secret = base64.b64encode(f"{user.name}:{password or user.password}".encode()).decode()
    given = {"Authorization": f"Basic {secret}", **headers}
    request = urllib.request.Request(url, sql and sql.encode(), given)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_users_are_written_so_that_nobody_ends_a_value() -> None:
    text = users.of_server([User("a", "<&", ("GRANT SELECT ON `<x>`.*",), {}, {"d.t": "i < 5"})])
    assert "<password>&lt;&amp;</password>" in text
    assert "ON `&lt;x&gt;`.*" in text
    assert "<databases><d><t><filter>i &lt; 5</filter></t></d></databases>" in text


@pytest.mark.parametrize("data", [b"\n\n\x01", b"\t;\n FORMAT CSV\n", b"\xff\xfe", b" x"])
def test_data_behind_the_statement_is_kept_to_the_byte(data: bytes) -> None:
    query = parse({}, b"INSERT INTO t (a) FORMAT Native\n" + data, {})
    assert (query.sql, query.data, query.data_format) == ("INSERT INTO t (a)", data, "Native")
    assert query.over_file(Path("/d/it's")) == (
        "INSERT INTO t (a) FROM INFILE '/d/it\\'s' FORMAT Native"
    )


def test_input_becomes_the_file() -> None:
    sql = "INSERT INTO t SELECT a FROM input('a Enum8(\\'x\\' = 1)') WHERE 1 FORMAT Arrow"
    query = parse({"query": sql}, b"data", {})
    assert query.spools
    assert query.over_file(Path("/d/it's")) == (
        "INSERT INTO t SELECT a FROM file('/d/it\\'s', 'Arrow', 'a Enum8(\\'x\\' = 1)') WHERE 1"
    )


def test_names_and_values_are_quoted() -> None:
    assert identifier("a`; DROP") == "`a\\`; DROP`"
    assert assignments({"k": "v', x = '\\"}) == "`k` = 'v\\', x = \\'\\\\'"
