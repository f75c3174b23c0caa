"""Rewinds and accepts on the real broker, the real loader's worker and ClickHouse's engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from relay import names
from relay.config.settings_file import load as load_config
from relay.operate.verify.read.topic import TopicReader
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import PARTITIONS, Pipeline, delete_topic, row_batch, wait_until
from tests.dead.letters import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client


RELAY = Path(sys.executable).parent / "relay"
KILLED = -signal.SIGKILL


@dataclass
class Site:
    """An app whose table has the block-id column, and a ledger of its own."""

    pipeline: Pipeline
    config: Path
    client: Client

    def person(self, *command: str, failpoint: str = "") -> tuple[int, str]:
        """Exit status and all that a `relay` command printed."""
        done = subprocess.run(
            [RELAY, command[0], self.config, *command[1:]],
            env={**os.environ, "RELAY_FAILPOINT": failpoint},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def relayed(self) -> None:
        """A relay seals all that was sent, beyond the rewinds before, and stops."""
        relay = self.pipeline.start("a", self.config)
        self.pipeline.until(lambda: "assigned" in self.pipeline.log(relay), "its partitions")
        self.pipeline.until(self.all_sealed, "all messages before the floors")
        self.pipeline.until(lambda: self.sealed() == self.pipeline.sent, "all rows in live blocks")
        relay.send_signal(signal.SIGTERM)
        assert self.pipeline.end_of(relay) == 0

    def all_sealed(self) -> bool:
        """Whether the floors are at the source's ends."""
        settings = load_config(self.config)
        with contextlib.closing(TopicReader(settings)) as reader:
            ends = [reader.bounds(self.pipeline.source, p)[1] for p in range(PARTITIONS)]
        return [place.offset for place in self.pipeline.committed()] == ends

    def sealed(self) -> Counter[int]:
        """Ids in blocks, those of the newest epoch where there are several of one message."""
        found: dict[int, tuple[int, int]] = {}
        topics: dict[str, Any] = {}
        for commits in self.pipeline.journal().values():
            for block in (block for commit in commits for block in commit.blocks):
                epoch = int(block.id.split(":")[3])
                ids = self.pipeline.rows_of(block, topics).column("id").to_pylist()
                for number, times in Counter(ids).items():
                    before, so_far = found.get(number, (-1, 0))
                    found[number] = (epoch, times + (so_far if before == epoch else 0))
        return Counter({number: times for number, (_, times) in found.items()})

    def load(self) -> None:
        """Every block of the journal, superseded ones too: a loader that lost its position."""
        blocks = [b for cs in self.pipeline.journal().values() for c in cs for b in c.blocks]
        settings = load_config(self.config)
        ledger_of(settings, make=True)
        with contextlib.closing(Worker(settings)) as worker:
            worker.load(blocks)

    def rows(self) -> Counter[int]:
        """Ids in the table."""
        found = self.client.query(f"SELECT id FROM {self.pipeline.table}").result_rows
        return Counter(row[0] for row in found)

    def verified(self) -> list[str]:
        """What people took note of; no anomaly, however deep one looks."""
        status, said = self.person("verify", "--deep", "--json")
        assert status == 0, said
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return [line["acknowledged"] for line in lines if "acknowledged" in line]

    def head(self) -> Any:
        """The last record of partition 0."""
        return self.pipeline.journal()[0][-1]


@pytest.fixture
def site(pipeline: Pipeline, client: Client) -> Iterator[Site]:  # noqa: F811
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config, ledger = pipeline.config(flush_point_interval_seconds=1.0), f"{pipeline.database}_l"
    text = config.read_text()
    config.write_text(text.replace("[loader]\n", f'[loader]\ndatabase = "{ledger}"\n', 1))
    yield Site(pipeline, config, client)
    client.command(f"DROP DATABASE IF EXISTS {ledger}")


BEFORE = {"person_offsets_sent": KILLED}
"""Killed there, nothing has happened; exit status."""
BEGUN = {
    "person_committed": KILLED,
    "after_remove": 4,  # in the loader's process below it
    "person_offsets_sent": KILLED,
}
"""Killed there, the rewind is begun; each goes on where the one before was killed."""


