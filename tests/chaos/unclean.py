"""An unclean election of the source's leader: the new one lacks what the relay has read.

Receives a directory, starts three brokers there, ends them, and gives what was seen. The source
has two replicas and allows the election; everything that the relay writes has three.

    both replicas hold rows 0 to 99; the follower is stopped; the leader alone takes 100 to 199,
    which the relay commits; the leader is killed; the follower, which ends at 99, is elected
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from relay.dev import broker
from relay.dev import stack as dev_stack
from tests import reach
from tests.broker.pipeline import Pipeline, create_topics, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEADER, FOLLOWER = 0, 1
ALLOWED = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
START_SECONDS, END_SECONDS = 60.0, 90.0
CONTRACT_BROKEN = 6
WHEN = ("running", "started later", "started when the log has grown")
"""The last needs the leader epoch that is committed with a floor: the log's end is behind it."""


def seen(directory: Path, say: Callable[[str], None], when: str) -> list[str]:
    """Anomalies; none where the relay ended with status 6, and wrote nothing after the election.

    Args:
        directory: of brokers, logs and configuration; new.
        say: told what is done.
        when: the relay meets the new leader, one of WHEN.
    """
    with _pipeline(directory, say) as pipeline:
        # The coordinator may go with the leader: another has to end the relay's last transaction.
        config = pipeline.config(wait_for_servers_seconds=START_SECONDS)
        text = config.read_text(encoding="utf-8").replace("[kafka]", "[kafka]\nreplication = 3", 1)
        config.write_text(text, encoding="utf-8")
        relay = pipeline.start("a", config)
        pipeline.send(range(100))
        pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows of both replicas")
        say("stopping the follower")
        broker.stop(directory / "stack", FOLLOWER)
        pipeline.send(range(100, 200))
        pipeline.until(lambda: pipeline.floor(0) == 200, "rows of the leader alone are committed")
        if when != "running":
            relay.send_signal(signal.SIGTERM)
            relay.wait(END_SECONDS)
        say("killing the leader; the follower comes back")
        broker.kill(directory / "stack", LEADER)
        broker.start(directory / "stack", FOLLOWER)
        admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
        wait_until(lambda: _leader(admin, pipeline.source) == FOLLOWER, "the unclean election")
        before = pipeline.rows()
        if when == WHEN[2]:
            pipeline.send(range(200, 400))
        if when != "running":
            relay = pipeline.start("a", config)
        return _judged(pipeline, relay, before, say)


def _judged(
    pipeline: Pipeline,
    relay: subprocess.Popen[bytes],
    before: Counter[int],
    say: Callable[[str], None],
) -> list[str]:
    found = []
    with contextlib.suppress(AssertionError):
        wait_until(lambda: relay.poll() is not None, "the end of the relay", END_SECONDS)
    log = pipeline.log(relay)
    say(log.strip().splitlines()[-2] if relay.poll() is not None else "the relay goes on")
    if relay.poll() != CONTRACT_BROKEN:
        found.append(f"the relay's status is {relay.poll()}, not {CONTRACT_BROKEN}:\n{log}")
    if pipeline.floor(0) != 200 or pipeline.rows() != before:
        found.append("a floor or rows were committed after the election")
    return found


def _leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


@contextlib.contextmanager
def _pipeline(directory: Path, say: Callable[[str], None]) -> Iterator[Pipeline]:
    """An app on three brokers, whose source lies on LEADER and FOLLOWER."""
    try:
        stack = dev_stack.up(directory / "stack", brokers=3, progress=say)
        made = Pipeline(stack.bootstrap, stack.clickhouse, "unclean", "unclean", directory)
        admin = AdminClient({"bootstrap.servers": stack.bootstrap})
        replicas = [[LEADER, FOLLOWER]] * 2
        topic = NewTopic(made.source, 2, replica_assignment=replicas, config=ALLOWED)
        create_topics(admin, topic)
        client = reach.client(stack.clickhouse)
        client.command("CREATE DATABASE unclean")
        client.command("CREATE TABLE unclean.t (id Int64, v String) ENGINE = Memory")
        client.close()
        try:
            yield made
        finally:
            made.stop_all()
    finally:
        dev_stack.down(directory / "stack")
