"""The data source's reader against a real journal, without Spark."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from loader.clickhouse.ledger import Ledger
from loader.journal import source as journal_source
from loader.journal import startup
from loader.journal.reader import Row
from loader.journal.source import JournalReader, Start
from relay import names
from relay.errors import ContractBroken
from relay.records_pb2 import Block
from tests.loader.blocks import DEADLINE, Journal, batch

TABLE = "a.b"


@pytest.fixture(autouse=True)
def _small_blocks_count_as_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_source, "LEAST_WEIGHT", 1.0)


def reader(journal: Journal, positions: dict[int, int] | None = None) -> JournalReader:
    journal.await_markers()
    settings = journal.settings(blocks_per_batch=3)
    topic = startup.topic_id(settings, names.journal_topic(journal.app))
    return JournalReader(Start(settings, topic, positions or {}))


def ids(rows: list[Row]) -> list[int]:
    """First source offsets of the blocks read."""
    return [int(Block.FromString(row[2]).id.split(":")[-1]) for row in rows if row[2] is not None]


def drain(
    source: JournalReader, start: dict[str, object]
) -> tuple[list[list[int]], dict[str, object]]:
    """All micro-batches until nothing moves, with the end."""
    source.prepareForTriggerAvailableNow()
    batches = []
    while True:
        rows, end = source.read(start)
        if end == start:
            return batches, end
        batches.append(ids(list(rows)))
        assert ids(list(source.readBetweenOffsets(start, end))) == batches[-1], "a replay differs"
        start = end


def test_reads_in_bounded_batches_up_to_the_stable_end(journal: Journal) -> None:
    """Committed blocks in order, a few per batch; never those of an open or aborted transaction."""
    for i in range(5):
        journal.seal(TABLE, batch(i, 1))
    journal.seal(TABLE, batch(10, 1), batch(20, 1))
    source = reader(journal)
    journal.producer.begin_transaction()
    journal.commit(Block(id="x:a.b:0:0:66", table=TABLE))
    batches, end = drain(source, source.initialOffset())
    assert batches == [[0, 1, 2], [3, 4, 10, 20]]
    journal.producer.abort_transaction()
    journal.seal(TABLE, batch(30, 1))
    journal.await_markers()
    assert drain(source, end)[0] == [[30]]


def test_a_marker_that_retention_deleted_is_passed_over(journal: Journal) -> None:
    """A query that goes on, or is started anew, stands right behind a record: before its marker."""
    journal.seal(TABLE, batch(0, 1))
    source = reader(journal)
    begin = source.initialOffset()
    end = drain(source, begin)[1]
    assert end["0"] == 1
    journal.delete_journal(2)
    source.rest()
    assert drain(source, end) == ([], end)
    journal.seal(TABLE, batch(1, 1))
    journal.await_markers()
    batches, end = drain(source, end)
    assert (batches, end["0"]) == ([[1]], 3)
    journal.delete_journal(4)
    journal.seal(TABLE, batch(2, 1))
    journal.await_markers()
    assert drain(reader(journal, {0: 1}), end)[0] == [[2]], "another process, at the checkpoint"
    journal.delete_journal(6)
    with pytest.raises(ContractBroken, match="begins at offset 6, but the loader stands at 3"):
        drain(source, end)
    # Where a start noted a position, a record may have been.
    noted = JournalReader(Start(journal.settings(), str(end["journal"]), {0: 5}, {}, {0: 5}))
    with pytest.raises(ContractBroken, match="begins at offset 6, but the loader stands at 5"):
        drain(noted, end | {"0": 5})


def test_a_record_without_blocks_moves_the_position(journal: Journal) -> None:
    """The relay's flush points must not be read again for ever."""
    with journal.transaction():
        journal.commit()
    source = reader(journal)
    begin = source.initialOffset()
    rows, end = source.read(begin)
    for _ in range(100):  # the first answers may come later than this read's patience
        if end != begin:
            break
        rows, end = source.read(begin)
    assert list(rows) == [(0, 0, None)]
    assert end["0"] == 1


def test_starts_at_the_later_of_checkpoint_and_ledger(journal: Journal) -> None:
    """What the ledger calls settled is not read again, with or without checkpoint."""
    for i in range(3):
        journal.seal(TABLE, batch(i, 1))
    first = reader(journal)
    begin = first.initialOffset()
    _, end = drain(first, begin)
    later = reader(journal, {0: int(str(end["0"]))})
    assert later.initialOffset() == end
    assert drain(later, begin)[0] == [[]], "moves there without a block"


