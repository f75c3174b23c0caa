"""A loader that waits for a server at its start: it serves health and metrics meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

from loader.spark.micro_batch import Stopped
from loader.spark.one_app import Load
from relay import names
from relay.config.server_settings import ClickHouse
from relay.config.settings import Settings
from relay.errors import RelayError
from tests.broker.pipeline import wait_until
from tests.config.test_kafka_clients import settings
from tests.loader.blocks import Journal
from tests.metrics.asking import got, values


class Waiting:
    """A load in a thread; `lines`: what it said; `asked`: whether it came to Spark."""

    def __init__(self, of: Settings, directory: Path) -> None:
        self.lines: list[str] = []
        self.address, self.asked = "", False
        self.spark = threading.Event()
        self.ended: list[BaseException] = []
        self.load = Load(of, self._say, "127.0.0.1:0")
        self._thread = threading.Thread(target=self._run, args=(str(directory / "checkpoint"),))
        self._thread.start()

    def _say(self, text: str, **fields: Any) -> None:
        self.lines.append(text)
        self.address = str(fields.get("address", self.address))

    def _run(self, checkpoint: str) -> None:
        try:
            self.load.run(self._engine, checkpoint, once=False)
        except (Stopped, RelayError, ValueError) as error:
            self.ended.append(error)

    def _engine(self) -> SparkSession:
        self.asked = True
        self.spark.wait(60)
        raise ValueError("no Spark here")

    def end(self) -> None:
        self.load.stop()
        self.spark.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def waits(self) -> None:
        wait_until(lambda: any("waiting, next try" in line for line in self.lines), "a try")

    def check(self, path: str) -> tuple[int, dict[str, str]]:
        """Status, and why, by failed check."""
        status, body = got(self.address, path)[:2]
        said = json.loads(body)
        return status, {one["check"]: one["why"] for one in said["checks"] if not one["ok"]}


Begin = Callable[[Settings], Waiting]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    begun: list[Waiting] = []

    def made(of: Settings) -> Waiting:
        begun.append(Waiting(of, tmp_path))
        return begun[-1]

    yield made
    for one in begun:
        one.end()


def test_it_is_alive_and_names_the_server_it_waits_for(begin: Begin) -> None:
    """Nothing listened: in Kubernetes the startup probe ended it after 300 s, again and again."""
    nowhere = ClickHouse(url="http://127.0.0.1:1")
    waiting = begin(settings().model_copy(update={"clickhouse": nowhere}))
    waiting.waits()
    assert waiting.check("/healthz") == (200, {})
    status, why = waiting.check("/readyz")
    assert (status, sorted(why)) == (503, ["ledger", "servers", "started"])
    assert "127.0.0.1" in why["servers"]
    found = values(waiting.address)
    assert found["loader_server_away"] == 1
    assert found["loader_server_waits_total"] >= 1
    waiting.end()
    assert [type(one) for one in waiting.ended] == [Stopped]


@pytest.mark.servers
def test_it_waits_for_the_journals_topic_and_goes_on(
    journal: Journal, client: Client, begin: Begin
) -> None:
    """Who starts the loader before any relay reads in /readyz that a relay has to be started."""
    app = f"{journal.app}-first"
    waiting = begin(journal.settings().model_copy(update={"app": app}))
    waiting.waits()
    assert waiting.check("/healthz") == (200, {})
    topic = names.journal_topic(app)
    assert topic in waiting.check("/readyz")[1]["servers"]
    journal.topic(topic)
    wait_until(lambda: waiting.asked, "the end of its wait", 60)
    wait_until(lambda: sorted(waiting.check("/readyz")[1]) == ["started"], "a look", 60)
    assert waiting.check("/healthz") == (200, {})
    waiting.spark.set()
    waiting.end()
    assert [type(one) for one in waiting.ended] == [ValueError]
    client.command(f"DROP DATABASE {journal.settings().loader.database}")
