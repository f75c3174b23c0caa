"""`up`, `status` and `down`: servers that answer, and nobody else's process ended."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay.cli.dev.command import dev
from relay.config import settings_file
from relay.dev import broker, clickhouse, layout, process
from relay.dev import stack as dev_stack
from relay.dev.stack import Stack
from relay.errors import ConfigError, MissingTool, Unavailable
from relay.schema import catalogue
from tests import reach
from tests.broker.pipeline import wait_until

pytestmark = pytest.mark.servers


def _quietly(_line: str) -> None:
    pass


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stack]:
    """A stack of this test alone, which it may break."""
    try:
        yield dev_stack.up(tmp_path / "own", progress=_quietly)
    finally:
        dev_stack.down(tmp_path / "own")


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours, though its command line names a directory of the test."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", str(tmp_path / "other")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def test_a_cluster_id_may_begin_with_a_dash(tmp_path: Path) -> None:
    """Ids are random and one in 64 does: Kafka's tool must not take it for an option."""
    plan = layout.Layout("-" + "A" * 21, [1], [2], 3)
    settings = broker._write_settings(tmp_path, 0, plan)

    broker._format(settings, plan.cluster_id)

    written = (tmp_path / "broker-0" / "meta.properties").read_text(encoding="utf-8")
    assert f"cluster.id={plan.cluster_id}" in written


def test_extra_properties_win_over_our_own(tmp_path: Path) -> None:
    """Those of all brokers before those of one: of two lines Java takes the later."""
    plan = layout.Layout("A" * 22, [1], [2], 3)
    (tmp_path / "extra.properties").write_text("num.io.threads=3\nbroker.rack=all")
    (tmp_path / "broker-0.extra.properties").write_text("broker.rack=one")

    written = broker._write_settings(tmp_path, 0, plan).read_text(encoding="utf-8").split()

    assert written[-3:] == ["num.io.threads=3", "broker.rack=all", "broker.rack=one"]


def _make_topic(bootstrap: str, topic: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, copies)], operation_timeout=30)[topic].result(30)


