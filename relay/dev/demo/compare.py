"""Were the rows that were sent the rows that arrived? A hash per row, compared as multisets.

Receives rows as text (what was sent) and as ClickHouse returns them; gives how many are
missing, doubled, or were never sent. Shares nothing with the product's own conversions: values
are brought into one canonical form by pandas, whoever wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]

Hashes = npt.NDArray[np.uint64]

_NULL_TEXT = "\x00"
_NULL_NUMBER = -1.2345678e300
"""Stand for NULL; no row of the demo holds them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two multisets of rows."""

    sent: int
    received: int
    missing: int
    """Sent more often than received."""
    duplicates: int
    """Received more often than sent, of rows that were sent."""
    foreign: int
    """Received, but never sent: changed on the way."""

    @property
    def none(self) -> bool:
        """Whether every row is there exactly once."""
        return not (self.missing or self.duplicates or self.foreign)


def row_hashes(frame: pd.DataFrame, columns: dict[str, str]) -> Hashes:
    """Return a 64-bit hash per row over all its columns.

    Args:
        frame: values as text, as numbers, or as whatever ClickHouse's Arrow holds.
        columns: ClickHouse type by column; says whether text is a number or a time.

    Of 400 000 different rows two share a hash with a probability of 4e-9.
    """
    canonical = pd.DataFrame({name: _canonical(frame[name], columns[name]) for name in columns})
    hashes: Hashes = pd.util.hash_pandas_object(canonical, index=False).to_numpy(np.uint64)
    return hashes


def compare(sent: Hashes, received: Hashes) -> Difference:
    """Compare two multisets of rows."""
    keys = np.union1d(sent, received)
    before, after = _counts(keys, sent), _counts(keys, received)
    more = np.maximum(after - before, 0)
    return Difference(
        sent=len(sent),
        received=len(received),
        missing=int(np.maximum(before - after, 0).sum()),
        duplicates=int(more[before > 0].sum()),
        foreign=int(more[before == 0].sum()),
    )


def _counts(keys: Hashes, values: Hashes) -> npt.NDArray[np.int64]:
    unique, times = np.unique(values, return_counts=True)
    counts = np.zeros(len(keys), np.int64)
    counts[np.searchsorted(keys, unique)] = times
    return counts


def _canonical(column: pd.Series[Any], type_: str) -> pd.Series[Any]:
    """One value for one meaning, however it is spelled: a float64 or a text.

    Integers of these tables, Unix seconds among them, are far below 2^53.
    """
    if "DateTime" in type_:
        numbers = _seconds(column)
    elif "Int" in type_ or "Float" in type_:
        numbers = column.astype("float64")  # Python's float(): the nearest double, always
    else:
        texts = column.map(_text, na_action="ignore")
        return texts.astype(object).where(column.notna(), _NULL_TEXT)
    return numbers.where(column.notna(), _NULL_NUMBER)


def _seconds(column: pd.Series[Any]) -> pd.Series[float]:
    """Unix seconds: numbers are that already, as ClickHouse gives a DateTime in Arrow."""
    if pd.api.types.is_integer_dtype(column.infer_objects()):
        return column.astype("float64")
    times = pd.to_datetime(column, utc=True)
    return times.astype("datetime64[s, UTC]").astype("int64").astype("float64")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
