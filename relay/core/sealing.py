"""Which buffers are sealed now, and why.

Receives the state and the time that came with the last poll; gives seals. Where
the boundary falls is free to depend on time: what counts afterwards is the
boundary that was committed, which nobody computes again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from relay.core.block_bound import ALONE, DENSE, block_bytes
from relay.core.holding import bytes_held_back, each_sealable, held_back, next_floor, sealable
from relay.core.state import MAX_BUFFERS, Buffer, Partition, RelayState, Seal, SealReason
from relay.names import BlockId

Key = tuple[int, str]
Due = Collection[Key]
"""What rules before this one have found to be due."""
Insert = tuple[int | None, str]
"""What the loader inserts by one statement: a table's blocks of one transaction, or one of them."""
COMPANY_MS = 500
"""A buffer this close to its age limit, and past half of it, is sealed together with due ones."""
BEHIND_FACTOR = 10
"""While a relay is behind, the age limit is this many times larger."""
ROOM = 8
"""When memory is full, this part of it (an eighth) is freed: a transaction costs about the same
whatever it holds, and after a smaller one the next poll would make another one due."""
SMALL_ROWS = 1_000
"""An INSERT should have at least so many rows (ClickHouse's documentation, "Bulk inserts")."""


def seals_due(state: RelayState) -> tuple[Seal, ...]:
    """Return seals in order of partition and first offset; empty while nothing is due.

    RULES decide, one after the other; a buffer has the reason of the first that names it.
    """
    due: dict[Key, SealReason] = {}
    for rule in RULES:
        for key in list(rule.find(state, due)):
            due.setdefault(key, rule.reason)
    seals = [_seal(state, key, reason) for key, reason in due.items()]
    return tuple(sorted(seals, key=lambda seal: (seal.partition, seal.buffer.first_offset)))


def is_behind(state: RelayState) -> bool:
    """Return whether every poll was full for block.max_age: rows wait in the source, not here.

    Then the sooner the source is worked off, the sooner each row is there, and what a block costs
    whatever is in it counts for more than its age. While partitions take turns a poll that is not
    full says nothing: what the next ones hold may still be on its way.
    """
    since_ms = state.full_since_ms
    full = since_ms is not None and state.now_ms - since_ms >= state.limits.max_age_ms
    return full or state.turns is not None


def is_crowded(state: RelayState) -> bool:
    """Return whether the buffers hold more than they may."""
    held = sum([b.memory for p in state.partitions.values() for b in p.buffers.values()])
    return held > state.limits.max_buffer_bytes


def inserts_per_second(state: RelayState) -> float:
    """Return how many small INSERTs this relay may make due: its share, by its partitions.

    The limit is the app's. Were it each relay's, ClickHouse would get the more INSERTs of the same
    quiet tables the more relays there are, and the loader would fall ever further behind.
    """
    owned, everything = len(state.partitions), state.source_partitions
    share = owned / everything if owned < everything else 1.0
    return state.limits.max_per_second * share


def refill(state: RelayState, now_ms: int) -> float:
    """Return tokens for seals by age after the time since the last event: one second's at most."""
    rate = inserts_per_second(state)
    elapsed_s = max(0, now_ms - state.now_ms) / 1000
    return min(max(rate, 1.0), state.tokens + elapsed_s * rate)


def count_tokens(sealed: Iterable[tuple[Key, Buffer]], alone: Collection[str]) -> float:
    """Return tokens that these take as INSERTs: one for a small INSERT, less for one of more rows.

    What block.max_per_second bounds is the harm of small INSERTs. Blocks of many tables that
    filled under load are none, and they need not wait behind each other once the load is gone.

    All were sealed in one transaction; the loader inserts the blocks of tables in `alone` singly.
    """
    rows: Counter[Insert] = Counter()
    for key, buffer in sealed:
        rows[_insert_of(key, alone)] += buffer.rows
    return sum(map(_price, rows.values()))


