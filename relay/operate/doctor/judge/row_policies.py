"""Judges which row policies hide rows of a table from this user; pure."""

# pure

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ALL = frozenset({"1", "true"})
"""Conditions that every row meets, as the server writes them."""


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """A row of system.row_policies.

    Attributes:
        database, table: on which; of a whole database, the table is `*` or empty.
        name: with its place, as the server writes it.
        restrictive: whether rows must meet it, too. Of all others they meet one.
        condition: of SELECT; empty: it has none, and says nothing of SELECT.
    """

    database: str
    table: str
    name: str
    restrictive: bool
    condition: str


def hiding(policies: Sequence[RowPolicy], visible: str | None) -> tuple[str, ...]:
    """Return what hides rows of the user from a table with these policies, or may hide them.

    The server's plan shows a row under the condition `visible`, "" where it shows all; None: nobody
    knows, as of a table without rows.
    """
    if visible == "":
        return ()
    all_shown = any(p.condition in _ALL for p in policies if not p.restrictive)
    named = tuple(
        p.name
        for p in policies
        if p.condition and p.condition not in _ALL and (p.restrictive or not all_shown)
    )
    if visible is None or named:
        return named
    return (f"a row policy or additional_table_filters ({visible})",)
