"""Whether a relay stops whose first messages are all dead letters: what it asks its servers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from relay.errors import ClickHouseAway, ConfigError
from relay.intake.buffers import Held
from relay.process.suitability import watch
from relay.process.suitability.brake import ENOUGH
from relay.schema.dead_reason import DeadKind, DeadReason
from tests import reach
from tests.schema.test_tables import ClickHouse, N, Registry, tables


@pytest.fixture
def clickhouse() -> ClickHouse:
    return ClickHouse(a=[N])


@pytest.fixture
def due(clickhouse: ClickHouse, monkeypatch: pytest.MonkeyPatch) -> watch.Suitability:
    """Nothing that it saw was ever good; it waits for no server."""
    monkeypatch.setattr(watch, "ever_good", lambda _: False)
    monkeypatch.setattr(watch.sample, "sample", lambda *_: [])
    made = watch.Suitability(
        reach.nobody(), tables(clickhouse, Registry()), cast("Any", lambda call: call())
    )
    made._brake.begun()
    made._brake.add(0, "", [(DeadReason(DeadKind.NO_TABLE, "no header"), ENOUGH)])
    return made


def test_a_table_that_clickhouse_cannot_look_into_is_no_good_sign(
    clickhouse: ClickHouse, due: watch.Suitability
) -> None:
    """Red before: its question was asked again for ever, inside the open transaction."""
    clickhouse.blind = {"m"}
    gave_up: list[int] = []
    with pytest.raises(ConfigError, match="none of the first"):
        due.check([Held("m.t"), Held("d.typo")], lambda: gave_up.append(1))
    assert gave_up == [1]


def test_a_server_that_is_away_is_waited_for(
    clickhouse: ClickHouse, due: watch.Suitability
) -> None:
    """Nobody knows then what is good."""
    clickhouse.away = True
    with pytest.raises(ClickHouseAway):
        due.check([Held("d.a")], pytest.fail)
