"""A relay that got no partitions says so once, and why."""

from __future__ import annotations

import logging

import pytest

from relay.config import settings_file
from relay.process.coverage import JoinWarning
from tests.config.test_load import GOOD


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def joining(tmp_path_factory: pytest.TempPathFactory, now: list[float]) -> JoinWarning:
    path = tmp_path_factory.mktemp("c") / "relay.toml"
    path.write_text(GOOD, encoding="utf-8")
    return JoinWarning(settings_file.load(path), lambda: now[0])


def test_it_is_said_once(
    joining: JoinWarning, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    joining.look()
    now[0] += 60
    joining.look()
    assert caplog.records == [], "it has not joined"
    joining.joined()
    for _ in range(20):
        now[0] += 1
        joining.look()
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert "until the session of members that left without notice ends (45 s)" in vars(told)["why"]


def test_nothing_is_said_where_the_group_answered_in_time(
    joining: JoinWarning, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Also with no partition at all, as where there are more members than partitions."""
    joining.joined()
    now[0] += 4
    joining.look()
    joining.assigned()
    now[0] += 60
    joining.look()
    assert caplog.records == []
