from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.schema.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    engine.query("CREATE DATABASE shop")
    yield engine
    engine.close()
