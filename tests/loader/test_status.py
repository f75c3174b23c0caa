"""`loader status` as rows, without servers."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loader.cli.status import _checkpoint, _shown
from loader.core import plan
from loader.core.entries import ParkedEntry
from loader.core.plan import Entry
from loader.operate import status
from loader.operate.status import LoaderFacts, PositionRow
from relay.program.console import print_parts
from relay.records_pb2 import Block

NOW_MS = 100_000


def block(number: int, table: str = "d.t") -> Block:
    return Block(
        id=f"a:{table}:0:0:{number}", table=table, rows=10, sealed_at_ms=NOW_MS - number * 1000
    )


NO_LEDGER = "no ledger in loader.database"
STANDS = "the checkpoint stands at offset 7 of the journal's partition 1"
LOST = "it was lost, or loader.database names another database"


def test_nothing_has_run_yet() -> None:
    found = status.assemble(LoaderFacts(NOW_MS))
    assert (found.tables, found.positions) == ((), ())
    assert status.as_json(found)["ledger"] is False


def test_a_loader_that_never_started() -> None:
    """All blocks are sealed; the oldest waits longest."""
    blocks = [block(5), block(30), block(7, "d.u")]
    found = status.assemble(LoaderFacts(NOW_MS, journal=True, sealed=blocks, ends={0: 9}))
    first, second = found.tables
    assert (first.sealed_blocks, first.sealed_rows, first.claimed_blocks) == (2, 20, 0)
    assert (first.oldest, first.oldest_seconds) == (blocks[1].id, 30.0)
    assert (second.table, second.oldest_seconds) == ("d.u", 7.0)
    assert found.positions == (PositionRow(0, None, None, 9),)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (LoaderFacts(NOW_MS), "no ledger yet: no loader has run"),
        (
            LoaderFacts(NOW_MS, journal=True),
            f"{NO_LEDGER}: no loader has run yet, or it was lost (relay docs backup)",
        ),
        (
            LoaderFacts(NOW_MS, journal=True, checkpoint={0: 0, 1: 7}),
            f"{NO_LEDGER}, but {STANDS}: {LOST} (relay docs backup)",
        ),
    ],
)
def test_without_a_ledger_what_is_known_is_said(facts: LoaderFacts, said: str) -> None:
    """A lost one is no loader that never ran."""
    assert said in list(_shown(status.assemble(facts), 200))


def test_every_state_is_counted_once() -> None:
    """Behind the ledger's position: loaded, claimed, parked, discarded, untouched."""
    blocks = [block(n) for n in (50, 40, 30, 20, 10)]
    states = (plan.LOADED, plan.PREPARED, plan.PARKED, plan.DISCARDED)
    entries = {b.id: (Entry(s, 1, "c"),) for b, s in zip(blocks, states, strict=False)}
    counts = [("d.t", state, 1 + 8 * (state == plan.LOADED), 10) for state in states]
    parked = [ParkedEntry(blocks[2], "there is no table", 1, claimed=False)]
    found = status.assemble(
        LoaderFacts(
            NOW_MS,
            journal=True,
            ledger=True,
            sealed=blocks,
            entries=entries,
            counts=[*counts, ("d.gone", plan.LOADED, 1, 1)],
            parked=parked,
            positions={0: 4},
            ends={0: 9, 1: 0},
            checkpoint={0: 3},
        )
    )
    gone, row = found.tables
    assert (gone.table, gone.oldest, gone.oldest_seconds) == ("d.gone", "", None)
    assert (row.sealed_blocks, row.claimed_blocks, row.loaded_blocks) == (1, 1, 9)
    assert (row.parked_blocks, row.parked_rows, row.discarded_blocks) == (1, 10, 1)
    assert (row.oldest, row.oldest_seconds) == (blocks[1].id, 40.0), "the claimed one"
    assert found.positions == (PositionRow(0, 4, 3, 9), PositionRow(1, None, None, 0))
    shown = json.loads(json.dumps(status.as_json(found)))
    assert shown["parked"][0]["reason"] == "there is no table"


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ('v1\n{"batch":1}\n{"journal": "J", "0": 7, "1": 0}', {0: 7, 1: 0}),
        ('v1\n{"batch":1}\n{"journal": "other", "0": 7}', None),
        ("", None),
        ("v1\n-", None),
        ("v1\n[]", None),
        ('v1\n{"journal": "J", "x": 7}', None),
    ],
)
def test_sparks_offset_log(text: str, offsets: dict[int, int] | None) -> None:
    """The position of this journal, or nothing."""
    assert status.checkpointed(text, "J") == offsets


def test_a_checkpoint_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    """As a disk leaves it that lost a part. Red before: the command ended with status 70."""
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_bytes(b"\xff")
    assert _checkpoint(tmp_path, "J") is None


@pytest.mark.parametrize("width", [60, 80, 140])
def test_names_and_ids_are_whole_on_any_terminal(width: int) -> None:
    """What waits longest is there to be copied."""
    table = "museum_of_natural_history.gapminder_life_expectancy"
    waiting = block(1_002_030, table)
    counts = [(table, plan.LOADED, 564, 40_250), ("d.t", plan.LOADED, 1, 1)]
    found = status.assemble(
        LoaderFacts(NOW_MS, journal=True, ledger=True, sealed=[waiting], counts=counts, ends={0: 9})
    )
    output = io.StringIO()
    console = Console(file=output, width=width, emoji=False)
    print_parts(console, _shown(found, width))
    text = output.getvalue()
    assert "…" not in text
    for whole in (table, waiting.id, "564 (40,250 rows)"):
        assert whole in text
