"""Which buffers are sealed, by each reason, and which are left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core.sealing import count_tokens, flush_due, inserts_per_second, refill, seals_due
from relay.core.state import RelayState, SealReason
from relay.rows.row_bound import RowBound
from tests.core.build import buffer, limits, partition, ready, with_limits


def due(state: RelayState) -> list[tuple[int, str, SealReason]]:
    return [(s.partition, s.table, s.reason) for s in seals_due(state)]


def test_nothing_is_due_without_a_reason() -> None:
    state = ready(p0=partition(0, 2, buffers={"d.x": buffer(0, 1)}))

    assert due(state) == []


def test_full_by_bytes_and_by_rows() -> None:
    buffers = {"d.x": buffer(0, bytes=100), "d.y": buffer(1, rows=5), "d.z": buffer(2)}
    state = with_limits(limits(max_bytes=100, max_rows=5), p0=partition(0, 3, buffers=buffers))

    assert due(state) == [(0, "d.x", SealReason.BYTES), (0, "d.y", SealReason.ROWS)]


def test_a_buffer_is_sealed_for_what_its_rows_take_as_columns() -> None:
    """Of a thousand columns a row takes 8 kB, though it sets three of them in 38 bytes."""
    buffers = {"d.x": buffer(0, decoded=128), "d.y": buffer(1, decoded=127)}
    state = with_limits(limits(max_decoded_bytes=128), p0=partition(0, 2, buffers=buffers))

    assert due(state) == [(0, "d.x", SealReason.DECODED)]


def test_dense_rows_are_sealed_where_a_block_of_them_ends() -> None:
    """Red before: a buffer that may be a block of 4 times the setting was sealed at once."""
    sizes = {"at it": (64, 128), "below it": (64, 127), "the most": (900, 512), "dense": (400, 511)}
    buffers = {t: buffer(0, bytes=size, decoded=of) for t, (size, of) in sizes.items()}
    state = with_limits(limits(max_decoded_bytes=128), p0=partition(0, 1, buffers=buffers))

    decoded = SealReason.DECODED
    assert due(state) == [(0, "at it", decoded), (0, "the most", decoded)]
    for size, decoded_bytes in sizes.values():
        bound = RowBound(1, 128, size)
        assert (decoded_bytes >= bound.rows) == (decoded_bytes in {128, 512})


def test_a_quiet_table_may_wait_longer() -> None:
    buffers = {"d.x": buffer(0), "d.y": buffer(1)}
    chosen = limits(max_age_ms=1_000, table_max_age_ms={"d.y": 60_000})
    state = replace(with_limits(chosen, p0=partition(0, 2, buffers=buffers)), now_ms=1_000)

    assert due(state) == [(0, "d.x", SealReason.AGE)]
    assert len(due(replace(state, now_ms=60_000))) == 2
    assert due(replace(state, now_ms=999)) == []


def test_what_would_be_due_soon_goes_along_with_what_is_past_its_age() -> None:
    """From then on they have the same age: one transaction, one micro-batch, for all of them."""
    opened = {"d.x": 0, "d.half": 500, "d.young": 501, "d.quiet": -59_500, "d.fresh": -59_499}
    buffers = {t: buffer(n, opened_at_ms=at) for n, (t, at) in enumerate(opened.items())}
    quiet = {"d.quiet": 61_000, "d.fresh": 61_000}
    chosen = limits(max_age_ms=1_000, table_max_age_ms=quiet)
    state = with_limits(chosen, p0=partition(0, 5, buffers=buffers))
    state = replace(state, now_ms=1_000)

    assert {table for _, table, _ in due(state)} == {"d.x", "d.half", "d.quiet"}
    assert due(replace(state, now_ms=999)) == []
    # Where there is no room for all, those past their age go first, however small they are.
    heavy = {**buffers, "d.half": replace(buffers["d.half"], bytes=10**6)}
    state = replace(state, partitions={0: partition(0, 5, buffers=heavy)}, tokens=1.0)
    assert due(state) == [(0, "d.x", SealReason.AGE)]


def test_company_goes_only_with_what_is_old() -> None:
    """A full buffer takes nobody along: under load blocks stay large."""
    buffers = {"d.x": buffer(0, rows=5), "d.y": buffer(1, opened_at_ms=1)}
    chosen = limits(max_age_ms=1_000, max_rows=5)
    state = with_limits(chosen, p0=partition(0, 2, buffers=buffers))

    assert due(replace(state, now_ms=999)) == [(0, "d.x", SealReason.ROWS)]


def test_max_per_second_stretches_the_age_of_the_quietest() -> None:
    """With two tokens the two with most bytes times age go; the third waits, not for ever."""
    buffers = {"d.x": buffer(0, bytes=30), "d.y": buffer(1, bytes=10), "d.z": buffer(2, bytes=20)}
    chosen = limits(max_age_ms=1_000, max_per_second=2.0)
    state = with_limits(chosen, p0=partition(0, 3, buffers=buffers))
    state = replace(state, now_ms=1_000, tokens=2.0)

    assert due(state) == [(0, "d.x", SealReason.AGE), (0, "d.z", SealReason.AGE)]
    assert due(replace(state, tokens=0.5)) == []
    old = replace(buffers["d.y"], opened_at_ms=-10_000)
    state = replace(state, partitions={0: partition(0, 3, buffers={**buffers, "d.y": old})})
    assert (0, "d.y", SealReason.AGE) in due(state)


def test_a_block_of_many_rows_takes_less_of_max_per_second() -> None:
    """A thousand rows are one small INSERT's worth; what is larger does it less harm."""
    rows = {"d.w": 1, "d.x": 999, "d.y": 4_000, "d.z": 10_000}
    buffers = {t: buffer(n, rows=of_it, bytes=of_it) for n, (t, of_it) in enumerate(rows.items())}
    chosen = limits(max_age_ms=1_000, max_per_second=1.0)
    state = replace(with_limits(chosen, p0=partition(0, 4, buffers=buffers)), now_ms=1_000)

    sealed = [((0, table), buffer) for table, buffer in buffers.items()]
    assert count_tokens(sealed, alone=()) == 1.0 + 1.0 + 0.25 + 0.1
    assert [table for _, table, _ in due(replace(state, tokens=1.34))] == ["d.y", "d.z"]
    assert [table for _, table, _ in due(replace(state, tokens=1.35))] == ["d.x", "d.y", "d.z"]


