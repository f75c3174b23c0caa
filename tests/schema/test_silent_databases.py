"""A database of engine MySQL whose server drops packets: questions about others are answered.

ClickHouse waits for that server as long as the question has time, and says nothing meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from loader.clickhouse.client import connect
from relay.config.allowed_tables import Targets
from relay.config.server_settings import ClickHouse
from relay.errors import ClickHouseAway
from relay.program.waiting import LONGEST_PAUSE_SECONDS
from relay.rows.codecs_of_tables import TableCodecs
from relay.rows.row_codec import RowCodec
from relay.schema.beside import Beside
from relay.schema.catalogue import Catalogue, is_late
from tests.schema.test_tables import Registry, Topics
from tests.verify import realserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 1.0


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    """A server with the tables shop.t and shop.u, and the database m of a silent server."""
    directory = tmp_path_factory.mktemp("server")
    with socket.socket() as silent, realserver.running(directory) as port:
        silent.bind(("127.0.0.1", 0))  # and refuses until the database is attached
        made = ClickHouse(url=f"http://127.0.0.1:{port}")
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with contextlib.closing(connect(made, 60)) as client:
            client.command("CREATE DATABASE shop")
            for name in "tu":
                client.command(f"CREATE TABLE shop.{name} (a Int32) ENGINE = MergeTree ORDER BY a")
            client.command(f"ATTACH DATABASE m ENGINE = MySQL('{address}', 'd', 'u', 'p')")
        silent.listen()
        yield made


def quickly(beside: Beside, call: Callable[[], Any]) -> Any:
    """What it gives, within the time of two late questions; red before, it took 30 s.

    A server that was slow to answer is given more, and so is a machine that stands still.
    """
    late = max(PATIENCE, beside._patience(again=False))
    begun = time.monotonic()
    found = call()
    assert time.monotonic() - begun < 3 * late + 10
    return found


def test_the_relay_meets_new_tables_and_sees_alters(reached: ClickHouse) -> None:
    """Red before: one message for m.x, and both ended for every table."""
    beside = Beside(PATIENCE)
    with contextlib.closing(Catalogue(reached, beside)) as catalogue:
        now = 0.0
        registry, topics = cast("Any", Registry()), cast("Any", Topics())
        made = catalogue, registry, topics, "_block", Targets("relay"), lambda: now
        relay = TableCodecs(*made)
        assert relay.undecided(["shop.t"]) == frozenset()
        held = frozenset({"m.x"})
        for _ in range(3):
            left = quickly(beside, lambda: relay.undecided(["shop.u", "m.x", "shop.typo"]))
            now += LONGEST_PAUSE_SECONDS
        assert left == held
        assert isinstance(relay.codec("shop.u"), RowCodec)
        assert "unknown table shop.typo" in str(relay.codec("shop.typo"))
        with contextlib.closing(connect(reached, 60)) as client:
            client.command("ALTER TABLE shop.t ADD COLUMN b Int32")
        assert quickly(beside, relay.refresh) == {"shop.t"}
        assert quickly(beside, lambda: relay.still_undecided(held)) == held
        assert quickly(beside, relay.refresh) == {"shop.t"}


def test_names_are_listed(reached: ClickHouse) -> None:
    """Nobody asked for those of m. Red before: the question stayed with the server."""
    beside = Beside(PATIENCE)
    with contextlib.closing(Catalogue(reached, beside)) as catalogue:
        assert quickly(beside, catalogue.names) == ["shop.t", "shop.u"]
        with pytest.raises(ClickHouseAway) as failed:
            catalogue.read(["shop.t", "m.x"])
        assert is_late(failed.value)
        assert catalogue.read(["shop.t"]).keys() == {"shop.t"}
