"""A fatal error lets go of its client: its threads would look for brokers for ever."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

from relay.kafka import transactional_producer
from relay.kafka.errors import drop_frames
from tests.mock.cluster import Api
from tests.mock.rig import Course, Rig

if TYPE_CHECKING:
    from collections.abc import Callable

FENCED, NO_SUCH_STATE = 47, 48  # INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE


def clients() -> int:
    gc.collect()
    return sum(isinstance(one, Producer) for one in gc.get_objects())


def left_by(app: str, api: Api, code: int) -> int:
    """Clients that a transaction leaves which this error ended, all else being closed."""
    before = clients()
    with Rig(app) as rig:
        course = Course()
        assert rig.start(course)
        rig.cluster.fail(api, code)
        rig.transaction(course)
        assert course.failures, "nothing failed"
        assert clients() > before
    del rig
    return clients() - before


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (Api.END_TXN, FENCED),
        (Api.ADD_PARTITIONS_TO_TXN, NO_SUCH_STATE),
        (Api.ADD_OFFSETS_TO_TXN, FENCED),
        (Api.PRODUCE, FENCED),
    ],
)
def test_a_fatal_error_lets_go_of_its_client(app: str, api: Api, code: int) -> None:
    assert left_by(app, api, code) == 0


def test_control_with_its_frames_the_exception_keeps_the_client(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the binding does not free it; should this fail, `drop_frames` has become needless."""
    same: Callable[[BaseException], BaseException] = lambda error: error  # noqa: E731
    monkeypatch.setattr(transactional_producer, "drop_frames", same)
    assert left_by(app, Api.END_TXN, FENCED) == 1
    for one in gc.get_objects():
        if isinstance(one, KafkaException):
            drop_frames(one)
