"""Decodes messages of the source topic as the relay would, and changes nothing.

Receives settings, gives for each message why it would be a dead letter. The row messages are what
the registry has, or would get from the tables' columns at the first start; nothing is proposed
to it, no topic is made, no group is joined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from relay import names
from relay.config.allowed_tables import is_ledger, ledger_refusal
from relay.intake import sample
from relay.intake.foreign_formats import explained
from relay.kafka.topics import READ, Topics
from relay.names import NO_TABLE
from relay.operate.doctor.judge.sample import OfTable, tallied
from relay.program.spelling import did_you_mean_table
from relay.rows.codecs_of_tables import NO_HEADER, table_refused, unknown_table, unsupported
from relay.rows.row_codec import RowCodec
from relay.schema.catalogue import Catalogue
from relay.schema.dead_reason import DeadReason
from relay.schema.evolution import evolve, unsupported_columns
from relay.schema.registry import read_to_its_end

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.records_pb2 import TableSchema
    from relay.schema.catalogue import TableColumns

Codecs = dict[str, RowCodec | DeadReason]


def look(settings: Settings, wanted: int) -> list[OfTable]:
    """Return what was seen in up to `wanted` of the newest messages.

    Raises:
        Unavailable: Kafka or ClickHouse did not answer.
        Refused: one of them said no.
    """
    by_table = sample.by_table(sample.sample(settings, wanted))
    codecs = _codecs(settings, by_table.keys())
    return tallied(_judged(by_table, codecs, settings))


def _judged(
    by_table: dict[str, list[sample.SampledMessage]], codecs: Codecs, settings: Settings
) -> Iterator[tuple[str, int, int, DeadReason | None]]:
    for table, messages in by_table.items():
        for message, reason in sample.judged(messages, codecs[table], settings):
            others = message.headers if table == NO_TABLE else None
            told = explained(reason, message.value, others) if reason else None
            yield table, message.partition, message.offset, told


def _codecs(settings: Settings, tables: Collection[str]) -> Codecs:
    """Of each table, or why there is none; as relay.rows.codecs_of_tables.TableCodecs."""
    targets = settings.targets()
    found: Codecs = {}
    for table in tables:
        if table == NO_TABLE:
            found[table] = NO_HEADER
        elif refusal := targets.refusal(table):
            found[table] = table_refused(refusal)
        else:
            found[table] = unknown_table(table)
    asked = {table for table in tables if table != NO_TABLE and not targets.refusal(table)}
    if asked:
        with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
            columns = catalogue.read(asked)
            if unknown := asked - columns.keys():
                there = [one for one in catalogue.names() if not targets.refusal(one)]
                meant = {table: did_you_mean_table(table, there) for table in unknown}
                found |= {table: unknown_table(table, hint) for table, hint in meant.items()}
        registered = _registered(settings, columns.keys())
        block_column = settings.loader.block_column
        for table, of_table in columns.items():
            found[table] = _codec(table, of_table, registered[table], block_column)
    return found


def _codec(
    table: str, found: TableColumns, registered: TableSchema | None, block_column: str
) -> RowCodec | DeadReason:
    if is_ledger({column.name for column in found.columns}):
        return table_refused(ledger_refusal(table))
    newer = evolve(registered, table, found.uuid, found.columns, block_column=block_column)
    schema = newer or registered
    if schema is None:
        raise AssertionError(f"{table}: a table without a row message needs one")
    problems = unsupported_columns(schema)
    return unsupported(problems) if problems else RowCodec(schema)


def _registered(settings: Settings, tables: Collection[str]) -> dict[str, TableSchema | None]:
    """The registry's row message of each table; of none where no relay has run yet."""
    if Topics(settings).describe(names.schemas_topic(settings.app), (READ,)) is None:
        return dict.fromkeys(tables)
    registry = read_to_its_end(settings.kafka, settings.app)
    return {table: registry.current(table) for table in tables}
