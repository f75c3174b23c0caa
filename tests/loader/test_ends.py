"""How a loader ends where a person is told: status, cause and next step, and no stack trace."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from loader.cli import loader as command
from loader.cli import main
from loader.journal import checkpoint as alones
from loader.journal.checkpoint import LOCK, Checkpoint, alone, used
from loader.spark.one_app import _from_spark
from relay.errors import ConfigError, Fenced, MissingTool
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.front import Error, Front, front
from tests.loader.test_run import loaded
from tests.loader.test_work import copies, make

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.config.server_settings import ClickHouse

LINE = re.compile(r"^[-\d]{10}T[:.\d]+Z (INFO|WARNING|ERROR) (loader|librdkafka) ")
"""Of the loader, or of its Kafka client."""
TRACES = ("Traceback", "traceback", "py4j", "\tat ", "Exception")


class Lines:
    """What a loader says, line by line, while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.all: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.all.extend(iter(self.process.stderr.readline, ""))

    def wait_for(self, text: str) -> str:
        """The first line with the text."""

        def said() -> bool:
            assert self.process.poll() is None or any(text in line for line in self.all), self.all
            return any(text in line for line in self.all)

        wait_until(said, text, DEADLINE)
        return next(line for line in self.all if text in line)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its status after the signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self._thread.join()
        return status


@pytest.fixture
def before(clickhouse: ClickHouse) -> Iterator[Front]:
    with front(clickhouse.url) as made:
        yield made


@pytest.fixture
def start(journal: Journal) -> Iterator[Callable[..., Lines]]:
    begun: list[Lines] = []

    def run(*arguments: str) -> Lines:
        begun.append(Lines(journal.start("run", *arguments)))
        return begun[-1]

    yield run
    for one in begun:
        one.end(signal.SIGKILL)


@pytest.mark.long  # 73 s: loaders of their own, with Spark
def test_told_to_stop_while_it_waits(
    journal: Journal,
    client: Client,
    database: str,
    clickhouse: ClickHouse,
    before: Front,
    start: Callable[..., Lines],
) -> None:
    """D10: status 0, no stack trace of py4j's; every line of its own has time and level, and
    what waits is named. Then the next one loads it."""
    table = make(client, f"{database}.t", stamped=True)
    journal._clickhouse = clickhouse.model_copy(update={"url": before.url})
    journal.seal(table, batch(0, 10))
    lines = start()
    loaded(client, table, 10, lines.process)
    into = f"INSERT INTO `{database}`"
    before.refuses = lambda sql: Error(0, "", 503) if into in sql else None
    (block,) = journal.seal(table, batch(10, 10))
    waits = lines.wait_for("next try in")
    assert " WARNING loader 1 block waits" in waits
    assert block.id in waits
    assert f"of {table} " in waits
    before.refuses = lambda _: Error(0, "", 503)  # now the ledger, too
    lines.wait_for("waiting, next try")
    assert lines.end() == 0
    said = "".join(lines.all)
    assert not any(trace in said for trace in TRACES), said
    own = [line for line in lines.all if "loader" in line and "/work" not in line]
    assert all(LINE.match(line) for line in own), own
    assert own[-1].endswith("INFO loader ended\n")
    (first,) = [line for line in own if ": 1 block, 10 rows" in line]
    assert first.endswith("| all: 1 block, 10 rows\n")
    before.refuses = lambda _: None
    assert journal.run("run", "--once")[0] == 0
    assert copies(client, table) == (20, 20)


@pytest.mark.long
def test_a_second_loader_with_one_checkpoint_is_told_at_once(
    journal: Journal, client: Client, database: str, start: Callable[..., Lines]
) -> None:
    """A9: both idle; the first goes on, and rows are right. After its end the next one begins."""
    table = make(client, f"{database}.t", stamped=False)
    journal.seal(table, batch(0, 10))
    first = start()
    loaded(client, table, 10, first.process)
    status, said = journal.run("run")
    assert status == 7, said
    assert f"another loader (process {first.process.pid} on " in said
    assert f"uses checkpoint {journal.directory / 'checkpoint'}" in said
    assert "next: Stop that loader, or give this one a directory of its own" in said
    assert not any(trace in said for trace in TRACES), said
    journal.seal(table, batch(10, 10))
    loaded(client, table, 20, first.process)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL  # the lock goes with the process
    journal.seal(table, batch(20, 10))
    assert journal.run("run", "--once")[0] == 0
    assert copies(client, table) == (30, 30)


