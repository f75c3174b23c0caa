"""How much a transaction may hold, once brokers were too slow for one.

Receives what failed or was committed, gives the bound and transactions within it. Brokers end what
is open for longer than its timeout. A quota or a slow link then fails all that is too large for
it, and after the truth was read again, as much is due as before. Until that happens no transaction
has a bound: a large one costs about as much as a small one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from relay.core.events import Failed
from relay.core.state import RelayState, Seal, Transaction

PART = 4
"""The bound is this part of what failed: from 512 MB it comes to 2 MB in four failures, and five in
a row end the relay."""
LEAST_BYTES = 1_000_000
"""The bound is never lower: a transaction of no more bytes failed of something else."""
QUICK = 8
"""A commit of at least half the bound in so small a part of the timeout doubles it: of twice the
bound it would take less than half the timeout."""
UNPOLLED_MS = 60_000
"""After so much time in transactions a poll comes before the next one: the group waits five minutes
for it."""


def size_if_too_slow(state: RelayState, event: Failed) -> int:
    """Return the bytes of the open transaction, if it failed as it took too long; 0: it did not.

    With a coordinator that is away for so long it looks the same: then the bound is for nothing,
    and soon forgotten.
    """
    if state.transaction is None or event.dark:
        return 0
    size = _bytes(state.transaction.seals)
    late = event.took_ms >= state.limits.transaction_timeout_ms
    return size if late and size > LEAST_BYTES else 0


def lower_bound(state: RelayState, size: int) -> int:
    """Return the bound after a transaction of so many bytes took too long."""
    most = max(LEAST_BYTES, size // PART)
    return most if state.most_bytes is None else min(most, state.most_bytes)


def raise_bound(state: RelayState, transaction: Transaction, took_ms: int) -> int | None:
    """Return the bound after a commit; None, once it bounds nothing."""
    most, limits = state.most_bytes, state.limits
    if most is None or 2 * _bytes(transaction.seals) < most:
        return most  # the time of a small one says nothing: quotas let some pass at once
    if QUICK * took_ms >= limits.transaction_timeout_ms:
        return most
    return 2 * most if 2 * most < limits.max_buffer_bytes else None


def split_within(most: int, transactions: Iterable[Transaction]) -> tuple[Transaction, ...]:
    """Return transactions for the same seals, none of more bytes but of one seal alone.

    Those of the oldest buffers come first: what a poll in between leaves for later is the youngest.
    """
    parts = [part for transaction in transactions for part in _parts(transaction, most)]
    return tuple(sorted(parts, key=lambda part: min(map(_opened, part.seals), default=0)))


def must_poll(state: RelayState) -> bool:
    """Return whether a poll comes before the next transaction, though one is due."""
    return state.most_bytes is not None and state.unpolled_ms >= UNPOLLED_MS


def has_full(state: RelayState) -> bool:
    """Return whether a buffer has as much as the bound: another poll may bring as much again."""
    most = state.most_bytes
    return most is not None and any(
        buffer.bytes >= most
        for partition in state.partitions.values()
        for buffer in partition.buffers.values()
    )


def _parts(transaction: Transaction, most: int) -> Iterator[Transaction]:
    if not transaction.seals:
        yield transaction
        return
    bare = transaction.partitions.difference(seal.partition for seal in transaction.seals)
    seals: list[Seal] = []
    size = 0
    for seal in sorted(transaction.seals, key=_opened):
        if seals and size + seal.buffer.bytes > most:
            yield _part(transaction, seals, bare)
            seals, size, bare = [], 0, frozenset[int]()
        seals.append(seal)
        size += seal.buffer.bytes
    yield _part(transaction, seals, bare)


def _part(transaction: Transaction, seals: list[Seal], bare: frozenset[int]) -> Transaction:
    """A transaction of these seals, in the order of the whole, and of partitions without any."""
    ordered = sorted(seals, key=lambda seal: (seal.partition, seal.buffer.first_offset))
    partitions = bare.union(seal.partition for seal in seals)
    return replace(transaction, seals=tuple(ordered), partitions=partitions)


def _opened(seal: Seal) -> int:
    return seal.buffer.opened_at_ms


def _bytes(seals: Iterable[Seal]) -> int:
    return sum(seal.buffer.bytes for seal in seals)
