"""The control plane, one for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import control_plane
from tests.cluster.control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not control_plane.PROGRAM.exists():
        pytest.skip("there is no control plane: python -m tests.cluster up builds it, in minutes")
    made = control_plane.start(tmp_path_factory.mktemp("plane"))
    yield made
    made.end()
