"""The source in one cluster, all that a relay writes in another: exactly once, without a group
that could fence there. Here both are one broker; tests/loader has two."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AdminClient

from relay.errors import ContractBroken, Fenced
from tests.broker.cross_pipeline import CrossPipeline
from tests.broker.pipeline import delete_topic, is_stopped, wait_until


@pytest.fixture
def pipeline(crossing: CrossPipeline) -> CrossPipeline:
    return crossing


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("after_fence", marks=pytest.mark.long),
        pytest.param("before_commit", marks=pytest.mark.long),
        pytest.param("after_commit", marks=pytest.mark.long),
        "before_show_offsets",
    ],
)
def test_a_relay_killed_anywhere_leaves_no_row_out_and_none_twice(
    pipeline: CrossPipeline, point: str
) -> None:
    """Whatever the group shows, the next relay begins where the journal ends."""
    pipeline.send(range(50))
    pipeline.send(range(50, 100), 1)
    first = pipeline.start("a", failpoint=f"{point}:kill:{1 if point == 'after_fence' else 3}")
    wait_until(lambda: first.poll() == -signal.SIGKILL, f"the kill {point}")

    pipeline.start("a")
    pipeline.send(range(100, 150))

    pipeline.exactly_once()


@pytest.mark.parametrize(
    "step", [pytest.param("before_produce", marks=pytest.mark.long), "before_commit"]
)
def test_a_relay_that_slept_while_another_took_over_cannot_commit(
    pipeline: CrossPipeline, step: str
) -> None:
    """The other took over the partition's transactional id, and read the journal after that."""
    zombie = pipeline.start("a", failpoint=f"{step}:stop:3")
    pipeline.send(range(100))
    pipeline.until(lambda: is_stopped(zombie), "the zombie stands")

    other = pipeline.start("b")
    pipeline.until(lambda: pipeline.has_blocks_of("b"), "blocks of the other member")
    zombie.send_signal(signal.SIGCONT)
    pipeline.until(
        lambda: zombie.poll() is not None or pipeline.has_blocks_of("a"), "the zombie's end"
    )

    assert not pipeline.has_blocks_of("a"), "the zombie committed"
    assert zombie.returncode == Fenced.exit_code, pipeline.log(zombie)
    assert other.poll() is None
    pipeline.send(range(100, 200))
    pipeline.exactly_once()


@pytest.mark.long
def test_a_relay_that_slept_between_fencing_and_reading_repeats_nothing(
    pipeline: CrossPipeline,
) -> None:
    """What it reads then is older than what its successor wrote; its id is not its own any more."""
    pipeline.send(range(50))
    pipeline.send(range(50, 100), 1)
    zombie = pipeline.start("a", failpoint="after_fence:stop:1")
    pipeline.until(lambda: is_stopped(zombie), "the zombie stands")

    pipeline.start("b")
    pipeline.until(lambda: sum(pipeline.rows().values()) == 100, "all rows by the other member")
    zombie.send_signal(signal.SIGCONT)
    pipeline.send(range(100, 200))
    pipeline.send(range(200, 300), 1)

    pipeline.exactly_once()


@pytest.mark.long
def test_without_an_id_of_its_partition_the_sleeper_commits(pipeline: CrossPipeline) -> None:
    """The control of the test above: ids of its own fence nobody."""
    pipeline.without = "partition_identity"

    with pytest.raises(AssertionError, match="the zombie committed"):
        test_a_relay_that_slept_while_another_took_over_cannot_commit(pipeline, "before_produce")


def test_a_journal_that_lost_its_records_is_not_begun_again(pipeline: CrossPipeline) -> None:
    """The group in the source's cluster shows more than the target has: a person decides."""
    pipeline.send(range(10))
    first = pipeline.start("a")
    pipeline.exactly_once()
    first.terminate()
    wait_until(lambda: first.poll() == 0, "the end of the relay")
    journal = f"{pipeline.app}.journal"
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    delete_topic(admin, journal)

    second = pipeline.start("a")
    wait_until(lambda: second.poll() is not None, "the end of the second relay")

    assert second.returncode == ContractBroken.exit_code
    assert "the journal is empty" in pipeline.log(second)
