"""Facts that are as promised, for the judges' own tests to falsify.

Receives numbers of rows and places of blocks, gives facts, as tests.chaos.facts reads them. Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relay.records_pb2 import Block, Commit, DeadLetters
from tests.chaos import rows, tables
from tests.chaos.facts import Chunks, Facts, Seen, joined
from tests.chaos.lost import Absence
from tests.chaos.rows import ABORT, BAD, COMMIT, Range, Rows
from tests.chaos.truth import ABORTED, COMMITTED, UNKNOWN, Truth


def held(table: int, partition: int, numbers: list[int]) -> Rows:
    """These rows, as they were sent."""
    array = np.array(numbers, np.int64)
    values = rows.mixed(table, partition, array)
    return Rows(np.full(len(array), partition), array, values, rows.texts(values.tolist()))


def lying(*chunks: tuple[int, Rows | list[Rows]]) -> Chunks:
    """Chunks of a partition of a block topic, by offset."""
    return joined([(at, rows.joined(r) if isinstance(r, list) else r) for at, r in chunks])


def block(table: int, partition: int, at: int, count: int, **more: Any) -> Block:
    """The rows of one message in one chunk, as the journal has it."""
    name = tables.name(rows.TABLES[table])
    made = Block(table=name, partition=partition, messages=1, rows=count, **more)
    made.first_offset, made.next_offset = at, at + 1
    return made


def promised() -> Facts:
    """Two batches and a bad message of one table, one aborted batch between, one unknown."""
    first, gone, second = Range(0, 1, 0, 3), Range(0, 1, 3, 2), Range(0, 1, 5, 2)
    bad, unknown = Range(0, 1, 7, 1), Range(0, 1, 8, 1)
    told = [
        (first, COMMIT, COMMITTED),
        (gone, ABORT, ABORTED),
        (second, COMMIT, COMMITTED),
        (bad, BAD, COMMITTED),
        (unknown, COMMIT, UNKNOWN),
    ]
    return Facts(
        truth=Truth(told=told),
        source=[Seen(1, 0, first, COMMIT), Seen(1, 4, second, COMMIT), Seen(1, 6, bad, BAD)],
        blocks={(0, 1): lying((0, held(0, 1, [0, 1, 2])), (3, held(0, 1, [5, 6])))},
        tables={0: held(0, 1, [6, 2, 0, 1, 5])},
        dead=[(1, 6, rows.bad_message(bad))],
        journal={
            1: [
                Commit(n=1, previous_floor=0, floor=4, position=4, count=1, flush_point=True,
                       blocks=[block(0, 1, 0, 3)]),
                Commit(n=2, previous_floor=4, floor=7, position=7, reference=4, count=2,
                       flush_point=True, blocks=[block(0, 1, 3, 2)],
                       dead=[DeadLetters(messages=1)]),
            ]
        },
    )  # fmt: skip


VISITS = next(i for i, table in enumerate(rows.TABLES) if table.viewed and not table.expires)
SESSIONS = next(i for i, table in enumerate(rows.TABLES) if table.expires)
DROPPED_MS = 1_000_000
"""When a table was made anew."""


def with_views() -> Facts:
    """Six rows of a table with a view, six of one whose rows expire, some of them gone."""
    found = Facts(truth=Truth())
    for index, held_there in ((VISITS, range(6)), (SESSIONS, (1, 2, 3, 4, 5))):
        sent = Range(index, 1, 0, 6)
        found.truth.told.append((sent, COMMIT, COMMITTED))
        found.source.append(Seen(1, index, sent, COMMIT))
        found.blocks[index, 1] = lying((0, held(index, 1, list(range(6)))))
        found.tables[index] = held(index, 1, list(held_there))
        found.views[index] = held(index, 1, list(range(6)))
    found.journal[1] = told_one_by_one([block(index, 1, 0, 6) for index in (VISITS, SESSIONS)])
    return found


def told_one_by_one(blocks: list[Block]) -> list[Commit]:
    """A journal of so many transactions, each with one block of one message."""
    return [
        Commit(n=n + 1, previous_floor=n, floor=n + 1, position=n + 1, reference=n, count=1,
               flush_point=True, blocks=[one])
        for n, one in enumerate(blocks)
    ]  # fmt: skip


def with_a_dropped_table() -> Facts:
    """A message from before the drop, a dead letter from meanwhile, a message from after it.

    As tests.chaos.facts gives them: what the old table held counts as there.
    """
    sent = [Range(0, 1, 0, 3), Range(0, 1, 3, 2), Range(0, 1, 5, 2)]
    times = [DROPPED_MS - 9000, DROPPED_MS - 500, DROPPED_MS + 60_000]
    return Facts(
        truth=Truth(told=[(one, COMMIT, COMMITTED) for one in sent]),
        source=[Seen(1, i, one, COMMIT, times[i]) for i, one in enumerate(sent)],
        blocks={(0, 1): lying((0, held(0, 1, [0, 1, 2])), (1, held(0, 1, [5, 6])))},
        tables={0: rows.joined([held(0, 1, [5, 6]), held(0, 1, [0, 1, 2])])},
        dead=[(1, 1, rows.message(sent[1]))],
        journal={
            1: [
                Commit(n=1, previous_floor=0, floor=3, position=3, count=3, flush_point=True,
                       blocks=[block(0, 1, 0, 3), block(0, 1, 1, 2)],
                       dead=[DeadLetters(messages=1)]),
            ]
        },
        absences={0: [Absence(DROPPED_MS)]},
        starts={("chaos.journal", 1): (7, 7), ("chaos.journal", 2): (0, 3)},
    )  # fmt: skip
