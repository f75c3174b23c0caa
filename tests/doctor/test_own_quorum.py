"""A quorum of the configuration's own: the doctor judges what the loader will send."""

from __future__ import annotations

import pytest

from relay.operate.doctor.facts import Replica, Setting
from tests.doctor.cases import REPLICATED
from tests.doctor.healthy import clickhouse, codes, of_clickhouse, settings, table

URL = "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("own", "active", "found", "mend"),
    [
        ("auto", 3, set(), ""),
        (3, 2, {"quorum-unreachable"}, "start the other replicas, or clickhouse.insert_quorum = 2"),
        (None, 3, {"quorum-one"}, "ALTER USER loader MODIFY SETTINGS insert_quorum = 2"),
    ],
)
def test_it_takes_the_place_of_the_servers(
    own: int | str | None, active: int, found: set[str], mend: str
) -> None:
    """Of the server's 0, and of the user's insert_quorum_parallel, which the loader sets itself."""
    three = table(**REPLICATED | {"replica": Replica(readonly=False, replicas=3, active=active)})
    server = clickhouse(three, ledger=table(**REPLICATED))
    server.settings.update({"insert_quorum": Setting("0"), "insert_quorum_parallel": Setting("0")})  # type: ignore[attr-defined] # a dict here
    given = settings(clickhouse={"url": URL, "insert_quorum": own})
    findings = [one for one in of_clickhouse(server, given) if one.code.startswith("quorum")]
    assert codes(findings) == found
    assert [one.mend for one in findings] == ([mend] if mend else [])
