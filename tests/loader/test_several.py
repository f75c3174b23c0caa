"""Several pipelines in one loader: their shares of Spark, and what becomes of one that ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loader.metrics.listener import QueryListener
from loader.metrics.observer import LoaderObserver
from loader.spark import several_apps, workers
from loader.spark.micro_batch import Stopped
from loader.spark.query_start import start_in_turn
from loader.spark.session import widened
from loader.spark.several_apps import Loading
from relay.config import settings_file
from relay.errors import ContractBroken, Refused, Unavailable
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.config.test_load import GOOD, write
from tests.config.test_pipelines import TWO

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("master", "wide"),
    [
        ("local[2]", "local[6]"),
        ("local", "local[3]"),
        ("local[*]", f"local[{3 * CORES}]"),
        ("spark://host:7077", "spark://host:7077"),
        ("local[2,4]", "local[2,4]"),
    ],
)
def test_a_local_master_has_as_many_slots_for_each(master: str, wide: str) -> None:
    assert widened(master, 3) == wide


class Spark:
    """Notes how many tasks a round of attempts has."""

    defaultParallelism = property(lambda self: self.slots)  # noqa: N815 - Spark's name

    def __init__(self, slots: int) -> None:
        self.sparkContext, self.slots = self, slots
        self.tasks = 0

    def parallelize(self, _: range, tasks: int) -> Any:
        self.tasks = tasks
        return SimpleNamespace(mapPartitions=lambda *_: SimpleNamespace(collect=list))


@pytest.mark.parametrize(
    ("slots", "beside", "blocks", "most"),
    [(4, 2, 100, 2), (4, 4, 100, 1), (2, 5, 100, 1), (4, 2, 1, 1)],
)
def test_no_pipeline_takes_more_slots_than_its_share(
    slots: int, beside: int, blocks: int, most: int, tmp_path: Path
) -> None:
    """One alone takes all, in as many rounds as are worth it."""
    settings = settings_file.load(write(tmp_path, GOOD))
    size = workers.SMALL_BYTES + 1
    waiting = [
        Block(id=f"b{n}", table=f"d.t{n}", topic="t", first_offset=n, row_bytes=size // blocks + 1)
        for n in range(blocks)
    ]
    spark: Any = Spark(slots)
    workers.attempt(spark, settings, waiting, (), beside)
    assert spark.tasks == most
    alone: Any = Spark(slots)
    workers.attempt(alone, settings, waiting)
    assert alone.tasks == workers.shares(blocks, slots)


class Heard(LoaderObserver):
    """All that a listener told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def query_event(self, event: str, progress: Any = None) -> None:  # noqa: ARG002 - the observer's
        self.events.append(event)


def test_a_listener_tells_of_its_own_query_alone() -> None:
    """Spark tells each of all of them."""
    heard = {name: Heard() for name in ("a", "b")}
    for name, other in (("a", 1), ("b", 2)):
        listener = QueryListener(heard[name], name)
        for query, number in (("a", 1), ("b", 2)):
            event: Any = SimpleNamespace(name=query, id=number)
            listener.onQueryStarted(event)
            listener.onQueryProgress(SimpleNamespace(progress=event))  # type: ignore[arg-type]
            listener.onQueryIdle(event)
        ended: Any = SimpleNamespace(id=other)
        listener.onQueryTerminated(ended)
    for one in heard.values():
        assert one.events == ["started", "progress", "idle", "terminated"]


class Engine:
    """A Spark session; `ended`: its JVM is gone."""

    def __init__(self, *, ended: bool = False) -> None:
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        """Whatever is asked for on the way to the context's `isStopped`."""
        if self._ended:
            raise ConnectionRefusedError(name)
        return {"_jsc": self, "sc": lambda: self, "isStopped": lambda: False}.get(name, self)


Ends = list[Callable[[], None]]


