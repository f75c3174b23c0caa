"""Every type on its whole way: protobuf, decode, chunks, INSERT, SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest

from relay.blocks import chunks
from relay.rows.decode import decode
from relay.schema.dead_reason import DeadKind
from relay.schema.types.column_type import parse_type
from tests.schema.engine import Engine, EngineError
from tests.schema.rows import binary, codec_of, row, row_batch

if TYPE_CHECKING:
    from pathlib import Path


class Case(NamedTuple):
    type: str
    default: str | None
    """SQL of the DEFAULT, None: the type's own."""
    sent: list
    """What producers put into the field; None: field left out."""
    shown: list
    """What `show` gives for each, in JSON."""
    show: str = "toString(value)"


def texts(sent: list, absent: str | None) -> list:
    return [absent if value is None else str(value) for value in sent]


def integer_cases() -> list[Case]:
    cases = []
    for bits in (8, 16, 32, 64):
        signed = [-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1, None]
        unsigned = [0, 1, 2**bits - 1, None]
        cases += [
            Case(f"Int{bits}", None, signed, texts(signed, "0")),
            Case(f"Int{bits}", "-7", signed, texts(signed, "-7")),
            Case(f"UInt{bits}", "7", unsigned, texts(unsigned, "7")),
            Case(f"Nullable(UInt{bits})", None, unsigned, texts(unsigned, None)),
        ]
    return cases


def datetime64_cases() -> list[Case]:
    cases = []
    for scale in range(10):
        low = -2_208_988_800 * 10**scale
        high = min(10_413_792_000 * 10**scale - 1, 2**63 - 1)
        sent = [low, -1, 0, 1, 1_700_000_000 * 10**scale + 1, high, None]
        default = "'2001-02-03 04:05:06'"
        instant = 981_173_106 * 10**scale
        ticks = "toString(reinterpretAsInt64(value))"
        utc = f"DateTime64({scale}, 'UTC')"
        cases += [
            Case(utc, default, sent, texts(sent, str(instant)), ticks),
            Case(f"DateTime64({scale})", None, sent, texts(sent, "0"), ticks),
            Case(
                f"Nullable(DateTime64({scale}, 'Asia/Kathmandu'))",
                default,
                sent,
                texts(sent, None),
                "if(isNull(value), NULL, toString(reinterpretAsInt64(assumeNotNull(value))))",
            ),
        ]
    return cases


A, B = "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "ffffffff-ffff-ffff-ffff-ffffffffffff"
WORDS = ["", "a", "grüße \u200b 日本 🜁", "nul\0 inside", "tab\t'quote' \"double\" \\", "x" * 5000]
ENUM = r"Enum8('a' = -128, 'b' = 0, 'it\'s (ü), \\ \n' = 127)"
ENUM_NAMES = ["a", "b", "it's (ü), \\ \n"]