def test_all_source_partitions_of_a_table_go_together_for_one_token() -> None:
    """The loader makes one INSERT of them; one by one they would wait for as many tokens."""
    one = {t: buffer(n, bytes=10 + n) for n, t in enumerate(("d.x", "d.y", "d.z"))}
    owned = {f"p{n}": partition(0, 3, buffers=one) for n in range(4)}
    young = {"d.z": buffer(2, bytes=99, opened_at_ms=501)}
    chosen = limits(max_age_ms=1_000, max_per_second=0.5)
    state = with_limits(chosen, **owned, p4=partition(0, 3, buffers=young))
    state = replace(state, now_ms=1_000, tokens=2.0)

    of_tables = [(p, t, SealReason.AGE) for p in range(4) for t in ("d.y", "d.z")]
    assert due(state) == of_tables
    assert [table for _, table, _ in due(replace(state, tokens=1.0))] == ["d.z"] * 4
    assert due(replace(state, tokens=0.9)) == []
    # Together they have the rows of one large INSERT.
    many = {t: replace(some, rows=1_000) for t, some in one.items()}
    owned = {f"p{n}": partition(0, 3, buffers=many) for n in range(4)}
    state = with_limits(chosen, **owned)
    assert len(due(replace(state, now_ms=1_000, tokens=0.75))) == 12
    assert len(due(replace(state, now_ms=1_000, tokens=0.5))) == 8


def test_a_table_whose_blocks_are_inserted_one_by_one_takes_a_token_for_each() -> None:
    owned = {f"p{n}": partition(0, 1, buffers={"d.x": buffer(0, bytes=9 - n)}) for n in range(3)}
    chosen = limits(max_age_ms=1_000, max_per_second=2.0)
    state = replace(with_limits(chosen, **owned), now_ms=1_000, tokens=2.0)

    assert len(due(state)) == 3
    alone = replace(state, alone=frozenset({"d.x"}))
    assert due(alone) == [(0, "d.x", SealReason.AGE), (1, "d.x", SealReason.AGE)]
    sealed = [((n, "d.x"), buffer(0)) for n in range(3)]
    assert count_tokens(sealed, state.alone) == 1.0
    assert count_tokens(sealed, alone.alone) == 3.0


@pytest.mark.parametrize(
    ("age_ms", "tokens", "some"),
    [
        (500, 3.9, 0),
        (500, 4.0, 4),
        (500, 7.9, 7),
        (1_000, 7.9, 0),
        (1_000, 8.0, 8),
        (60_000, 7.9, 0),
        (60_000, 8.0, 8),
        (60_000, 20.0, 20),
    ],
)
def test_without_room_for_all_a_set_goes_at_a_time(age_ms: int, tokens: float, some: int) -> None:
    """Not one after the other as the tokens come: each set is a transaction and a micro-batch.

    A set is what max_per_second allows in block.max_age_seconds, or in a second.
    """
    buffers = {f"d.t{n}": buffer(n) for n in range(20)}
    chosen = limits(max_age_ms=age_ms, max_per_second=8.0)
    state = with_limits(chosen, p0=partition(0, 20, buffers=buffers))

    assert len(due(replace(state, now_ms=60_000, tokens=tokens))) == some


