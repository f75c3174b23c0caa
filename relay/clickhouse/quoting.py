"""Names and texts as ClickHouse's SQL reads them back, whatever is in them; pure.

clickhouse-connect has functions for both (driver.binding), and takes a name that begins and ends
with a quote for one that is quoted already: a column may be called that.
"""

# pure

from __future__ import annotations

import re

from relay import names

_NO_USERS = frozenset({"ALL", "ANY", "CURRENTUSER", "CURRENT_USER", "EXCEPT", "NONE"})
"""What these mean behind TO is nobody's name."""
_NO_NAMES = frozenset({"FALSE", "FUNCTION", "INF", "NAN", "NOT", "NULL", "ON", "TABLE", "TRUE"})
"""Other words are names wherever one is expected."""


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
    return ".".join(map(readable_name, table.split(".", 1)))


def readable_name(identifier: str) -> str:
    """Return an identifier for statements that people run, without quotes if it needs none."""
    plain = identifier.isidentifier() and identifier.isascii()
    return identifier if plain and identifier.upper() not in _NO_NAMES else quoted(identifier)


def readable_user(user: str) -> str:
    """Return a user's name for statements that people run, without quotes if it needs none."""
    return quoted(user) if user.upper() in _NO_USERS else readable_name(user)


def unquoted(name: str, quotes: str = "`") -> str:
    """Return the identifier that a name in SQL means, quoted by one of these quotes or not.

    ClickHouse itself writes backquotes.
    """
    is_quoted = name[:1] and name[:1] in quotes
    return re.sub(r"\\(.)", r"\1", name[1:-1], flags=re.DOTALL) if is_quoted else name


def table_parameters(table: str) -> dict[str, str]:
    """Return `database` and `name` of `database.table`, to be bound in a statement."""
    database, name = names.split_table(table)
    return {"database": database, "name": name}


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
