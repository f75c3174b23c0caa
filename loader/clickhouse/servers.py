"""Is clickhouse.url one server? Asked once at start, in the driver and in each worker process.

Receives the settings and the ledger's engine, gives whether several servers stand behind the
address. Behind a balancer the next statement may reach a replica that does not know yet what
another has confirmed: then an INSERT's condition is judged by an old ledger, and its rows are
counted where they have not arrived yet. Only a quorum makes that right (relay.clickhouse.replicas).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import failure, is_permanent
from relay.clickhouse.balancer import servers
from relay.clickhouse.quoting import table_parameters
from relay.clickhouse.replicas import is_shared, pin
from relay.errors import ErrorPage, Refused

if TYPE_CHECKING:
    from loader.clickhouse.ledger import Ledger
    from relay.config.settings import ClickHouse

_ACTIVE = (
    "SELECT length(mapFilter((_, active) -> active, replica_is_active)) FROM system.replicas "
    "WHERE database = {database:String} AND table = {name:String}"
)
MEND = 'set clickhouse.insert_quorum = "auto", or name one replica itself in clickhouse.url'


def several(clickhouse: ClickHouse, engine: str) -> bool:
    """Return whether several servers stand behind `clickhouse.url`.

    A single replica without a quorum is right as long as it is the one that answers: from then on
    an answer of another is an error.

    `engine`: the ledger's; empty where there is none yet.

    Raises:
        Refused: they do, behind one address, and there is no quorum.
    """
    if len(clickhouse.urls) > 1:
        return True
    met = servers(clickhouse)
    if clickhouse.insert_quorum is not None:
        return len(met) > 1
    if len(met) > 1:
        raise Refused(
            f"several servers answer at clickhouse.url: {' and '.join(met)} answered at "
            f"{clickhouse.url}, but no quorum is set",
            MEND,
            page=ErrorPage.REPLICAS,
        )
    if engine.startswith("Shared"):
        raise Refused(
            f"the ledger is a {engine}, for which any of several servers behind {clickhouse.url} "
            "may answer, but no quorum is set",
            MEND,
            page=ErrorPage.REPLICAS,
        )
    if is_shared(engine):
        pin(clickhouse)
    return False


def unmet(clickhouse: ClickHouse, ledger: Ledger) -> str:
    """Return what keeps the loader from asking all replicas what runs; "": nothing is known to.

    With a quorum a single address is taken for a balancer's. Where it is one replica's own, or the
    balancer keeps to one server, the others are never reached.

    Raises:
        Unavailable: no answer.
    """
    if len(clickhouse.urls) > 1 or clickhouse.insert_quorum is None:
        return ""
    this = table_parameters(ledger.table)
    try:
        active = ledger.client.query(_ACTIVE, parameters=this).result_rows
    except ClickHouseError as error:
        if is_permanent(error):
            return ""  # nor may this user ask what runs
        raise failure(error, f"the replicas of {ledger.name}") from error
    if not active or active[0][0] < 2 or len(met := servers(clickhouse)) != 1:
        return ""
    return (
        f"{ledger.table} has {active[0][0]} active replicas, but every connection to "
        f"{clickhouse.url} reached {met[0]}. A block whose INSERT gets no answer waits until all "
        "replicas have said that they do not run it: name each of them in clickhouse.url"
    )