def test_company_waits_for_no_set() -> None:
    """Where there is room for what is past its age, that goes, and of its company what fits."""
    opened = {"d.old": 0, **{f"d.t{n}": 400 for n in range(5)}}
    buffers = {t: buffer(n, opened_at_ms=at) for n, (t, at) in enumerate(opened.items())}
    chosen = limits(max_age_ms=1_000, max_per_second=4.0)
    state = replace(with_limits(chosen, p0=partition(0, 6, buffers=buffers)), now_ms=1_000)

    assert [t for _, t, _ in due(replace(state, tokens=1.0))] == ["d.old"]
    assert len(due(replace(state, tokens=3.0))) == 3


def test_a_relay_that_is_behind_lets_its_buffers_grow_older() -> None:
    """Ten times, from when every poll was full for as long as a buffer may wait."""
    state = with_limits(limits(max_age_ms=1_000), p0=partition(0, 1, buffers={"d.x": buffer(0)}))
    behind = replace(state, now_ms=9_999, full_since_ms=8_999)

    assert due(behind) == []
    assert due(replace(behind, full_since_ms=9_000)) == [(0, "d.x", SealReason.AGE)]
    assert due(replace(behind, full_since_ms=None)) == [(0, "d.x", SealReason.AGE)]
    assert due(replace(behind, now_ms=10_000)) == [(0, "d.x", SealReason.AGE)]


def test_seals_for_other_reasons_use_up_the_room_for_age() -> None:
    buffers = {"d.x": buffer(0, rows=5), "d.y": buffer(1)}
    chosen = limits(max_age_ms=1_000, max_rows=5)
    state = with_limits(chosen, p0=partition(0, 2, buffers=buffers))

    assert due(replace(state, now_ms=1_000, tokens=1.0)) == [(0, "d.x", SealReason.ROWS)]
    assert len(due(replace(state, now_ms=1_000, tokens=2.0))) == 2


def test_tokens_come_back_with_time_up_to_one_seconds_worth() -> None:
    state = replace(with_limits(limits(max_per_second=4.0)), tokens=-4.0, now_ms=0)

    assert refill(state, 500) == -2.0
    assert refill(state, 60_000) == 4.0
    assert refill(replace(state, now_ms=900), 100) == -4.0  # a clock that went back
    slow = replace(with_limits(limits(max_per_second=0.1)), tokens=0.0)
    assert refill(slow, 60_000) == 1.0  # below one a second it must still reach one


@pytest.mark.parametrize(
    ("source", "share"), [(0, 8.0), (2, 8.0), (1, 8.0), (3, 16 / 3), (16, 1.0)]
)
def test_a_relay_has_its_share_of_the_apps_inserts(source: int, share: float) -> None:
    """By its partitions of those that the source has: all of it where that is not known."""
    held = partition(0, 20, buffers={f"d.t{n}": buffer(n) for n in range(20)})
    owned = with_limits(limits(max_age_ms=1_000, max_per_second=8.0), p0=held, p1=partition(0, 0))
    state = replace(owned, source_partitions=source, now_ms=60_000, tokens=0.0)

    assert inserts_per_second(state) == share
    assert refill(state, 60_500) == share / 2
    assert refill(state, 90_000) == share
    assert len(due(replace(state, tokens=share))) == int(share), "a set, which is the share's, too"


def test_memory_bound_seals_the_largest_first() -> None:
    state = with_limits(
        limits(max_buffer_bytes=50),
        p0=partition(0, 2, buffers={"d.x": buffer(0, bytes=10), "d.y": buffer(1, bytes=40)}),
        p1=partition(0, 1, buffers={"d.x": buffer(0, bytes=30)}),
    )

    assert due(state) == [(0, "d.y", SealReason.MEMORY)]
    tighter = replace(state, limits=limits(max_buffer_bytes=20))
    assert due(tighter) == [(0, "d.y", SealReason.MEMORY), (1, "d.x", SealReason.MEMORY)]
    assert due(replace(state, limits=limits(max_buffer_bytes=90))) == []


def test_keys_and_headers_take_memory_and_fill_no_block() -> None:
    """Red before: 100 kB keys of small values exceeded the memory that a user had set."""
    keys, rows = buffer(0, bytes=10, beside=41), buffer(1, bytes=40)
    state = with_limits(
        limits(max_bytes=50, max_buffer_bytes=90),
        p0=partition(0, 2, buffers={"d.keys": keys, "d.rows": rows}),
    )

    assert due(state) == [(0, "d.keys", SealReason.MEMORY)]
    assert due(replace(state, limits=limits(max_bytes=50, max_buffer_bytes=91))) == []


