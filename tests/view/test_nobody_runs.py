"""Nobody relays and nobody loads, beside a real broker: status says so, and for how long."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from relay import names
from relay.config.settings_file import load as load_config
from relay.operate.verify.read import journal
from relay.operate.view import missing_programs
from relay.operate.view.ask import StatusReader
from relay.operate.view.oldest_unread import NOTHING_MS, OldestUnread
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, row_batch, wait_until

if TYPE_CHECKING:
    from relay.operate.view.status import Screen

AGO_MS = 600_000


def begun(pipeline: Pipeline, partition: int) -> Producer:  # noqa: F811
    """A message in a transaction that is open, written a while ago."""
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{pipeline.app}-{partition}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(
        pipeline.source,
        row_batch([1_000 + partition]),
        partition=partition,
        headers=[("table", pipeline.table.encode())],
        timestamp=int(time.time() * 1000) - AGO_MS,
    )
    assert producer.flush(30) == 0
    return producer


def behind(pipeline: Pipeline, partition: int, *, commit: bool) -> None:  # noqa: F811
    """A message in a transaction that is committed, or aborted: then only its marker is left."""
    producer = begun(pipeline, partition)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def by_kind(screen: Screen) -> dict[str, str]:
    return {one.kind: one.text for one in screen.troubles}


def test_nobody_runs(
    pipeline: Pipeline,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A relay that is gone, blocks that no loader takes, and messages behind them."""
    monkeypatch.setattr("relay.operate.view.oldest_unread.SECONDS", 60.0)
    monkeypatch.setattr(missing_programs, "LOADER_MS", 600_000)
    config = pipeline.config()
    process = pipeline.start("a", config)
    pipeline.send([1])
    pipeline.send([2], 1)
    pipeline.exactly_once()
    with contextlib.closing(StatusReader(load_config(config))) as looking:
        screen = looking.screen()
        assert missing_programs.NO_RELAY not in by_kind(screen)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        behind(pipeline, 0, commit=True)
        behind(pipeline, 1, commit=False)
        wait_until(lambda: not looking.screen().facts.group.members, "the group without it")
        screen = looking.screen()
        found = by_kind(screen)
        assert found[missing_programs.NO_RELAY].startswith("no relay is in the group; ")
        assert missing_programs.NO_LOADER not in found, "the blocks are there for moments"
        monkeypatch.setattr(missing_programs, "LOADER_MS", 0)
        told = by_kind(looking.screen())[missing_programs.NO_LOADER]
        assert told.startswith("no loader has settled a block yet, and 2 blocks wait, the oldest")
    old, markers = screen.partitions
    assert old.lag
    assert AGO_MS / 1000 <= (old.lag_seconds or 0) < AGO_MS / 1000 + 60
    assert (markers.lag, markers.lag_seconds) == (0, 0.0), "nobody can read a marker"


def test_a_transaction_hangs_in_the_source(pipeline: Pipeline) -> None:  # noqa: F811
    """What lies behind it is in no lag, and is red all the same; no more once it has ended."""
    config = pipeline.config()
    pipeline.start("a", config)
    pipeline.send([1])
    pipeline.send([2], 1)
    pipeline.exactly_once()
    hanging = begun(pipeline, 0)
    pipeline.send([3, 4])
    with contextlib.closing(StatusReader(load_config(config))) as looking:
        screen = looking.screen()
        held, well = screen.partitions
        assert (held.lag, held.hidden, well.hidden) == (0, 3, 0)
        assert AGO_MS / 1000 <= (held.hidden_seconds or 0) < AGO_MS / 1000 + 60
        told = by_kind(screen)[missing_programs.HELD_BACK]
        assert told.startswith("an open transaction hides 3 offsets of source partition 0 from ")
        hanging.abort_transaction(30)
        wait_until(lambda: not looking.screen().partitions[0].hidden, "the abort's marker")
        screen = looking.screen()
    assert missing_programs.HELD_BACK not in by_kind(screen)
    assert screen.partitions[0].hidden == 0
    pipeline.exactly_once()


def test_a_partition_without_a_leader_hides_no_other(
    pipeline: Pipeline,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The screen says which it is, and all else that it knows."""
    config = pipeline.config()
    pipeline.start("a", config)
    pipeline.send([1])
    pipeline.send([2], 1)
    pipeline.exactly_once()
    without = {(names.blocks_topic(pipeline.app, pipeline.table), 0), (pipeline.source, 1)}
    listed = journal.listed_offset

    def answered(place: TopicPartition, found: Any) -> int:
        if (place.topic, place.partition) in without:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return listed(place, found)

    monkeypatch.setattr(journal, "listed_offset", answered)
    with contextlib.closing(StatusReader(load_config(config))) as looking:
        screen = looking.screen()
        assert [row.lag for row in screen.partitions] == [0, None]
        assert [row.member for row in screen.partitions] == ["a", "a"]
        told = by_kind(screen)[missing_programs.SILENT]
        assert all(f"{topic}[{partition}]" in told for topic, partition in without)
        assert "LEADER_NOT_AVAILABLE" in told
        without.clear()
        assert missing_programs.SILENT not in by_kind(looking.screen())


def test_what_is_known_is_not_asked_again(
    pipeline: Pipeline,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stretch that grows begins with the same message; one that was only markers is looked at."""
    monkeypatch.setattr("relay.operate.view.oldest_unread.SECONDS", 60.0)
    settings = load_config(pipeline.config())
    behind(pipeline, 0, commit=False)
    behind(pipeline, 1, commit=True)
    with contextlib.closing(OldestUnread(settings)) as oldest:
        found = oldest.written_ms({0: (0, 2), 1: (0, 2)})
        assert found[0] == NOTHING_MS
        assert found[1] > NOTHING_MS
        with monkeypatch.context() as patch:
            patch.setattr(oldest, "_ask", lambda *_: pytest.fail("it asks"))
            assert oldest.written_ms({0: (0, 2), 1: (0, 9)}) == found
            assert oldest.written_ms({1: (0, 9)}) == {1: found[1]}
        pipeline.send([7])
        assert oldest.written_ms({0: (0, 3)})[0] > NOTHING_MS


def test_a_topic_that_is_not_there_is_not_known(
    pipeline: Pipeline,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither an error nor a wait without end."""
    monkeypatch.setattr("relay.operate.view.oldest_unread.SECONDS", 1.0)
    settings = load_config(pipeline.config())
    other = settings.source.model_copy(update={"topic": f"{pipeline.app}-none"})
    with contextlib.closing(OldestUnread(settings.model_copy(update={"source": other}))) as oldest:
        assert oldest.written_ms({0: (0, 5)}) == {}
