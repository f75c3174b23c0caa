"""Whether a replica shows a table as it was before an ALTER that others have made already.

Receives a table as it was looked at, gives why nothing that depends on its columns may be
decided yet. Such a replica takes an INSERT without the values of a column that it does not have,
and refuses one that only its older type cannot hold. Never writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import is_denied, is_permanent, one_line
from loader.clickhouse.table_state_sql import THIS_TABLE, shape_sql
from loader.core import plan
from loader.core.retry_cause import RetryCause
from relay.clickhouse.error_text import error_line
from relay.clickhouse.errors import About, about
from relay.clickhouse.quoting import table_parameters
from relay.clickhouse.replica_log import (
    IS_ALTER,
    MAY_HAVE_READ_LOG,
    READ_WHOLE_LOG,
    SEES_LOGS,
    empty_logs,
)
from relay.schema.types.column_type import recorded_type

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.clickhouse.tables import Target

# ClickHouse answers the subqueries one after the other: the log is read whole, of what was in it
# no ALTER is left to make, and these are the columns then. One statement, so that one server
# answers, whichever stands behind the address.
_MADE = f"""
SELECT
    (SELECT groupArray(({READ_WHOLE_LOG}, {MAY_HAVE_READ_LOG}, zookeeper_name, zookeeper_path))
     FROM system.replicas WHERE {THIS_TABLE}),
    (SELECT count() FROM system.replication_queue WHERE {IS_ALTER} AND {THIS_TABLE}),
    {shape_sql()}
"""  # noqa: S608 - constants


def differs(schema: pa.Schema, target: Target) -> bool:
    """Return whether rows were sealed for other columns than a replicated table shows now.

    A column that the table has and the rows do not takes its default, on whichever replica.
    """
    if target.nature.window.counter != "log":
        return False
    return any(target.columns.get(column.name) != recorded_type(column) for column in schema)


def lag(
    client: HttpClient, table: str, target: Target | None, *, keeps_values: bool
) -> plan.NoAnswer | None:
    """Return why the table has to be looked at again; None where it is what all replicas have.

    Also None where nobody can tell: the table is not replicated, or in a way that system.replicas
    does not know, or the user may not ask. Then the table as it was looked at is believed.

    Args:
        client: of the server, or of the replicas.
        table: as database.table.
        target: the table as it was looked at; None: it is not there.
        keeps_values: whether no value is lost if the table is believed wrongly. Else it is not
            believed where the user may ask system.replicas, and not whether a log is empty.
    """
    if target is None or target.nature.window.counter != "log":
        return None
    try:
        answer = client.query(_MADE, parameters=table_parameters(table))
    except ClickHouseError as error:
        return None if is_denied(error) else _failed(error)
    ((replicas, to_make, shape),) = answer.result_rows
    if not replicas:
        return None
    ((has_read, may_have_read, keeper, path),) = replicas
    if to_make or shape != target.shape or not (has_read or may_have_read):
        return _behind(table)
    if has_read:
        return None
    return _unless_empty(client, table, keeper, path, keeps_values=keeps_values)


def _unless_empty(
    client: HttpClient, table: str, keeper: str, path: str, *, keeps_values: bool
) -> plan.NoAnswer | None:
    """Why an ALTER may be the one entry of the table's log; None where it has no entry."""
    try:
        parameters = {"paths": [path], "keeper": keeper}
        answer = client.query(empty_logs(keeper), parameters=parameters)
    except ClickHouseError as error:
        if not is_permanent(error):
            return _failed(error)
        return None if keeps_values else _undecided(table, error)
    return None if answer.result_rows else _behind(table)


def _failed(error: ClickHouseError) -> plan.NoAnswer:
    asking = "asking whether a replica has made every ALTER"
    return plan.NoAnswer(error_line(error, asking), about(str(error)))


def _behind(table: str) -> plan.NoAnswer:
    return _aside(
        f"a replica of {table} has not made every ALTER yet (system.replicas, "
        "system.replication_queue): the block was sealed for other columns than it shows"
    )


def _undecided(table: str, error: ClickHouseError) -> plan.NoAnswer:
    """Nothing ever came into the table, or its first ALTER has not come to this replica."""
    missing = f"GRANT {SEES_LOGS} ON system.zookeeper is missing"
    return _aside(
        f"the block was sealed for other columns than {table} shows, and whether its replication "
        "log is empty, or begins with an ALTER that the replica has not read, is not known: "
        f"{missing if is_denied(error) else one_line(error)}. The first row that somebody inserts "
        "into the table decides it, too"
    )


def _aside(reason: str) -> plan.NoAnswer:
    """Blocks of the table that were sealed for its columns of now are loaded."""
    return plan.NoAnswer(reason, About.UNKNOWN, RetryCause.REPLICA_BEHIND)
