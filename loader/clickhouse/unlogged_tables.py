"""Which tables take rows of an INSERT without an entry in the server's part log.

Receives a way to ask one server and a table, gives why no entry proves nothing. Never writes. A
Distributed table sends rows to other servers, which have them in logs of their own, under other
query ids; Log, Memory, Kafka and the like have no parts; and a view behind the table may write
into any of these. Nor has a part of a Replicated table an entry where Keeper did not answer its
INSERT (loader.clickhouse.unconfirmed_parts): it may be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loader.clickhouse.tables_behind import KEEPS_NOTHING, SHOWN_BY, reached
from relay.clickhouse.table_engine import TableEngine

if TYPE_CHECKING:
    from collections.abc import Collection

    from loader.clickhouse.tables_behind import Ask

_UNKNOWN_STATUS = 319
_GIVEN_UP = frozenset({159, 394, 735})
"""What ends an INSERT of a Replicated table while Keeper is waited for: it took too long, was
killed, or its client went. After an error of Keeper itself (999, 225, 242) there is no part."""
_UNASKED = "and one ended (error {}) while Keeper may have had its rows"


def unlogged(ask: Ask, table: str, codes: Collection[int] = ()) -> str:
    """Return why the part log may lack what INSERTs into the table wrote; "": it has all.

    Args:
        ask: as of `reached`.
        table: as database.table.
        codes: ClickHouse's, of the errors that the INSERTs ended in.

    Raises:
        Unavailable, Refused: as `ask`.
    """
    if _UNKNOWN_STATUS in codes:
        return "Keeper did not answer one (UNKNOWN_STATUS_OF_INSERT, 319), and may have its rows"
    for one in reached(ask, table):
        engine = TableEngine(one.engine)
        if not one.engine:
            return f"whether {one.place} is a MergeTree is not known {SHOWN_BY}"
        if engine.is_replicated and (given_up := _GIVEN_UP.intersection(codes)):
            return f"{one.place} is a {one.engine}, {_UNASKED.format(min(given_up))}"
        if one.engine != KEEPS_NOTHING and not engine.is_merge_tree:
            return f"{one.place} is a {one.engine}, of whose rows the part log tells nothing"
    return ""
