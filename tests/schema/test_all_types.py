"""Any table of any types, any rows: protobuf, relay, Arrow, the loader's INSERT, SELECT."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loader.blocks import insert_statement as loader_insert
from loader.clickhouse.tables import Target
from loader.core.table_rules import Nature, Window
from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Messages
from relay.records_pb2 import Block
from relay.rows import decode as row_decoder
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve, proto_text
from tests.profiles import is_long
from tests.schema.drawn import SHOW, TYPES, Drawn, matches
from tests.schema.rows import binary, row_batch
from tests.schema.values import fill

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from loader.clickhouse.ledger import Ledger
    from tests.schema.engine import Engine

LONG = is_long()
"""python -m pytest tests/schema/test_all_types.py --hypothesis-profile=long"""
TABLE = "shop.every"


class Example(NamedTuple):
    kinds: list[Drawn]
    rows: list[dict[int, Any]]
    """Values by number of the column, from 1; None or missing: left out."""
    bad: list[tuple[int, dict[int, Any]]]
    """Rows with a value that its column cannot hold: which column, and the row."""
    compiled: bool
    """Whether the compiled decoder reads them, where the columns are flat."""


@st.composite
def examples(draw: st.DrawFn) -> Example:
    kinds = draw(st.lists(TYPES, min_size=1, max_size=6))
    values = {at: st.none() | kind.good for at, kind in enumerate(kinds, 1)}
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=8))
    bad = []
    for at, kind in enumerate(kinds, 1):
        if kind.bad is not None:
            bad += [(at, {at: value}) for value in draw(st.lists(kind.bad, max_size=2))]
    return Example(kinds, rows, bad, draw(st.booleans()))


def create(engine: Engine, kinds: list[Drawn]) -> list[ColumnDef]:
    """The table with a key and a column per type, as the engine then lists them."""
    columns = ", ".join(f"c{at} {kind.text}" for at, kind in enumerate(kinds, 1))
    engine.query(f"DROP TABLE IF EXISTS {TABLE} SYNC")
    engine.query(
        f"CREATE TABLE {TABLE} ({columns}, k UInt32) ENGINE = MergeTree ORDER BY k SETTINGS "
        "allow_nullable_key = 1"
    )
    listed = "SELECT name, type, default_kind FROM system.columns WHERE table = 'every'"
    return [ColumnDef(*row) for row in engine.rows(f"{listed} ORDER BY position")]


def codec_of(columns: list[ColumnDef]) -> RowCodec:
    schema = evolve(None, TABLE, "uuid-1", columns)
    assert schema is not None
    return RowCodec(schema)


def printed_class(codec: RowCodec) -> type[Message]:
    """The row message as protoc reads it from the printed `.proto`."""
    with tempfile.TemporaryDirectory() as directory:
        source, out = Path(directory) / "rows.proto", Path(directory) / "out"
        source.write_text(proto_text(codec.schema), encoding="utf-8")
        arguments = ["protoc", f"-I{directory}", f"--descriptor_set_out={out}", str(source)]
        assert protoc.main(arguments) == 0, source.read_text(encoding="utf-8")
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{TABLE}.Row"))


def insert(engine: Engine, batch: pa.RecordBatch) -> None:
    """The loader's own INSERT, its input a file instead of the request's body."""
    block = Block(id="b", table=TABLE, rows=batch.num_rows)
    ledger = cast("Ledger", SimpleNamespace(holds="1"))
    columns = {one.name: (one.metadata or {})[b"clickhouse"].decode() for one in batch.schema}
    target = Target(columns, 0, Nature(Window(0, None, "none")), -1)
    ledger.app = "a"
    whole = loader_insert.statement([block], batch.schema, ledger, target, "_block", "claim", None)
    sql = whole.split(" AND throwIf(")[0]  # which tables there are in the child, it does not ask
    settings = loader_insert.settings([block], "claim", block.rows, 1)
    in_force = ", ".join(f"{name} = {value!r}" for name, value in settings.items())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "block.arrow"
        with pa.ipc.new_file(path, batch.schema) as writer:
            writer.write_batch(batch)
        source = f"FROM file('{path}', 'Arrow', "
        engine.query(f"{sql.replace('FROM input(', source)} SETTINGS {in_force}")


def moved(engine: Engine, example: Example) -> tuple[list[list[Any]], list[tuple[int, str]]]:
    """Rows that the table shows, and index and reason of the dead letters."""
    columns = create(engine, example.kinds)
    codec = codec_of(columns)
    row = printed_class(codec)
    key = len(example.kinds) + 1
    sent = [
        fill(row(), {**values, key: at}).SerializeToString()
        for at, values in enumerate(example.rows)
    ]
    messages = [row_batch([one]) for one in sent]
    # A bad row between two good ones: the message dies as a whole.
    messages += [
        row_batch([sent[0], fill(row(), values).SerializeToString(), sent[0]])
        for _, values in example.bad
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_decoder, "COMPILED_FROM_BYTES", 0 if example.compiled else 1 << 60)
        former = BlockFormer(codec, "batch", Encoder(100_000))
        formed = former.form(Messages(list(range(len(messages))), binary(messages)))
    assert not formed.facts.unknown
    insert(engine, chunks.decode([chunk for chunk, _ in formed.chunks]))
    names = ", ".join(column.name for column in columns[:-1])
    answer = engine.query(f"SELECT {names} FROM {TABLE} ORDER BY k {SHOW}", "JSONCompactEachRow")
    # Whole numbers as text: -0 is a float.
    shown = [json.loads(line, parse_int=str) for line in answer.split("\n") if line]
    return shown, [(offset, reason.text) for offset, reason in formed.dead]


@given(examples())
@settings(
    max_examples=2_000 if LONG else 60,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@pytest.mark.timeout(7_200 if LONG else 300)
def test_every_value_arrives_or_its_message_is_a_dead_letter(
    engine: Engine, example: Example
) -> None:
    """Rows of any types read from the printed .proto are in the table as they were sent, and
    exactly the messages with a value that its column cannot hold are dead letters that name
    the column."""
    shown, dead = moved(engine, example)
    assert [offset for offset, _ in dead] == [
        len(example.rows) + at for at in range(len(example.bad))
    ]
    for (column, values), (_, reason) in zip(example.bad, dead, strict=True):
        assert reason.startswith(f"row 2, column c{column}: "), (reason, values)
    assert len(shown) == len(example.rows)
    for values, row in zip(example.rows, shown, strict=True):
        for at, (kind, value) in enumerate(zip(example.kinds, row, strict=True), 1):
            assert matches(kind, values.get(at), value), (kind.text, values.get(at), value)


def test_a_string_in_a_variant_stays_a_string(engine: Engine) -> None:
    """Text that reads as another alternative, or as NULL, keeps the type it was sent with."""
    texts = ["5", "NULL", "2020-01-01", "[1]", "", "true", "\\N"]
    engine.query(f"DROP TABLE IF EXISTS {TABLE} SYNC")
    engine.query(
        f"CREATE TABLE {TABLE} (k UInt32, v Variant(String, UInt64, Date, Array(UInt8), Bool), "
        "d Dynamic) ENGINE = MergeTree ORDER BY k"
    )
    listed = "SELECT name, type, default_kind FROM system.columns WHERE table = 'every'"
    codec = codec_of([ColumnDef(*row) for row in engine.rows(f"{listed} ORDER BY position")])
    rows = [
        fill(codec.message_class(), {"k": at, "v": {"as_string": text}, "d": {"as_string": text}})
        for at, text in enumerate(texts)
    ]
    rows.append(fill(codec.message_class(), {"k": 99, "v": {"as_uint64": 5}, "d": {"as_int64": 5}}))
    messages = binary([row_batch([row.SerializeToString() for row in rows])])
    formed = BlockFormer(codec, "batch", Encoder(100_000)).form(Messages([0], messages))
    assert not formed.dead
    insert(engine, chunks.decode([chunk for chunk, _ in formed.chunks]))
    kinds = "variantType(v), dynamicType(d), toString(v), toString(d)"
    assert engine.rows(f"SELECT {kinds} FROM {TABLE} ORDER BY k") == [
        *(["String", "String", text, text] for text in texts),
        ["UInt64", "Int64", "5", "5"],
    ]


def test_columns_by_kind(engine: Engine) -> None:
    """DEFAULT columns take what is sent or their default, MATERIALIZED and ALIAS columns have no
    field, an EPHEMERAL one is a field that others are computed from; a flattened Nested is
    filled up where one of its arrays is left out, and dead where lengths differ."""
    engine.query(f"DROP TABLE IF EXISTS {TABLE} SYNC")
    engine.query(
        f"CREATE TABLE {TABLE} (k UInt32, e Int128 EPHEMERAL, "
        "d Decimal(38, 3) DEFAULT toDecimal128(toInt64(e) + 1, 3), "
        "ip IPv6 DEFAULT '::5', t Time64(3) DEFAULT '00:00:07', m Array(String) MATERIALIZED "
        "[toString(k)], a Map(String, UInt32) ALIAS map('k', k), n Nested(x Int16, y Date32)) "
        "ENGINE = MergeTree ORDER BY k"
    )
    listed = "SELECT name, type, default_kind FROM system.columns WHERE table = 'every'"
    codec = codec_of([ColumnDef(*row) for row in engine.rows(f"{listed} ORDER BY position")])
    assert codec.column_names == ["k", "e", "d", "ip", "t", "n.x", "n.y"]
    sent = [
        {1: 1, 2: "41"},
        {1: 2, 2: "41", 3: "0.125", 4: "::6", 5: 1, 8: [1, 2], 9: [0, 1]},
        {1: 3, 2: "1", 8: [1, 2]},
        {1: 4, 2: "1", 8: [1, 2], 9: [1]},
        {1: 5},
    ]
    rows = [fill(codec.message_class(), values).SerializeToString() for values in sent]
    messages = binary([row_batch([one]) for one in rows])
    formed = BlockFormer(codec, "batch", Encoder(9999)).form(Messages([0, 1, 2, 3, 4], messages))
    assert [(offset, reason.text[:19]) for offset, reason in formed.dead] == [
        (3, "row 1, column n.y: "),
        (4, "row 1, column e: th"),
    ]
    insert(engine, chunks.decode([chunk for chunk, _ in formed.chunks]))
    columns = "k, toString(d), toString(ip), toString(t), m, a['k'], n.x, n.y"
    assert engine.rows(f"SELECT {columns} FROM {TABLE} ORDER BY k") == [
        [1, "42", "::5", "00:00:07.000", ["1"], 1, [], []],
        [2, "0.125", "::6", "00:00:00.001", ["2"], 2, [1, 2], ["1970-01-01", "1970-01-02"]],
        [3, "2", "::5", "00:00:07.000", ["3"], 3, [1, 2], ["1900-01-01", "1900-01-01"]],
    ]
