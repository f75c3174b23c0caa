"""Single faults of a journal, each as a function of a clean history.

A mutation gives the history changed at one place, and the kinds under which the verifier may
name it; or None where it would mean nothing there (no block in the record, for example).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.records_pb2 import Commit
from tests.verify.histories import History

Mutation = Callable[[random.Random, History], tuple[History, set[AnomalyKind]] | None]
ANY = set(AnomalyKind)


def _at(rng: random.Random, history: History) -> int:
    """A record that is neither the first nor the last."""
    return rng.randrange(1, len(history) - 1)


def _with(history: History, at: int, change: Callable[[Commit], Any]) -> History:
    commit = Commit()
    commit.CopyFrom(history[at][1])
    change(commit)
    return [*history[:at], (history[at][0], commit), *history[at + 1 :]]


def drop(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at = _at(rng, history)
    return [*history[:at], *history[at + 1 :]], {AnomalyKind.GAP}


def cut(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    """Several records are missing."""
    at = _at(rng, history)
    return [*history[:at], *history[min(at + rng.randrange(2, 20), len(history) - 1) :]], {
        AnomalyKind.GAP
    }


def double(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at = _at(rng, history)
    return [*history[: at + 1], *history[at:]], {AnomalyKind.BACKWARD}


def swap(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at = _at(rng, history)
    return [*history[:at], history[at + 1], history[at], *history[at + 2 :]], {
        AnomalyKind.GAP,
        AnomalyKind.BACKWARD,
    }


def shift_floor(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at, by = _at(rng, history), rng.choice((-3, -1, 1, 3))
    return _with(history, at, lambda c: setattr(c, "floor", c.floor + by)), ANY


def shift_previous_floor(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at, by = _at(rng, history), rng.choice((-3, -1, 1, 3))
    kind = AnomalyKind.GAP if by > 0 else AnomalyKind.BACKWARD
    return _with(history, at, lambda c: setattr(c, "previous_floor", c.previous_floor + by)), {kind}


def shift_n(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at, by = _at(rng, history), rng.choice((-5, -1, 1, 5))
    kind = AnomalyKind.GAP if by > 0 else AnomalyKind.BACKWARD
    return _with(history, at, lambda c: setattr(c, "n", c.n + by)), {kind}


def shift_mark(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at, by = _at(rng, history), rng.choice((-3, -1, 1, 3))
    if not history[at][1].marks:
        return None
    index = rng.randrange(len(history[at][1].marks))

    def change(commit: Commit) -> None:
        commit.marks[index].offset += by

    return _with(history, at, change), ANY


def lose_mark(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    if not history[at][1].marks:
        return None
    index = rng.randrange(len(history[at][1].marks))
    return _with(history, at, lambda c: c.marks.pop(index)), ANY


def invent_mark(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at = _at(rng, history)

    def change(commit: Commit) -> None:
        commit.marks.add(table="d.other", offset=commit.floor + 1)

    return _with(history, at, change), ANY


def lose_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    if not history[at][1].blocks:
        return None
    return _with(history, at, lambda c: c.blocks.pop(0)), {AnomalyKind.GAP}


def lose_dead(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    if not history[at][1].dead:
        return None
    return _with(history, at, lambda c: c.dead.pop(0)), {AnomalyKind.GAP}


def double_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    if not history[at][1].blocks:
        return None
    return _with(history, at, lambda c: c.blocks.append(c.blocks[0])), {AnomalyKind.OVERLAP}


def repeat_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    """A block comes again in a later record."""
    at = _at(rng, history)
    earlier = [block for _, commit in history[max(0, at - 5) : at] for block in commit.blocks]
    if not earlier:
        return None
    return _with(history, at, lambda c: c.blocks.append(earlier[-1])), ANY


def shift_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    field = rng.choice(("first_source_offset", "next_source_offset"))
    if not history[at][1].blocks:
        return None
    by = rng.choice((-2, -1, 1, 2))
    block, floor = history[at][1].blocks[0], history[at][1].floor
    following = block.next_source_offset
    stays = block.first_source_offset < following + by <= floor and following <= floor
    if field == "next_source_offset" and stays:
        return None  # no mark: messages before the floor are done, whatever this says

    def change(commit: Commit) -> None:
        setattr(commit.blocks[0], field, getattr(commit.blocks[0], field) + by)

    return _with(history, at, change), ANY


def shrink_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    """A block holds fewer messages than were polled: the flush point tells."""
    at = _at(rng, history)
    if not history[at][1].blocks or history[at][1].blocks[0].messages < 2:
        return None

    def change(commit: Commit) -> None:
        commit.blocks[0].messages -= 1

    return _with(history, at, change), {AnomalyKind.GAP}


def grow_block(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    at = _at(rng, history)
    if not history[at][1].blocks:
        return None

    def change(commit: Commit) -> None:
        commit.blocks[0].messages += 1

    return _with(history, at, change), {AnomalyKind.OVERLAP}


def wrong_count(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    """At a flush point, where all must be accounted for; between two it may lag."""
    flush_points = [i for i, (_, commit) in enumerate(history) if commit.flush_point]
    at, by = rng.choice(flush_points), rng.choice((-2, -1, 1, 2))
    return _with(history, at, lambda c: setattr(c, "count", c.count + by)), ANY


def wrong_reference(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at, by = _at(rng, history), rng.choice((-1, 1))
    return _with(history, at, lambda c: setattr(c, "reference", c.reference + by)), ANY


def move_chunks(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]] | None:
    """A block lies where the table's last one does."""
    at = _at(rng, history)
    seen = {b.topic: b.first_offset for _, c in history[:at] for b in c.blocks}
    if not history[at][1].blocks or history[at][1].blocks[0].topic not in seen:
        return None

    def change(commit: Commit) -> None:
        block = commit.blocks[0]
        block.next_offset -= block.first_offset - seen[block.topic]
        block.first_offset = seen[block.topic]

    return _with(history, at, change), {AnomalyKind.OVERLAP}


def _foreign(field: str, value: object) -> Mutation:
    def change(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
        at = _at(rng, history)
        return _with(history, at, lambda c: setattr(c, field, value)), {AnomalyKind.FOREIGN}

    return change


def _set(field: str, value: object) -> Mutation:
    def change(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
        at = _at(rng, history)
        return _with(history, at, lambda c: setattr(c, field, value)), ANY

    return change


def turn_flush_point(rng: random.Random, history: History) -> tuple[History, set[AnomalyKind]]:
    at = _at(rng, history)
    return _with(history, at, lambda c: setattr(c, "flush_point", not c.flush_point)), ANY


MUTATIONS: dict[str, Mutation] = {
    function.__name__: function
    for function in (
        drop, cut, double, swap, shift_floor, shift_previous_floor, shift_n, shift_mark,
        lose_mark, invent_mark, lose_block, lose_dead, double_block, repeat_block, shift_block,
        shrink_block, grow_block, wrong_count, wrong_reference, move_chunks, turn_flush_point,
    )
} | {
    "foreign_app": _foreign("app", "other"),
    "foreign_topic": _foreign("source_topic", "other"),
    "foreign_partition": _foreign("partition", 5),
    "foreign_topic_id": _foreign("source_topic_id", "other"),
    "other_epoch": _set("epoch", 3),
}  # fmt: skip
