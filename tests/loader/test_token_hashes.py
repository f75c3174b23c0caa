"""Which versions of ClickHouse know whose tokens, and how many a window has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from loader.clickhouse.ledger import Claimed
from loader.clickhouse.running_statements import Definition
from loader.clickhouse.tables import Tables, Target
from loader.core.table_rules import Nature, Window
from loader.core.token_hashes import (
    KNOWN_BY,
    hashes_of_a_token,
    knows_tokens,
    surely_remembered,
)
from tests.versions.releases import RELEASES

if TYPE_CHECKING:
    from clickhouse_connect.driver.httpclient import HttpClient

DEFAULT = Window(10_000, 3_600, "log")
"""Of a Replicated table, in versions from 26.1 on."""


@pytest.mark.parametrize(
    ("now", "before", "known"),
    [
        ("26.9.2.1", ["26.9.2.1"], True),
        ("26.9.3.7", ["26.9.2.1"], True),
        ("26.9.2.1", ["26.3.9.1", "26.9.2.1"], True),
        ("26.3.9.1", ["26.9.2.1"], True),
        ("26.5.1.1", ["26.1.2.1", "25.8.2.1"], True),
        ("26.9.2.1", ["26.1.2.1"], False),
        ("26.1.2.1", ["26.9.2.1"], False),
        # A repeat on 26.3 that was dropped has left no new hash.
        ("26.9.2.1", ["26.1.2.1", "26.3.9.1"], False),
        # Nobody tried these.
        ("27.1.1.1", ["26.9.2.1"], False),
        ("27.1.1.1", ["27.1.1.1"], True),
        ("27.1.2.1", ["27.1.1.1"], False),
        # A claim of an earlier version of the loader.
        ("26.9.2.1", ["", "26.9.2.1"], False),
    ],
)
def test_whose_tokens_are_known(now: str, before: list[str], *, known: bool) -> None:
    assert knows_tokens(now, before) is known


def test_each_version_that_is_run_was_tried() -> None:
    """A new one comes with what tests/versions/test_upgraded.py says of it."""
    assert list(KNOWN_BY) == [release.engine for release in RELEASES]


@pytest.mark.parametrize(
    ("version", "hashes"),
    [("26.1.2.1", 1), ("26.2.1.1", 2), ("26.5.1.1", 2), ("26.7.2.1", 1), ("27.1", 1), ("", 2)],
)
def test_how_many_entries_a_part_takes(version: str, hashes: int) -> None:
    assert hashes_of_a_token(version) == hashes


@pytest.mark.parametrize(
    ("of", "now", "before", "parts"),
    [
        pytest.param(Window(10_000, 3_600, "log"), "26.9.2.1", ["26.9.2.1"], 5_000, id="plain"),
        # It remembered 1 000 parts before its upgrade; what came then has pushed others out.
        pytest.param(Window(10_000, 3_600, "log"), "26.1.2.1", ["25.8.2.1"], 500, id="upgraded"),
        pytest.param(Window(10_000, 3_600, "log"), "26.3.9.1", ["25.8.2.1", "26.1.2.1"], 250),
        # Those that came on another version have taken two entries each.
        pytest.param(Window(10_000, 3_600, "log"), "26.9.2.1", ["26.9.2.1", "26.3.9.1"], 2_500),
        pytest.param(Window(100, 3_600, "log"), "26.1.2.1", ["25.8.2.1"], 50, id="smaller now"),
        pytest.param(Window(1_000, 604_800, "log"), "25.8.2.1", ["25.8.2.1"], 500, id="older"),
        # Such a table has 0 by default in every version, so it names its own.
        pytest.param(Window(10_000, None, "parts"), "26.1.2.1", ["25.8.2.1"], 5_000, id="parts"),
    ],
)
def test_how_many_parts_may_follow(of: Window, now: str, before: list[str], parts: int) -> None:
    assert surely_remembered(of, 60, now, before) == parts


def test_none_may_follow_once_time_is_over() -> None:
    assert surely_remembered(Window(10_000, 3_600, "log"), 1_801, "26.9.2.1", ["26.9.2.1"]) == -1


def replica(version: str, parts: int, settings: str = "") -> Definition:
    """A table on one whose configuration has this window."""
    full = f"ReplicatedMergeTree('/t', 'r') ORDER BY id SETTINGS index_granularity = 8192{settings}"
    names = "replicated_deduplication_window", "replicated_deduplication_window_seconds"
    defaults = list(zip(names, (parts, 3_600), strict=True))
    return Definition("ReplicatedMergeTree", full, 0, version, defaults)


@pytest.mark.parametrize(
    ("now", "others", "parts"),
    [
        pytest.param("26.9.2.1", [replica("26.9.2.1", 10_000)], 5_000, id="all alike"),
        # During an upgrade the older ones still forget by their own default.
        pytest.param("26.1.2.1", [replica("25.8.2.1", 1_000)], 500, id="an older one"),
        pytest.param("26.3.9.1", [replica("25.8.2.1", 1_000)], 250, id="of two entries each"),
        pytest.param("25.8.2.1", [replica("26.3.9.1", 10_000)], 250, id="a newer one"),
        pytest.param("26.9.2.1", [replica("26.9.2.1", 100)], 50, id="another configuration"),
        pytest.param(
            "26.9.2.1",
            [replica("26.9.2.1", 100, ", replicated_deduplication_window = 300")],
            150,
            id="the table's own setting",
        ),
        pytest.param("26.9.2.1", [Definition("", "", 0, "", [])], 5_000, id="one without it"),
    ],
)
def test_each_replica_forgets_by_its_own_window(
    now: str, others: list[Definition], parts: int
) -> None:
    """It was computed with the defaults and the version of the server in use."""
    own = DEFAULT if now != "25.8.2.1" else Window(1_000, 604_800, "log")
    tables = Tables(cast("HttpClient", SimpleNamespace()), "_block")
    target = Target({}, 0, Nature(own), 0, version=now)
    assert tables._margin(target, others, Claimed(60, 9_000_000, frozenset({now}))) == parts
