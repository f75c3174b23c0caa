"""The servers of a rewind: Kafka by adapters of this room, ClickHouse by `loader supersede`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relay import names
from relay.config.settings import Settings
from relay.errors import ConfigError, ContractBroken, Refused, RelayError, Unavailable
from relay.failpoints import reached
from relay.kafka.topics import READ, Topics
from relay.operate.dead.reader import DeadReader
from relay.operate.rewind import journal_writer
from relay.operate.rewind import tables as rewind_tables
from relay.operate.rewind.group_fence import GroupFence
from relay.operate.rewind.positions import PositionsReader
from relay.operate.rewind.removal import CountedRows, Replays, RerunTable
from relay.operate.rewind.seals import RecordedRewind
from relay.records_pb2 import Commit

AGAIN = "run it again: it continues where it stopped"


class Servers(PositionsReader):
    """The RewindPort of one app: a PositionsReader that also changes things.

    The loader reads the settings again, from this file and pipeline; None where it has only one.
    """

    def __init__(self, settings: Settings, config_file: Path, pipeline: str | None = None) -> None:
        super().__init__(settings)
        self._config_file, self._pipeline = config_file, pipeline
        self._owners: dict[int, Any] = {}

    @contextlib.contextmanager
    def fenced(self, partitions: Collection[int]) -> Iterator[None]:
        """See relay.operate.rewind.ports."""
        fence = GroupFence(self._settings)
        try:
            self._owners = fence.take(partitions)
            reached("person_fenced")
            yield
        finally:
            self._owners = {}
            fence.close()

    def write(self, records: Sequence[Commit]) -> None:
        """See relay.operate.rewind.ports."""
        owners = {record.partition: self._owners[record.partition] for record in records}
        journal_writer.write(self._settings, records, owners)

    def supersede(self, rewind: RecordedRewind) -> int:
        """See relay.operate.rewind.ports."""
        records = (rewind.record, *rewind.blocks)
        lines = [base64.b64encode(record.SerializeToString()).decode() for record in records]
        command = [sys.executable, "-m", "loader.cli", "supersede", str(self._config_file)]
        command += ["--pipeline", self._pipeline] if self._pipeline else []
        command += ["--blocks", "-", "--at", str(rewind.offset)]
        if not rewind.whole:
            for table, epoch in sorted(rewind.first_epochs.items()):
                command += ["--first-epoch", f"{table}={epoch}"]
        reached("before_supersede")
        done = _run(command, "\n".join(lines))
        if done.returncode:
            raise _error(done.returncode, done.stderr)
        reached("after_supersede")
        return int(json.loads(done.stdout)["rows"])

    def noted(self, rewinds: Collection[RecordedRewind]) -> set[tuple[int, int]]:
        """See relay.operate.rewind.ports."""
        topic = names.journal_topic(self._settings.app)
        facts = Topics(self._settings).describe(topic, (READ,))
        if facts is None:  # what was read a moment ago
            raise Unavailable(f"topic {topic} does not exist any more", AGAIN)
        places = [(rewind.partition, rewind.offset) for rewind in rewinds]
        rows = {names.superseded_row(facts.topic_id, *place): place for place in places}
        return {rows[row] for row in rewind_tables.position_rows(self._settings, rows)}

    def targets(self, tables: Collection[str]) -> Mapping[str, RerunTable]:
        """See relay.operate.rewind.ports."""
        return rewind_tables.look(self._settings, tables)

    def counted(self, blocks: Mapping[str, Collection[str]]) -> Mapping[str, CountedRows]:
        """See relay.operate.rewind.ports."""
        return rewind_tables.counted(self._settings, blocks)

    def removed(self, blocks: Mapping[str, Collection[str]]) -> frozenset[str]:
        """See relay.operate.rewind.ports."""
        return rewind_tables.removed(self._settings, blocks)

    def replays(self) -> Replays:
        """See relay.operate.rewind.ports."""
        with contextlib.closing(DeadReader(self._settings, incomplete=True)) as reader:
            return Replays(reader.replays(), reader.deleted_marks)


def _run(command: Sequence[str], given: str) -> subprocess.CompletedProcess[str]:
    """Run a loader's command that ends with this process, even if this one is killed.

    One that lived on would remove rows of which the next run says that they stay.
    """
    watched, held = os.pipe()  # `held` is not inherited, so it is closed when this process ends
    try:
        return subprocess.run(  # noqa: S603 - this installation's own loader
            [*command, "--while-open", str(watched)],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=(watched,),
        )
    finally:
        os.close(watched)
        os.close(held)


def _error(status: int, said: str) -> RelayError:
    """The loader's error as one of this process."""
    error = RelayError.printed(said.strip().removeprefix("loader: "))
    kinds: dict[int, type[RelayError]] = {
        kind.exit_code: kind for kind in (ConfigError, Unavailable, Refused, ContractBroken)
    }
    if not error.next_step or status not in kinds:
        lines = said.strip().splitlines() or ["it printed nothing"]
        return Unavailable(f"loader supersede ended with {status}: {lines[-1]}", AGAIN)
    return kinds[status](error.message, f"{error.next_step}; then run it again", page=error.page)
