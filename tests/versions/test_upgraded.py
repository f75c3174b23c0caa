"""ClickHouse is upgraded, or rolled back, on the same data while a block's outcome is unknown.

Nothing here believes what the loader counts: rows are counted by the test. An engine out of a wheel
keeps no log of before its start, so the token or a person decides.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loader.core.table_rules import Window
from loader.core.token_hashes import knows_tokens, surely_remembered
from relay.clickhouse.insert_settings import deduplicated, known
from tests.loader.test_work import killed
from tests.versions.engines import Engine, running
from tests.versions.guards import Bench
from tests.versions.releases import RELEASES, Release, is_made

NOW = RELEASES[-1]
UPGRADES = [(older, newer) for older in RELEASES for newer in RELEASES[1:] if older != newer]
READABLE = [(older, newer) for older, newer in UPGRADES if newer.engine >= "26.3"]
"""An engine does not open the parts of a much newer one."""


on_each_release = pytest.mark.parametrize(
    "release",
    [
        pytest.param(one, marks=() if one is NOW else pytest.mark.long, id=one.engine)
        for one in RELEASES
    ],
)


def require(*releases: Release) -> None:
    """Skip the test where their environments are not made: that takes minutes, once a machine."""
    if missing := [one.engine for one in releases if not is_made(one)]:
        pytest.skip(f"`python -m tests.versions` makes the environment of {', '.join(missing)}")


def engine_of(release: Release, before: Release, directory: Path, port: int = 0) -> Engine:
    """Both behind the front or neither: it does not speak all of a server's Native format."""
    listens = release.listens and before.listens
    return Engine(replace(release, listens=listens), directory, port=port)


def name(pair: tuple[Release, Release]) -> str:
    return " to ".join(one.engine for one in pair)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param((NOW, NOW), id="a plain restart"),
        *(pytest.param(pair, marks=pytest.mark.long, id=name(pair)) for pair in READABLE),
    ],
)
def test_an_insert_without_an_answer(
    bootstrap: str, tmp_path: Path, pair: tuple[Release, Release]
) -> None:
    """The other version remembers the token, and the block is loaded; or the block is parked."""
    require(*pair)
    first = engine_of(*pair, tmp_path / "server")
    second = engine_of(*reversed(pair), tmp_path / "server", first.port)
    first.start()
    try:
        bench = Bench(first, bootstrap, tmp_path / "app")
        table, behind = bench.table(), bench.table()
        view = f"CREATE MATERIALIZED VIEW {table}_v TO {behind} AS SELECT id, name FROM {table}"
        bench.client.command(view)
        block = bench.block(table)
        before = str(bench.client.command("SELECT version()"))
        killed(bench.journal, [block], "after_insert")
        bench.holds(table)
        first.stop()
        second.start()
        (done,) = bench.load(block)
        bench.holds(table)
        bench.holds(behind)
        now = str(bench.client.command("SELECT version()"))
        expected = "loaded" if knows_tokens(now, [before]) else "parked"
        assert done.outcome == expected, done.reason
        bench.close()
    finally:
        first.kill()
        second.kill()


@on_each_release
def test_a_window_remembers_twice_the_margin(
    bootstrap: str, tmp_path: Path, release: Release
) -> None:
    """So that others may insert the margin once more while a repeat runs."""
    require(release)
    size = 16
    with running(release, tmp_path / "server") as engine:
        bench = Bench(engine, bootstrap, tmp_path / "app")
        table = bench.table(window=size)
        version = str(bench.client.command("SELECT version()"))
        margin = surely_remembered(Window(size, None, "parts"), 0, version, [version])
        assert margin in {4, 8}
        for token in ("ours", *map(str, range(2 * margin - 1)), "ours"):
            sent = known(deduplicated(token, 1), bench.client.server_settings)
            bench.client.command(f"INSERT INTO {table} SELECT 1, 'x'", settings=sent)
        assert bench.count(table) == 2 * margin
        bench.close()


@on_each_release
def test_a_replicated_table_remembers_as_many_by_default(tmp_path: Path, release: Release) -> None:
    """A later version may remember more; what the older one has forgotten stays forgotten."""
    require(release)
    with running(release, tmp_path / "server") as engine:
        client = engine.client()
        default = client.command(
            "SELECT value FROM system.replicated_merge_tree_settings "
            "WHERE name = 'replicated_deduplication_window'"
        )
        client.close()
    since = surely_remembered(Window(10_000, None, "log"), 0, "27.9.1.1", [release.engine])
    assert since == int(str(default)) // 2
