"""Guards over what comes in the source topic, each taken away by the function of its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from relay import names
from relay.intake import message_batch
from relay.kafka import admin
from relay.process.perform import Performer
from relay.rows import decode, envelope, row_codec
from relay.schema import catalogue
from relay.schema.types import kind


def header_once() -> None:
    """Of several headers that name a table, the first one counts."""

    def first(self: message_batch.TableHeaders, headers: message_batch.Headers) -> str:
        found = [value for key, value in headers or () if key == names.TABLE_HEADER]
        return self._parse(found[0]) if found else names.NO_TABLE

    message_batch.TableHeaders.table = first  # type: ignore[method-assign]


def plain_names() -> None:
    """A table may be called anything, and its name is pasted into the question to ClickHouse."""
    names.is_table_name = bool  # type: ignore[assignment]
    names.split_table = lambda table: table.partition(".")[::2]
    query = catalogue.Catalogue._query

    def pasted(self: catalogue.Catalogue, sql: str, parameters: dict[str, Any]) -> Any:
        tables = ", ".join(f"'{table}'" for table in parameters.get("tables", ()))
        return query(self, sql.replace("{tables:Array(String)}", f"({tables})"), parameters)

    catalogue.Catalogue._query = pasted  # type: ignore[method-assign]


def explained_bytes() -> None:
    """Nobody asks whether a message is made of its rows alone, and of at least one."""
    envelope._all_explained = lambda *_: True


def each_message_alone() -> None:
    """The values of a buffer are joined, as protobuf allows, before any of them is looked at."""

    def joined(values: pa.BinaryArray, framing: str) -> envelope.Opened:
        assert framing == "batch"
        whole = pa.array([b"".join(values.drop_null().to_pylist())], pa.binary())
        rows = envelope.row_batch_handler().array_to_record_batch(whole).column(0).flatten()
        counts = np.zeros(len(values), np.int64)
        counts[-1] = len(rows)
        return envelope.Opened(np.arange(len(values)), counts, rows, [], np.zeros_like(counts))

    decode.open_messages = joined  # type: ignore[attr-defined]


def text_is_utf8() -> None:
    """Strings are taken as they come."""

    def unchecked(array: Any) -> pa.StringArray:
        return array.view(pa.string())  # type: ignore[no-any-return]

    row_codec.as_text = unchecked  # type: ignore[attr-defined]


def ranges() -> None:
    """Numbers become their column's type as C does it: 300 is 44 in Int8."""
    block = kind.Scalar.block

    def wrapped(self: kind.Scalar, array: Any, *, keep_nulls: bool = False) -> kind.Narrowed:
        if pa.types.is_integer(array.type) and pa.types.is_integer(self.arrow):
            array = array.cast(self.arrow, safe=False).cast(array.type)
        return block(self, array, keep_nulls=keep_nulls)

    kind.Scalar.block = wrapped  # type: ignore[method-assign]


def dead_letters() -> None:
    """What cannot become rows is passed over."""
    Performer._produce_dead = lambda *_: None  # type: ignore[method-assign,assignment]


def roomy_topics() -> None:
    """Topics take messages as large as brokers do by themselves."""
    admin.MAX_MESSAGE_BYTES = 1_048_588
