"""`--try`: inserts twice under one token into tables of the doctor's own, and drops them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.clickhouse import dedup_trial
from relay.clickhouse.errors import is_answer
from relay.clickhouse.insert_settings import deduplicated, known
from relay.clickhouse.quoting import readable
from relay.clickhouse.table_engine import DeduplicationWindow
from relay.config.settings import Settings
from relay.operate.doctor.ask.clickhouse import connected
from relay.operate.doctor.facts import ClickHouseFacts, TargetFacts, Tried, Values
from relay.operate.doctor.judge.deduplication import GOOD_WINDOW, window

DECIDING = (
    "insert_deduplicate",
    "deduplicate_insert",
    "deduplicate_insert_select",
    "deduplicate_blocks_in_dependent_materialized_views",
)
"""Settings that decide, whose values in force are told where rows were doubled."""
_PLAIN, _REPLICATED = "MergeTree", "ReplicatedMergeTree('{path}', 'doctor')"


def tries(settings: Settings, facts: ClickHouseFacts) -> tuple[Tried, ...]:
    """Return one for each kind of engine among the tables; of no tables, MergeTree.

    Raises:
        Unavailable: no answer.
        Refused: user or password is wrong.
    """
    with connected(settings, "try deduplication") as client:
        kinds = engines(facts.tables.values(), facts.windows)
        return tuple(_tried(client, settings, engine, within) for engine, within in kinds)


def engines(
    tables: Iterable[TargetFacts | None], defaults: Mapping[str, Values]
) -> Iterator[tuple[str, str]]:
    """Yield engines as in CREATE TABLE, with settings: the smallest window of their kind, or ours.

    A merging engine deduplicates as MergeTree does, and would merge the rows that are counted.
    """
    smallest: dict[str, DeduplicationWindow] = {}
    for table in tables:
        if table is None or (kept := window(table, defaults)) is None:
            continue
        # SharedMergeTree is what such a server makes of MergeTree by itself.
        by_keeper = kept.seconds is not None and not table.engine.startswith("Shared")
        engine = _REPLICATED if by_keeper else _PLAIN
        if engine not in smallest or 0 < kept.parts < smallest[engine].parts:
            smallest[engine] = kept
    if not smallest:
        name = "non_replicated_deduplication_window"
        smallest[_PLAIN] = DeduplicationWindow(name, GOOD_WINDOW, None)
    for engine, kept in smallest.items():
        yield engine, f"{kept.setting} = {kept.parts or GOOD_WINDOW}"


RIGHTS = ("CREATE TABLE", "CREATE VIEW", "DROP TABLE", "DROP VIEW", "SELECT", "INSERT")
"""On the ledger's database; asked for first, so that nothing is left that may not be dropped."""


def _tried(client: Client, settings: Settings, engine: str, within: str) -> Tried:
    name = engine.partition("(")[0]
    place = f"{readable(settings.loader.database)}.*"
    try:
        lacking = [
            right
            for right in RIGHTS
            if not int(str(client.command(f"CHECK GRANT {right} ON {place}")))
        ]
        if lacking:
            problem = f"user {settings.clickhouse.user} has no {', '.join(lacking)} on {place}"
            return Tried(name, problem=problem)
        with dedup_trial.passing(client, settings.loader.database, engine, within) as made:
            copies = dedup_trial.tried(client, made)
    except ClickHouseError as error:
        if not is_answer(error):
            raise
        return Tried(name, problem=" ".join(str(error).split())[:300])
    assert copies.behind is not None
    sent = known(deduplicated("", 1), client.server_settings)
    values = {
        name: f"{client.server_settings[name].value}, the loader sends {sent[name]}"
        for name in DECIDING
        if name in sent
    }
    return Tried(name, copies.table, copies.behind, values)