def flush_due(state: RelayState, partition: Partition) -> bool:
    """Return whether a forced flush point is due: all buffers are sealed and floor = position."""
    return (
        state.stopping
        or len(sealable(state, partition)) > state.limits.max_buffers
        or (
            not held_back(state, partition)  # or the others would be sealed at every poll
            and state.now_ms - partition.flushed_at_ms >= state.limits.flush_point_interval_ms
            and partition.position > partition.reference
        )
    )


def record_due(state: RelayState, partition: Partition) -> bool:
    """Return whether a journal record is due without any seal.

    The first says where a partition began; those of an idle one keep the journal's last record
    younger than the topic's retention, as a take-over needs it. How old that is does not begin
    anew at a take-over. The record's time is of another clock: one that lies as far ahead of this
    one says only that one of the two is wrong.
    """
    age_ms = abs(state.now_ms - partition.recorded_at_ms)
    idle = not sealable(state, partition) and age_ms >= state.limits.keepalive_ms
    moved = next_floor(state, partition) > partition.floor
    return partition.fresh or idle or (moved and flush_due(state, partition))


def _stopping(state: RelayState, _: Due) -> Iterator[Key]:
    if state.stopping:
        for index, buffers in each_sealable(state):
            yield from ((index, table) for table, _ in buffers)


def _flushed(state: RelayState, _: Due) -> Iterator[Key]:
    for index, partition in state.partitions.items():
        if flush_due(state, partition):
            yield from ((index, table) for table in sealable(state, partition))


def _changed(state: RelayState, _: Due) -> Iterator[Key]:
    for index, partition in state.partitions.items():
        changed = state.schema_changed.intersection(sealable(state, partition))
        yield from ((index, table) for table in changed)


def _of_bytes(state: RelayState, _: Due) -> Iterator[Key]:
    limit = state.limits.max_bytes
    if state.most_bytes is not None:  # a larger block would be a transaction of its own
        limit = min(limit, state.most_bytes)
    for index, buffers in each_sealable(state):
        yield from [(index, t) for t, b in buffers if b.bytes >= limit]


def _of_rows(state: RelayState, _: Due) -> Iterator[Key]:
    limit = state.limits.max_rows
    for index, buffers in each_sealable(state):
        yield from [(index, t) for t, b in buffers if b.rows >= limit]


def _of_decoded(state: RelayState, _: Due) -> Iterator[Key]:
    limit = state.limits.max_decoded_bytes
    for index, buffers in each_sealable(state):
        yield from [(index, t) for t, b in buffers if b.decoded >= block_bytes(limit, b.bytes)]


def _beyond_reread(state: RelayState, due: Due) -> Iterator[Key]:
    """Oldest buffers first, until a crash would read again no more than max_reread offsets."""
    for index, partition in state.partitions.items():
        least = partition.position - state.limits.max_reread
        if partition.floor >= least:  # and so is what every buffer begins with
            continue
        buffers = sealable(state, partition).items()
        remaining = ((b.first_offset, t) for t, b in buffers if (index, t) not in due)
        yield from ((index, table) for first_offset, table in remaining if first_offset < least)


def _beyond_memory(state: RelayState, due: Due) -> Iterator[Key]:
    """Largest buffers first, until what stays in memory is well within the bound.

    Those of partitions that are not polled now go before all others, for they will not grow.
    Those of about the same size (by the power of two) go partition by partition, the one that
    holds most first: each that a transaction touches costs it a journal record.
    """
    if not is_crowded(state):
        return
    polled = state.reading
    remaining: list[tuple[bool, int, int, int, int, str]] = []
    held = bytes_held_back(state)
    for index, buffers in each_sealable(state):
        sizes = {t: b.memory for t, b in buffers if (index, t) not in due}
        of_partition = sum(sizes.values())
        held += of_partition
        waits = index not in polled
        remaining += [
            (waits, n.bit_length(), of_partition, index, n, table) for table, n in sizes.items()
        ]
    if held <= state.limits.max_buffer_bytes:
        return
    remaining.sort()
    enough = state.limits.max_buffer_bytes - state.limits.max_buffer_bytes // ROOM
    while remaining and held > enough:
        _, _, _, index, size, table = remaining.pop()
        held -= size
        yield index, table


