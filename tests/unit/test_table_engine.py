"""What a table's definition says of its rows: which expire, which are merged; pure."""

from __future__ import annotations

import pytest

from relay.clickhouse.table_engine import TableEngine, has_ttl


@pytest.mark.parametrize(
    ("engine_full", "rules"),
    [
        ("MergeTree ORDER BY id SETTINGS index_granularity = 8192", []),
        ("MergeTree ORDER BY `a TTL b` SETTINGS x = 1", []),
        ("MergeTree ORDER BY id TTL day + f(30, 2) SETTINGS x = 1", ["day + f(30, 2)"]),
        ("MergeTree ORDER BY id TTL d DELETE WHERE t = ' TTL ,'", ["d DELETE WHERE t = ' TTL ,'"]),
        ("MergeTree ORDER BY id TTL d TO VOLUME 'cold', e TO DISK 'x'", []),
        ("MergeTree ORDER BY id TTL d RECOMPRESS CODEC(ZSTD(17)), e", ["e"]),
        (
            "MergeTree ORDER BY id TTL d GROUP BY id SET v = sum(v)",
            ["d GROUP BY id SET v = sum(v)"],
        ),
    ],
)
def test_a_ttl_that_deletes(engine_full: str, rules: list[str]) -> None:
    assert list(TableEngine("MergeTree", engine_full).deleting_ttls()) == rules


@pytest.mark.parametrize(
    ("column", "expires"),
    [
        ("`_block` String TTL day + toIntervalDay(30)", True),
        ("`_block` LowCardinality(String) DEFAULT ' TTL ' CODEC(ZSTD(1))", False),
        ("`_block` String, `b` String TTL day", False),
        ("`b` String TTL day, `_block` String", False),
        ("`my_block` String TTL day", False),
    ],
)
def test_a_ttl_of_the_column_itself(column: str, expires: bool) -> None:
    create = f"CREATE TABLE d.t (`id` Int64, {column}) ENGINE = MergeTree ORDER BY id TTL day"
    assert has_ttl(create, "_block") == expires


@pytest.mark.parametrize(
    ("engine", "is_merge_tree", "merging"),
    [
        ("MergeTree", True, ""),
        ("ReplicatedMergeTree", True, ""),
        ("SharedSummingMergeTree", True, "Summing"),
        ("ReplacingMergeTree", True, "Replacing"),
        ("Memory", False, ""),
    ],
)
def test_an_engine_that_merges_rows(engine: str, is_merge_tree: bool, merging: str) -> None:
    table = TableEngine(engine)
    assert (table.is_merge_tree, table.merging) == (is_merge_tree, merging)
    assert table.merges_rows == bool(merging)
