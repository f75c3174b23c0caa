"""Dates and times without parts: counts since 1970, or of a day, as whole numbers.

As relay.schema.types.scalar: a type's text, taken apart, in, its kind out. A time zone is the
column's to show; what travels is the instant.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa

from relay.schema.types import value_checks
from relay.schema.types.kind import Scalar
from relay.schema.types.proto_shape import Shape
from relay.schema.types.type_text import TypeText

_INT64 = (-(2**63), 2**63 - 1)
_DATETIME64_SECONDS = (-2_208_988_800, 10_413_792_000)
"""1900-01-01 to 2300-01-01, end excluded, UTC: what every release of ClickHouse holds. Releases
before 26.7 clamp what lies outside when they show it (ClickHouse pull request 107907)."""
_TIME_SECONDS = 3_599_999
"""999:59:59, the greatest Time in either direction."""


def _counted(
    name: str, arrow: pa.DataType, input_type: str, bounds: tuple[int, int], unit: str
) -> Scalar:
    """Days since 1970 or seconds of a day, whose unit the type does not choose."""
    low, high = bounds
    since = "days since 1970-01-01" if unit == "days" else "seconds"
    return Scalar(
        name,
        Shape("int32"),
        wire=pa.int32(),
        arrow=arrow,
        input_type=input_type,
        meaning=f"{since}, {low} to {high}",
        unit=unit,
        check=value_checks.range_check(low, high),
    )


_DATE32 = _counted("Date32", pa.date32(), "Date32", (-25_567, 120_529), "days")
WITHOUT_ARGUMENTS = (
    _counted("Date", pa.uint16(), "UInt16", (0, 65_535), "days"),
    # ClickHouse's default of a Date32 is its first day.
    replace(_DATE32, default=dt.date(1900, 1, 1)),
    _counted("Time", pa.int32(), "Int32", (-_TIME_SECONDS, _TIME_SECONDS), "seconds of a day"),
)


def datetime(text: str, inner: TypeText) -> Scalar:
    """Return DateTime, with or without a time zone."""
    inner.expect(0, 1)
    return Scalar(
        text,
        Shape("uint32"),
        wire=pa.uint32(),
        arrow=pa.uint32(),
        input_type="UInt32",
        meaning="seconds since 1970-01-01 00:00:00 UTC",
        unit="seconds",
    )


def _scale(text: str) -> int:
    scale = int(text)
    if not 0 <= scale <= 9:
        raise ValueError(f"scale {scale} is not 0 to 9")
    return scale


def _ticks(text: str, scale: int, bounds: tuple[int, int], meaning: str) -> Scalar:
    """Ticks stay Int64 up to the SELECT: Arrow's timestamps know only scales 0, 3, 6 and 9."""
    return Scalar(
        text,
        Shape("int64"),
        wire=pa.int64(),
        arrow=pa.int64(),
        input_type="Int64",
        meaning=f"{f'10^-{scale} s' if scale else 'seconds'}{meaning}",
        check=value_checks.range_check(*bounds),
        unit=f"ticks of 10^-{scale} s",
    )


def datetime64(text: str, inner: TypeText) -> Scalar:
    """Return DateTime64(P), with or without a time zone."""
    scale = _scale(inner.expect(1, 2)[0])
    low, high = (seconds * 10**scale for seconds in _DATETIME64_SECONDS)
    years = f"1900 to {2299 if high - 1 <= _INT64[1] else 2262}"
    kind = _ticks(
        text,
        scale,
        (max(low, _INT64[0]), min(high - 1, _INT64[1])),
        f" since 1970-01-01 00:00:00 UTC, years {years}",
    )
    # CAST would read the number as seconds; reinterpret takes the ticks as they are.
    return replace(kind, convert=lambda value: f"reinterpret({value}, 'DateTime64({scale})')")


def time64(text: str, inner: TypeText) -> Scalar:
    """Return Time64(P)."""
    scale = _scale(inner.expect(1)[0])
    most = (_TIME_SECONDS + 1) * 10**scale - 1
    kind = _ticks(text, scale, (-most, most), ", less than 1000 hours")
    return replace(
        kind,
        unit=f"{kind.unit} of a day",
        # No number can be reinterpreted as a Time64, but a Decimal has the same ticks.
        convert=lambda value: (
            f"CAST(reinterpret({value}, 'Decimal(18, {scale})'), 'Time64({scale})')"
        ),
    )
