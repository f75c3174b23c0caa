"""A loader that is asked to end starts no further try of blocks that stand aside; no servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.attempt import Outcome
from loader.core.entries import ParkedEntry
from loader.core.waiting import Resting, turn
from loader.spark import set_aside
from loader.spark.job import Job
from relay.config.settings import Settings
from relay.records_pb2 import Block

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

    def entries(self, _: Sequence[Block]) -> dict[str, Any]:
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
