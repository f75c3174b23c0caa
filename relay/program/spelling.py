"""Names that somebody probably meant: of commands, settings, documents, tables."""

# pure

from __future__ import annotations

import difflib
from collections.abc import Collection

_MOST = 3
_LIKE_ENOUGH = 0.75
"""Of two tables' names, databases left out; lower, and most short names are like another."""


def meant(name: str, known: Collection[str]) -> str:
    """Return the known names that are spelled like this one, as "a or b"; empty: none is."""
    return " or ".join(difflib.get_close_matches(name, known, n=_MOST))


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return "; did you mean a or b?" to put behind a message; empty where nothing is like it."""
    close = meant(name, known)
    return f"; did you mean {close}?" if close else ""


def did_you_mean_table(table: str, known: Collection[str]) -> str:
    """Return as did_you_mean, of `database.table`: the same table of another database, too."""
    tables = {full: full.rpartition(".")[2] for full in known if full != table}
    like = difflib.get_close_matches(
        table.rpartition(".")[2], {*tables.values()}, n=_MOST, cutoff=_LIKE_ENOUGH
    )
    chosen = sorted(full for full, name in tables.items() if name in like)
    close = difflib.get_close_matches(table, chosen, n=_MOST, cutoff=0.0)
    return f"; did you mean {' or '.join(close)}?" if close else ""
