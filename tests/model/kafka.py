"""An in-memory Kafka: what a transactional relay can notice of it, and no more.

Receives the calls of members (tests.model.member), gives answers, or raises one of the
errors below. Requests that were sent twice stay in `late` until the scheduler delivers
them. The old transaction protocol (no KIP-890 part 2), which is what librdkafka speaks:
one producer epoch lasts over many transactions (relay/docs/design.md, rule 12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from relay.core.state import Fencing
from tests.model.log import Log, LogKey

if TYPE_CHECKING:
    from relay.core.offsets import CommittedOffset

OFFSETS: LogKey = ("__consumer_offsets", 0)
"""The group's offsets, as a participant of a transaction."""


class FencedError(Exception):
    """A newer epoch of the transactional id exists, or a newer process of the static member."""


class AbortableError(Exception):
    """The broker refuses, and says that the transaction has to be aborted."""


class UnusableError(Exception):
    """INVALID_TXN_STATE: fatal for the client, the outcome of its transaction unknown."""


class NotNowError(Exception):
    """CONCURRENT_TRANSACTIONS or UNSTABLE_OFFSET_COMMIT: the client asks again later."""


class Phase(Enum):
    """Of a transactional id, at its coordinator."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARED = "prepared"
    COMPLETE = "complete"


@dataclass(slots=True)
class Coordinated:
    """What the coordinator knows of one transactional id."""

    epoch: int = -1
    phase: Phase = Phase.EMPTY
    commit: bool = False
    logs: frozenset[LogKey] = frozenset()
    unmarked: frozenset[LogKey] = frozenset()
    pending: dict[int, CommittedOffset] = field(default_factory=dict)

    def clone(self) -> Coordinated:
        return Coordinated(
            self.epoch, self.phase, self.commit, self.logs, self.unmarked, self.pending.copy()
        )

    def key(self) -> tuple[Any, ...]:
        return (
            self.epoch,
            self.phase.value,
            self.commit,
            tuple(sorted(self.logs)),
            tuple(sorted(self.unmarked)),
            tuple(sorted(self.pending.items())),
        )


class GroupMetadata(NamedTuple):
    """What consumer_group_metadata() gives: `process` stands for the member id."""

    name: str
    process: int
    generation: int


class LateEnd(NamedTuple):
    """An EndTxn still under way."""

    tid: str
    epoch: int
    commit: bool


class LateOffsets(NamedTuple):
    """A TxnOffsetCommit still under way."""

    tid: str
    epoch: int
    member: GroupMetadata
    offsets: tuple[tuple[int, CommittedOffset], ...]


class Kafka:
    """Logs, one transaction coordinator, one group coordinator.

    Args:
        marks_at_once: write all markers of a transaction in one go; else the scheduler
            writes them one partition at a time.
        fencing: PARTITION: the group stands for one in another cluster, which only shows offsets.
    """

    def __init__(self, *, marks_at_once: bool = True, fencing: Fencing = Fencing.GROUP) -> None:
        self.marks_at_once = marks_at_once
        self.fencing = fencing
        self.logs: dict[LogKey, Log] = {}
        self.transactions: dict[str, Coordinated] = {}
        self.generation = 0
        self.owners: dict[int, str] = {}
        self.processes: dict[str, int] = {}
        self.offsets: dict[int, CommittedOffset] = {}
        self.late: tuple[LateEnd | LateOffsets, ...] = ()

    def clone(self) -> Kafka:
        new = Kafka.__new__(Kafka)
        new.marks_at_once, new.fencing = self.marks_at_once, self.fencing
        new.logs = self.logs.copy()
        new.transactions = {tid: t.clone() for tid, t in self.transactions.items()}
        new.generation, new.owners = self.generation, self.owners.copy()
        new.processes, new.offsets = self.processes.copy(), self.offsets.copy()
        new.late = self.late
        return new

    def key(self) -> tuple[Any, ...]:
        return (
            tuple((name, self.logs[name].key()) for name in sorted(self.logs)),
            tuple((tid, self.transactions[tid].key()) for tid in sorted(self.transactions)),
            self.generation,
            tuple(sorted(self.owners.items())),
            tuple(sorted(self.processes.items())),
            tuple(sorted(self.offsets.items())),
            self.late,
        )

    def log(self, key: LogKey) -> Log:
        return self.logs.setdefault(key, Log())

    def writable(self, key: LogKey) -> Log:
        """The log, as this Kafka's own."""
        log = self.logs[key] = self.log(key).clone()
        return log

    # ---- transaction coordinator ------------------------------------------------------------

    def init(self, tid: str) -> int:
        """InitProducerId: fence the id's former producer, end what it left, give a new epoch."""
        known = self.transactions.setdefault(tid, Coordinated())
        if known.phase is Phase.ONGOING:
            known.epoch += 1
            self._prepare(tid, commit=False)
        if known.phase is Phase.PREPARED:
            raise NotNowError
        known.phase, known.logs = Phase.EMPTY, frozenset()
        known.epoch += 1
        return known.epoch

    def add(self, tid: str, epoch: int, key: LogKey) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn; the first of a transaction begins it."""
        known = self._fenced(tid, epoch)
        if known.phase is Phase.PREPARED:
            raise NotNowError
        if known.phase is not Phase.ONGOING:
            known.phase, known.logs = Phase.ONGOING, frozenset()
        known.logs |= {key}

    def produce(self, tid: str, epoch: int, key: LogKey, values: list[Any]) -> list[int]:
        """Offsets of the appended values; the partition must be in the open transaction."""
        self._verified(tid, epoch, key)
        log = self.writable(key)
        return [log.append(value, tid) for value in values]

    def commit_offsets(
        self,
        tid: str,
        epoch: int,
        member: GroupMetadata,
        offsets: tuple[tuple[int, CommittedOffset], ...],
    ) -> None:
        """TxnOffsetCommit: fenced by producer epoch, member id and generation (KIP-447)."""
        known = self._verified(tid, epoch, OFFSETS)
        if self.processes.get(member.name) != member.process:
            raise AbortableError("FENCED_INSTANCE_ID")
        if self.generation != member.generation:
            raise AbortableError("ILLEGAL_GENERATION")
        known.pending.update(offsets)

    def end(self, tid: str, epoch: int, *, commit: bool) -> None:
        """EndTxn: a repetition of what was asked last is fine, anything else is not."""
        known = self._fenced(tid, epoch)
        if known.phase is Phase.PREPARED:
            raise NotNowError
        if known.phase is Phase.ONGOING:
            self._prepare(tid, commit=commit)
        elif known.phase is not Phase.COMPLETE or known.commit is not commit:
            raise UnusableError("INVALID_TXN_STATE")

    def time_out(self, tid: str) -> None:
        """The coordinator aborts what took too long, and fences its producer."""
        known = self.transactions[tid]
        if known.phase is Phase.ONGOING:
            known.epoch += 1
            self._prepare(tid, commit=False)

    def mark(self, tid: str, key: LogKey) -> None:
        """Write the marker of a prepared transaction into one of its partitions."""
        known = self.transactions[tid]
        if key == OFFSETS:
            if known.commit:
                self.offsets.update(known.pending)
            known.pending = {}
        else:
            self.writable(key).end(tid, commit=known.commit)
        known.unmarked -= {key}
        if not known.unmarked:
            known.phase = Phase.COMPLETE

    def deliver(self, index: int) -> None:
        """A request that was sent twice arrives for the second time; nobody hears the answer."""
        request = self.late[index]
        self.late = self.late[:index] + self.late[index + 1 :]
        try:
            if isinstance(request, LateEnd):
                self.end(request.tid, request.epoch, commit=request.commit)
            else:
                self.commit_offsets(*request)
        except (FencedError, AbortableError, UnusableError, NotNowError):
            return  # the broker refused it

    def _prepare(self, tid: str, *, commit: bool) -> None:
        known = self.transactions[tid]
        known.phase, known.commit, known.unmarked = Phase.PREPARED, commit, known.logs
        if self.marks_at_once:
            for key in sorted(known.unmarked):
                self.mark(tid, key)

    def _fenced(self, tid: str, epoch: int) -> Coordinated:
        known = self.transactions[tid]
        if epoch != known.epoch:
            raise FencedError(f"epoch {epoch} of {tid} is not {known.epoch}")
        return known

    def _verified(self, tid: str, epoch: int, key: LogKey) -> Coordinated:
        """KIP-890 part 1: nothing is appended outside the open transaction."""
        known = self._fenced(tid, epoch)
        if known.phase is not Phase.ONGOING or key not in known.logs:
            raise UnusableError("INVALID_TXN_STATE")
        return known

    # ---- group coordinator ------------------------------------------------------------------

    def fetch_offset(self, partition: int) -> CommittedOffset | None:
        """OffsetFetch with require_stable."""
        if any(partition in t.pending for t in self.transactions.values()):
            raise NotNowError
        return self.offsets.get(partition)

    def show_offsets(self, member: GroupMetadata, offsets: dict[int, CommittedOffset]) -> None:
        """OffsetCommit outside a transaction; whoever is not of this generation is refused."""
        known = self.processes.get(member.name) == member.process
        if known and self.generation == member.generation:
            self.offsets.update(offsets)

    def join(self, name: str) -> int:
        """A process joins as static member `name`; the process before it is fenced."""
        self.processes[name] = self.processes.get(name, -1) + 1
        return self.processes[name]

    def rebalance(self, owners: dict[int, str]) -> None:
        """A new generation; members notice later. Harsher than the eager protocol, in which a
        living member is waited for: here everyone may be late."""
        self.owners = dict(owners)
        self.generation += 1
