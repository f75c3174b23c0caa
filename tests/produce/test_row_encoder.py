from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from relay.errors import ConfigError
from relay.produce.arrow_columns import BadValue
from relay.produce.row_encoder import RowEncoder
from tests.produce.codecs import encoder
from tests.schema.rows import decode_rows

ENCODER = encoder()
ID = "00000000-0000-0000-0000-00000000000f"


def round_trip(row: dict[str, Any]) -> dict[str, Any]:
    rows = pa.array([ENCODER.encode(row)], pa.binary())
    found: dict[str, Any] = decode_rows(ENCODER.codec, rows).to_pylist()[0]
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("small", -128, -128),
        ("big", 2**64 - 1, 2**64 - 1),
        ("word", "straße", "straße"),
        ("day", dt.date(1970, 1, 2), 1),
        ("second", dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC), 60),
        ("milli", dt.datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=dt.UTC), 5),
        ("nano", "1970-01-01T00:00:00.000000007Z", 7),
        ("ratio", 1, 1.0),
        ("flag", True, True),
        ("code", b"ab", b"ab"),
        ("kind", "y", "y"),
        ("id", UUID(ID), ID),
    ],
)
def test_python_values_become_fields(name: str, value: object, expected: object) -> None:
    """One field is set, to the value."""
    assert round_trip({name: value}) == {name: expected}


def test_none_is_a_field_left_out() -> None:
    """None and a column not named are the same."""
    assert ENCODER.encode({"small": None}) == ENCODER.encode({}) == b""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small", 128),
        ("big", -1),
        ("big", 2**64),
        ("word", 5),
        ("word", "\ud800"),
        ("second", dt.datetime(1970, 1, 1, 0, 0, 0, 5)),  # noqa: DTZ001
        ("ratio", "x"),
        ("flag", 2),
        ("code", b"abcd"),
        ("kind", "z"),
        ("id", "f"),
        ("nano", [1]),
        ("milli", {}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_once(name: str, value: object) -> None:
    """The error comes from the write that brought the value, and names the table."""
    with pytest.raises(BadValue, match=r"^d\.t"):
        ENCODER.encode({name: value})


def test_equal_values_of_other_types_are_judged_anew() -> None:
    """1, 1.0 and True are equal in Python; a cached verdict on one is not used for another."""
    assert round_trip({"small": 1}) == {"small": 1}
    assert round_trip({"kind": "x"}) == {"kind": "x"}
    with pytest.raises(BadValue):
        ENCODER.encode({"kind": True})
    with pytest.raises(BadValue):
        ENCODER.encode({"kind": 1})


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    """A typing error shows what was meant."""
    with pytest.raises(ConfigError, match=r"no column 'smal' \(it has small, big"):
        ENCODER.encode({"smal": 1})


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        (
            "second",
            dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
            dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
            (1_729_989_000, 1_729_992_600),
        ),
        (
            "day",
            dt.datetime(2024, 1, 1, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            dt.datetime(2023, 12, 31, 22, 30, tzinfo=dt.UTC),
            None,
        ),
        ("ratio", np.float64(0.0), np.float64(-0.0), (0.0, -0.0)),
        ("ratio", 0.0, -0.0, (0.0, -0.0)),
    ],
)
def test_equal_values_that_are_not_the_same_are_each_their_own(
    name: str, first: object, second: object, expected: tuple[object, object] | None
) -> None:
    """A cache would give the second what the first was; either order, and what one gives alone."""
    alone = tuple(outcome(RowEncoder(ENCODER.codec), {name: one}) for one in (first, second))
    for pair in ((first, second), (second, first)):
        encoder = RowEncoder(ENCODER.codec)
        found = [outcome(encoder, {name: one}) for one in pair]
        assert found == list(alone if pair[0] is first else alone[::-1])
    if expected is not None:
        made = [decode_rows(ENCODER.codec, pa.array([one])).to_pylist()[0][name] for one in alone]
        assert list(map(repr, made)) == list(map(repr, expected))


def outcome(encoder: RowEncoder, row: dict[str, object]) -> bytes | str:
    try:
        return encoder.encode(row)
    except BadValue as error:
        return error.message
