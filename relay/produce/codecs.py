"""Finds the codec of a table for producers, as the relay does.

Receives an app's settings, gives a function from table name to codec. A table that the
registry does not know is proposed to it here, so that its field numbers are fixed before the
first relay starts; topics of the app that are missing are created. Whoever only looks, as the
doctor and a dry run, gets the codec without that. Never reads rows.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from relay import names
from relay.clickhouse import dedup_trial
from relay.config.allowed_tables import is_ledger, ledger_refusal
from relay.errors import ConfigError
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import READ, Topics
from relay.names import NO_TABLE
from relay.produce.arrow_columns import BatchOrigin, row_columns
from relay.produce.row_encoder import RowEncoder
from relay.program.spelling import did_you_mean_table
from relay.rows.codecs_of_tables import (
    NO_HEADER,
    TableCodecs,
    table_refused,
    unknown_table,
    unsupported,
)
from relay.rows.row_codec import RowCodec
from relay.schema.catalogue import Catalogue
from relay.schema.dead_reason import DeadKind, DeadReason
from relay.schema.evolution import evolve, unsupported_columns
from relay.schema.registry import Registry, read_to_its_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from relay.config.settings import Settings
    from relay.records_pb2 import TableSchema
    from relay.schema.catalogue import TableColumns


class Encoders:
    """Encodes rows of any table; `codecs`, table name to its codec, is asked once per table."""

    def __init__(self, codecs: Callable[[str], RowCodec]) -> None:
        self._codecs = codecs
        self._known: dict[str, RowEncoder] = {}
        self._lock = threading.Lock()

    def of(self, table: str) -> RowEncoder:
        """Return the table's encoder."""
        with self._lock:
            if table not in self._known:
                self._known[table] = RowEncoder(self._codecs(table))
            return self._known[table]

    def encode_batch(self, table: str, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Return rows of a batch, columns by name, converted as relay.produce.arrow_columns says.

        Raises:
            ConfigError: an unknown column.
            BadValue: a value that does not fit.
        """
        encoder = self.of(table)
        encoder.check_names(batch.schema.names)
        wire = row_columns(encoder.codec, batch, BatchOrigin(f"rows of {table}", 1))
        return encoder.codec.encode_rows(wire)


def table_codecs(settings: Settings) -> Callable[[str], RowCodec]:
    """Return codecs by table, from ClickHouse's columns and the schema registry.

    The function given raises ConfigError for a table that ClickHouse does not have or whose
    types rows cannot carry.

    Raises:
        ConfigError: the app's source is read as one bare row per message.
        Unavailable: Kafka or ClickHouse did not answer.
        Refused: one of them said no, or the source topic is not there.
    """
    tables = _tables(settings, _registry(settings))

    def codec(table: str) -> RowCodec:
        _check_name(table)
        tables.resolve({table})
        return _unless_refused(settings, tables.codec(table))

    return codec


def codec_unproposed(settings: Settings, table: str) -> RowCodec:
    """Return what `table_codecs` would give for the table, and change nothing.

    Raises:
        ConfigError, Unavailable, Refused: as `table_codecs`, but for a source topic not there.
    """
    _check_framing(settings)
    _check_name(table)
    return _unless_refused(settings, codecs_unproposed(settings, {table})[table])


def _check_name(table: str) -> None:
    if not names.is_table_name(table):
        raise ConfigError(f"not a table name: {table!r}", "write database.table")


def _unless_refused(settings: Settings, codec: RowCodec | DeadReason) -> RowCodec:
    if isinstance(codec, RowCodec):
        return codec
    step = f"{codec.kind.first_step}, or name another table"
    if codec.kind is DeadKind.UNKNOWN_TABLE:
        step = f"create the table in ClickHouse ({settings.clickhouse.url})"
    raise ConfigError(codec.text, step)


def row_messages(
    settings: Settings, tables: Collection[str] | None = None
) -> dict[str, list[TableSchema] | str]:
    """Return every version of these tables' row messages, the current one last; or why none is.

    Block topics are not made: a table may never get a row. `tables` are named as database.table;
    None: all that rows may go into, but for the loader's own.

    Raises:
        ConfigError, Unavailable, Refused: as `table_codecs`.
    """
    registry = _registry(settings)
    messages: dict[str, list[TableSchema] | str] = {}
    wanted = _all_tables(settings) if tables is None else tables
    for table, codec in sorted(_tables(settings, registry).look(wanted).items()):
        if isinstance(codec, DeadReason):
            messages[table] = codec.text
            continue
        earlier = (registry.version(table, number) for number in range(1, codec.schema.version))
        messages[table] = [*(schema for schema in earlier if schema is not None), codec.schema]
    return messages


def _all_tables(settings: Settings) -> set[str]:
    targets, own = settings.targets(), f"{settings.loader.database}.{dedup_trial.TABLE}"
    with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
        tables = catalogue.read()
    return {
        table
        for table, columns in tables.items()
        if table != own
        and not targets.refusal(table)
        and not is_ledger({column.name for column in columns.columns})
    }


def _check_framing(settings: Settings) -> None:
    if settings.source.framing != "batch":
        raise ConfigError(
            f"source.framing is {settings.source.framing!r}; this producer writes row batches",
            "use another app's configuration, or source.framing = 'batch'",
        )


def _registry(settings: Settings) -> Registry:
    _check_framing(settings)
    return Registry(settings.kafka, settings.app)


def _tables(settings: Settings, registry: Registry) -> TableCodecs:
    topics = Topics(settings)
    topics.ensure_own(grow=False)
    catalogue, column = Catalogue(settings.clickhouse), settings.loader.block_column
    blocks = BlockTopics(settings.app, topics)
    return TableCodecs(catalogue, registry, blocks, column, settings.targets())


def codecs_unproposed(
    settings: Settings, tables: Collection[str]
) -> dict[str, RowCodec | DeadReason]:
    """Return each table's codec, or why there is none, as the relay would have it now.

    The row messages are what the registry has, or would get from the tables' columns. Nothing is
    proposed to it, and no topic is made.

    Raises:
        Unavailable: Kafka or ClickHouse did not answer.
        Refused: one of them said no.
    """
    targets = settings.targets()
    codecs: dict[str, RowCodec | DeadReason] = {}
    for table in tables:
        if table == NO_TABLE:
            codecs[table] = NO_HEADER
        elif refusal := targets.refusal(table):
            codecs[table] = table_refused(refusal)
    if allowed := set(tables) - codecs.keys():
        with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
            columns = catalogue.read(allowed)
            if unknown := allowed - columns.keys():
                known = [name for name in catalogue.names() if not targets.refusal(name)]
                codecs |= {t: unknown_table(t, did_you_mean_table(t, known)) for t in unknown}
        registered = _registered(settings, columns.keys())
        block_column = settings.loader.block_column
        for table, of_table in columns.items():
            codecs[table] = _unproposed(table, of_table, registered[table], block_column)
    return codecs


def _unproposed(
    table: str, columns: TableColumns, registered: TableSchema | None, block_column: str
) -> RowCodec | DeadReason:
    if is_ledger({column.name for column in columns.columns}):
        return table_refused(ledger_refusal(table))
    newer = evolve(registered, table, columns.uuid, columns.columns, block_column=block_column)
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
