"""`python -m tests.chaos replicas`: three real replicas, two loaders, and faults of either.

Blocks are sealed all the time into three tables: one plain, one of three partitions, one without
the block column. Rounds take turns at how the loaders reach the replicas: all of them by name; one
URL behind a balancer that chooses for each connection, or for each request; one replica alone
without a quorum. Each begins without a fault; after each
everything is healed, every block has to be settled, and every id has to be there once on all
three replicas. A balancer without a quorum has to be refused.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from relay.errors import Refused
from tests.chaos.programs import Program
from tests.chaos.replica_faults import KINDS, perform
from tests.chaos.replica_judges import ROWS, Table, judge, settled, unexplained
from tests.chaos.schedule import plan
from tests.loader.blocks import DEADLINE
from tests.replicas.journal import COLUMNS, STAMPED, Replicated, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.records_pb2 import Block
    from tests.chaos.history import History
    from tests.chaos.schedule import Fault
    from tests.replicas.front import Front
    from tests.replicas.rig import Rig

MODES = ("replicas", "balancer", "alone", "requests")
TABLES = (
    Table("chaos.plain", STAMPED, "ORDER BY id"),
    Table("chaos.parts", STAMPED, "PARTITION BY name ORDER BY id"),
    Table("chaos.bare", COLUMNS, "ORDER BY id"),
)
ROUND_SECONDS = 40.0
HEALTHY_SECONDS = 8.0
"""Of each round, before its faults."""
SETTLE_SECONDS = 150.0
"""For all blocks, once everything is healed, on a crowded machine."""
EXPLAINED_SECONDS = 60.0
"""After a fault, in which it explains a parked block."""
SEAL_SECONDS = 0.25
INSERT_SECONDS = 10.0
"""loader.insert_timeout_seconds: an answer that is held for longer is given up."""


class Campaign:
    """A running one.

    Attributes:
        anomalies: what should not be, and how often it was seen.
    """

    def __init__(
        self,
        rig: Rig,
        journal: Replicated,
        history: History,
        say: Callable[[str], None],
        options: dict[str, Any],
    ) -> None:
        self.rig, self.journal, self.history, self.say = rig, journal, history, say
        self.options = options
        self.loaders: list[Program] = []
        self.anomalies: Counter[str] = Counter()
        self.performed: Counter[str] = Counter()
        self.parked: dict[str, str] = {}
        self._blocks: dict[str, Block] = {}
        self._times: list[tuple[float, float]] = []
        self._undo: list[tuple[float, str, Callable[[], None]]] = []
        self._dice = random.Random(options["seed"])
        self._sealed_at = 0.0

    def prepare(self) -> None:
        """Make ledger and tables; a balancer without a quorum has to be refused."""
        self.journal.make_ledger()
        for table in TABLES:
            self.rig.make(*table)
        if not self.options["without"]:
            self._refused()

    def _refused(self) -> None:
        journal, balancer = self.journal, self.rig.balancer
        assert balancer is not None
        journal.url, journal.quorum = balancer.url, None
        config = journal.configuration("refused")
        command = [sys.executable, "-m", "loader.cli", "run", str(config), "--once"]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE, check=False)
        if done.returncode != Refused.exit_code:
            self.anomaly(f"a balancer without a quorum ends with {done.returncode}")

    def round(self, number: int, seconds: float) -> None:
        """Faults for a time, then all of it undone, and the verdict."""
        mode = self.options["mode"] or MODES[(self.options["seed"] + number) % len(MODES)]
        fronts = self._reach(mode)
        self.say(f"round {number}: {mode}")
        self.history.write("round", number=number, mode=mode)
        begun = time.monotonic()
        faults = plan(
            self.options["seed"] * 1000 + number,
            max(seconds - HEALTHY_SECONDS, 1),
            KINDS,
            self.options["every"],
            KINDS,
        )
        waiting = list(faults)
        while (now := time.monotonic() - begun) < seconds:
            while waiting and waiting[0].at + HEALTHY_SECONDS <= now:
                self._fault(waiting.pop(0), fronts)
            self._turn(begun)
        self.heal()
        self._settle(number)
        for program in self.loaders:
            program.stop()
            self._ended(program)

    def _reach(self, mode: str) -> Sequence[Front]:
        """Start the loaders with this way to the replicas; gives what stands before those."""
        journal, rig = self.journal, self.rig
        assert rig.balancer is not None
        journal.quorum = "auto"
        guard = self.options["without"]
        if mode == "replicas":
            fronts = [one.front for one in rig.replicas]
            journal.url = rig.urls()
        elif mode in {"balancer", "requests"}:
            fronts = [rig.balancer]
            rig.balancer.each_request = mode == "requests"
            journal.url = rig.balancer.url
            journal.quorum = None if guard == "quorum" else "auto"
        else:
            fronts = [rig.replicas[0].front]
            journal.url, journal.quorum = rig.replicas[0].front.url, None
        self.loaders = [self._loader(name, spark) for name, spark in self._kinds()]
        for program in self.loaders:
            program.start()
        return fronts

    def _kinds(self) -> Sequence[tuple[str, bool]]:
        spark = self.options["loader"] == "spark"
        return (("a", spark and not self.options["without"]), ("b", False))

    def _loader(self, name: str, spark: bool) -> Program:
        config = self.journal.configuration(
            name, master="local[2]", insert_timeout_seconds=INSERT_SECONDS
        )
        command = (
            ["loader", "run", str(config)] if spark else ["tests.chaos.bareloader", str(config)]
        )
        if self.options["without"]:
            command = ["tests.replicas.unguarded", self.options["without"], *command]
        return Program(f"loader-{name}", command, self.journal.directory)

    def _turn(self, begun: float) -> None:
        """Seal a block, undo what is due, start what ended."""
        del begun
        now = time.monotonic()
        if now - self._sealed_at >= SEAL_SECONDS:
            self._sealed_at = now
            self._seal()
        for due in [one for one in self._undo if one[0] <= now]:
            self._undo.remove(due)
            due[2]()
        for program in self.loaders:
            self._ended(program)
            if program.pid is None:
                program.start()
        time.sleep(0.05)

    def _seal(self) -> None:
        table = self._dice.choice(TABLES)
        first = ROWS * sum(b.table == table.name for b in self._blocks.values())
        (block,) = self.journal.seal(table.name, spread(first, ROWS))
        self._blocks[block.id] = block

    def _fault(self, fault: Fault, fronts: Sequence[Front]) -> None:
        self.history.write("fault", **fault.record())
        self.performed[fault.kind] += 1
        undo = perform(fault, self.rig, fronts, self.loaders)
        self._undo.append((time.monotonic() + fault.seconds, fault.kind, undo))
        self._times.append((time.time(), time.time() + fault.seconds))

    def _ended(self, program: Program) -> None:
        end = program.tend()
        if end is not None and not end[1]:
            self.anomaly(f"{program.name} ended with exit status {end[0]}", program.last_lines())

    def heal(self) -> None:
        """Undo all that is still under way."""
        for _, _, undo in self._undo:
            undo()
        self._undo.clear()
        self.rig.heal()
        self.rig.everywhere("SYSTEM START FETCHES")
        self.rig.everywhere("SYSTEM START REPLICATION QUEUES")
        self.rig.await_active()
        self.history.write("healed")

    def _settle(self, number: int) -> None:
        """Wait until every block is settled; then judge."""
        ledger = f"{self.journal.settings().loader.database}.ledger"
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            self.rig.replicas[0].command(f"SYSTEM SYNC REPLICA {ledger}")
            found = settled(self.rig, ledger)
            if self._blocks.keys() <= found.keys() or time.monotonic() > deadline:
                break
            for program in self.loaders:
                self._ended(program)
                if program.pid is None:
                    program.start()
            time.sleep(0.2)
        for what in judge(self.rig, TABLES, self._blocks, found):
            self.anomaly(f"round {number}: {what}")
        for what in unexplained(found, self._times, EXPLAINED_SECONDS):
            self.anomaly(what)
        self.parked = {b: one.reason for b, one in found.items() if one.state == "parked"}
        self.history.write("judged", blocks=len(self._blocks), parked=self.parked)

    def anomaly(self, what: str, evidence: str = "") -> None:
        """Something that should not be."""
        self.anomalies[what] += 1
        self.history.write("anomaly", what=what, evidence=evidence)
        self.say(f"ANOMALY: {what}\n{evidence}".rstrip())

    def figures(self) -> dict[str, Any]:
        """Of what was done."""
        return {
            "blocks": len(self._blocks),
            "rows": ROWS * len(self._blocks),
            "parked": len(self.parked),
            "reasons": sorted({reason[:120] for reason in self.parked.values()}),
            "faults": dict(sorted(self.performed.items())),
            "loader_kills": sum(one.kills for one in self.loaders),
        }


def run(campaign: Campaign, seconds: float) -> None:
    """Rounds until the time is over."""
    campaign.prepare()
    begun, number = time.monotonic(), 0
    under_fault = 0.0
    while under_fault < seconds:
        length = min(ROUND_SECONDS, seconds - under_fault)
        campaign.round(number, length)
        under_fault += length
        number += 1
    campaign.say(f"{number} rounds in {time.monotonic() - begun:.0f} s")