def _aged(state: RelayState, due: Due) -> Iterator[Key]:
    """Buffers past their age, as many as max_per_second leaves room for, and their company.

    All source partitions of a table go together, since the loader makes one INSERT of them.
    Weighed by bytes times age: busy tables go first, and a quiet one is stretched
    but never for ever. Those that would be due soon go along where there is room: tables with
    the same age are then sealed together from one time to the next, in one transaction, which
    the loader takes in one micro-batch, instead of a few at a time and each behind the last.
    For the same reason they wait, where there is no room for all, until there is for a set.
    """
    room = state.tokens - count_tokens(((key, _buffer(state, key)) for key in due), state.alone)
    if room <= 0 or (room < _batch_size(state) and _past_exceed(state, due, room)):
        return
    inserts = sorted(
        _candidates(state, due), key=lambda insert: (insert.past, insert.weight, insert.keys)
    )
    if not inserts or not inserts[-1].past:
        return
    for insert in reversed(inserts):
        room -= _price(insert.rows)
        if room < 0:
            return
        yield from insert.keys


@dataclass(slots=True)
class _Candidate:
    """What goes into one INSERT, of buffers that are or soon will be past their age."""

    past: bool = False
    weight: int = 0
    rows: int = 0
    keys: list[Key] = field(default_factory=list)


def _candidates(state: RelayState, due: Collection[Key]) -> Collection[_Candidate]:
    inserts: defaultdict[Insert, _Candidate] = defaultdict(_Candidate)
    for insert, key, buffer, age_ms, past in _aging(state, due):
        of_insert = inserts[insert]
        of_insert.past |= past
        of_insert.weight += buffer.bytes * max(age_ms, 1)
        of_insert.rows += buffer.rows
        of_insert.keys.append(key)
    return inserts.values()


def _past_exceed(state: RelayState, due: Collection[Key], room: float) -> bool:
    """Return whether the INSERTs that are past their age cost more than there is room for.

    It is asked at each poll, of thousands of buffers, and most often a few say enough.
    """
    seen: set[Insert] = set()
    for insert, (_, table), _, _, past in _aging(state, due):
        if past and insert not in seen:
            seen.add(insert)
            room -= _price(
                sum([b.rows for of, _, b, _, _ in _aging(state, due, table) if of == insert])
            )
            if room < 0:
                return True
    return False


def _aging(
    state: RelayState, due: Collection[Key], only: str | None = None
) -> Iterator[tuple[Insert, Key, Buffer, int, bool]]:
    """Yield buffers that are or soon will be past their age: their INSERT, age, and whether.

    Those that are due already are left out, and all tables' but `only`'s if that is given.
    """
    now_ms, alone = state.now_ms, state.alone
    of_tables, of_others = _ages(state)
    for index, partition in state.partitions.items():
        for table, buffer in sealable(state, partition, only).items():
            soon_ms, most_ms = of_tables.get(table, of_others)
            age_ms = now_ms - buffer.opened_at_ms
            if age_ms >= soon_ms and (key := (index, table)) not in due:
                yield _insert_of(key, alone), key, buffer, age_ms, age_ms >= most_ms