CASES = [
    *integer_cases(),
    *datetime64_cases(),
    Case("Bool", "true", [True, False, None], ["true", "false", "true"]),
    Case("Nullable(Bool)", None, [True, False, None], ["true", "false", None]),
    Case(
        "Float32",
        "1.5",
        [0.0, -0.0, 3.4028234663852886e38, 1e-45, float("inf"), float("-inf"), None],
        [0, 0x80000000, 0x7F7FFFFF, 1, 0x7F800000, 0xFF800000, 0x3FC00000],
        "reinterpretAsUInt32(value)",
    ),
    Case(
        "Float64",
        None,
        [0.1, -0.0, 1.7976931348623157e308, 5e-324, float("nan"), None],
        ["0.1", "-0", "1.7976931348623157e308", "5e-324", "nan", "0"],
    ),
    Case("Nullable(Float64)", "2", [0.1, None], ["0.1", None]),
    Case("String", "'none'", [*WORDS, None], [*WORDS, "none"]),
    Case("Nullable(String)", "'none'", [*WORDS, None], [*WORDS, None]),
    Case("LowCardinality(String)", "'none'", [*WORDS, None], [*WORDS, "none"]),
    Case("LowCardinality(Nullable(String))", None, [*WORDS, None], [*WORDS, None]),
    Case(
        "FixedString(4)",
        "'zz'",
        [b"", b"a", b"\xff\x00\x01", b"abcd", None],
        ["00000000", "61000000", "FF000100", "61626364", "7A7A0000"],
        "hex(value)",
    ),
    Case(
        "Nullable(FixedString(2))",
        None,
        [b"", b"\xfe\xff", None],
        ["0000", "FEFF", None],
        "hex(value)",
    ),
    Case("LowCardinality(FixedString(2))", None, [b"ab", None], ["6162", "0000"], "hex(value)"),
    Case(
        "Date",
        "'2001-02-03'",
        [0, 1, 19_000, 65_535, None],
        ["1970-01-01", "1970-01-02", "2022-01-08", "2149-06-06", "2001-02-03"],
    ),
    Case("Nullable(Date)", None, [0, 65_535, None], ["1970-01-01", "2149-06-06", None]),
    Case(
        "DateTime('UTC')",
        "'2001-02-03 04:05:06'",
        [0, 1, 2**32 - 1, None],
        [
            "1970-01-01 00:00:00",
            "1970-01-01 00:00:01",
            "2106-02-07 06:28:15",
            "2001-02-03 04:05:06",
        ],
    ),
    # In the hour that Berlin had twice, only the instant tells which is meant.
    Case(
        "DateTime('Europe/Berlin')",
        None,
        [1_698_537_600, 1_698_541_200, None],
        ["1698537600", "1698541200", "0"],
        "toString(toUnixTimestamp(value))",
    ),
    Case("Nullable(DateTime)", None, [5, None], ["5", None], "toString(toUnixTimestamp(value))"),
    Case(ENUM, "'b'", [*ENUM_NAMES, None], [*ENUM_NAMES, "b"]),
    Case(ENUM, None, [*ENUM_NAMES, None], [*ENUM_NAMES, "a"]),
    Case(f"Nullable({ENUM})", "'b'", [*ENUM_NAMES, None], [*ENUM_NAMES, None]),
    Case("Enum16('x' = -32768, 'y' = 32767)", "'y'", ["x", "y", None], ["x", "y", "y"]),
    Case("UUID", f"'{A}'", [A, B.upper(), None], [A, B, A]),
    Case("Nullable(UUID)", None, [A, B, None], [A, B, None]),
]


def load(engine: Engine, directory: Path, batch: pa.RecordBatch, extra: str = "") -> None:
    """Insert a block into shop.t as the loader does, types from the block's own metadata."""
    structure, exprs = [], []
    for column in batch.schema:
        assert column.metadata is not None
        kind = parse_type(column.metadata[b"clickhouse"].decode())
        structure.append(f"`{column.name}` {kind.input_type}")
        exprs.append(kind.select(f"`{column.name}`"))
    path = directory / "x.arrow"
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    names = ", ".join(f"`{name}`" for name in batch.schema.names)
    quoted = ", ".join(structure).replace("\\", "\\\\").replace("'", "\\'")
    engine.query(
        f"INSERT INTO shop.t ({names}) SELECT {', '.join(exprs)} "
        f"FROM file('{path}', 'Arrow', '{quoted}') {extra}"
    )


def create(engine: Engine, columns: str) -> None:
    engine.query("DROP TABLE IF EXISTS shop.t SYNC")
    engine.query(f"CREATE TABLE shop.t ({columns}) ENGINE = MergeTree ORDER BY tuple()")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type[:40]}-{case.default}")
def test_value_arrives_as_sent(engine: Engine, tmp_path: Path, case: Case) -> None:
    """Every value of every type arrives in the table as the producer sent it; a field left out
    is NULL in a Nullable column and the DEFAULT in another."""
    default = "" if case.default is None else f"DEFAULT {case.default}"
    create(engine, f"k UInt32, value {case.type} {default}")
    printed = engine.rows(
        "SELECT type FROM system.columns WHERE database = 'shop' AND table = 't' AND name = 'value'"
    )[0][0]
    codec = codec_of({"k": "UInt32", "value": printed})
    messages = [row_batch([row(codec, k=k, value=value)]) for k, value in enumerate(case.sent)]
    decoded = decode(binary(messages), codec, "batch")
    assert decoded.bad == []
    stream = [data for data, _ in chunks.Encoder(100_000).encode(decoded.batch)]
    load(engine, tmp_path, chunks.decode(stream))
    rows = engine.rows(f"SELECT {case.show} FROM shop.t ORDER BY k")
    assert [shown for (shown,) in rows] == case.shown


