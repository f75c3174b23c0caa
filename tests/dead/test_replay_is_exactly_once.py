"""A replay that is killed, or started twice, sends each dead letter's message once."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.blocks.dead_letter import RecordPlace
from relay.config import settings_file
from relay.operate.dead.reader import DeadReader
from relay.operate.dead.replay import Replay
from relay.operate.dead.replay_plan import ReplayMessage, Why, decide
from tests.broker.pipeline import PARTITIONS, create_topics, is_stopped, wait_until
from tests.dead.letters import TABLE, Command, in_source, marked, write

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

STEPS = (
    "replay_started",
    "replay_begun",
    "replay_messages_written",
    "replay_marks_written",
    "replay_committed",
)
BATCHED = 2_100
"""Three transactions: the kill falls into the second."""


@pytest.mark.parametrize(
    "step",
    [pytest.param(s, marks=() if s == "replay_marks_written" else pytest.mark.long) for s in STEPS],
)
def test_a_killed_replay_is_run_again(pipeline: Pipeline, step: str) -> None:
    """Messages and marks are visible for whole batches; the second run sends the rest, and a
    third one nothing."""
    values = write(pipeline, BATCHED)
    passes = 1 if step == "replay_started" else 2
    Command(pipeline, "replay", "--run", failpoint=f"{step}:kill:{passes}").end(-signal.SIGKILL)

    after_kill = in_source(pipeline)
    whole = {"replay_started": 0, "replay_committed": 2_000}.get(step, 1_000)
    assert (sum(after_kill.values()), marked(pipeline)) == (whole, whole)

    said = Command(pipeline, "replay", "--run").end(0)
    assert f"sent {BATCHED - whole:,} messages" in said
    assert in_source(pipeline) == Counter(values)
    assert marked(pipeline) == BATCHED
    assert "sent 0 messages" in Command(pipeline, "replay", "--run").end(0)
    assert in_source(pipeline) == Counter(values)


def test_of_two_replays_at_once_the_first_is_fenced(pipeline: Pipeline) -> None:
    """The first, paused before its commit, ends with the documented status and sends nothing."""
    values = write(pipeline, 10)
    first = Command(pipeline, "replay", "--run", failpoint="replay_marks_written:stop")
    wait_until(lambda: is_stopped(first.process), "the first stands before its commit")

    assert "sent 10 messages" in Command(pipeline, "replay", "--run").end(0)
    first.process.send_signal(signal.SIGCONT)

    assert "another replay of this app was started" in first.end(7)
    assert in_source(pipeline) == Counter(values)
    assert marked(pipeline) == 10


def test_control_without_one_transaction_a_kill_doubles(pipeline: Pipeline) -> None:
    """Negative control: with the marks in a transaction of their own messages come twice."""
    values = write(pipeline, 10)
    killed = {"failpoint": "replay_messages_written:kill", "without": "one_transaction"}
    Command(pipeline, "replay", "--run", **killed).end(-signal.SIGKILL)
    Command(pipeline, "replay", "--run").end(0)

    assert in_source(pipeline) == Counter(values * 2)


def test_control_without_one_identity_two_replays_double(pipeline: Pipeline) -> None:
    """Negative control: under two transactional ids both replays send everything."""
    values = write(pipeline, 10)
    # While the first waits, the coordinator must not abort it, however slow the machine is.
    long = pipeline.config(transaction_timeout_seconds=60.0, session_timeout_seconds=70.0)
    free = partial(Command, pipeline, "replay", "--run", without="one_identity", config=long)
    first = free(failpoint="replay_marks_written:stop")
    wait_until(lambda: is_stopped(first.process), "the first stands before its commit")
    free().end(0)
    first.process.send_signal(signal.SIGCONT)
    first.end(0)

    assert in_source(pipeline) == Counter(values * 2)


def test_a_place_named_twice_is_sent_once(pipeline: Pipeline) -> None:
    """Places on the command line are a set, and only those are sent."""
    write(pipeline, 6)
    said = Command(pipeline, "replay", "0:1", "1:0", "0:1", "--run").end(0)

    assert "sent 2 messages" in said
    assert in_source(pipeline) == Counter([b"message 2", b"message 1"])


def test_marks_that_were_deleted_stop_a_replay(pipeline: Pipeline) -> None:
    """Somebody made their topic with a policy that forgets. Red before: status 0, and messages came
    twice. A person who knows better goes on, and what has its mark is not sent."""
    values = write(pipeline, 10)
    topic = names.replayed_topic(pipeline.app)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    create_topics(admin, NewTopic(topic, 1, 1, config={"cleanup.policy": "delete"}))
    Command(pipeline, "replay", "--run").end(0)
    place = TopicPartition(topic, 0, 6)
    admin.delete_records([place])[place].result(30)

    for more in ((), ("--run",)):
        assert f"{topic} begins at offset 6" in Command(pipeline, "replay", *more).end(6)
    assert in_source(pipeline) == Counter(values)
    for look in (("ls",), ("show", "0:0")):
        assert "marks of replays were deleted" in Command(pipeline, *look).end(0)
    said = Command(pipeline, "replay", "--despite-replays", "--run").end(0)
    assert ("sent 6 messages" in said, "not sent, 4: already replayed" in said) == (True, True)


def test_without_run_nothing_is_sent(pipeline: Pipeline) -> None:
    """The dry run counts what a run would send, and changes no topic."""
    write(pipeline, 6)
    said = Command(pipeline, "replay", "--partition", "1").end(0)

    assert f"would send 3 messages (27 bytes) to {pipeline.source}\n  3 of {TABLE}" in said
    assert "nothing was sent; add --run to send them" in said
    assert f"there is no topic {names.replayed_topic(pipeline.app)}" in said, "it may be deleted"
    assert not in_source(pipeline)
    assert marked(pipeline) == 0


def test_a_dead_letter_in_an_open_transaction_is_neither_shown_nor_waited_for(
    pipeline: Pipeline,
) -> None:
    """A relay that was killed leaves its transaction open until it times out."""
    write(pipeline, 2 * PARTITIONS)
    open_one = Producer(
        {"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{pipeline.app}.open"}
    )
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(names.dead_topic(pipeline.app), b"not yet", partition=0)
    assert open_one.flush(30) == 0
    try:
        assert len(Command(pipeline, "ls", "--json").end(0).splitlines()) == 2 * PARTITIONS
    finally:
        open_one.abort_transaction(30)


def test_after_a_commit_in_doubt_the_marks_are_read_anew(pipeline: Pipeline) -> None:
    """A commit amid transport errors makes a new producer; what another replay sent before that
    is not sent again."""
    values = write(pipeline, 6)
    settings = settings_file.load(pipeline.config())
    reader = DeadReader(settings)
    replay = Replay(settings, reader)
    replay.start()
    messages = [decide(one, replay.marks, pipeline.source) for one in reader.letters()]
    sent = [message for message in messages if isinstance(message, ReplayMessage)]
    commit = replay._producer.commit

    def in_doubt() -> bool:
        commit()
        assert "sent 4 messages" in Command(pipeline, "replay", "--run").end(0)
        return False

    replay._producer.commit = in_doubt  # type: ignore[method-assign]
    replay.send(sent[:2])
    replay._producer.commit = commit  # type: ignore[method-assign]
    replay.send(sent)
    replay.close()
    reader.close()

    assert len(replay.marks) == 6
    assert in_source(pipeline) == Counter(values)


def test_what_was_rewound_while_a_batch_filled_is_not_sent(pipeline: Pipeline) -> None:
    """The decision is made again directly before the transaction."""
    values = write(pipeline, 3)
    settings = settings_file.load(pipeline.config())
    rewound: dict[RecordPlace, Why] = {}
    with (
        contextlib.closing(DeadReader(settings)) as reader,
        contextlib.closing(Replay(settings, reader, lambda _: rewound)) as replay,
    ):
        replay.start()
        decided = [decide(one, replay.marks, pipeline.source) for one in reader.letters()]
        batch = [message for message in decided if isinstance(message, ReplayMessage)]
        rewound[batch[1].letter.place] = Why.READ_AGAIN
        assert replay.send(batch) == [(batch[1], Why.READ_AGAIN)]
        rewound.clear()
        assert [why for _, why in replay.send(batch)] == [Why.DONE, Why.DONE]
    pipeline.until(lambda: in_source(pipeline).total() >= len(values), "the transaction's markers")
    assert in_source(pipeline) == Counter(values)