def test_memory_bound_once_exceeded_leaves_an_eighth_free() -> None:
    """So that the next poll does not make another transaction due."""
    buffers = {f"d.t{at}": buffer(at, bytes=10) for at in range(10)}
    sealed = {
        bound: len(due(with_limits(limits(max_buffer_bytes=bound), p0=partition(buffers=buffers))))
        for bound in (100, 99, 80, 79)
    }

    assert sealed == {100: 0, 99: 2, 80: 3, 79: 3}


def test_memory_bound_seals_partition_by_partition_among_those_of_about_the_same_size() -> None:
    """p0 holds most; only what is in a higher power of two goes before its buffers."""
    sizes = {"p0": (1_030, 1_040), "p1": (1_035, 1_031), "p2": (1_100, 300), "p3": (2_048, 10)}
    partitions = {
        name: partition(0, 2, buffers={"d.x": buffer(0, bytes=x), "d.y": buffer(1, bytes=y)})
        for name, (x, y) in sizes.items()
    }
    total = sum(map(sum, sizes.values()))

    def sealed(less: int) -> set[tuple[int, str]]:
        state = with_limits(limits(max_buffer_bytes=total - less), **partitions)
        return {(index, table) for index, table, _ in due(state)}

    assert sealed(1) == {(3, "d.x")}
    assert sealed(2_049) == {(3, "d.x"), (0, "d.y")}
    assert sealed(2_048 + 1_041) == {(3, "d.x"), (0, "d.y"), (0, "d.x")}
    assert sealed(2_048 + 2_071) == {(3, "d.x"), (0, "d.y"), (0, "d.x"), (1, "d.x")}


def test_reread_bound_seals_the_oldest_first() -> None:
    buffers = {"d.x": buffer(0), "d.y": buffer(4), "d.z": buffer(9)}
    state = with_limits(limits(max_reread=5), p0=partition(0, 10, buffers=buffers))

    assert due(state) == [(0, "d.x", SealReason.REREAD), (0, "d.y", SealReason.REREAD)]
    wider = replace(state, limits=limits(max_reread=6))
    assert due(wider) == [(0, "d.x", SealReason.REREAD)]


def test_what_is_sealed_anyway_does_not_count_for_the_bounds() -> None:
    buffers = {"d.x": buffer(0, bytes=100), "d.y": buffer(1, bytes=40)}
    chosen = limits(max_bytes=100, max_buffer_bytes=50)
    state = with_limits(chosen, p0=partition(0, 2, buffers=buffers))

    assert due(state) == [(0, "d.x", SealReason.BYTES)]


def test_a_flush_point_seals_every_buffer_of_its_partition() -> None:
    chosen = limits(flush_point_interval_ms=1_000)
    full = partition(0, 2, buffers={"d.x": buffer(0), "d.y": buffer(1)})
    later = replace(full, flushed_at_ms=500)
    state = replace(with_limits(chosen, p0=full, p1=later), now_ms=1_000)

    assert due(state) == [(0, "d.x", SealReason.FLUSH), (0, "d.y", SealReason.FLUSH)]


def test_no_flush_point_where_nothing_came_since_the_last() -> None:
    state = replace(with_limits(limits(flush_point_interval_ms=1_000)), now_ms=5_000)

    assert not flush_due(state, partition(7))
    assert flush_due(state, partition(7, 8))


def test_too_many_tables_force_a_flush_point() -> None:
    """Whoever invents table names cannot fill the memory with tiny buffers."""
    buffers = {f"d.t{i}": buffer(i) for i in range(3)}
    state = with_limits(limits(max_buffers=2), p0=partition(0, 3, buffers=buffers))

    assert {reason for _, _, reason in due(state)} == {SealReason.FLUSH}
    assert due(replace(state, limits=limits(max_buffers=3))) == []


def test_a_stop_and_a_schema_change_seal() -> None:
    state = ready(p0=partition(0, 2, buffers={"d.x": buffer(0), "d.y": buffer(1)}))

    changed = replace(state, schema_changed=frozenset({"d.x", "d.other"}))
    assert due(changed) == [(0, "d.x", SealReason.SCHEMA)]
    assert {r for _, _, r in due(replace(state, stopping=True))} == {SealReason.STOP}


def test_seals_are_ordered_by_partition_and_first_offset_and_carry_unique_ids() -> None:
    state = replace(
        ready(
            p1=partition(0, 2, epoch=3, buffers={"d.x": buffer(1), "d.y": buffer(0)}),
            p0=partition(0, 1, buffers={"d.x": buffer(0)}),
        ),
        stopping=True,
    )

    assert [s.block_id for s in seals_due(state)] == [
        "app:d.x:0:0:0",
        "app:d.y:1:3:0",
        "app:d.x:1:3:1",
    ]
