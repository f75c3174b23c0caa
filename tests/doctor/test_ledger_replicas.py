"""A ledger that fewer servers hold than hold a target table, without a server."""

from __future__ import annotations

import pytest

from relay.operate.doctor.facts import Replica
from tests.doctor.cases import REPLICATED, THREE
from tests.doctor.healthy import TABLE, clickhouse, of_clickhouse, table

ONE, TWO = (Replica(readonly=False, replicas=n, active=n) for n in (1, 2))


@pytest.mark.parametrize(
    ("of_ledger", "of_target", "told"),
    [
        (ONE, THREE, "relay.ledger has 1 replica, although shop.orders has 3"),
        (TWO, THREE, "relay.ledger has 2 replicas, although shop.orders has 3"),
        (THREE, THREE, ""),
        (THREE, TWO, ""),
        (None, THREE, ""),  # nobody could say
        (ONE, None, ""),
    ],
)
def test_a_replicated_ledger_is_on_as_many_servers_as_the_rows(
    of_ledger: Replica | None, of_target: Replica | None, told: str
) -> None:
    """Made on one server alone, it has one replica, and nothing was found."""
    facts = clickhouse(
        ledger=table(**REPLICATED, replica=of_ledger),
        tables={
            TABLE: table(**REPLICATED, replica=of_target),
            "shop.two": table(**REPLICATED, replica=ONE),
            "shop.local": table(),
        },
    )
    found = of_clickhouse(facts)
    assert [(one.code, one.what) for one in found] == ([("ledger-local", told)] if told else [])
    assert all("SHOW CREATE TABLE relay.ledger" in one.mend for one in found)
