"""The relay's core in virtual time: how old rows are when they are sealed, whatever else runs.

    python -m tests.core.virtual_relay

prints the curve over tables and source partitions. Receives a load, gives figures. No server and no
clock: a transaction takes as long as `COMMIT_MS` says, and everything is decided by `step`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from relay.config.settings import Block
from relay.core import events as ev
from relay.core.records import Arrival, SealedBlock, SealResult
from relay.core.state import Partition, Phase, RelayState, Seal, SealingLimits
from relay.core.step import step
from tests.core.build import NEVER

POLL_MS, COMMIT_MS = 50, 60
ROW_BYTES = 82
Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Load:
    """Messages that come one table after the other, each in a source partition at random.

    Attributes:
        rate: rows a second, over all tables.
        alone: whether the loader inserts blocks one by one.
    """

    tables: int
    partitions: int
    rate: float
    per_message: int
    alone: bool = False


@dataclass(slots=True)
class Sealed:
    """What was sealed in the measured seconds.

    Attributes:
        ages_ms: of each message, when it was sealed.
        inserts: that the loader makes of the blocks, if a micro-batch has one transaction.
    """

    seconds: float
    ages_ms: list[float] = field(default_factory=list)
    blocks: int = 0
    inserts: int = 0
    transactions: int = 0

    def age(self, share: float) -> float:
        """Seconds after which this share of all messages was sealed."""
        ages = sorted(self.ages_ms)
        return ages[int(share * (len(ages) - 1))] / 1000


def sealed(load: Load, warm_up_seconds: float, seconds: float) -> Sealed:
    """Return what is sealed of this load with the settings as shipped."""
    relay = _Relay(load)
    for _ in range(round(warm_up_seconds * 1000 / POLL_MS)):
        relay.poll(Sealed(0))
    found, until_ms = Sealed(seconds), relay.now_ms + seconds * 1000
    while relay.now_ms < until_ms:
        relay.poll(found)
    return found


def _limits() -> SealingLimits:
    block = Block()
    return SealingLimits(
        app="app",
        max_bytes=block.max_bytes,
        max_rows=block.max_rows,
        max_age_ms=round(block.max_age_seconds * 1000),
        table_max_age_ms={},
        max_per_second=block.max_per_second,
        commit_interval_ms=250,
        max_buffer_bytes=512 << 20,
        max_reread=1_000_000,
        flush_point_interval_ms=NEVER,
    )


class _Relay:
    def __init__(self, load: Load) -> None:
        self._load, self.now_ms = load, 0
        begun = Partition(0, 1, 0, 0, "id", 0, 0, 0)
        owned = dict.fromkeys(range(load.partitions), begun)
        self._state = RelayState(_limits(), partitions=owned)
        self._random = random.Random(1)
        self._next = [0] * load.partitions
        self._table, self._owed = 0, 0.0
        self._held: dict[Key, list[float]] = {}

    def poll(self, found: Sealed) -> None:
        """What came since the last poll, and a transaction if one is due."""
        self.now_ms += POLL_MS
        came = self._came()
        arrivals = tuple(self._arrival(key, offsets) for key, offsets in came.items())
        polled: dict[int, list[int]] = {}
        for (index, _), offsets in came.items():
            polled.setdefault(index, []).extend(offsets)
        event = ev.Polled(self.now_ms, arrivals, {p: sorted(some) for p, some in polled.items()})
        self._state, _ = step(self._state, event)
        for answer in self._answers(found):
            self._state, _ = step(self._state, answer)

    def _came(self) -> dict[Key, list[int]]:
        came: dict[Key, list[int]] = {}
        self._owed += self._load.rate / self._load.per_message * POLL_MS / 1000
        while self._owed >= 1:
            self._owed -= 1
            index = self._random.randrange(self._load.partitions)
            key = index, f"d.t{self._table % self._load.tables}"
            self._table += 1
            came.setdefault(key, []).append(self._next[index])
            self._next[index] += 1
            made_ms = self.now_ms - self._random.random() * POLL_MS
            self._held.setdefault(key, []).append(made_ms)
        return came

    def _arrival(self, key: Key, offsets: list[int]) -> Arrival:
        rows = len(offsets) * self._load.per_message
        return Arrival(*key, tuple(offsets), rows, rows * ROW_BYTES)

    def _answers(self, found: Sealed) -> Iterator[ev.Event]:
        """Of a broker that does what it is asked, if the core asked for a transaction."""
        transaction = self._state.transaction
        if self._state.phase is not Phase.BEGINNING or transaction is None:
            return
        tables = frozenset(seal.table for seal in transaction.seals)
        yield ev.Begun(tables if self._load.alone else frozenset())
        for seal in transaction.seals:
            found.ages_ms += [
                self.now_ms - made for made in self._held.pop((seal.partition, seal.table))
            ]
        found.blocks += len(transaction.seals)
        found.inserts += len(transaction.seals if self._load.alone else tables)
        found.transactions += 1
        self.now_ms += COMMIT_MS
        yield ev.Produced(tuple(map(_result, transaction.seals)))
        yield ev.JournalWritten(dict.fromkeys(transaction.partitions, 1))
        yield ev.OffsetsSent()
        yield ev.Committed(clean=True)


def _result(seal: Seal) -> SealResult:
    buffer = seal.buffer
    block = SealedBlock("topic", 0, 1, 1, buffer.messages, buffer.rows, buffer.bytes, 0, 1)
    return SealResult(seal, block, 0, "")


_CURVE = [
    Load(8, 4, 50_000, 100),
    *(Load(tables, 6, 2_000, 5) for tables in (8, 50, 200)),
    *(Load(200, partitions, 2_000, 5) for partitions in (1, 16)),
    Load(1_000, 16, 10_000, 5),
]


def main() -> None:
    """Print the curve, with blocks that go together and with blocks that go one by one."""
    print("tables partitions rows/s alone | p50 s  p99 s | a second: inserts blocks transactions")
    for one in _CURVE:
        for alone in (False, True):
            load = Load(one.tables, one.partitions, one.rate, one.per_message, alone)
            slow = one.tables * (one.partitions if alone else 1) / 50
            found = sealed(load, 10 + 2 * slow, max(30.0, 2 * slow))
            rates = [n / found.seconds for n in (found.inserts, found.blocks, found.transactions)]
            print(
                f"{load.tables:6} {load.partitions:10} {load.rate:6} {alone!s:5} | "
                f"{found.age(0.5):5.2f} {found.age(0.99):6.2f} | "
                f"{rates[0]:17.1f} {rates[1]:6.1f} {rates[2]:12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
