"""Whether a replica has made every ALTER: what asks ClickHouse's system tables for it; pure.

A replica reads what others did from the table's replication log in Keeper into its queue, and makes
it from there. So it has made every ALTER where it has read the whole log and its queue has none.
"""

# pure

from __future__ import annotations

_IN_TOUCH = "NOT is_readonly AND NOT is_session_expired AND zookeeper_exception = ''"
READ_WHOLE_LOG = f"""{_IN_TOUCH}
  AND (log_pointer > log_max_index OR (log_max_index = 0 AND total_replicas = 1))"""
"""About a row of system.replicas: what others altered is in this replica's queue, or made; or there
are no others."""
MAY_HAVE_READ_LOG = f"""{_IN_TOUCH}
  AND log_pointer = 0 AND log_max_index = 0 AND total_replicas > 1"""
"""About a row of system.replicas: both numbers are 0 where the log has no entry, and where it has
one, perhaps an ALTER, that this replica has not read. `empty_logs` tells which."""
IS_ALTER = "type = 'ALTER_METADATA'"
"""About a row of system.replication_queue: an ALTER that this replica has still to make. Ask it
behind READ_WHOLE_LOG: an entry that is read in between is in the queue by then."""
SEES_LOGS = "SELECT(name, numChildren, path, zookeeperName)"
"""What `empty_logs` needs on system.zookeeper, as GRANT writes it: no values of Keeper's nodes."""


def empty_logs(keeper: str) -> str:
    """Return a statement for those of {paths:Array(String)} whose replication log has no entry.

    Of such tables no replica has an ALTER still to make. A path that is not there is not returned.
    Ask it behind all else, of whichever server: what is empty now was empty before. Bind `keeper`,
    where the paths are: a zookeeper_name of system.replicas.
    """
    # The column is there from 25.6 on.
    elsewhere = "" if keeper == "default" else " AND zookeeperName = {keeper:String}"
    return (
        "SELECT path FROM system.zookeeper "  # noqa: S608 - constants
        f"WHERE path IN {{paths:Array(String)}} AND name = 'log' AND numChildren = 0{elsewhere}"
    )
