"""Which changes of a table count as later than a claim: a server dates them to the second."""

from __future__ import annotations

import pytest

from loader.clickhouse.ledger import Claimed


@pytest.mark.parametrize(
    ("at_ms", "second", "precedes"),
    [
        (10_900, 9, False),
        (10_900, 10, True),
        (10_900, 11, True),
        # A file's time is that of the last tick, which lies before the claim.
        (11_004, 10, True),
        (11_010, 10, False),
    ],
)
def test_what_is_of_the_same_second_may_be_later(
    at_ms: int, second: int, *, precedes: bool
) -> None:
    assert Claimed(1.0, at_ms, frozenset()).may_precede(second) == precedes
