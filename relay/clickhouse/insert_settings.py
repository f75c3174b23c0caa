"""Settings of every INSERT that must deduplicate by its token, each with its reason; pure.

The loader sends these with each block (loader.blocks.insert_statement), and `relay doctor --try`
and the loader's trial at start send the same: what they find holds for blocks. A setting that a
server does not know is left out; one that is sent with the statement wins over the user's profile.
"""

# pure

from __future__ import annotations

from collections.abc import Container, Mapping


def deduplicated(token: str, rows: int) -> dict[str, object]:
    """Return settings of an INSERT … SELECT … FROM input(), so that a repeat changes nothing.

    Args:
        token: of the rows, the same whenever just these rows are inserted.
        rows: how many the INSERT has, at most.
    """
    block_rows = max(rows + 1, 1_048_449)
    return {
        "insert_deduplication_token": token,
        "insert_deduplicate": 1,
        "deduplicate_insert": "enable",  # overrides insert_deduplicate from 26.2 on
        # Overrides both for INSERT … SELECT from 25.12 on. By default 26.1 ignores the token of an
        # INSERT … SELECT without ORDER BY; `force_enable` throws there. The loader's condition asks
        # the ledger and not the rows, so the rows are the same each time.
        "deduplicate_insert_select": "enable_even_for_bad_queries",
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        # An answer must mean that the rows are in the table; the default has become 1. Of a
        # Distributed table, or one that a view writes to: on its shards.
        "async_insert": 0,
        "distributed_foreground_insert": 1,
        # A token covers one server block: split differently, a repeat would be appended.
        "max_insert_block_size": block_rows,
        "max_block_size": block_rows,
        "min_insert_block_size_rows": block_rows,
        "min_insert_block_size_bytes": 0,
        "max_insert_block_size_bytes": 0,
        "use_strict_insert_block_limits": 0,
        "max_insert_threads": 1,
        "input_format_parallel_parsing": 0,
    }


def known(settings: Mapping[str, object], server: Container[str]) -> dict[str, object]:
    """Return the settings without those that the server does not know."""
    return {name: value for name, value in settings.items() if name in server}
