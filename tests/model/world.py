"""Everything of the model in one value: brokers, relay processes, loaders, ClickHouse, clock.

Receives actions from a search, a random walk or Hypothesis; gives the actions that are
possible now. An action is a plain tuple, so that a schedule can be printed and run again.
"""

from __future__ import annotations

from typing import Any

from relay.core.state import Fencing, Phase, RelayState, SealingLimits
from relay.errors import Fenced, Unavailable
from tests.model import judge
from tests.model.kafka import Kafka
from tests.model.kafka import Phase as TransactionPhase
from tests.model.loader import ClickHouse, Loader
from tests.model.log import Entry, Status
from tests.model.member import FAULTS, Guards, Member
from tests.model.producer import Producer
from tests.model.records import SOURCE, Message

Action = tuple[Any, ...]

NAMES = ("a", "b")
PROCESSES_PER_NAME = 2
FOREVER_MS = 10**9
HARMLESS_STOPS = (Fenced, Unavailable)
"""The supervisor starts the process again. Any other stop is an alarm, and false here,
because the model never breaks the contract."""


class AnomalyError(AssertionError):
    """The property is broken; the message names how."""


def limits(**changes: Any) -> SealingLimits:
    """Seal at two rows and, unless changed, never for another reason."""
    values: dict[str, Any] = {
        "app": "app",
        "max_bytes": FOREVER_MS,
        "max_rows": 2,
        "max_age_ms": FOREVER_MS,
        "table_max_age_ms": {},
        "max_per_second": 1.0,
        "commit_interval_ms": 0,
        "max_buffer_bytes": FOREVER_MS,
        "max_reread": FOREVER_MS,
        "flush_point_interval_ms": FOREVER_MS,
        "max_decoded_bytes": FOREVER_MS,
    }
    return SealingLimits(**(values | changes))


