"""What a table's definition says of its rows: which expire, which are merged; pure."""

from __future__ import annotations

import pytest

from relay.clickhouse.table_engine import TableEngine, columns_of, has_ttl


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
        ("`_block` Array(String) DEFAULT ['a', 'b'] TTL day", True),
    ],
)
def test_a_ttl_of_the_column_itself(column: str, expires: bool) -> None:
    create = f"CREATE TABLE d.t (`id` Int64, {column}) ENGINE = MergeTree ORDER BY id TTL day"
    assert has_ttl(create, "_block") == expires


@pytest.mark.parametrize(
    ("create", "columns"),
    [
        (
            (
                r"CREATE TABLE shop.t (`id` Int64, `pr\`ice` Tuple(a Int64, `b` String), "
                "`c.x` Array(Int64) DEFAULT [1, `id`, `id`] COMMENT '`foo` x, `bar` y', "
                "INDEX `i` name TYPE bloom_filter GRANULARITY 1, CONSTRAINT `c` CHECK id > -5, "
                "PROJECTION `p` (SELECT id, `name` ORDER BY name)) ENGINE = MergeTree "
                "ORDER BY (id, `d`) COMMENT 'hi, `zz` there'"
            ),
            {"id", "pr`ice", "c.x"},
        ),
        ("CREATE TABLE `a (b`.`c (` (`id` Int64) ENGINE = Memory", {"id"}),
        ("CREATE MATERIALIZED VIEW d.v TO d.t (`id` Int64) AS SELECT `x`, f(`y`)", {"id"}),
        ("", set()),
    ],
)
def test_the_columns_of_a_definition(create: str, columns: set[str]) -> None:
    """Neither a part of a type, an index, a projection nor a comment is one."""
    assert columns_of(create) == columns


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


@pytest.mark.parametrize(
    ("full", "version"),
    [
        ("ReplacingMergeTree ORDER BY f(id)", ""),
        ("ReplacingMergeTree(ver) ORDER BY id", "ver"),
        ("ReplacingMergeTree(ver, is_deleted) ORDER BY id", "ver, is_deleted"),
        ("ReplacingMergeTree(`a (ver`) ORDER BY id", "`a (ver`"),
        ("ReplicatedReplacingMergeTree('/p', '{replica}') ORDER BY id", ""),
        ("ReplicatedReplacingMergeTree('/p (a)', '{replica}', ver) ORDER BY id", "ver"),
        ("SummingMergeTree(v) ORDER BY id", ""),
    ],
)
def test_the_version_of_rows(full: str, version: str) -> None:
    name, tree, _ = full.partition("MergeTree")
    assert TableEngine(name + tree, full).version == version


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *[("7", 7), ("'7'", 7), ("'+7'", 7), ("1.", 1), ("'7K'", 7000), ("'7ki'", 7168)],
        *[("'7Mi'", 7 << 20), ("true", 1), ("false", 0), ("'TRUE'", 1), ("'False'", 0)],
    ],
)
def test_a_setting_as_its_table_has_it(written: str, value: int) -> None:
    """ClickHouse keeps quotes and words; all of these were tried there."""
    full = f"MergeTree ORDER BY id SETTINGS a_long = 3, long = {written}, long_b = 5"
    assert TableEngine("MergeTree", full).setting("long", {"long": 9}) == value
    assert TableEngine("MergeTree", full).setting("other", {"other": 9}) == 9
