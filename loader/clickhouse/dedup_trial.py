"""Before the first block: does this server drop an INSERT that is repeated under its token?

Receives the loader's client and the ledger's database; raises where a repeat doubles rows. A user
who may not make a table there is let through: `relay doctor --try` says it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import failure, is_permanent, one_line
from relay.clickhouse import dedup_trial
from relay.errors import ContractBroken, ErrorPage

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

NEXT = (
    "Upgrade ClickHouse to a version that `relay docs clickhouse-versions` lists; check "
    "insert_deduplicate, deduplicate_insert and deduplicate_insert_select in the user's profile; "
    "then run `relay doctor CONFIG --try`."
)


def check(client: Client, database: str) -> str:
    """Insert twice under one token into a small table of its own, and look.

    Returns:
        Why it could not be tried, for people; empty: it was, and a repeat is dropped.

    Raises:
        ContractBroken: the repeat was inserted again.
        Unavailable: no answer, or none now.
    """
    try:
        copies = dedup_trial.tried(client, dedup_trial.lasting(client, database)).table
    except ClickHouseError as error:
        if is_permanent(error):
            return f"the trial whether repeated INSERTs are dropped failed: {one_line(error)}"
        raise failure(error, "trying whether a repeated INSERT is dropped") from error
    if copies > 1:
        raise ContractBroken(
            f"ClickHouse {client.server_version} does not drop an INSERT that is repeated under "
            f"the same token: the trial table has {copies * dedup_trial.ROWS:g} rows instead of "
            f"{dedup_trial.ROWS}",
            NEXT,
            page=ErrorPage.REPEATED_INSERT,
        )
    return ""
