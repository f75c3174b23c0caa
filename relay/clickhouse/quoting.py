"""Names and texts as ClickHouse's SQL reads them back, whatever is in them; pure.

clickhouse-connect has functions for both (driver.binding), and takes a name that begins and ends
with a quote for one that is quoted already: a column may be called that.
"""

# pure

from __future__ import annotations

from relay import names


def quoted(identifier: str) -> str:
    """Return an identifier as ClickHouse reads it back."""
    return f"`{_escaped(identifier, '`')}`"


def quoted_table(table: str) -> str:
    """Return a table given as `database.table`, as ClickHouse reads it back."""
    database, name = names.split_table(table)
    return f"{quoted(database)}.{quoted(name)}"


def literal(text: str) -> str:
    """Return a string literal as ClickHouse reads it back."""
    return f"'{_escaped(text, chr(39))}'"


def readable(table: str) -> str:
    """Return `database.table` for statements that people run: what needs no quotes has none.

    Names of other shapes are quoted whole.
    """
    return ".".join(
        part if part.isidentifier() and part.isascii() else quoted(part)
        for part in table.split(".", 1)
    )


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
