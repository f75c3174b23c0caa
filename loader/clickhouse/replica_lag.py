"""Whether a replica shows a table as it was before an ALTER that others have made already.

Receives a table as it was looked at, gives why nothing that depends on its columns may be
decided yet. Such a replica takes an INSERT without the values of a column that it does not have,
and refuses one that only its older type cannot hold. Never writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import is_denied
from loader.clickhouse.tables import THIS_TABLE, shape_sql
from loader.core import plan
from loader.core.retry_cause import RetryCause
from relay.clickhouse.error_text import error_line
from relay.clickhouse.errors import About, about
from relay.clickhouse.quoting import table_parameters
from relay.clickhouse.replicas import IS_ALTER, READ_WHOLE_LOG
from relay.schema.types.column_type import recorded_type

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.clickhouse.tables import Target

# ClickHouse answers the subqueries one after the other: the log is read whole, of what was in it
# no ALTER is left to make, and these are the columns then. One statement, so that one server
# answers, whichever stands behind the address.
_MADE = f"""
SELECT (SELECT groupArray({READ_WHOLE_LOG}) FROM system.replicas WHERE {THIS_TABLE}),
    (SELECT count() FROM system.replication_queue WHERE {IS_ALTER} AND {THIS_TABLE}),
    {shape_sql()}
"""  # noqa: S608 - constants


def differs(schema: pa.Schema, target: Target) -> bool:
    """Return whether rows were sealed for other columns than a replicated table shows now.

    A column that the table has and the rows do not takes its default, on whichever replica.
    """
    if target.nature.window.counter != "log":
        return False
    return any(target.columns.get(one.name) != recorded_type(one) for one in schema)


def lag(client: HttpClient, table: str, target: Target | None) -> plan.NoAnswer | None:
    """Return why the table has to be looked at again; None where it is what all replicas have.

    Also None where nobody can tell: the table is not replicated, or in a way that system.replicas
    does not know, or the user may not ask. Then the table as it was looked at is believed.
    """
    if target is None or target.nature.window.counter != "log":
        return None
    try:
        asked = client.query(_MADE, parameters=table_parameters(table))
    except ClickHouseError as error:
        if is_denied(error):
            return None
        asking = "asking whether a replica has made every ALTER"
        return plan.NoAnswer(error_line(error, asking), about(str(error)))
    ((read_whole, to_make, shape),) = asked.result_rows
    if not read_whole or (all(read_whole) and not to_make and shape == target.shape):
        return None
    return plan.NoAnswer(
        f"a replica of {table} has not made every ALTER yet (system.replicas, "
        "system.replication_queue): the block was sealed for other columns than it shows",
        About.UNKNOWN,  # blocks of the table that were sealed for its columns of now are loaded
        RetryCause.REPLICA_BEHIND,
    )