def _ages(state: RelayState) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    """Return from which age on a buffer goes along, and is due: of single tables, and of others."""
    stretch = BEHIND_FACTOR if is_behind(state) else 1

    def ages(max_age_ms: int) -> tuple[int, int]:
        most_ms = stretch * max_age_ms
        return most_ms - min(most_ms // 2, COMPANY_MS), most_ms

    limits = state.limits
    return {t: ages(ms) for t, ms in limits.table_max_age_ms.items()}, ages(limits.max_age_ms)


def _batch_size(state: RelayState) -> float:
    """INSERTs that become due within block.max_age_seconds, or a second: sealed at a time."""
    return inserts_per_second(state) * min(state.limits.max_age_ms / 1000, 1.0)


def _price(rows: int) -> float:
    """Return the tokens that one INSERT takes."""
    return min(1.0, SMALL_ROWS / max(1, rows))


def _insert_of(key: Key, alone: Collection[str]) -> Insert:
    index, table = key
    return (index if table in alone else None), table


def _seal(state: RelayState, key: Key, reason: SealReason) -> Seal:
    index, table = key
    buffer = _buffer(state, key)
    epoch = state.partitions[index].epoch
    block_id = BlockId(state.limits.app, table, index, epoch, buffer.first_offset)
    return Seal(index, table, str(block_id), reason, buffer)


def _buffer(state: RelayState, key: Key) -> Buffer:
    return state.partitions[key[0]].buffers[key[1]]


@dataclass(frozen=True, slots=True)
class SealingRule:
    """One reason for which buffers are sealed.

    Attributes:
        find: which buffers it seals now.
        when: the same in words; a setting stands in braces.
    """

    reason: SealReason
    find: Callable[[RelayState, Due], Iterator[Key]]
    when: str


RULES = (
    SealingRule(SealReason.STOP, _stopping, "the relay was asked to stop"),
    SealingRule(
        SealReason.FLUSH,
        _flushed,
        "a flush point is due: every {relay.flush_point_interval_seconds} s, or a partition holds "
        f"more than {MAX_BUFFERS:,} buffers. All buffers of the partition are sealed",
    ),
    SealingRule(SealReason.SCHEMA, _changed, "its table's columns changed"),
    SealingRule(SealReason.BYTES, _of_bytes, "it holds {block.max_bytes} bytes of rows"),
    SealingRule(SealReason.ROWS, _of_rows, "it holds {block.max_rows} rows"),
    SealingRule(
        SealReason.DECODED,
        _of_decoded,
        "its rows take about {block.max_decoded_bytes} bytes as columns, whatever fields they set; "
        f"or {DENSE} times their messages' bytes, if that is more and within {ALONE} times the "
        "setting. What does not fit into a block stays, and is asked about again at once",
    ),
    SealingRule(
        SealReason.REREAD,
        _beyond_reread,
        "a crash would read again more than {relay.max_reread} offsets of the partition: oldest "
        "first",
    ),
    SealingRule(
        SealReason.MEMORY,
        _beyond_memory,
        "all buffers together hold more than {relay.max_buffer_bytes} bytes of rows, keys and "
        "headers: largest first, those "
        f"of partitions that are not polled now before all others, until 1/{ROOM} is free",
    ),
    SealingRule(
        SealReason.AGE,
        _aged,
        "its oldest message was polled {block.max_age_seconds} s ago (per table in "
        f"`[block.tables]`), {BEHIND_FACTOR} times that while the relay is behind. Buffers that "
        f"would be due within {COMPANY_MS / 1000:g} s, at the earliest at half their age, go "
        "together with one that is due. {block.max_per_second} INSERTs a second of up to "
        f"{SMALL_ROWS:,} rows are made due by all relays of the app; a relay's share of them is "
        f"its share of the source's partitions. A larger one counts as {SMALL_ROWS:,} / rows. What "
        "a transaction seals of a table, in whichever partitions, counts as one INSERT, and goes "
        "together; of tables whose blocks the loader inserts one by one, each block does. Above "
        "the limit the quietest tables wait longer, weighed by bytes times age, and as many "
        "INSERTs as are allowed in that age go at a time",
    ),
)
"""When a buffer is sealed, in the order in which the rules are asked; relay/docs/design.md shows
it. Settings reach them as relay.core.state.SealingLimits."""