def test_defaults_computed_from_other_columns(engine: Engine, tmp_path: Path) -> None:
    """A field left out takes a DEFAULT that is computed row by row from others, also from such
    as were left out themselves; a value that was sent stays."""
    create(engine, "k UInt32, a UInt32 DEFAULT 5, b UInt32 DEFAULT a + 1, m UInt64 ALIAS k + 1")
    codec = codec_of({"k": "UInt32", "a": "UInt32", "b": "UInt32"})
    sent = [row(codec, k=1, a=1), row(codec, k=2, b=9), row(codec, k=3)]
    batch = decode(binary([row_batch(sent)]), codec, "batch").batch
    load(engine, tmp_path, batch)
    expected = [[1, 1, 2], [2, 5, 9], [3, 5, 6]]
    assert engine.rows("SELECT k, a, b FROM shop.t ORDER BY k") == expected


def test_ephemeral_columns(engine: Engine, tmp_path: Path) -> None:
    """A column computed from an EPHEMERAL one arrives; a row without the EPHEMERAL value is bad.
    Control: in a block it would fail the whole INSERT."""
    create(engine, "k UInt32, e String EPHEMERAL, c String DEFAULT upper(e)")
    columns = [("k", "UInt32", ""), ("e", "String", "EPHEMERAL"), ("c", "String", "DEFAULT")]
    codec = codec_of(columns)
    without = row_batch([row(codec, k=2), row(codec, k=3, e="b")])
    values = [row_batch([row(codec, k=1, e="a")]), without]
    decoded = decode(binary(values), codec, "batch")
    ((index, reason),) = ((bad.index, bad.reason) for bad in decoded.bad)
    assert (index, reason.text[:27]) == (1, "row 1, column e: the value ")
    assert reason.group == (DeadKind.MISSING_VALUE, "e")
    load(engine, tmp_path, decoded.batch)
    assert engine.rows("SELECT k, c FROM shop.t") == [[1, "A"]]

    unguarded = codec_of([(name, kind, "") for name, kind, _ in columns])
    batch = decode(binary([without]), unguarded, "batch").batch
    with pytest.raises(EngineError, match="CANNOT_INSERT_NULL"):
        load(engine, tmp_path, batch)


def test_without_null_as_default_it_shows(engine: Engine, tmp_path: Path) -> None:
    """Control: the DEFAULT comes from insert_null_as_default; without it the INSERT fails."""
    create(engine, "k UInt32, value UInt8 DEFAULT 7")
    codec = codec_of({"k": "UInt32", "value": "UInt8"})
    batch = decode(binary([row_batch([row(codec, k=1)])]), codec, "batch").batch
    with pytest.raises(EngineError, match="NULL"):
        load(engine, tmp_path, batch, "SETTINGS insert_null_as_default = 0")


def test_a_cast_would_read_ticks_as_seconds(engine: Engine) -> None:
    """Control: CAST of ticks to DateTime64 is wrong, so that the reinterpretation matters."""
    kind = parse_type("DateTime64(3)")
    exact = f"SELECT toUnixTimestamp64Milli({kind.select('toNullable(toInt64(1500))')})"
    cast = "SELECT toUnixTimestamp64Milli(CAST(toInt64(1500) AS DateTime64(3)))"
    assert engine.query(exact).strip() == "1500"
    assert engine.query(cast).strip() != "1500"


def test_odd_column_names(engine: Engine, tmp_path: Path) -> None:
    """Columns whose names protobuf does not allow, or would confuse, arrive each in its own."""
    names = ["größe", "a b", "a_b", "aB", "1st", "select", "it's", "message", "_", "a.b"]
    create(engine, ", ".join(f"`{name}` String".replace("'", "\\'") for name in names))
    codec = codec_of(dict.fromkeys(names, "String"))
    sent = {name: f"<{name}>" for name in names}
    batch = decode(binary([row_batch([row(codec, **sent)])]), codec, "batch").batch
    load(engine, tmp_path, batch)
    select = ", ".join(f"`{name}`" for name in names)
    assert engine.rows(f"SELECT {select} FROM shop.t") == [list(sent.values())]