def _produce(bootstrap: str, topic: str) -> int:
    """Offset of one acknowledged record."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    producer.produce(
        topic,
        b"x",
        on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
    )
    assert producer.flush(70) == 0
    return offsets[0]


def test_up_twice_is_the_same_stack(stack: Stack) -> None:
    """A second `up` starts nothing and returns the running stack."""
    lines: list[str] = []
    assert dev_stack.up(stack.directory, progress=lines.append) == stack
    assert dev_stack.status(stack.directory) == stack
    assert lines == []


@pytest.mark.long  # 20 s, for developers' stacks alone
def test_data_and_ports_outlive_a_crash(own: Stack) -> None:
    """After SIGKILL of all servers `up` gives the same addresses and the same data; what the
    server recorded of its statements is there as well."""
    _make_topic(own.bootstrap, "kept", 1)
    assert _produce(own.bootstrap, "kept") == 0
    reach.sql(own.clickhouse, "CREATE DATABASE kept")
    reach.sql(own.clickhouse, "CREATE TABLE kept.t (a UInt8) ENGINE MergeTree ORDER BY a")
    reach.sql(own.clickhouse, "INSERT INTO kept.t SETTINGS log_comment = 'seven' VALUES (7)")
    recorded = "SELECT sum(written_rows) FROM system.query_log WHERE log_comment = 'seven'"
    wait_until(lambda: reach.sql(own.clickhouse, recorded) == "1", "query_log")
    assert broker.kill(own.directory, 0)
    assert process.end(own.directory, dev_stack.CLICKHOUSE, kill=True)
    found = dev_stack.status(own.directory)
    assert found is not None
    assert (found.broker_pids, found.clickhouse_pid) == ((None,), None)
    again = dev_stack.up(own.directory, progress=_quietly)
    assert (again.bootstrap, again.clickhouse) == (own.bootstrap, own.clickhouse)
    assert again.complete
    assert _produce(own.bootstrap, "kept") == 1
    assert reach.sql(own.clickhouse, "SELECT a FROM kept.t") == "7"
    assert reach.sql(own.clickhouse, recorded) == "1"


def test_down_ends_what_up_started_and_nothing_else(
    own: Stack, bystander: subprocess.Popen[bytes]
) -> None:
    """`down` ends both servers, leaves another process alone, and a second `down` finds nothing."""
    pids = [*own.broker_pids, own.clickhouse_pid]
    assert len(dev_stack.down(own.directory)) == 2
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    assert bystander.poll() is None
    assert dev_stack.down(own.directory) == []
    addresses = [*own.bootstrap.split(","), own.clickhouse.url, f":{own.clickhouse_tcp_port}"]
    assert all(layout.is_free(int(address.rpartition(":")[2])) for address in addresses)


@pytest.mark.parametrize("lie", ["started", "directory"])
def test_stale_pid_file_ends_nobody(
    tmp_path: Path, bystander: subprocess.Popen[bytes], lie: str
) -> None:
    """A pid that was given to a foreign process is not ours: neither found nor ended.

    Control: with the right start time and directory the same process is found and ended.
    """
    directory = tmp_path / "other"
    started = psutil.Process(bystander.pid).create_time()
    true = {"pid": bystander.pid, "started": started}
    layout.write(directory, layout.Layout("x", [1], [2], 3))
    process.pid_file(directory, "broker-0").parent.mkdir(parents=True)
    if lie == "started":
        false = {**true, "started": started - 100}
        process.pid_file(directory, "broker-0").write_text(json.dumps(false))
        assert dev_stack.down(directory) == []
    else:
        elsewhere = tmp_path / "elsewhere"
        layout.write(elsewhere, layout.Layout("x", [1], [2], 3))
        process.pid_file(elsewhere, "broker-0").parent.mkdir(parents=True)
        process.pid_file(elsewhere, "broker-0").write_text(json.dumps(true))
        assert dev_stack.down(elsewhere) == []
    assert bystander.poll() is None, "still runs"
    process.pid_file(directory, "broker-0").write_text(json.dumps(true))
    assert dev_stack.down(directory) == [f"broker-0 (pid {bystander.pid})"]


@pytest.mark.long  # 12 s, for developers' stacks alone
def test_two_ups_at_once_start_one_stack(tmp_path: Path) -> None:
    """Two `up` of one directory at the same time give one stack."""
    found: list[Stack] = []
    threads = [
        threading.Thread(target=lambda: found.append(dev_stack.up(tmp_path, progress=_quietly)))
        for _ in range(2)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 2
        assert found[0] == found[1]
    finally:
        dev_stack.down(tmp_path)


@pytest.mark.long  # 18 s, for developers' stacks alone
def test_clickhouse_answers_before_it_ends(own: Stack) -> None:
    """SIGTERM lets a running INSERT end and answer; its rows are there at the next start."""
    server = own.clickhouse
    reach.sql(server, "CREATE DATABASE d")
    reach.sql(server, "CREATE TABLE d.t (a UInt8) ENGINE MergeTree ORDER BY a")
    answers: list[str] = []
    slow = "INSERT INTO d.t SELECT sleepEachRow(0.5) FROM numbers(4) SETTINGS max_block_size = 1"
    thread = threading.Thread(target=lambda: answers.append(reach.sql(server, slow)))
    thread.start()
    running = "SELECT count() FROM system.processes WHERE query LIKE 'INSERT%'"
    wait_until(lambda: reach.sql(server, running) == "1", "the INSERT")
    assert process.end(own.directory, dev_stack.CLICKHOUSE)
    thread.join(20)
    assert answers == [""]
    assert "ended" in process.tail(own.directory, dev_stack.CLICKHOUSE).splitlines()[-1]
    dev_stack.up(own.directory, progress=_quietly)
    assert reach.sql(server, "SELECT count() FROM d.t") == "4"


def test_port_in_use_is_named(tmp_path: Path) -> None:
    """A port that another process has is an error that names it; nothing is left running."""
    with socket.socket() as taken:
        taken.bind((layout.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=rf"port {port} of clickhouse is in use"):
            dev_stack.up(tmp_path, clickhouse_port=port, progress=_quietly)
    found = dev_stack.status(tmp_path)
    assert found is not None
    assert found.broker_pids == (None,)


@pytest.mark.long  # 15 s, for developers' stacks alone
def test_a_server_that_dies_shows_its_log(own: Stack) -> None:
    """A broker that cannot start gives an error with what it logged."""
    broker.stop(own.directory, 0)
    meta = own.directory / "broker-0" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=0", "node.id=7"))
    with pytest.raises(Unavailable, match="broker-0 ended at start") as caught:
        dev_stack.up(own.directory, progress=_quietly)
    assert "node id" in str(caught.value)


def test_another_size_is_refused(stack: Stack) -> None:
    """A directory with one broker is not turned into one with three, nor moved while it runs."""
    with pytest.raises(ConfigError, match="cluster of 1, not of 3"):
        dev_stack.up(stack.directory, brokers=3, progress=_quietly)
    with pytest.raises(ConfigError, match="run on other ports"):
        dev_stack.up(stack.directory, kafka_port=9999, progress=_quietly)


@pytest.mark.long  # campaigns of faults start three, too
def test_three_brokers_survive_one(tmp_path: Path) -> None:
    """With three brokers a record is acknowledged while one is dead, and it comes back."""
    try:
        found = dev_stack.up(tmp_path, brokers=3, progress=_quietly)
        assert len(set(found.broker_pids)) == 3
        _make_topic(found.bootstrap, "copied", 3)
        assert _produce(found.bootstrap, "copied") == 0
        assert broker.kill(tmp_path, 1)
        assert not broker.kill(tmp_path, 1)
        assert _produce(found.bootstrap, "copied") == 1
        broker.start(tmp_path, 1)
        assert _produce(found.bootstrap, "copied") == 2
        again = dev_stack.status(tmp_path)
        assert again is not None
        assert again.complete
    finally:
        assert len(dev_stack.down(tmp_path)) == 4


def test_command_line(tmp_path: Path) -> None:
    """up, status and down say what is so, in words, JSON and exit status."""
    run = CliRunner().invoke
    at = ["--directory", str(tmp_path / "cli")]
    nothing = run(dev, ["status", *at])
    assert (nothing.exit_code, "no stack" in nothing.output) == (1, True)
    try:
        made = run(dev, ["up", *at])
        assert made.exit_code == 0
        assert 'bootstrap = "127.0.0.1:' in made.stdout
        state = run(dev, ["status", "--json", *at])
        assert state.exit_code == 0
        assert json.loads(state.stdout)["complete"] is True
        broker.kill(tmp_path / "cli", 0)
        half = run(dev, ["status", *at])
        assert (half.exit_code, "down" in half.output) == (1, True)
    finally:
        ended = run(dev, ["down", *at])
    assert "clickhouse" in ended.output
    assert run(dev, ["down", *at]).output == "nothing was running\n"


@pytest.mark.long  # 38 s, for developers' stacks alone
def test_a_statement_that_does_not_end_holds_up_nobody(
    own: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`down` waits for it 20 s, kills it, and its client is told; no row of it is there."""
    reach.sql(own.clickhouse, "CREATE DATABASE d")
    reach.sql(own.clickhouse, "CREATE TABLE d.t (a UInt8) ENGINE MergeTree ORDER BY a")
    ended: list[str] = []

    def insert() -> None:
        endless = "INSERT INTO d.t SELECT sleepEachRow(1) FROM numbers(600) SETTINGS "
        endless += "max_block_size = 1, function_sleep_max_microseconds_per_block = 0"
        try:
            reach.sql(own.clickhouse, endless)
        except HTTPError as error:
            ended.append(error.read().decode())

    thread = threading.Thread(target=insert)
    thread.start()
    running = "SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO d.t%'"
    wait_until(lambda: reach.sql(own.clickhouse, running) == "1", "the INSERT")
    killed: list[int] = []
    monkeypatch.setattr(psutil.Process, "kill", lambda process: killed.append(process.pid))
    started = time.monotonic()
    assert process.end(own.directory, dev_stack.CLICKHOUSE)
    assert time.monotonic() - started < 30
    assert killed == [], "it ended by itself"
    thread.join(20)
    assert [said.startswith("Code: 394.") for said in ended] == [True]
    dev_stack.up(own.directory, progress=_quietly)
    assert reach.sql(own.clickhouse, "SELECT count() FROM d.t") == "0"


