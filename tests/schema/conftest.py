from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.schema.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

# python -m pytest tests/schema --hypothesis-profile=long (as tests/model, whose profile it is)
settings.register_profile("long", max_examples=1_000, stateful_step_count=100, deadline=None)


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    engine.query("CREATE DATABASE shop")
    yield engine
    engine.close()