def loading(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: Ends,
    engine: Engine | None = None,
    *,
    once: bool = False,
) -> tuple[Loading, threading.Event]:
    """A pipeline whose loads end one after the other as `ends` do."""
    stop = threading.Event()

    class Load:
        def __init__(self, *_: object) -> None:
            self.runs = False

        def run(self, *_: object, **__: object) -> None:
            ends.pop(0)()

        def stop(self) -> None:
            stop.set()

    monkeypatch.setattr(several_apps, "Load", Load)
    monkeypatch.setattr("relay.program.supervision.FIRST_PAUSE_SECONDS", 0.001)
    pipeline = settings_file.pipelines(write(tmp_path, GOOD + TWO))[0]
    spark: Any = engine or Engine()
    return Loading(pipeline, spark, 2, threading.Lock(), stop, None, once=once), stop


def raising(error: Exception) -> Callable[[], None]:
    def end() -> None:
        raise error

    return end


def test_one_that_is_away_or_breaks_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until one goes on and is stopped: then all is well."""
    gone_on = threading.Event()

    def goes_on() -> None:
        gone_on.set()
        stop.wait(60)
        raise Stopped

    ends: Ends = [raising(Unavailable("away", "wait")), raising(KeyError("x")), goes_on]
    one, stop = loading(tmp_path, monkeypatch, ends)
    one.start()
    wait_until(gone_on.is_set, "the third start")
    one.end()
    assert not one.is_alive()
    assert (one.status, ends) == (0, [])
    said = capsys.readouterr().err
    assert "loader: east: away" in said
    assert "loader: east: starts again in 0.001 s" in said
    assert "loader: east: a bug in block-relay: KeyError: 'x'" in said


@pytest.mark.parametrize(
    ("error", "once", "status"),
    [
        (ContractBroken("another journal", "decide"), False, 6),
        (Refused("no rights", "grant them"), False, 5),
        (Unavailable("away", "wait"), True, 4),
    ],
)
def test_one_that_waits_for_a_person_stays_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    once: bool,
    status: int,
) -> None:
    """With --once anything does."""
    one, stop = loading(tmp_path, monkeypatch, [raising(error)], once=once)
    one.run()
    assert (one.status, stop.is_set()) == (status, False)
    assert "is not started again; the others continue" in capsys.readouterr().err


def test_with_once_it_ends_when_all_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, stop = loading(tmp_path, monkeypatch, [lambda: None], once=True)
    one.run()
    assert (one.status, stop.is_set()) == (0, False)


def test_without_spark_all_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be begun again in a session whose JVM has ended."""
    engine = Engine(ended=True)
    one, stop = loading(tmp_path, monkeypatch, [raising(KeyError("x"))], engine)
    one.run()
    assert (one.status, stop.is_set()) == (4, True)


class Query:
    """A streaming query whose source has not answered until it is told so."""

    def __init__(self) -> None:
        self.isActive = True
        self.status = {"message": "Initializing sources"}


def test_queries_begin_one_after_the_other() -> None:
    """The second when the first's source has answered, or the first has ended."""
    turn, stopping = threading.Lock(), threading.Event()
    queries: list[Any] = [Query(), Query(), Query()]
    begun: list[int] = []

    def begin(number: int) -> Any:
        begun.append(number)
        return queries[number]

    for number in range(3):
        start = partial(begin, number)
        threading.Thread(target=start_in_turn, args=(start, turn, stopping)).start()
        wait_until(lambda: len(begun) >= 1, "the first to begin")
    first = begun[0]
    queries[first].status["message"] = "Getting offsets from the journal"
    assert begun == [first]
    queries[first].status["message"] = "Waiting for data to arrive"
    wait_until(lambda: len(begun) == 2, "the second to begin")
    queries[begun[1]].isActive = False
    wait_until(lambda: len(begun) == 3, "the third to begin")
    stopping.set()


def test_who_is_told_to_stop_waits_for_no_turn() -> None:
    turn, stopping, query = threading.Lock(), threading.Event(), Query()
    first: Any = query
    threading.Thread(target=start_in_turn, args=(lambda: first, turn, threading.Event())).start()
    wait_until(turn.locked, "the first to begin")
    stopping.set()
    assert start_in_turn(lambda: first, turn, stopping) is first
    query.isActive = False
