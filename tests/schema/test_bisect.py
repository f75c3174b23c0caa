"""Bad items are found exactly, whatever the guess about which ones are bad says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.rows.bisect import BLOCK, Suspects, isolate, isolate_joined
from relay.rows.decode import decode
from tests.schema.rows import binary, codec_of, row, row_batch

pytestmark = pytest.mark.usefixtures("decoder")

CODEC = codec_of({"id": "Int64", "name": "String"})
GOOD = row(CODEC, id=1, name="n")
BAD = b"\x08\x01\x12\x09"


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    refused=st.sets(st.integers(0, 60)),
    suspected=st.sets(st.integers(0, 60)),
)
def test_a_wrong_guess_only_costs_time(
    counts: list[int], refused: set[int], suspected: set[int]
) -> None:
    """Items of several parts; parts that are suspected and taken, or refused and not suspected."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    bad = {i for i in range(len(counts)) if refused & set(range(starts[i], starts[i + 1]))}
    parts = binary([BAD if at in suspected else GOOD for at in range(int(starts[-1]))])

    def attempt(low: int, high: int) -> tuple[int, int]:
        if bad & set(range(low, high)):
            raise ValueError("bad")
        return low, high

    def joined(ranges: list[tuple[int, int]]) -> list[int]:
        return [at for low, high in ranges for at in range(*attempt(low, high))]

    suspects = Suspects(CODEC.message_class, parts, starts)
    pieces, failed = isolate_joined(joined, len(counts), suspects)

    assert [at for at, _ in failed] == sorted(bad)
    taken = [at for piece in pieces for at in piece]
    assert taken == [at for at in range(len(counts)) if at not in bad]


@pytest.mark.parametrize("per_message", [1, 100])
def test_one_in_a_hundred_is_found_with_little_work(per_message: int) -> None:
    """Two or three attempts a bad message and one a block, each row decoded at most three times;
    halving alone takes more than eight attempts each."""
    messages = 40_000 // per_message
    bad = set(range(37, messages, 100))
    parts = [
        BAD if at in bad and row_at == per_message - 1 else GOOD
        for at in range(messages)
        for row_at in range(per_message)
    ]
    starts = np.arange(messages + 1) * per_message
    attempts = rows = 0

    def attempt(ranges: list[tuple[int, int]]) -> None:
        nonlocal attempts, rows
        attempts += 1
        for low, high in ranges:
            hit = [at for at in bad if low <= at < high]
            # The decoder stops at the first bad row.
            rows += ((min(hit) + 1 if hit else high) - low) * per_message
            if hit:
                raise ValueError("bad")

    suspects = Suspects(CODEC.message_class, binary(parts), starts)
    _, failed = isolate_joined(attempt, messages, suspects)
    assert [at for at, _ in failed] == sorted(bad)
    assert attempts <= 3 * len(bad) + 2 * len(parts) // BLOCK + 2
    assert rows < 3 * len(parts)

    attempts = 0
    isolate(lambda low, high: attempt([(low, high)]), messages)
    assert attempts > 8 * len(bad), "the control"


def test_bad_messages_among_many_are_decoded_as_one_by_one() -> None:
    """Over several blocks, with bad rows in one-row and many-row messages and bad envelopes."""
    values: list[bytes | None] = []
    for at in range(3 * BLOCK):
        if at % 97 == 5:
            values.append(row_batch([GOOD, BAD]))
        elif at % 101 == 7:
            values.append(row_batch([GOOD])[:-1])
        else:
            values.append(row_batch([row(CODEC, id=at)] * (at % 3 + 1)))
    decoded = decode(binary(values), CODEC, "batch")
    alone = [decode(binary([value]), CODEC, "batch") for value in values]

    assert [b.index for b in decoded.bad] == [at for at, one in enumerate(alone) if one.bad]
    assert [b.reason for b in decoded.bad] == [one.bad[0].reason for one in alone if one.bad]
    ids = [row_id for one in alone for row_id in one.batch.column("id").to_pylist()]
    assert decoded.batch.column("id").to_pylist() == ids
