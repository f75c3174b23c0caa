from __future__ import annotations

from collections.abc import Iterator

import pytest

from relay.operate.verify.judge.server_records import SKEW_MS
from tests.broker.pipeline import wait_until
from tests.verify import realserver
from tests.verify.shop import Shop


@pytest.fixture(scope="session")
def logged_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """HTTP port of a server with query, part and view logs."""
    with realserver.running(tmp_path_factory.mktemp("server")) as port:
        # Logs prove a loss only of blocks that were sealed well after they began.
        wait_until(lambda: realserver.log_seconds(port) > 2 + SKEW_MS / 1e3, "old logs")
        yield port


@pytest.fixture
def shop(logged_port: int, app: str) -> Iterator[Shop]:
    """A database of its own with a ledger, and a loader by hand."""
    made = Shop(logged_port, app)
    yield made
    made.close()
