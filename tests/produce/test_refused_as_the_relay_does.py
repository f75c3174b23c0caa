"""What the relay would make a dead letter of is refused before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.produce.row_encoder import RowEncoder
from relay.rows.decode import decode
from relay.schema.dead_reason import DeadKind
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec
from tests.schema.rows import binary, row, row_batch

if TYPE_CHECKING:
    from pathlib import Path

CODEC = codec(
    ColumnDef("id", "Int64"),
    ColumnDef("raw", "String", "EPHEMERAL"),
    ColumnDef("pair", "Tuple(x Int8)", "EPHEMERAL"),
    ColumnDef("list", "Array(Int8)", "EPHEMERAL"),
    ColumnDef("free", "Nullable(Int8)", "EPHEMERAL"),
    ColumnDef("n.a", "Array(Int64)"),
    ColumnDef("n.b", "Array(String)"),
    ColumnDef("n.c", "Array(String)"),
)
GOOD = {"id": 1, "raw": "x", "pair": {"x": 1}}
BAD: dict[str, tuple[DeadKind, str, dict[str, Any]]] = {
    "left out": (DeadKind.MISSING_VALUE, "raw", {"id": 1, "pair": {"x": 1}}),
    "null": (DeadKind.MISSING_VALUE, "raw", {**GOOD, "raw": None}),
    "a tuple": (DeadKind.MISSING_VALUE, "pair", {"id": 1, "raw": "x"}),
    "uneven": (DeadKind.UNEVEN_NESTED, "n.b", {**GOOD, "n.a": [1, 2], "n.b": ["x"]}),
    "of three": (
        DeadKind.UNEVEN_NESTED,
        "n.c",
        {**GOOD, "n.a": [1, 2], "n.b": [], "n.c": ["a"]},
    ),
}


@pytest.mark.parametrize("how", BAD)
def test_a_row_that_cannot_stand_is_refused(how: str) -> None:
    """The second of two, with the relay's own reason; the control is the relay."""
    kind, column, values = BAD[how]
    dead = decode(binary([row_batch([row(CODEC, **values)])]), CODEC, "batch").bad
    assert [(one.reason.kind, one.reason.field) for one in dead] == [(kind, column)]
    said = dead[0].reason.text.partition(": ")[2]
    with pytest.raises(BadValue) as refused:
        RowEncoder(CODEC).encode(values)
    assert f"column '{column}': {said}" in refused.value.message
    good = {**dict.fromkeys(values), **GOOD}
    columns = {name: [good.get(name), values.get(name)] for name in good}
    with pytest.raises(BadValue) as refused:
        row_columns(CODEC, pa.record_batch(columns), BatchOrigin("f", 1))
    assert f"f, row 2, column '{column}': {said}" in refused.value.message


@pytest.mark.parametrize("more", [{}, {"n.a": [1], "n.b": ["x"]}, {"n.a": [1], "n.b": []}])
def test_what_is_filled_up_is_taken(more: dict[str, Any]) -> None:
    """The control: the relay takes these, too."""
    values = {**GOOD, **more}
    wire = row_columns(CODEC, pa.record_batch({k: [v] for k, v in values.items()}), ORIGIN)
    rows = [RowEncoder(CODEC).encode(values), *CODEC.encode_rows(wire).to_pylist()]
    assert decode(binary([row_batch(rows)]), CODEC, "batch").bad == []


ORIGIN = BatchOrigin("f", 1)
NO_TEXT = pa.array([b"a", b"x\xff"]).view(pa.string())
KEYS = pa.array(["k", "k"])
TEXTS: dict[str, tuple[str, Any]] = {
    "a text": ("String", NO_TEXT),
    "a view": ("String", NO_TEXT.cast(pa.string_view())),
    "a long one": ("Nullable(String)", NO_TEXT.cast(pa.large_string())),
    "a dictionary": (
        "LowCardinality(String)",
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), NO_TEXT),
    ),
    "of an array": ("Array(String)", pa.ListArray.from_arrays([0, 1, 2], NO_TEXT)),
    "of a map": ("Map(String, String)", pa.MapArray.from_arrays([0, 1, 2], KEYS, NO_TEXT)),
    "a key": ("Map(String, String)", pa.MapArray.from_arrays([0, 1, 2], NO_TEXT, KEYS)),
    "of a tuple": ("Tuple(a String)", pa.StructArray.from_arrays([NO_TEXT], names=["a"])),
    "bytes": ("String", NO_TEXT.cast(pa.binary())),
    "of a fixed size": ("String", pa.array([b"aa", b"x\xff"], pa.binary(2))),
}


@pytest.mark.parametrize("how", TEXTS)
def test_a_text_that_is_not_utf8_is_refused(how: str) -> None:
    """As the relay does, wherever it stands."""
    text, array = TEXTS[how]
    with pytest.raises(BadValue, match=r"f, row 2, column 'c': .*(?s:.*)a text is not UTF-8"):
        row_columns(codec(ColumnDef("c", text)), pa.record_batch({"c": array}), ORIGIN)


@pytest.mark.parametrize("text", ["JSON", "Enum8('x' = 1)", "UUID", "Date", "Int256", "Float64"])
def test_no_text_of_what_is_no_string_column_either(text: str) -> None:
    """The error is about the value, and no error of the check itself."""
    good = {"JSON": "{}", "Enum8('x' = 1)": "x", "UUID": "0" * 8 + "-0000" * 3 + "-" + "0" * 12}
    values = pa.array([good.get(text, "1").encode(), b"x\xff"]).view(pa.string())
    with pytest.raises(BadValue, match=r"f, row 2, column 'c': b'x\\xff'"):
        row_columns(codec(ColumnDef("c", text)), pa.record_batch({"c": values}), ORIGIN)


def test_bytes_of_a_fixed_string_are_no_text() -> None:
    """The control."""
    one = codec(ColumnDef("c", "FixedString(2)"))
    assert row_columns(one, pa.record_batch({"c": NO_TEXT}), ORIGIN).num_rows == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("String", "\ud800"),
        ("Array(String)", ["\ud800"]),
        ("Map(String, Int8)", {"\ud800": 1}),
        ("Map(String, String)", {"a": "\ud800"}),
        ("Enum8('x' = 1)", "\ud800"),
        ("JSON", '{"a": "\ud800"}'),
    ],
)
def test_half_a_character_in_python_is_refused_by_its_column(text: str, value: Any) -> None:
    """BadValue, and no error of Python's own."""
    with pytest.raises(BadValue, match="column 'c': "):
        RowEncoder(codec(ColumnDef("c", text))).encode({"c": value})


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("date_format", ["", "%d/%m/%Y"])
@pytest.mark.parametrize("column", ["c", "day"])
def test_files_with_such_texts_are_refused(
    tmp_path: Path, suffix: str, date_format: str, column: str
) -> None:
    """With the row, and the column where the file's format lets it be known."""
    path = tmp_path / f"f.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(pa.table({column: NO_TEXT}).slice(1), path)
    else:
        line = b'{"%s": "x\xff"}\n' if suffix == "jsonl" else b"%s\nx\xff\n"
        path.write_bytes(line % column.encode())
    encoder = RowEncoder(codec(ColumnDef("c", "String"), ColumnDef("day", "Date")))
    options = FileOptions(allow_missing=True, date_format=date_format)
    place = "row 1" if suffix == "jsonl" else f"row 1, column '{column}'"
    with pytest.raises(ConfigError, match=place):
        list(RowFile.of(path, None, options).rows(encoder))
