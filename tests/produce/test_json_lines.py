from __future__ import annotations

from pathlib import Path

import pytest

from relay.errors import ConfigError
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.produce.json_lines import are_objects
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

ENCODER = encoder(ColumnDef("a", "Nullable(Int8)"))


def read(path: Path, text: str) -> list[object]:
    path.write_text(text, encoding="utf-8")
    options = FileOptions(allow_missing=True, ignore_unknown=True)
    pieces = RowFile.of(path, None, options).rows(ENCODER)
    decoded = [decode_rows(ENCODER.codec, piece.rows) for piece in pieces]
    return [value for batch in decoded for value in batch["a"].to_pylist()]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("null", 1),
        ("null\n", 1),
        (" null\r\n", 1),
        ("\ufeffnull\n", 1),
        ("null null\n", 1),
        ('null{"a": 1}\n', 1),
        ('null\n{"a": 1}\n', 1),
        ('{"a": 1}\nnull\n', 2),
        ('{"a": 1}\n\tnull\n{"a": 2}\n', 2),
        ('{"a": 1}\r\r\nnull', 2),
        ('{"a": 1} null\n\n', 1),
        ('{"a": 1}{"a": 2}\n\n', 1),
        ('{"a":\n1} {"a": 2}\n', 1),
    ],
)
def test_what_is_no_object_is_refused_with_its_row(tmp_path: Path, text: str, row: int) -> None:
    """Arrow's reader made a row of null, or ended the process, and two rows of one line."""
    with pytest.raises(ConfigError, match=f"row {row}: "):
        read(tmp_path / "f.jsonl", text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"a": 1}\n{"a": 1}\n',
        '\ufeff{"a": 1} \r\n\t{"a": null}\t\r\n',
        '{"a": {"b": null}}\n{"a": [{}, {"c": null}, null]}\n',
        '{"a": "null"}\n{"a": "}{ null"}\n',
    ],
)
def test_lines_with_objects_are_left_to_arrow(text: str) -> None:
    """Reading row by row takes ten times as long."""
    block = text.encode()
    assert are_objects(block, len(block.splitlines()))


def test_a_text_that_looks_like_null_behind_an_object_is_read(tmp_path: Path) -> None:
    """Row by row, and with the same result."""
    assert read(tmp_path / "f.jsonl", '{"a": 1, "b": "} null"}\n{"a": 2}\n') == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "[" * 5000 + "]" * 5000 + "}\n",
        '{"a": ' + '{"b": ' * 5000 + "1" + "}" * 5000 + "}\n",
        '{"a": 1}\n{"a": ' + "[" * 5000,
        '[{"a": ' + "[" * 5000,
        '{"a": 1e' + "9" * 30 + "}\n",
        '{"a": 1e-' + "9" * 30 + "}\n",
        '{"a": ' + "1" * 5000 + "}\n",
    ],
)
def test_what_python_cannot_hold_is_refused_with_its_row(tmp_path: Path, text: str) -> None:
    """Values that are nested too deep, and numbers with too many digits, are no bug of ours."""
    row = 1 + text.count("\n{")
    with pytest.raises(ConfigError, match=f"row {row}: "):
        read(tmp_path / "f.jsonl", text)


def test_a_deep_value_of_an_unknown_column_is_left_out(tmp_path: Path) -> None:
    """As one that is not deep; Arrow's type of it is too deep for Python to compare."""
    text = '{"a": 1, "b": ' + "[" * 900 + "]" * 900 + "}\n"
    assert read(tmp_path / "f.jsonl", text) == [1]


@pytest.mark.parametrize("text", ['[{"a": 1}]', ' \n[{"a": 1}\n]\n', "[]"])
def test_an_array_behind_a_byte_order_mark_is_read(tmp_path: Path, text: str) -> None:
    """Editors on Windows write it."""
    assert read(tmp_path / "f.json", f"\ufeff{text}") == read(tmp_path / "g.json", text)
