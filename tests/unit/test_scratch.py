"""The engine of a table on which rows are tried: alone, and judging as the block's table does."""

from __future__ import annotations

import pytest

from loader.blocks.scratch_table import engine_of

ROOM = "parts_to_delay_insert = 1000000, parts_to_throw_insert = 1000000"


@pytest.mark.parametrize(
    ("full", "alone"),
    [
        ("MergeTree ORDER BY id", f"MergeTree ORDER BY id SETTINGS {ROOM}"),
        (
            (
                "ReplicatedMergeTree('/t/{uuid}', '{replica}') PARTITION BY day ORDER BY id "
                "SETTINGS index_granularity = 8192"
            ),
            f"MergeTree() PARTITION BY day ORDER BY id SETTINGS index_granularity = 8192, {ROOM}",
        ),
        (
            (
                "ReplicatedReplacingMergeTree('/it\\'s', 'r1', version) ORDER BY id TTL day + 1 "
                "SETTINGS replicated_deduplication_window = 7, storage_policy = 'cold', "
                "parts_to_throw_insert = 9"
            ),
            (
                "ReplacingMergeTree(version) ORDER BY id TTL day + 1 "
                f"SETTINGS storage_policy = 'cold', {ROOM}"
            ),
        ),
        (
            (
                "CollapsingMergeTree(sign) ORDER BY id SETTINGS allow_nullable_key = 1, "
                "non_replicated_deduplication_window = 100"
            ),
            f"CollapsingMergeTree(sign) ORDER BY id SETTINGS allow_nullable_key = 1, {ROOM}",
        ),
        (
            (
                "MergeTree ORDER BY id SETTINGS disk = disk(type = cache, path = '[HIDDEN]', "
                "disk = disk(type = local, path = 'a, b) = (')), index_granularity = 8192"
            ),
            f"MergeTree ORDER BY id SETTINGS index_granularity = 8192, {ROOM}",
        ),
        (
            "MergeTree ORDER BY id SETTINGS table_disk = 1, storage_policy = 'whole'",
            f"MergeTree ORDER BY id SETTINGS {ROOM}",
        ),
        ("SharedMergeTree ORDER BY id", f"MergeTree ORDER BY id SETTINGS {ROOM}"),
    ],
)
def test_a_merge_tree_keeps_its_family_keys_and_settings(full: str, alone: str) -> None:
    assert engine_of(full.partition("(")[0].partition(" ")[0], full) == alone


@pytest.mark.parametrize("engine", ["Log", "Memory", "Distributed", "Null", "Buffer"])
def test_another_engine_is_judged_before_it_gets_the_rows(engine: str) -> None:
    assert engine_of(engine, f"{engine}('whatever')") == "Null"
