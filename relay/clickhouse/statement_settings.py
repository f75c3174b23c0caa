"""Settings of every statement of every client: with them it means the same under any profile.

A profile may cut an answer short without an error, take it from a cache, or make something else
of it. Then columns and tables would vanish for the relay, blocks for the loader, and rows for the
verifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.httpclient import HttpClient
from clickhouse_connect.driver.models import SettingDef

from relay.clickhouse.quoting import literal, readable_user
from relay.errors import Refused

EVERYWHERE: Mapping[str, object] = {
    # What a profile may set to cut a result short, without an error.
    "limit": 0,
    "offset": 0,
    "read_overflow_mode": "throw",
    "read_overflow_mode_leaf": "throw",
    "result_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
    "timeout_overflow_mode_leaf": "throw",
    "group_by_overflow_mode": "throw",
    "set_overflow_mode": "throw",
    "join_overflow_mode": "throw",
    "sort_overflow_mode": "throw",
    "distinct_overflow_mode": "throw",
    "transfer_overflow_mode": "throw",
    "skip_unavailable_shards": 0,
    "max_rows_to_group_by": 0,
    # What it may refuse a question for: that it uses no key or projection. (Nothing undoes
    # force_data_skipping_indices: none of 25.8 to 26.9 can parse an empty list of them.)
    "force_primary_key": 0,
    "force_index_by_date": 0,
    "force_optimize_projection": 0,
    # What it may make of a JOIN, of an aggregate of no rows, of `GROUP BY 1`, of a cast, of a type.
    "join_default_strictness": "ALL",
    "aggregate_functions_null_for_empty": 0,
    "empty_result_for_aggregation_by_empty_set": 0,
    "enable_positional_arguments": 1,
    "prefer_column_name_to_alias": 0,
    "cast_keep_nullable": 0,
    "data_type_default_nullable": 0,
    # Of `if`, the branch that is not taken would be computed, too: a cast of no value is an error.
    "short_circuit_function_evaluation": "enable",
    # What it may make of a tuple in an answer, which has no names unless they are asked for.
    "enable_named_columns_in_function_tuple": 0,
    # What it may make of a definition, of which relay.clickhouse.table_engine reads columns, TTLs
    # and targets.
    "show_create_query_identifier_quoting_rule": "when_necessary",
    "show_create_query_identifier_quoting_style": "Backticks",
    "show_table_uuid_in_table_create_query_if_not_nil": 0,
    # Dates of the server's logs are by the server's clock.
    "session_timezone": "",
    # Tables must be seen as they are, and all of them.
    "use_query_cache": 0,
    "final": 0,
    "apply_deleted_mask": 1,
    "apply_patch_parts": 1,
    "enable_parallel_replicas": 0,
    "ignore_cold_parts_seconds": 0,  # of ClickHouse Cloud, which leaves new parts out by it
    "implicit_transaction": 0,
    "additional_table_filters": {},
    "additional_result_filter": "",
    "transform_null_in": 0,
}
"""One that the server does not know is left out."""

_HARMLESS = frozenset({
    # With these no answer is another one; the server says what it does not answer.
    "max_rows_to_group_by",
    "force_primary_key",
    "force_index_by_date",
    "force_optimize_projection",
    "short_circuit_function_evaluation",
    # relay.clickhouse.hidden_rows finds it, for the tables that it is about.
    "additional_table_filters",
})  # fmt: skip
"""What a profile may fix to another value."""

_CUTTING = ("limit", "offset", "read_overflow_mode", "result_overflow_mode")
"""Those that may cut any answer; every version knows them."""
_KNOWN = "SELECT name, value, toInt64(readonly) FROM system.settings"


def send_always(client: HttpClient, user: str) -> None:
    """Have a user's client send them, as far as the server knows them and lets the user set them.

    Raises:
        ClickHouseError: the profile does not let this user see them all.
        Refused: it fixes one to another value, so that no answer could be believed.
    """
    if not client.server_settings.keys() >= set(_CUTTING):
        # The profile has cut the answer from which the client knows the server's settings.
        client.params.update({name: str(EVERYWHERE[name]) for name in _CUTTING})
        settings = starmap(SettingDef, client.query(_KNOWN).result_rows)
        client.server_settings = {setting.name: setting for setting in settings}
    for name, value in EVERYWHERE.items():
        if may_set(client, name):
            client.set_client_setting(name, value)
    known = client.server_settings
    fixed = [
        name
        for name, value in EVERYWHERE.items()
        if name in known and not may_set(client, name) and name not in _HARMLESS
        if known[name].value != str(value)
    ]
    if fixed:
        actual = ", ".join(f"{name} = {known[name].value}" for name in fixed)
        needed = ", ".join(f"{name} = {literal(str(EVERYWHERE[name]))}" for name in fixed)
        raise Refused(
            f"the profile of ClickHouse's user {user} sets {actual}, which this user may not "
            "change: with it the server answers otherwise, without an error",
            f"ALTER USER {readable_user(user)} MODIFY SETTINGS {needed}; of a user in users.xml, "
            "change the profile",
        )


FEW_ROWS: Mapping[str, object] = {
    # For few rows, threads cost more than they do: an INSERT of 60 rows takes 13 ms of processor
    # time with one thread that reads its files itself, 16 with those of a server of two cores
    # (tests/bench/RESULTS.md, "Many quiet tables").
    "max_threads": 1,
    "local_filesystem_read_method": "pread",
    # Reading the ledger's columns in two steps, and compiling expressions, would take 1.2 ms more.
    "optimize_move_to_prewhere": 0,
    "compile_expressions": 0,
}
"""What makes a statement cheaper that reads and writes few rows, and means the same without."""
FREE = (
    "SELECT name FROM system.settings WHERE name IN {names:Array(String)} "
    "AND NOT readonly AND isNull(min) AND isNull(max)"
)
"""Those of {names:Array(String)} that the server knows and lets its user set to anything."""


def free_of(client: Client, wanted: Mapping[str, object]) -> Mapping[str, object]:
    """Return those settings that the server knows and lets the client's user set to anything."""
    free = client.query(FREE, parameters={"names": sorted(wanted)}).result_rows
    return {name: wanted[name] for (name,) in free}


def may_set(client: Client, name: str) -> bool:
    """Return whether the server knows the setting, and lets the client's user set it."""
    known = client.server_settings.get(name)
    return known is not None and not int(known.readonly)
