"""Kept journals, without a campaign: clean ones are silent, damaged ones are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.program.command import run_main
from tests.chaos import journal_file
from tests.chaos.journal_file import Kept
from tests.verify import replay
from tests.verify.histories import History, clean
from tests.verify.rewinds import rewound

if TYPE_CHECKING:
    from pathlib import Path


def two_partitions(*histories: History) -> Kept:
    """As a campaign keeps them, with a pause in the middle and one at the end."""
    found = Kept()
    for partition, history in enumerate(histories):
        for offset, commit in history:
            commit.partition = partition
            for block in commit.blocks:
                block.partition = partition
                app, table, _, epoch, first = block.id.split(":")
                block.id = f"{app}:{table}:{partition}:{epoch}:{first}"
            found.records.append((partition, offset, commit))
    for share in (2, 1):
        heads = [history[len(history) // share - 1] for history in histories]
        found.pauses.append({p: (c.floor, c.n, offset) for p, (offset, c) in enumerate(heads)})
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Kept:
    """Restarts in one partition, a rewind in the other; written and read again."""
    journal_file.write(tmp_path, two_partitions(clean(7, 200), rewound(3).journal))
    return journal_file.read(tmp_path / journal_file.FILE)


def test_a_clean_journal_raises_nothing_and_every_record_of_it_is_missed(journal: Kept) -> None:
    audit = replay.audited(journal)
    assert audit.anomalies == []
    assert audit.totals.records == len(journal.records)
    assert len(audit.acknowledged) == 1
    taken = replay.some(journal, 30)
    assert len(taken) == 30
    assert [at for at in taken if not replay.named(journal, at)] == []


def test_an_offset_that_names_another_record_is_told(journal: Kept) -> None:
    floor, n, offset = journal.pauses[0][0]
    moved = replace(journal, pauses=[{0: (floor + 1, n, offset)}])
    assert [one.kind for one in replay.audited(moved).anomalies] == [AnomalyKind.TORN]


def test_the_command_is_green_for_what_is_clean_and_red_for_what_is_not(
    journal: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(replay.replay, "replay", [str(tmp_path)]) == 0
    assert f'"records": {len(journal.records)}' in capsys.readouterr().out
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    journal_file.write(
        damaged, replace(journal, records=journal.records[:50] + journal.records[51:])
    )
    assert run_main(replay.replay, "replay", [str(damaged)]) == 1
    assert "gap: partition 0" in capsys.readouterr().out
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run_main(replay.replay, "replay", [str(empty)]) == 2


def test_a_line_of_neither_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / journal_file.FILE).write_text('{"other": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="neither offsets nor a record"):
        journal_file.read(tmp_path / journal_file.FILE)
