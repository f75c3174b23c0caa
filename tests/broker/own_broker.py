"""A broker of the test's own, which it may kill and start again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from relay.dev import broker, layout
from tests.chaos.clusters import broker_alone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def own_broker(parent: Path, settings: str = "") -> Iterator[Path]:
    """Start one, with settings of its own; yield its directory.

    A module that uses it makes that its fixture `own`.
    """
    directory = parent / "broker"
    try:
        broker_alone(directory, settings)
        yield directory
    finally:
        broker.kill(directory, 0)


@pytest.fixture
def bootstrap(own: Path) -> str:
    """Of the pipeline's broker, in the place of the shared one."""
    plan = layout.read(own)
    assert plan is not None
    return plan.bootstrap
