"""Finds the codec of a table for producers, as the relay does.

Receives an app's settings, gives a function from table name to codec. A table that the
registry does not know is proposed to it here, so that its field numbers are fixed before the
first relay starts; topics of the app that are missing are created. Never reads rows.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from relay import names
from relay.clickhouse import dedup_trial
from relay.config.allowed_tables import is_ledger
from relay.errors import ConfigError
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import Topics
from relay.produce.arrow_columns import BatchOrigin, row_columns
from relay.produce.row_encoder import RowEncoder
from relay.rows.codecs_of_tables import TableCodecs
from relay.schema.catalogue import Catalogue
from relay.schema.dead_reason import DeadReason
from relay.schema.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from relay.config.settings import Settings
    from relay.records_pb2 import TableSchema
    from relay.rows.row_codec import RowCodec


class Encoders:
    """Rows of any table to their bytes.

    Args:
        codecs: table name to its codec, asked once per table.
    """

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
        if not names.is_table_name(table):
            raise ConfigError(f"not a table name: {table!r}", "write database.table")
        tables.resolve({table})
        found = tables.codec(table)
        if isinstance(found, DeadReason):
            raise ConfigError(
                found.text, f"create the table in ClickHouse ({settings.clickhouse.url})"
            )
        return found

    return codec


def row_messages(
    settings: Settings, tables: Collection[str] | None = None
) -> dict[str, list[TableSchema] | str]:
    """Return every version of these tables' row messages, the current one last; or why none is.

    Block topics are not made: a table may never get a row.

    Args:
        settings: of the app.
        tables: by database.table; None: all that rows may go into, but for the loader's own.

    Raises:
        ConfigError, Unavailable, Refused: as `table_codecs`.
    """
    registry = _registry(settings)
    found: dict[str, list[TableSchema] | str] = {}
    every = _every(settings) if tables is None else tables
    for table, codec in sorted(_tables(settings, registry).look(every).items()):
        if isinstance(codec, DeadReason):
            found[table] = codec.text
            continue
        known = (registry.version(table, one) for one in range(1, codec.schema.version))
        found[table] = [*(one for one in known if one is not None), codec.schema]
    return found


def _every(settings: Settings) -> set[str]:
    targets, own = settings.targets(), f"{settings.loader.database}.{dedup_trial.TABLE}"
    with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
        found = catalogue.read()
    return {
        table
        for table, one in found.items()
        if table != own
        and not targets.refusal(table)
        and not is_ledger({column.name for column in one.columns})
    }


def _registry(settings: Settings) -> Registry:
    """Of an app whose topics are there by then."""
    if settings.source.framing != "batch":
        raise ConfigError(
            f"source.framing is {settings.source.framing!r}; this producer writes row batches",
            "use another app's configuration, or source.framing = 'batch'",
        )
    return Registry(settings.kafka, settings.app)


def _tables(settings: Settings, registry: Registry) -> TableCodecs:
    topics = Topics(settings)
    topics.ensure_own(grow=False)
    catalogue, column = Catalogue(settings.clickhouse), settings.loader.block_column
    blocks = BlockTopics(settings.app, topics)
    return TableCodecs(catalogue, registry, blocks, column, settings.targets())
