"""Blocks that a loader takes while `relay verify --deep` asks about their table; no server."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from relay.names import LEFT_OUT
from relay.operate.verify import landing
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.judge.contents import RefusedMessages
from relay.operate.verify.judge.ledger_history import History
from relay.operate.verify.judge.server_records import Reach, Recorded, Statement, Written
from relay.operate.verify.judge.table_facts import TableFacts
from relay.records_pb2 import Block
from tests.verify import nowhere

TABLE = "d.t"
ALL = Reach(since_ms=1, until_ms=10**15)
BLOCK = Block(id="a:d.t:0:0:0", table=TABLE, rows=10, sealed_at_ms=1_700_000_000_000)
OUT = f"{BLOCK.id}{LEFT_OUT}"


class Loading:
    """ClickHouse, where a loader takes the block while it is asked.

    Args:
        claimed: rows that its claim says, by a transform; None: it has none.
        there: rows that are in the table then.
        out: that were left out of it, and wait.
        behind: the question behind which it takes the block; empty: before all of them.
    """

    def __init__(
        self, claimed: int | None = None, there: int = 0, out: int = 0, behind: str = "ledger"
    ) -> None:
        self._made = {} if claimed is None else {BLOCK.id: claimed}
        self._rows, self._out = there, {OUT: out} if out else {}
        self._behind, self._taken = behind, not behind

    def _asked(self, what: str) -> bool:
        """Whether the loader has taken the block by now."""
        taken, self._taken = self._taken, self._taken or what == self._behind
        return taken

    def ledger(self, _table: str) -> dict[str, History]:
        return dict.fromkeys(self._out, History("prepared")) if self._asked("ledger") else {}

    def made(self, _table: str) -> dict[str, int]:
        return self._made if self._asked("made") else {}

    def left_out(self, _table: str) -> dict[str, int]:
        return self._out if self._asked("left_out") else {}

    def counted(self, _table: str) -> dict[str, int]:
        return {BLOCK.id: self._rows} if self._rows else {}

    def refused(self, table: str, _counted: object) -> dict[str, RefusedMessages]:
        assert table == TABLE
        return {name: RefusedMessages("dead", 0, frozenset({17})) for name in self._out}

    def discarded(self, _table: str) -> dict[str, str]:
        return {}

    def waiting(self) -> dict[str, object]:
        return {}

    def optional(self) -> None:
        return None

    def recorded(self, *_: object) -> Recorded:
        at_ms = BLOCK.sealed_at_ms + 1_000
        written: Mapping[str, Written] = {TABLE: Written(self._rows, self._rows, at_ms)}
        one = Statement(frozenset({BLOCK.id}), at_ms, finished=True, written=written)
        return Recorded((one,) if self._rows else (), ALL)


def asking(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, later_ms: int = 2_000
) -> landing.Landing:
    """Asks so long after the block was sealed."""
    facts = SimpleNamespace(
        facts=lambda *_, **__: TableFacts("MergeTree", "MergeTree ORDER BY id"), unasked=lambda: ""
    )
    clock = SimpleNamespace(time_ns=lambda: (BLOCK.sealed_at_ms + later_ms) * 10**6)
    for name, of in {"LandedRows": loading, "ServerLogs": loading, "TableAsking": facts}.items():
        monkeypatch.setattr(landing, name, lambda *_, of=of, **__: of)
    monkeypatch.setattr(landing, "time", clock)
    settings = nowhere.settings("a")
    return landing.Landing(settings, {})


def judged(of: landing.Landing) -> list[tuple[AnomalyKind, str]]:
    return [(one.kind, one.text) for one in of.judge([BLOCK])]


def test_a_transform_that_makes_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim came after the ledger was read, and its rows before they were counted."""
    for behind in ("ledger", "made"):
        assert judged(asking(Loading(20, 20, behind=behind), monkeypatch)) == [], behind


@pytest.mark.parametrize(("claimed", "there"), [(None, 20), (20, 40), (4, 8)])
def test_more_rows_than_the_block_brings_are_found(
    claimed: int | None, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = BLOCK.rows if claimed is None else claimed
    table = f"the table has {there} of its rows, but the block has {whole}"
    server = f"the server recorded {there} rows in 1 INSERTs, but the block has {whole}"
    assert judged(asking(Loading(claimed, there), monkeypatch)) == [
        (AnomalyKind.OVERLAP, f"block {BLOCK.id}: {text}") for text in (table, server)
    ]


@pytest.mark.parametrize(("behind", "late"), [("ledger", 0), ("made", 0), ("", 1)])
def test_messages_that_were_left_out_since_the_ledger_was_read(
    behind: str, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block that they make was "not touched", and as old as the block that they came in."""
    found = judged(asking(Loading(out=1, behind=behind), monkeypatch, later_ms=3_600_000))
    assert sum(f"block {OUT} was sealed 3600 s ago" in text for _, text in found) == late


def test_the_ledger_is_asked_again_about_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asking(Loading(out=1, behind=""), monkeypatch).refused_by_now([OUT])
    assert found == {OUT: RefusedMessages("dead", 0, frozenset({17}))}