@pytest.mark.long  # 22 s, for developers' stacks alone
def test_a_password_outlives_restarts_and_is_random(own: Stack, stack: Stack) -> None:
    """So that a configuration stays right; and no two stacks have the same."""
    before = own.clickhouse.secret()
    dev_stack.down(own.directory)
    again = dev_stack.up(own.directory, progress=_quietly)
    assert again.clickhouse.secret() == before != stack.clickhouse.secret()
    assert len(before) >= 32


def test_what_up_prints_can_be_pasted(stack: Stack, tmp_path: Path) -> None:
    """Its lines are part of a configuration, which reaches both servers from any directory."""
    file = tmp_path / "relay.toml"
    rest = 'app = "a"\n[source]\ntopic = "s"\n[loader]\ncheckpoint = "c"\n'
    file.write_text(rest + stack.config_hint, encoding="utf-8")
    settings = settings_file.load(file)
    client = catalogue.connect(settings.clickhouse)
    assert client.command("SELECT currentUser()") == clickhouse.USER
    client.close()


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"chdb-core": "26.3.0"}, "chdb-core 26.3.0 is installed, which has no ClickHouse server"),
        ({"chdb-core": "26.1.0"}, "26.7 and later have one"),
        ({}, "chdb-core, which holds ClickHouse, is not installed"),
        ({"chdb-core": "26.10.1"}, ""),
        ({"chdb-core": "27.1.0"}, ""),
    ],
)
def test_an_engine_without_a_server_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, versions: dict[str, str], said: str
) -> None:
    """With what to install, before anything is started; later versions are let through."""

    def version(package: str) -> str:
        try:
            return versions[package]
        except KeyError as error:
            raise PackageNotFoundError(package) from error

    monkeypatch.setattr(clickhouse, "version", version)
    if not said:
        clickhouse.require()
        return
    with pytest.raises(MissingTool, match=said) as caught:
        dev_stack.up(tmp_path, progress=_quietly)
    assert "pip install" in caught.value.next_step
    assert dev_stack.status(tmp_path) is None


@pytest.mark.long  # 20 s, for developers' stacks alone
def test_a_library_that_does_not_listen_shows_what_it_said(own: Stack) -> None:
    """As one whose statement is not there: the server ends at once, and its words are shown."""
    dev_stack.down(own.directory)
    status = own.directory / "clickhouse" / "status"
    status.unlink(missing_ok=True)
    status.mkdir()
    with pytest.raises(Unavailable, match="clickhouse ended at start") as caught:
        dev_stack.up(own.directory, progress=_quietly)
    assert "ended by itself" in str(caught.value)
    assert "status" in str(caught.value)


def test_a_directory_of_an_earlier_version_gets_a_port_more(tmp_path: Path) -> None:
    """It knew none for the native protocol; all else stays as it is."""
    known = layout.Layout("A" * 22, [1], [2], 3)
    written = asdict(known)
    del written["clickhouse_tcp_port"]
    (tmp_path / "stack.json").write_text(json.dumps(written))
    assert layout.read(tmp_path) == known
    plan, changed = layout.decide(tmp_path, None, 0, 0)
    assert changed
    assert plan.clickhouse_tcp_port
    assert replace(plan, clickhouse_tcp_port=0) == known
