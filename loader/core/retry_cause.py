"""Names why an attempt at a block has to be made again; pure.

loader.core.plan and the adapters give the cause where they learn it, loader.metrics counts it. What
becomes of a block depends on relay.clickhouse.errors.About alone. Whether the last try of a run
goes on to the next block of a table depends on this as well (loader.core.set_aside_plan).
"""

# pure

from __future__ import annotations

from enum import StrEnum


class RetryCause(StrEnum):
    """What stood in the way of an attempt."""

    ERROR = "error"
    """A server answered with an error, or did not answer; the reason has the error's text."""
    ANOTHER_LOADER = "another loader"
    """Another loader has claimed the block since."""
    STILL_RUNNING = "still running"
    """A statement of an earlier attempt still runs, or its server cannot be asked."""
    TABLE_ALTERED = "table altered"
    """The table was altered between the look at it and the INSERT."""
    REPLICA_BEHIND = "replica behind"
    """The replica that was asked has not made an ALTER that others have."""
    UNCONFIRMED = "unconfirmed"
    """The rows are there, and the replica does not know yet whether Keeper has them; or some are
    missing, and it has still to fetch parts, or fetched some just now."""
    OTHERS_INSERTED = "others inserted"
    """So much was inserted by others that the table may have forgotten the block's token."""
    NO_TABLE = "no table"
    """There is no such table, or the user may not see it."""
    NO_RIGHT_ON_COLUMN = "no right on column"
    """The table has a column of the block's that this user may not fill, nor see."""
    ROWS_NOT_WRITTEN = "rows not written"
    """The server accepted the INSERT and reports fewer rows than it was given, or none."""