@pytest.mark.long
def test_where_there_is_no_lock_spark_finds_it(
    journal: Journal, client: Client, database: str, start: Callable[..., Lines]
) -> None:
    """A checkpoint elsewhere, with rows: one of them ends with status 7, and rows are right."""
    table = make(client, f"{database}.t", stamped=False)
    journal.seal(table, batch(0, 10))
    where = f"file:{journal.directory}/checkpoint"
    both = [start("--checkpoint", where)]
    loaded(client, table, 10, both[0].process)
    both.append(start("--checkpoint", where))
    both[1].wait_for("loading")
    until, rows = time.monotonic() + DEADLINE, 10
    while all(one.process.poll() is None for one in both) and time.monotonic() < until:
        journal.seal(table, batch(rows, 10))
        rows += 10
        wait_until(
            lambda wanted=rows: (  # type: ignore[misc] # of this round
                copies(client, table)[1] == wanted
                or any(one.process.poll() is not None for one in both)
            ),
            "the rows",
            DEADLINE,
        )
    (ended,) = [one for one in both if one.process.poll() is not None]
    (other,) = [one for one in both if one is not ended]
    assert ended.end() == 7, ended.all
    said = "".join(ended.all)
    assert f"loader: another loader uses checkpoint {where}\n" in said
    assert "Traceback" not in said
    loaded(client, table, rows, other.process)
    assert other.end() == 0
    assert copies(client, table) == (rows, rows)


def test_without_java_it_says_so_before_it_waits(journal: Journal, tmp_path: Path) -> None:
    """A9: no traceback of PySpark's, whatever servers are there."""
    journal.without_clickhouse()
    nowhere = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    for changed, cause in (
        ({}, "there is no java in PATH, and JAVA_HOME is not set"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME is '/nowhere', but"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "loader.cli", "run", str(journal.configured())],
            env={**nowhere, **changed},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == MissingTool.exit_code == 3, done.stderr
        assert done.stderr.startswith(f"loader: {cause}")
        assert "\n  next: install Java 17 or newer" in done.stderr
        assert len(done.stderr.splitlines()) == 2


def test_a_jvm_that_does_not_start_is_told(journal: Journal, tmp_path: Path) -> None:
    """A java that says a version, and nothing more."""
    fake = tmp_path / "java"
    fake.write_text('#!/bin/sh\necho \'version "17"\' >&2\n[ "$1" = -version ]\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "loader.cli", "run", str(journal.configured())],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "loader: Spark's JVM did not start: [JAVA_GATEWAY_EXITED]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_lock_stays_where_it_is(tmp_path: Path) -> None:
    """Also when what is in the checkpoint is moved aside; and it is no loader's once it ended."""
    where = str(tmp_path / "checkpoint")
    with alone(where):
        (tmp_path / "checkpoint" / "offsets").mkdir()
        Checkpoint(where).set_aside()
        assert (tmp_path / "checkpoint" / LOCK).exists()
        with pytest.raises(Fenced, match=rf"process {os.getpid()} on .* uses checkpoint {where}"):
            alone(where).__enter__()
    with alone(where):
        pass
    with alone("hdfs://there/checkpoint"), alone("hdfs://there/checkpoint"):
        pass


def test_a_file_system_without_locks_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(alones.fcntl, "flock", none)
    with alone(str(tmp_path)), alone(str(tmp_path)):
        pass


def test_the_options_checkpoint_may_be_a_url() -> None:
    """A directory's path would lose a slash, and the bucket with it."""
    words = ["relay.toml", "--checkpoint", "s3a://bucket/cp"]
    given = command.commands["run"].make_context("run", words)
    assert given.params["checkpoint"] == "s3a://bucket/cp"


def test_a_checkpoint_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"checkpoint .*/file/in: ") as caught:
        alone(str(tmp_path / "file" / "in")).__enter__()
    assert "may write to" in caught.value.next_step


def test_sparks_word_for_it_is_read() -> None:
    found = _from_spark(ValueError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update"), "there")
    assert isinstance(found, Fenced)
    assert str(found) == str(used("there"))


def test_a_command_that_only_answers_says_its_lines_bare() -> None:
    assert CliRunner().invoke(command, ["run", "--help"]).exit_code == 0
    with pytest.raises(SystemExit) as caught:
        main(["status", "nowhere.toml"])
    assert caught.value.code == 2