@pytest.mark.long  # tests/rewind/test_run.py has it pure, and the next test kills one for real
def test_a_rewind_killed_at_each_step_ends_as_a_fresh_load(site: Site) -> None:
    """Beside a running relay; the loader has loaded a part; then the other rewinds."""
    running = site.pipeline.start("a", site.config)
    for start in range(0, 120, 20):
        site.pipeline.send(range(start, start + 20), partition=start // 20 % 2)
        wanted = site.pipeline.sent.copy()
        site.pipeline.until(lambda w=wanted: site.pipeline.rows() == w, "rows")
        if start == 60:
            site.load()
    again = ("rewind", "--all", "--to-offset", "earliest", "--run", "--why", "a test")

    for name, ended in BEFORE.items():
        status, said = site.person(*again, failpoint=name)
        assert status == ended, said
        assert not site.head().HasField("rewind")
    wait_until(lambda: running.poll() is not None, "the end of the fenced relay")
    assert running.poll() == 7, site.pipeline.log(running)
    for name, ended in BEGUN.items():
        status, said = site.person(*again, failpoint=name)
        assert status == ended, said
        assert site.head().HasField("rewind")
        if name == "person_committed":
            stops(site, "a rewind to offset", 4)
    status, said = site.person("rewind", "--run")
    assert status == 0, said
    assert "is now finished" in said
    assert site.rows() == Counter()

    site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent
    other_rewinds(site)
    negative_control(site)


@pytest.mark.long  # 60 s; tests/core/test_takeover.py decides it
def test_relays_of_one_command_go_on_after_a_rewind(site: Site) -> None:
    """They end and are started again while it lasts, without a person, and read nothing."""
    for partition in range(PARTITIONS):
        site.pipeline.send(range(20 * partition, 20 * partition + 20), partition=partition)
    command = site.pipeline.start("m", site.config, arguments=["--processes", "2"])
    site.pipeline.until(lambda: site.sealed() == site.pipeline.sent, "all rows in blocks")
    site.load()
    gate = site.pipeline.directory / "gate"
    gate.touch()
    again = ("--all", "--to-offset", "earliest", "--run")
    held = f"before_supersede:wait={gate}"
    rewind = site.pipeline.watch("rewind", site.config, *again, failpoint=held)
    site.pipeline.until(gate.with_name("gate.reached").exists, "the rewind between its records")
    before = site.head()

    def found_it() -> bool:
        return site.pipeline.log(command).count("was begun and is not finished") >= 3

    site.pipeline.until(found_it, "relays that find the unfinished rewind, again and again")
    assert command.poll() is None, site.pipeline.log(command)
    assert site.head() == before, "a relay went on"
    gate.unlink()
    status, said = rewind.wait(120), site.pipeline.log(rewind)
    site.pipeline.processes.remove(rewind)  # that it ends with 4 is no failure
    while status in (4, 7):  # a relay took its place back meanwhile: run it again, says the help
        status, said = site.person("rewind", "--run")
    assert status == 0, said

    site.pipeline.until(site.all_sealed, "the messages read once more")
    assert command.poll() is None, site.pipeline.log(command)
    site.load()
    assert site.rows() == site.pipeline.sent
    site.verified()


def other_rewinds(site: Site) -> None:
    """By time and table; a dry run first."""
    table = site.pipeline.table
    by_table = ("rewind", "--table", table, "--to-time", "1h")
    status, said = site.person(*by_table, "--json")
    assert status == 0, said
    assert {json.loads(line)["partition"] for line in said.splitlines()} == {0, 1}
    assert site.rows() == site.pipeline.sent, "a dry run changes nothing"
    status, said = site.person(*by_table, "--run")
    assert status == 0, said
    assert site.rows() == Counter()
    site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent
    said = site.verified()
    assert [sum(why in text for text in said) for why in ("why: a test", "not said")] == [2, 2]


def negative_control(site: Site) -> None:
    """The judge sees doubled rows, and a rewind that would double them is refused unless told."""
    column = f"ALTER TABLE {site.pipeline.table} DROP COLUMN _block"
    site.client.command(column)
    again = ("rewind", "--partition", "0", "--to-offset", "0", "--run")
    status, said = site.person(*again)
    assert status == 2
    assert "has no column _block" in said
    assert site.person(*again, "--keep-rows", site.pipeline.table)[0] == 0

    site.relayed()
    site.load()
    assert site.rows() != site.pipeline.sent


@pytest.mark.long  # 128 s; test_shortened.py decides it
def test_rows_stay_whose_messages_are_gone_when_a_rewind_goes_on(site: Site) -> None:
    """Killed before the first row was removed; then retention passes half of the messages."""
    for start in range(0, 80, 20):
        site.pipeline.send(range(start, start + 20))
        site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent
    again = ("rewind", "--all", "--to-offset", "earliest", "--run")
    assert site.person(*again, failpoint="before_supersede")[0] == KILLED
    assert site.rows() == site.pipeline.sent
    retention(site, 50)

    status, said = site.person("rewind", "--run")
    assert status == 0, said
    assert "starts at 50 by now" in said, said
    assert 50 <= site.rows().total() < 80
    site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent
    site.verified()
    removed_before(site)


def removed_before(site: Site) -> None:
    """Then it is killed when the rows are removed: what is left of their messages is read again."""
    again = ("rewind", "--all", "--to-offset", "earliest", "--run")
    assert site.person(*again, failpoint="after_remove")[0] == 4
    rows = site.rows()
    assert 0 < rows.total() < 80, "what stayed before, and nothing else"
    retention(site, 75)
    status, said = site.person("rewind", "--run")
    assert status == 0, said
    assert "stay as they are" not in said, said
    stops(site, "were never read and are gone")
    assert site.person("accept", "--run", "--why", "a test")[0] == 0
    for gone in range(75):
        if gone not in rows:
            del site.pipeline.sent[gone]
    relay = site.pipeline.start("a", site.config)
    site.pipeline.until(site.all_sealed, "all messages before the floors")
    relay.send_signal(signal.SIGTERM)
    assert site.pipeline.end_of(relay) == 0
    site.pipeline.await_markers()
    site.load()
    assert site.rows() == site.pipeline.sent


def test_rows_that_lost_their_block_id_are_refused(site: Site) -> None:
    """They would stay beside the new ones; removed by hand, they hold up nothing."""
    site.pipeline.send(range(20))
    site.relayed()
    site.load()
    table, head = site.pipeline.table, site.head()
    site.client.command(f"ALTER TABLE {table} DROP COLUMN _block SETTINGS mutations_sync = 2")
    site.client.command(f"ALTER TABLE {table} ADD COLUMN _block String")
    command = ("rewind", "--table", table, "--to-offset", "earliest")
    for more in ((), ("--run",)):
        status, said = site.person(*command, *more)
        assert (status, "20 rows cannot be found by the block id" in said) == (2, True), said
    assert site.head() == head, "nothing has happened"

    site.client.command(f"TRUNCATE TABLE {table}")
    status, said = site.person(*command, "--run")
    assert status == 0, said
    site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent


def test_a_letter_whose_message_was_read_again_is_not_replayed(site: Site) -> None:
    """Its table was missing; the rewind made a row of its message. A later letter is replayed."""
    app, table = site.pipeline, f"{site.pipeline.database}.late"
    app.send(range(10))
    produce(app, 900, table)
    site.relayed()
    app.until(lambda: len(app.dead()) == 1, "its letter")
    site.client.command(f"CREATE TABLE {table} AS {app.table}")
    assert site.person("rewind", "--all", "--to-offset", "earliest", "--run")[0] == 0
    app.sent[900] += 1
    produce(app, 901, f"{table}r")
    site.relayed()
    app.until(lambda: len(app.dead()) == 2, "a letter after the rewind")

    said = Command(app, "replay", "--as-table", table, "--run", config=site.config).end(0)
    assert "sent 1 messages" in said, said
    assert "not sent, 1: a rewind had the message read again since" in said, said
    app.sent[901] += 1
    app.send([10])  # so that the source ends with a message, not with the replay's marker
    site.relayed()
    site.load()
    ids = site.client.query(f"SELECT id FROM {table} ORDER BY id").result_rows
    assert [number for (number,) in ids] == [900, 901]

    anyway = Command(app, "replay", "--despite-rewinds", config=site.config).end(0)
    assert "would send 1 messages" in anyway, anyway
    replays_count_without_their_letters(site)


def replays_count_without_their_letters(site: Site) -> None:
    """The dead letters are deleted, and their topic is made anew: a rewind knows the replay."""
    admin = AdminClient({"bootstrap.servers": site.pipeline.bootstrap})
    delete_topic(admin, f"{site.pipeline.app}.dead")
    site.relayed()
    status, said = site.person("rewind", "--all", "--to-offset", "earliest", "--run")
    assert (status, "1 dead letter was replayed" in said) == (2, True), said


def produce(app: Pipeline, number: int, table: str) -> None:
    """Send one row to partition 0, of this table."""
    producer = Producer({"bootstrap.servers": app.bootstrap, "acks": "all"})
    app.produce(producer, row_batch([number]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0


def retention(site: Site, start: int) -> None:
    """Make this offset the first one of partition 0."""
    admin = AdminClient({"bootstrap.servers": site.pipeline.bootstrap})
    place = TopicPartition(site.pipeline.source, 0, start)
    admin.delete_records([place])[place].result(30)


@pytest.mark.long  # 123 s; test_accept.py decides it
def test_accepted_states_let_the_relay_go_on(site: Site) -> None:
    """Retention that passed unread messages, then a topic made anew."""
    site.pipeline.send(range(20))
    site.relayed()
    floor = site.pipeline.floor(0)
    assert floor == 20
    site.pipeline.send(range(100, 105))
    retention(site, floor + 3)
    for gone in (100, 101, 102):
        del site.pipeline.sent[gone]
    stops(site, "were never read and are gone")
    status, said = site.person("accept")
    assert (status, f"starts at {floor + 3}" in said) == (0, True), said
    assert site.person("accept", "--run")[0] == 2, "it wants a reason"
    assert site.person("accept", "--run", "--why", "an outage")[0] == 0
    site.pipeline.send(range(200, 210))
    site.relayed()

    site.pipeline.delete_source()
    site.pipeline.create_source()
    stops(site, "created again")
    assert site.person("accept", "--run", "--why", "moved house")[0] == 0
    site.pipeline.send(range(300, 310))
    site.relayed()
    site.load()
    assert site.rows() == site.pipeline.sent
    said = site.verified()
    kinds = [sum(f"accepted {kind}" in text for text in said) for kind in ("retention", "topic")]
    assert kinds == [1, PARTITIONS]


@pytest.mark.long  # 24 s; test_accept.py decides it
def test_a_past_that_is_gone_is_not_accepted(site: Site) -> None:
    """No relay ran for a month: offsets expired, retention emptied the journal. One answer."""
    site.pipeline.send(range(20))
    site.relayed()
    admin = AdminClient({"bootstrap.servers": site.pipeline.bootstrap})
    group = names.group_id(site.pipeline.app)
    # A static member stays for its session's time.
    wait_until(
        lambda: not admin.describe_consumer_groups([group])[group].result(30).members, "its end"
    )
    admin.delete_consumer_groups([group])[group].result(30)
    journal = names.journal_topic(site.pipeline.app)
    places = [TopicPartition(journal, p, OFFSET_END) for p in range(PARTITIONS)]
    for future in admin.delete_records(places).values():
        future.result(30)

    stops(site, "nothing says where to continue")
    for command in (
        ["accept"],
        ["accept", "--run", "--why", "a month"],
        ["rewind", "--all", "--to-offset", "0", "--run"],
    ):
        status, said = site.person(*command)
        assert status == 6, said
        assert "offsets were deleted: nothing says which messages are in blocks" in said
        assert "begin under a new app name" in said


def stops(site: Site, why: str, status: int = 6) -> None:
    relay = site.pipeline.start("a", site.config)
    wait_until(lambda: relay.poll() is not None, "the relay stops")
    assert relay.poll() == status, site.pipeline.log(relay)
    assert why in site.pipeline.log(relay)
    site.pipeline.processes.remove(relay)  # that it ends so is no failure
