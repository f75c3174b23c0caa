"""The programs of a campaign under supervision: started, watched, and started again as
Kubernetes would; whatever ends as it should not is an anomaly.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.chaos.options import LOADER_GUARDS
from tests.chaos.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.history import History
    from tests.chaos.options import Options
    from tests.chaos.servers import Servers

BACKOFF_SECONDS = 0.5
MOST_ANOMALIES = 20
"""Then the campaign ends: what follows would be more of the same."""


class GaveUp(Exception):
    """So much is off that going on shows nothing new."""


class Crew:
    """Relays and loaders.

    Attributes:
        members: relays that always run.
        loaders: those that always run.
        extra: programs of single faults.
        code: where the product's code is that further relays and loaders begin with.
        anomalies: what should not be, and how often it was seen.
        judging: no further anomaly ends the campaign, so that every judge is heard.
    """

    def __init__(
        self, options: Options, servers: Servers, history: History, say: Callable[[str], None]
    ) -> None:
        self.options, self.servers, self.history, self.say = options, servers, history, say
        self.members: list[Program] = []
        self.loaders: list[Program] = []
        self.extra: list[Program] = []
        self.anomalies: Counter[str] = Counter()
        self.judging = False
        self.code = options.code
        self._again: dict[str, float] = {}

    def start(self) -> None:
        """Start all that always runs."""
        self.config = config = str(self.servers.config(**self.options.relay))
        relay, bare = ["relay"], ["tests.chaos.bareloader", config]
        without = self.options.without
        if without in LOADER_GUARDS:
            bare = ["tests.broker.unguarded", without, "tests.chaos.bareloader", config]
        elif without:
            relay = ["tests.broker.unguarded", without]
        self._relay = [*relay, "run", config, "--member"]
        self._loader = ["loader", "run", config] if self.options.loader == "spark" else bare
        self.members = [self.member(f"m{i}") for i in range(self.options.members)]
        self.loaders = [Program("loader", self._loader, self.servers.directory, code=self.code)]
        for program in self.programs():
            program.start()

    def member(self, name: str) -> Program:
        """A relay under this identity; not started."""
        environment = {"UNGUARDED_GROUP": f"{self.servers.app}.relay"}
        command = [*self._relay, name]
        directory = self.servers.directory
        return Program(f"relay-{name}", command, directory, environment, code=self.code)

    def loader(self, name: str) -> Program:
        """A further loader, with a checkpoint of its own; not started."""
        command = list(self._loader)
        if self.options.loader == "spark":
            command += ["--checkpoint", str(self.servers.directory / f"checkpoint-{name}")]
        return Program(f"loader-{name}", command, self.servers.directory, code=self.code)

    def programs(self) -> list[Program]:
        return [*self.members, *self.loaders, *self.extra]

    def tend(self) -> None:
        """Note what ended, and start again what should run."""
        now = time.monotonic()
        for program in self.programs():
            self.note(program)
            if program.pid is None and program.wanted and now >= self._again.get(program.name, 0):
                program.start()
                self.history.write("started", name=program.name, pid=program.pid)
        self.extra = [p for p in self.extra if p.wanted or p.runs()]

    def note(self, program: Program) -> None:
        """Whether the program has ended, and whether that was to be expected."""
        end = program.tend()
        if end is None:
            return
        status, expected = end
        self.history.write("ended", name=program.name, status=status, expected=expected)
        self._again[program.name] = time.monotonic() + (0 if status == -9 else BACKOFF_SECONDS)
        if not expected:
            said = program.last_lines()
            self.anomaly(f"{program.name} ended with exit status {status}", said)

    def anomaly(self, what: str, evidence: str = "") -> None:
        """Something that should not be."""
        self.anomalies[what] += 1
        self.history.write("anomaly", what=what, evidence=evidence)
        if self.anomalies[what] == 1:
            self.say(f"ANOMALY: {what}\n{evidence}".rstrip())
        if self.anomalies.total() >= MOST_ANOMALIES and not self.judging:
            self.judging = True
            raise GaveUp
