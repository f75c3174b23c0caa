"""Where there is no ledger: what says that there was one, and what says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import Refused
from relay.operate.view import lost_ledger
from tests.doctor.healthy import settings

if TYPE_CHECKING:
    from pathlib import Path

LINES = 'v1\n{"batchWatermarkMs":0}\n'


def checkpoint(directory: Path, planned: dict[int, str], committed: list[int]) -> Path:
    """As Spark writes it: a file for each batch, offsets in its last line."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
    for batch, offsets in planned.items():
        (directory / "offsets" / str(batch)).write_text(f"{LINES}{offsets}")
    for batch in committed:
        (directory / "commits" / str(batch)).write_text("v1\n{}")
    (directory / "offsets" / ".1.crc").write_text("")
    return directory


BATCHES = {0: '{"journal": "J", "0": 3, "1": 0}', 1: '{"journal": "J", "0": 7, "1": 0}'}


@pytest.mark.parametrize(
    ("committed", "stands"),
    [
        ([0, 1], {0: 7, 1: 0}),
        # Of a batch that was only planned nobody knows; the loader repeats it.
        ([0], {0: 3, 1: 0}),
    ],
)
def test_a_checkpoint_stands_where_its_last_done_batch_ended(
    tmp_path: Path, committed: list[int], stands: dict[int, int]
) -> None:
    assert lost_ledger.checkpointed(str(checkpoint(tmp_path, BATCHES, committed)), "J") == stands


def test_what_is_no_checkpoint_says_nothing(tmp_path: Path) -> None:
    """Negative control: none, an empty one, one that cannot be read, one on another machine."""
    assert lost_ledger.checkpointed(str(tmp_path), "J") == {}
    assert lost_ledger.checkpointed("s3a://bucket/cp", "J") == {}
    assert lost_ledger.checkpointed(str(checkpoint(tmp_path, {0: "{"}, [0])), "J") == {}


@pytest.mark.parametrize("journal", ["other", ""])
def test_another_journals_checkpoint_says_nothing(tmp_path: Path, journal: str) -> None:
    """As it is left behind where an app was removed and begun again."""
    assert lost_ledger.checkpointed(str(checkpoint(tmp_path, BATCHES, [0, 1])), journal) == {}


class Server:
    """Answers as ClickHouse would: these databases have ledgers, of these apps."""

    def __init__(self, **apps: str) -> None:
        self._apps = apps

    def __call__(self, sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        if "system.columns" in sql:
            return [(database,) for database in self._apps]
        if self._apps[parameters["ledger"]] == "secret":
            raise Refused("no right")
        return [(1,)] if self._apps[parameters["ledger"]] == parameters["app"] else []


def test_ledgers_elsewhere_are_those_with_entries_of_the_app() -> None:
    """Neither other apps', nor those that may not be read."""
    server = Server(relay_old="shop", of_others="stock", closed="secret")
    assert lost_ledger.elsewhere(server, "shop") == ("relay_old",)


OTHER = "the ledger was lost, or loader.database names another database"
SHOP, JOURNAL = "ledger has entries of app shop", "the journal's partition"
GONE = "the ledger was lost, or no loader loaded what retention deleted before it"


@pytest.mark.parametrize(
    ("others", "stands", "begins", "said"),
    [
        ((), {}, {}, ""),
        (
            (),
            {0: 0, 1: 7},
            {},
            f"checkpoint /c stands at offset 7 of the journal's partition 1: {OTHER}",
        ),
        ((), {0: 0}, {}, ""),
        (("relay_old",), {}, {}, f"relay_old.ledger has entries of app shop: {OTHER}"),
        (
            ("relay_old",),
            {0: 7},
            {0: 40},
            f"relay_old.{SHOP} and checkpoint /c stands at offset 7 of {JOURNAL} 0: {OTHER}",
        ),
        ((), {}, {0: 0, 3: 40}, f"the journal's partition 3 begins at offset 40: {GONE}"),
    ],
)
def test_what_is_known_is_said(
    others: tuple[str, ...], stands: dict[int, int], begins: dict[int, int], said: str
) -> None:
    given = settings(loader={"checkpoint": "/c"}).model_copy(update={"app": "shop"})
    whole = f"there is no ledger relay.ledger, but {said}" if said else ""
    assert lost_ledger.describe_loss(given, others, stands, begins) == whole
