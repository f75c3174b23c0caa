"""Each judge is silent about facts as promised, and names each falsified one."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.chaos import judges, rows
from tests.chaos.ends import Head, Stable
from tests.chaos.facts import Facts, Seen
from tests.chaos.promised import (
    SESSIONS,
    VISITS,
    held,
    lying,
    promised,
    with_a_dropped_table,
    with_views,
)
from tests.chaos.rows import ABORT, COMMIT, Range
from tests.chaos.truth import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable


def test_facts_as_promised_are_clean() -> None:
    """The order in ClickHouse is free, an unknown outcome may be either."""
    verdict = judges.whole(promised())

    assert verdict.clean, verdict.anomalies
    assert verdict.figures["rows"] == 5
    assert verdict.figures["dead_letters"] == 1
    for other in (with_views(), with_a_dropped_table()):
        assert judges.whole(other).clean, judges.whole(other).anomalies


def lose_a_row(facts: Facts) -> None:
    facts.tables[0] = held(0, 1, [0, 1, 2, 5])


def double_a_row(facts: Facts) -> None:
    facts.tables[0] = held(0, 1, [0, 1, 2, 5, 5, 6])


def show_an_aborted_row(facts: Facts) -> None:
    facts.tables[0] = held(0, 1, [0, 1, 2, 3, 5, 6])


def change_a_value(facts: Facts) -> None:
    facts.tables[0].values[0] ^= np.uint64(1)


def change_a_text(facts: Facts) -> None:
    facts.tables[0].texts[0] += "x"  # type: ignore[index]


def put_a_row_into_another_table(facts: Facts) -> None:
    facts.tables[1] = held(1, 1, [0])


def empty_the_tables(facts: Facts) -> None:
    facts.tables = {}


def swap_two_rows_in_a_block(facts: Facts) -> None:
    facts.blocks[0, 1] = lying((0, held(0, 1, [0, 2, 1])), (3, held(0, 1, [5, 6])))


def double_a_block(facts: Facts) -> None:
    twice = held(0, 1, [5, 6])
    facts.blocks[0, 1] = lying((0, held(0, 1, [0, 1, 2])), (3, twice), (4, twice))


def put_a_block_into_another_partition(facts: Facts) -> None:
    facts.blocks[0, 2] = facts.blocks.pop((0, 1))


def show_an_aborted_row_in_a_block(facts: Facts) -> None:
    facts.blocks[0, 1] = lying((0, held(0, 1, [0, 1, 2, 3])), (3, held(0, 1, [5, 6])))


def change_a_value_in_a_block(facts: Facts) -> None:
    facts.blocks[0, 1].rows.values[0] ^= np.uint64(1)


def call_a_block_another_partitions(facts: Facts) -> None:
    facts.journal[2] = facts.journal.pop(1)


def lose_a_dead_letter(facts: Facts) -> None:
    facts.dead = []


def double_a_dead_letter(facts: Facts) -> None:
    facts.dead *= 2


def cut_a_dead_letter(facts: Facts) -> None:
    partition, offset, value = facts.dead[0]
    facts.dead = [(partition, offset, value[:-1])]


def lose_a_source_message(facts: Facts) -> None:
    del facts.source[0]


def show_an_aborted_message(facts: Facts) -> None:
    facts.source.append(Seen(1, 3, Range(0, 1, 3, 2), ABORT))


def show_what_was_never_sent(facts: Facts) -> None:
    facts.source.append(Seen(1, 9, Range(0, 1, 99, 1), COMMIT))


def break_the_chain_of_floors(facts: Facts) -> None:
    facts.journal[1][1].previous_floor = 3


def leave_out_a_journal_record(facts: Facts) -> None:
    del facts.journal[1][0]


def count_a_message_too_many(facts: Facts) -> None:
    facts.journal[1][1].count += 1


def read_no_new_partition(facts: Facts) -> None:
    new = Range(0, 4, 0, 3)
    facts.truth.told.append((new, COMMIT, COMMITTED))
    facts.source.append(Seen(4, 0, new, COMMIT))


def lose_a_row_behind_a_view(facts: Facts) -> None:
    facts.views[VISITS] = held(VISITS, 1, [0, 1, 2, 3, 4])


def double_a_row_behind_a_view(facts: Facts) -> None:
    facts.views[VISITS] = held(VISITS, 1, [0, 1, 2, 3, 4, 5, 5])


def double_an_expired_row_behind_a_view(facts: Facts) -> None:
    facts.views[SESSIONS] = held(SESSIONS, 1, [0, 0, 1, 2, 3, 4, 5])


def lose_an_expired_row_behind_a_view(facts: Facts) -> None:
    facts.views[SESSIONS] = held(SESSIONS, 1, [1, 2, 3, 4, 5])


def lose_a_row_that_stays(facts: Facts) -> None:
    facts.tables[SESSIONS] = held(SESSIONS, 1, [1, 2, 3, 5])


def double_an_expired_row(facts: Facts) -> None:
    facts.tables[SESSIONS] = held(SESSIONS, 1, [1, 2, 3, 3, 4, 5])


def let_a_dropped_row_come_back(facts: Facts) -> None:
    facts.tables[0] = rows.joined([facts.tables[0], held(0, 1, [2])])


def lose_a_row_that_no_table_held(facts: Facts) -> None:
    facts.tables[0] = held(0, 1, [0, 1, 2, 5])


def refuse_a_message_of_later(facts: Facts) -> None:
    facts.dead.append((1, 2, rows.message(Range(0, 1, 5, 2))))


def refuse_a_message_and_load_it(facts: Facts) -> None:
    facts.tables[0] = rows.joined([facts.tables[0], held(0, 1, [3, 4])])


def refuse_a_message_twice(facts: Facts) -> None:
    facts.dead *= 2


def lose_the_absence(facts: Facts) -> None:
    facts.absences = {}


def delete_more_than_asked(facts: Facts) -> None:
    facts.starts["chaos.journal", 1] = 9, 7


FALSIFIED: list[tuple[Callable[[Facts], None], str, str]] = [
    (lose_a_row, "rows", "1 rows lost, the first: 6"),
    (double_a_row, "rows", "1 rows doubled, the first: 5"),
    (show_an_aborted_row, "rows", "1 rows never committed, the first: 3"),
    (show_an_aborted_row, "aborted", "are in ClickHouse"),
    (change_a_value, "rows", "1 rows do not hold what was sent"),
    (change_a_text, "rows", "1 rows do not hold what was sent"),
    (put_a_row_into_another_table, "rows", "orders from partition 1: 1 rows never committed"),
    (empty_the_tables, "rows", "5 rows lost"),
    (swap_two_rows_in_a_block, "order", "not in the source's order"),
    (double_a_block, "order", "2 rows doubled"),
    (put_a_block_into_another_partition, "places", "3 rows are not where the journal says"),
    (call_a_block_another_partitions, "places", "rows of another partition"),
    (change_a_value_in_a_block, "order", "1 rows do not hold what was sent"),
    (show_an_aborted_row_in_a_block, "aborted", "are in blocks"),
    (lose_a_dead_letter, "dead letters", "lost"),
    (double_a_dead_letter, "dead letters", "too many"),
    (cut_a_dead_letter, "dead letters", "lost"),
    (lose_a_source_message, "source", "committed to the source and is not there"),
    (show_an_aborted_message, "source", "visible in the source"),
    (show_what_was_never_sent, "source", "never sent"),
    (break_the_chain_of_floors, "chain", "gap"),
    (leave_out_a_journal_record, "chain", "gap"),
    (count_a_message_too_many, "chain", "gap"),
    (read_no_new_partition, "rows", "clicks from partition 4: 3 rows lost"),
]


OF_VIEWS: list[tuple[Callable[[Facts], None], str, str]] = [
    (lose_a_row_behind_a_view, "views", "1 rows lost, the first: 5"),
    (double_a_row_behind_a_view, "views", "1 rows doubled, the first: 5"),
    (double_an_expired_row_behind_a_view, "views", "1 rows doubled, the first: 0"),
    (lose_an_expired_row_behind_a_view, "views", "1 rows lost, the first: 0"),
    (lose_a_row_that_stays, "rows", "1 rows lost, the first: 4"),
    (double_an_expired_row, "rows", "1 rows doubled, the first: 3"),
]
OF_DROPS: list[tuple[Callable[[Facts], None], str, str]] = [
    (let_a_dropped_row_come_back, "rows", "1 rows doubled, the first: 2"),
    (lose_a_row_that_no_table_held, "rows", "1 rows lost, the first: 6"),
    (refuse_a_message_of_later, "dead letters", "too many"),
    (refuse_a_message_and_load_it, "rows", "2 rows never committed, the first: 3"),
    (refuse_a_message_twice, "dead letters", "too many"),
    (lose_the_absence, "dead letters", "too many"),
    (delete_more_than_asked, "retention", "begins at 9"),
]


@pytest.mark.parametrize(
    ("facts", "falsify", "judge", "says"),
    [
        *((with_views(), *one) for one in OF_VIEWS),
        *((with_a_dropped_table(), *one) for one in OF_DROPS),
    ],
)
def test_each_falsified_fact_of_a_table_that_changes_is_named(
    facts: Facts, falsify: Callable[[Facts], None], judge: str, says: str
) -> None:
    """Views, rows that expire, tables made anew and what retention left."""
    facts = copy.deepcopy(facts)
    falsify(facts)

    verdict = judges.whole(facts)

    assert any(says in anomaly for anomaly in verdict.anomalies[judge]), verdict.anomalies


@pytest.mark.parametrize(("falsify", "judge", "says"), FALSIFIED)
def test_each_falsified_fact_is_named(
    falsify: Callable[[Facts], None], judge: str, says: str
) -> None:
    """Negative control of every judge."""
    facts = copy.deepcopy(promised())
    falsify(facts)

    verdict = judges.whole(facts)

    assert any(says in anomaly for anomaly in verdict.anomalies[judge]), verdict.anomalies


def test_rows_of_parked_blocks_may_be_there_or_not() -> None:
    """They wait for a person, and are counted; a doubled row is still one too many."""
    facts = promised()
    facts.parked = {0: 2}
    lose_a_row(facts)
    assert judges.contents(facts) == []

    facts.tables[0] = held(0, 1, [0, 1])
    assert judges.contents(facts) != [], "more are missing than wait"

    double_a_row(facts)
    assert judges.contents(facts) != []


@pytest.mark.parametrize(
    "head",
    [
        Head(0, (4, 1, 9), (7, 2, 11)),
        Head(0, (7, 2, 9), (7, 2, 11)),
        Head(0, None, (7, 2, 11)),
        Head(0, (7, 2, 11), None),
    ],
)
def test_a_torn_head_is_named(head: Head) -> None:
    """Floor, number and place of the record: each must be the journal head's."""
    assert len(judges.torn([head])) == 1


def test_a_whole_head_is_clean() -> None:
    """Also where nothing was committed yet."""
    assert judges.torn([Head(0, (7, 2, 11), (7, 2, 11)), Head(1, None, None)]) == []


def test_a_hanging_transaction_is_named() -> None:
    """The last stable offset stays behind the high watermark."""
    whole = Stable("t", 0, 5, 5)

    assert judges.hanging([whole]) == []
    assert len(judges.hanging([whole, replace(whole, stable=4)])) == 1
