"""What keeps blocks that stand aside from being tried: an end that is asked for; no servers.

And what does not: that the ledger cannot be asked which ones wait.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.attempt import Outcome
from loader.core import set_aside_plan
from loader.core.entries import ParkedEntry
from loader.core.retry_cause import RetryCause
from loader.core.set_aside_plan import Aside
from loader.core.waiting import Resting, turn
from loader.spark import set_aside
from loader.spark.job import Job
from loader.spark.set_aside import SetAside
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = Settings.model_validate(
    {
        "app": "shop",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "source": {"topic": "rows"},
        "clickhouse": {"url": "http://127.0.0.1:1"},
        "loader": {"checkpoint": "checkpoint"},
    }
)


class FewAside:
    """A ledger in which a block of each table stands aside."""

    client = None

    def __init__(self, *tables: str) -> None:
        blocks = [Block(id=f"shop:{table}:0:0:0", table=table) for table in tables]
        self._next = [
            ParkedEntry(one, "refused", 1, claimed=True, aside=True, claims=("claimed",))
            for one in blocks
        ]

    def now_ms(self) -> int:
        return 1

    def next_aside(self, *_: object) -> Resting:
        return Resting({turn(one.block): 1 for one in self._next}, 0, self._next)

    def kept_entries(self, _: Sequence[Block]) -> dict[str, Any]:
        return {}

    def write(self, _: Sequence[Any]) -> None: ...


@pytest.mark.parametrize(("asked", "tried"), [(True, 1), (False, 3)])
def test_the_last_tries_end_with_the_one_under_way(
    monkeypatch: pytest.MonkeyPatch, *, asked: bool, tried: int
) -> None:
    """`loader run --once` went through all of them first, however long each took."""
    said: list[str] = []
    tries: list[str] = []

    def say(text: str, **_: object) -> None:
        said.append(text)

    job = Job(SETTINGS, FewAside("d.a", "d.b", "d.c"), say)  # type: ignore[arg-type]

    class WorkerAsked:
        def __init__(self, *_: object, **__: object) -> None: ...

        def load(self, blocks: Sequence[Block], *_: object) -> list[Outcome]:
            tries.append(blocks[0].table)
            if asked:
                job.stop()
            return [Outcome(one.id, "retry", 1, "no") for one in blocks]

        def close(self) -> None: ...

    monkeypatch.setattr(set_aside, "Worker", WorkerAsked)
    job._asides.finish()
    assert len(tries) == tried
    assert "3 blocks stand aside" in said[-1]


class Unlistable(FewAside):
    """A ledger that has grown beyond what its user may read at once."""

    lists = 0
    away = False

    def next_aside(self, *_: object) -> Resting:
        self.lists += 1
        raise Unavailable("Code: 158. Limit for rows exceeded")

    def now_ms(self) -> int:
        if self.away:
            raise Unavailable("no answer")
        return 1


class Tries(list[str]):
    """Stands for Worker: the tables of the blocks that are tried, in vain."""

    def __call__(self, *_: object, **__: object) -> Tries:
        return self

    def load(self, blocks: Sequence[Block], *_: object) -> list[Outcome]:
        self.extend(one.table for one in blocks)
        return [Outcome(one.id, "retry", 1, "no", about="table") for one in blocks]

    def close(self) -> None: ...


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    """Without the pauses between tries."""
    found = Tries()
    monkeypatch.setattr(set_aside, "Worker", found)
    monkeypatch.setattr(set_aside, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(set_aside_plan, "FIRST_SECONDS", 0.0)
    return found


def test_blocks_in_memory_are_tried_though_the_ledger_cannot_list_them(tries: Tries) -> None:
    """Red before: none was tried, and the ledger was asked at each look, twice a second."""
    said: list[str] = []
    ledger = Unlistable()
    asides = SetAside(SETTINGS, ledger, lambda text, **_: said.append(text))  # type: ignore[arg-type]
    with asides.running():
        asides.put([Aside(Block(id=f"shop:d.{n}:0:0:0", table=f"d.{n}"), "no") for n in "ab"])
        wait_until(lambda: {*tries} == {"d.a", "d.b"} and len(tries) > 20, "tries of both")
    assert (ledger.lists, len(said)) == (1, 1)
    assert said[0].startswith("cannot list the blocks that stand aside: Code: 158")


def test_the_last_tries_need_no_list(tries: Tries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in memory are tried; those that the ledger alone has are not asked for again."""
    monkeypatch.setattr(set_aside_plan, "FIRST_SECONDS", 1.0)
    said: list[str] = []
    ledger = Unlistable()
    asides = SetAside(SETTINGS, ledger, lambda text, **_: said.append(text))  # type: ignore[arg-type]
    asides._asides.found([], {"d.c": 9}, 0.0)
    asides.put([Aside(Block(id=f"shop:d.{n}:0:0:0", table=f"d.{n}"), "no") for n in "ab"])
    asides.finish()
    assert (tries, ledger.lists) == (["d.a", "d.b"], 1)
    assert said[-1].startswith("11 blocks stand aside")


def test_a_server_that_answers_nothing_is_waited_for(tries: Tries) -> None:
    """Negative control: then no try has a chance, and each table's would take its time."""
    said: list[str] = []
    ledger = Unlistable()
    asides = SetAside(SETTINGS, ledger, lambda text, **_: said.append(text))  # type: ignore[arg-type]
    asides.put([Aside(Block(id="shop:d.a:0:0:0", table="d.a"), "no")])
    ledger.away = True
    asides.finish()
    assert tries == []
    assert said[0] == "cannot try the blocks that stand aside: no answer"


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        ("retry", RetryCause.STILL_RUNNING),
        ("retry", RetryCause.ANOTHER_LOADER),
        ("aside", RetryCause.ERROR),  # by another loader, meanwhile
    ],
)
def test_the_last_tries_go_on_behind_a_block_that_another_works_on(
    tries: Tries, monkeypatch: pytest.MonkeyPatch, outcome: str, cause: RetryCause
) -> None:
    """Red before: no other block of its table had its last try."""
    monkeypatch.setattr(set_aside_plan, "FIRST_SECONDS", 1.0)

    def load(blocks: Sequence[Block], *_: object) -> list[Outcome]:
        ended = "loaded" if tries else outcome
        tries.extend(one.id for one in blocks)
        return [Outcome(one.id, ended, 1, "no", cause=cause) for one in blocks]

    monkeypatch.setattr(tries, "load", load)
    asides = SetAside(SETTINGS, Unlistable(), lambda *_, **__: None)  # type: ignore[arg-type]
    blocks = [Block(id=f"shop:d.a:0:0:{n}", table="d.a") for n in range(3)]
    asides.put([Aside(one, "no") for one in blocks])
    asides.finish()
    assert {*tries} == {one.id for one in blocks}


@pytest.mark.parametrize("answers", [True, False])
def test_a_list_that_takes_long_is_not_asked_for_again_at_once(
    monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Red before: one that took longer than the pause between two was asked for without an end."""
    now = [100.0]

    class Slow(Unlistable):
        def next_aside(self, *_: object) -> Resting:
            now[0] += 2 * set_aside._LIST_SECONDS
            return Resting({}, 0, []) if answers else super().next_aside()

    monkeypatch.setattr(set_aside, "time", SimpleNamespace(monotonic=lambda: now[0]))
    asides = SetAside(SETTINGS, Slow(), lambda *_, **__: None)  # type: ignore[arg-type]
    asides._list(now[0])
    assert asides._listed == now[0]
