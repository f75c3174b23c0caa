from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.rows import decode as row_decoder
from tests.schema.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=["compiled", "general"])
def decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which decoder reads flat rows, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        least = 0 if request.param == "compiled" else 1 << 60
        patch.setattr(row_decoder, "COMPILED_FROM_BYTES", least)
        yield request.param


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    engine.query("CREATE DATABASE shop")
    yield engine
    engine.close()