def test_what_is_settled_is_settled_to_the_end(journal: Journal, ledger: Ledger) -> None:
    """Markers of transactions, and what was aborted, are no records that wait."""

    def shown() -> tuple[int, int]:
        status, said = journal.run("status", "--json")
        assert status == 0, said
        (row,) = json.loads(said)["positions"]
        return row["ledger"], row["end"]

    journal.seal(TABLE, batch(0, 1))
    journal.seal(TABLE, batch(1, 1))
    ledger.save_positions(reader(journal)._start.journal, {0: 1})
    assert shown() == (1, 4)
    ledger.save_positions(reader(journal)._start.journal, {0: 3})
    assert shown() == (4, 4)
    journal.producer.begin_transaction()
    journal.commit(Block(id="x:a.b:0:0:66", table=TABLE))
    journal.producer.abort_transaction()
    assert shown() == (6, 6)
    with journal.transaction():
        journal.commit()
    assert shown() == (3, 8), "a record without blocks is one"


def test_a_journal_made_anew_is_a_broken_contract(journal: Journal) -> None:
    """Offsets of another journal, or beyond this one, are never taken for this one's."""
    for i in range(3):
        journal.seal(TABLE, batch(i, 1))
    source = reader(journal)
    before_last = source.initialOffset() | {"0": 4}
    with pytest.raises(ContractBroken, match="created again"):
        drain(source, before_last | {"journal": "another"})
    source.prepareForTriggerAvailableNow()
    beyond = source.initialOffset() | {"0": 99}
    source._until = {0: 1_000}
    with pytest.raises(ContractBroken, match="stands at 99"):
        source.read(beyond)


def test_positions_of_another_journal_are_a_broken_contract(
    journal: Journal, ledger: Ledger
) -> None:
    """Those of the ledger neither: the blocks before them would never be loaded."""
    for i in range(3):
        journal.seal(TABLE, batch(i, 1))
    ledger.save_positions("another", {0: 4})
    with pytest.raises(ContractBroken, match="created again"):
        startup.start(journal.settings(), ledger)


def test_a_copy_brings_no_consumer(journal: Journal) -> None:
    """Spark pickles the reader for its workers."""
    journal.seal(TABLE, batch(0, 1))
    source = reader(journal)
    batches, _ = drain(source, source.initialOffset())
    copy = pickle.loads(pickle.dumps(source))
    assert drain(copy, copy.initialOffset())[0] == batches == [[0]]


_IN_SPARKS_PROCESS = """
import socket
from types import SimpleNamespace
from loader.journal.source import Start, source

start = Start(SimpleNamespace(app="shop"), "id", {})
source(start)(options={}).simpleStreamReader(None)
spark, ours = socket.socketpair()
answer = ours.makefile("wb")
answer.write(b"rows")
"""


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        ("spark.close(); answer.flush()", ""),
        ("raise EOFError", ""),
        ("raise ValueError('a mistake')", "ValueError: a mistake"),
    ],
)
def test_a_lost_connection_to_spark_ends_without_a_word(happens: str, says: str) -> None:
    """A query that is stopped may close it at any time; all else has its traceback."""
    code = f"{_IN_SPARKS_PROCESS}{happens}"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=DEADLINE
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert ("Traceback" in ended.stderr) == bool(says)


def test_a_partition_without_a_position_whose_first_records_are_gone(journal: Journal) -> None:
    """Deleted before anybody loaded them: both numbers, and never a silent beginning."""
    for i in range(4):
        journal.seal(TABLE, batch(i, 1))
    journal.delete_journal(4)
    source = reader(journal)
    with pytest.raises(
        ContractBroken, match=r"\[0\] holds offsets 4 to \d+, but the ledger has no"
    ):
        source.initialOffset()
    assert reader(journal, {0: 4}).initialOffset()["0"] == 4


def test_records_deleted_under_a_running_loader_name_the_way_on(journal: Journal) -> None:
    for i in range(4):
        journal.seal(TABLE, batch(i, 1))
    journal.delete_journal(4)
    source = reader(journal, {0: 2})
    source.prepareForTriggerAvailableNow()
    with pytest.raises(ContractBroken, match="begins at offset 4, but the loader stands at 2") as e:
        source.read(source.initialOffset())
    assert "--ledger-lost" in e.value.next_step