class World:
    """See the module.

    Args:
        source: per source partition its log: a Message, "marker", or an aborted Message.
        relay_limits, guards, fencing, ledger: how the processes are built.
    """

    def __init__(
        self,
        source: list[list[Entry]],
        *,
        relay_limits: SealingLimits | None = None,
        guards: Guards | None = None,
        fencing: Fencing = Fencing.GROUP,
        ledger: bool = True,
        marks_at_once: bool = True,
        loaders: int = 0,
    ) -> None:
        self.kafka = Kafka(marks_at_once=marks_at_once, fencing=fencing)
        for partition, entries in enumerate(source):
            self.kafka.log((SOURCE, partition)).entries = list(entries)
        self.clickhouse = ClickHouse(ledger_on=ledger)
        self.limits = relay_limits or limits()
        self.guards = guards or Guards()
        self.members: dict[str, Member] = {}
        self.loaders = {f"l{i}": Loader(f"l{i}") for i in range(loaders)}
        self.now_ms = 0
        self.lives = 0

    def clone(self, touched: str | None = None) -> World:
        """A copy that is free to change; only in process `touched` where one is named."""
        new = World.__new__(World)
        new.__dict__.update(self.__dict__)
        new.kafka = self.kafka.clone()
        if touched is None or touched in self.loaders:  # nobody else writes to it
            new.clickhouse = self.clickhouse.clone()
        new.members, new.loaders = self.members.copy(), self.loaders.copy()
        for uid, member in self.members.items():
            if touched is None or uid == touched:
                new.members[uid] = member.clone()
        for name, loader in self.loaders.items():
            if touched is None or name == touched:
                new.loaders[name] = loader.clone()
        return new

    def key(self) -> int:
        """Two worlds with one key behave alike."""
        return hash(
            (
                self.kafka.key(),
                tuple(sorted(m.key() for m in self.members.values())),
                tuple(loader.key() for loader in self.loaders.values()),
                self.clickhouse.key(),
                self.now_ms,
            )
        )

    # ---- actions --------------------------------------------------------------------------------

    def turns(self) -> list[Action]:
        """What happens without any fault."""
        found: list[Action] = [("go", uid) for uid in self.members]
        found += [
            ("load", name) for name, loader in self.loaders.items() if loader.busy(self.kafka)
        ]
        for tid, known in self.kafka.transactions.items():
            found += [("mark", tid, key) for key in sorted(known.unmarked)]
        return found

    def faults(self) -> list[Action]:
        """What goes wrong, or comes from outside."""
        found: list[Action] = []
        for uid, member in self.members.items():
            if member.todo:
                found += [("fault", uid, f) for f in FAULTS.get(type(member.todo[0]), ())]
            found.append(("crash", uid))
            # Between the effects of one step nothing else is looked at, but within a transaction.
            open_to_news = not member.todo or member.state.phase is not Phase.READY
            if member.owned and open_to_news:
                found.append(("revoke", uid))
            if member.generation != self.kafka.generation:
                found.append(("rejoin", uid))
            if open_to_news and member.booted and not member.state.stopping:
                found.append(("stop", uid))
        for name in NAMES:
            alive = sum(m.name == name for m in self.members.values())
            if alive < PROCESSES_PER_NAME:
                found.append(("boot", name))
            found += [
                ("move", p, name)
                for p in judge.partitions(self.kafka)
                if self.kafka.owners.get(p) != name
            ]
        found += [("deliver", i) for i in range(len(self.kafka.late))]
        found += [
            ("timeout", tid)
            for tid, known in self.kafka.transactions.items()
            if known.phase is TransactionPhase.ONGOING
        ]
        return found + [("reload", name) for name in self.loaders]

    def do(self, action: Action) -> None:
        """Perform it.

        Raises:
            AnomalyError: a process broke an assertion of its own or gave a false alarm.
        """
        try:
            getattr(self, f"_{action[0]}")(*action[1:])
        except AnomalyError:
            raise
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            raise AnomalyError(f"broken assertion: {type(error).__name__}: {error}") from error

    def check(self) -> None:
        """Raises AnomalyError if the judge finds anything."""
        found = judge.anomalies(self.kafka, self.clickhouse)
        if found:
            raise AnomalyError("; ".join(found))

    def _go(self, uid: str, fault: str = "") -> None:
        member = self.members[uid]
        member.go(self.kafka, self.now_ms, fault)
        if member.ended:
            del self.members[uid]
            if member.error is not None and not isinstance(member.error, HARMLESS_STOPS):
                raise AnomalyError(f"false alarm: {member.error.message}")

    def _fault(self, uid: str, fault: str) -> None:
        self._go(uid, fault)

    def _crash(self, uid: str) -> None:
        del self.members[uid]

    def _boot(self, name: str) -> None:
        self.lives += 1
        state = RelayState(self.limits, self.kafka.fencing, now_ms=self.now_ms)
        producer = Producer(f"app.relay.{name}", self.guards.unclean_abort_is_unknown)
        self.members[f"{name}{self.lives}"] = Member(name, state, producer, self.guards)

    def _revoke(self, uid: str) -> None:
        self.members[uid].revoke()

    def _rejoin(self, uid: str) -> None:
        self.members[uid].rejoin(self.kafka)

    def _stop(self, uid: str) -> None:
        self.members[uid].request_stop()

    def _schema(self, uid: str, table: str) -> None:
        self.members[uid].change_schema(table)

    def _move(self, partition: int, name: str) -> None:
        self.kafka.rebalance(self.kafka.owners | {partition: name})

    def _deliver(self, index: int) -> None:
        self.kafka.deliver(index)

    def _timeout(self, tid: str) -> None:
        self.kafka.time_out(tid)

    def _mark(self, tid: str, key: tuple[str, int]) -> None:
        self.kafka.mark(tid, key)

    def _tick(self, ms: int) -> None:
        self.now_ms += ms

    def _append(self, partition: int, entry: Entry) -> None:
        self.kafka.writable((SOURCE, partition)).entries.append(entry)

    def _load(self, name: str) -> None:
        self.loaders[name].go(self.kafka, self.clickhouse)

    def _reload(self, name: str) -> None:
        self.loaders[name].crash()


def log(*items: str) -> list[Entry]:
    """A source log: "t" a message of table t, "t!" a bad one, "t-" an aborted one, "|" a marker."""
    entries = []
    for item in items:
        if item == "|":
            entries.append(Entry(None, Status.MARKER))
        else:
            status = Status.ABORTED if item.endswith("-") else Status.COMMITTED
            message = Message(item.rstrip("!-"), item.endswith("!"))
            entries.append(Entry(message, status))
    return entries
