"""Rows on any width: nothing is shortened, nothing is broken, zeros make room."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relay.program.console import breaks, console_of, print_parts
from relay.program.text_table import Column, laid_out

COLUMNS = (
    Column("table", right=False),
    Column("sealed, not loaded"),
    Column("parked"),
    Column("loaded", optional=1),
    Column("epoch", optional=2),
)
LONG = "warehouse_production.customer_order_lines_2026"
ROWS = (
    ("d.t", "62 (1,240 rows)", "0", "12 (240 rows)", "3"),
    (LONG, "0 (0 rows)", "0", "1,204 (40,512 rows)", "3"),
)


def shown(rows: Sequence[Sequence[str]], width: int, *, whole: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, emoji=False)
    print_parts(console, laid_out(COLUMNS, rows, width, whole=whole))
    return output.getvalue()


def test_where_there_is_room_all_of_it_is_a_table() -> None:
    text = shown(ROWS, 160)
    headings = [one.strip() for one in text.splitlines()[1].split("┃")[1:-1]]
    assert headings == [one.heading for one in COLUMNS]
    assert "no room" not in text


def test_zeros_make_room_first_then_what_is_optional() -> None:
    text = shown(ROWS, 101)
    assert "parked" not in text
    assert "epoch" in text
    assert "no room" not in text
    text = shown(ROWS, 96)
    assert "no room for columns: epoch" in text
    assert "1,204 (40,512 rows)" in text
    text = shown(ROWS, 80)
    assert "no room for columns: loaded, epoch" in text


@pytest.mark.parametrize("width", [60, 80])
def test_one_row_under_the_other_where_no_table_fits(width: int) -> None:
    text = shown(ROWS, width, whole=True)
    first = "  sealed, not loaded 62 (1,240 rows) · loaded 12 (240 rows)"
    assert text.splitlines()[:2] == ["d.t", first + (" · epoch 3" if width > 70 else "")]
    assert LONG in text.splitlines()
    assert "1,204 (40,512 rows)" in text
    assert max(map(len, text.splitlines())) <= width
    assert "parked" not in text


def test_a_name_that_is_longer_than_the_line_stays_whole() -> None:
    text = shown(ROWS, 20)
    assert LONG in text.splitlines()


NAMES = st.text("abc._:-0", min_size=1, max_size=90)
CELLS = st.sampled_from(["0", "", "0 (0 rows)", "12", "1,000,000 (9 rows)", "3.5 s"])


@given(st.lists(st.tuples(NAMES, CELLS, CELLS, CELLS, CELLS), max_size=4), st.integers(20, 170))
def test_no_name_is_ever_shortened(rows: list[tuple[str, ...]], width: int) -> None:
    text = shown(rows, width)
    assert "…" not in text
    for row in rows:
        assert row[0] in text


def test_sentences_are_wrapped_and_ids_are_not() -> None:
    columns = (Column("id", right=False), Column("why", right=False, words=True))
    rows = [("shop:d.t:0:0:1200", "no column is named `prise`; did you mean `price`?")]
    output = io.StringIO()
    console = Console(file=output, width=60)
    print_parts(console, laid_out(columns, rows, 60))
    assert "shop:d.t:0:0:1200" in output.getvalue()
    assert len(output.getvalue().splitlines()) == 6, "two lines of why, one table"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("  parked shop:d.t:0:0:1200 why", ["  parked", "shop:d.t:0:0:1200", "why"]),
        ("shop:d.t:0:0:1200", ["shop:d.t:0:0:1200"]),
        ("", [""]),
    ],
)
def test_text_is_wrapped_between_words_alone(text: str, lines: list[str]) -> None:
    at = [0, *breaks(text, 10), len(text)]
    found = [text[start:end].rstrip() for start, end in pairwise(at)]
    assert found == lines


def test_colours_go_on_behind_a_break_and_ids_hold_no_emoji(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_parts(console_of(10), ["[red]one two three[/red] a:o:b"])
    assert capsys.readouterr().out.split() == ["one", "two", "three", "a:o:b"]
