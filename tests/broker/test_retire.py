"""`relay retire`: what a member that is gone left open is ended, and nothing of one at work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from relay import names
from relay.cli import cli
from relay.config import kafka_clients, settings_file
from relay.operate.view.group import GroupReader
from relay.program.command import run_main
from tests.broker.pipeline import PARTITIONS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.pipeline import Pipeline


def retire(config: Path, *arguments: str) -> int:
    """The exit status; what it said is for capfd, since the watchdog wants a real stderr."""
    return run_main(cli, "relay", ["retire", str(config), *arguments])


def left_open(pipeline: Pipeline, config: Path, member: str) -> Producer:
    """What a relay `member` was about to commit when it was paused for ever."""
    made = settings_file.load(config, {"relay.member": member})
    producer = Producer(kafka_clients.producer(made))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.source, b"unfinished", partition=0)
    assert producer.flush(30) == 0
    return producer


def visible(pipeline: Pipeline) -> bool:
    """Whether a read_committed reader passes over what was left open, to what came after."""
    found = pipeline.read(pipeline.source, PARTITIONS)[0]
    return [value for _, value, _ in found] == [b"after"]


def test_what_was_left_open_is_ended_and_its_owner_fenced(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """A dry run changes nothing; run twice does no harm."""
    # Its own timeout would end the transaction in the middle of the test.
    config = pipeline.config(transaction_timeout_seconds=300.0, session_timeout_seconds=301.0)
    zombie = left_open(pipeline, config, "gone")
    outside = Producer({"bootstrap.servers": pipeline.bootstrap})
    outside.produce(pipeline.source, b"after", partition=0)
    assert outside.flush(30) == 0

    gone = ("--member", "gone", "--never-committed")
    assert retire(config, *gone) == 0
    identity = names.transactional_id(pipeline.app, "gone")
    assert f"{identity}: its transaction would be aborted" in capfd.readouterr().out
    assert not visible(pipeline), "a dry run ended it"

    for _ in range(2):
        assert retire(config, *gone, "--run", "--json") == 0
        assert json.loads(capfd.readouterr().out)["ended"] is True
    wait_until(lambda: visible(pipeline), "readers to pass over the transaction")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(30)
    assert fenced.value.args[0].code() == KafkaError._FENCED


def test_a_member_of_the_group_is_left_alone(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """With one that is gone beside it: neither is ended, and the reason names it."""
    config = pipeline.config(transaction_timeout_seconds=300.0, session_timeout_seconds=301.0)
    made = settings_file.load(config, {"relay.member": "busy"})
    member = Consumer({**kafka_clients.consumer(made), "auto.offset.reset": "earliest"})
    member.subscribe([pipeline.source])

    def joined() -> bool:
        member.poll(0.1)
        return len(member.assignment()) == PARTITIONS

    wait_until(joined, "the member to have its partitions")
    open_still = left_open(pipeline, config, "busy")
    both = ("--member", "gone", "--member", "busy", "--never-committed")

    assert retire(config, *both) == 0
    assert "busy is in the group (partitions: 0, 1)" in capfd.readouterr().out
    assert retire(config, *both, "--run") == 5
    said = capfd.readouterr().err
    assert "busy is in the group" in said
    assert "nothing was done" in said
    open_still.commit_transaction(30)  # not fenced
    member.close()


def test_a_name_that_nobody_knows_is_refused(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    """Issue 32: it looked like the end of a member that is gone. One that is in the journal alone
    is known; one that was killed before its first commit is not, and has a way all the same."""
    config = pipeline.config()
    assert retire(config, "--member", "gone") == 2
    assert f"there is no topic {pipeline.app}.journal" in capfd.readouterr().err

    relay = pipeline.start("relay-1")
    pipeline.send(range(5))
    pipeline.exactly_once()
    relay.terminate()
    assert pipeline.end_of(relay) == 0
    for run in ((), ("--run",), ("--json",)):
        assert retire(config, "--member", "relay1", *run) == 2
        out, said = capfd.readouterr()
        assert not out
        assert "neither the group nor the journal names a member 'relay1'" in said
        assert "they name relay-1; did you mean relay-1?" in said
        assert "add --never-committed" in said

    assert retire(config, "--member", "relay1", "--never-committed") == 0
    assert "relay.relay1: its transaction would be aborted" in capfd.readouterr().out

    def gone() -> bool:
        return not GroupReader(settings_file.load(config)).read().members

    wait_until(gone, "the group to forget the member")
    assert retire(config, "--member", "relay-1", "--run") == 0
    assert "relay.relay-1: ended" in capfd.readouterr().out
