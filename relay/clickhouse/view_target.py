"""Tell where a materialized view writes, from its row of system.tables; pure.

The doctor, which judges the tables behind a target, and the loader, which asks what an INSERT can
have left in them, follow views by it.
"""

# pure

from __future__ import annotations

import re

from relay.clickhouse.quoting import unquoted

_PART = r"(?:`(?:[^`\\]|\\.)+`|\w+)"
_TO = re.compile(rf"\sTO\s+({_PART})\.({_PART})")
_HEAD = re.compile(rf"CREATE MATERIALIZED VIEW\s+{_PART}\.{_PART}")


def view_target(database: str, name: str, uuid: str, create: str) -> tuple[str, str]:
    """Return database and name of the table after TO, or of the view's own, named after it.

    Args:
        database: of the view.
        name: of the view.
        uuid: system.tables.uuid; empty, or of zeros, where its database gives none.
        create: system.tables.create_table_query.
    """
    found = _HEAD.match(create)
    to = None if found is None else _TO.match(create, found.end())
    if to is not None:
        return unquoted(to[1]), unquoted(to[2])
    if uuid.strip("0-"):
        return database, f".inner_id.{uuid}"
    return database, f".inner.{name}"
