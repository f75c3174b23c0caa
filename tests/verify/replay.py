"""`python -m tests.verify.replay DIRECTORY…`: journals that real campaigns kept, audited again.

Receives directories that `python -m tests.chaos … --keep` wrote. What the verifier finds in one
is a false alarm, or a fault that the campaign's own judges missed. As a control, records are taken
out one at a time: each of them must be missed.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from relay.core.offsets import CommittedOffset
from relay.errors import ConfigError, NotExactlyOnce
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.program.command import run_main
from tests.chaos import journal_file
from tests.chaos.journal_file import Committed, Kept, Record

NEVER_SECONDS = float("inf")


@click.command()
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--controls", default=20, show_default=True, help="Records taken out of each journal, in turn."
)
def replay(directories: tuple[Path, ...], controls: int) -> None:
    """Audit the journals of campaigns; a JSON line for each.

    Ends with status 1 where the audit finds anything in one, or misses a record taken out.
    """
    files = sorted(file for directory in directories for file in directory.rglob(journal_file.FILE))
    if not files:
        raise ConfigError(
            f"no {journal_file.FILE} in {', '.join(map(str, directories))}",
            "keep some: python -m tests.chaos mixed --keep DIRECTORY",
        )
    alarms = missed = 0
    for file in files:
        journal_of = journal_file.read(file)
        audit = audited(journal_of)
        lost = [at for at in some(journal_of, controls) if not named(journal_of, at)]
        alarms, missed = alarms + len(audit.anomalies), missed + len(lost)
        figures = {
            "records": audit.totals.records,
            "blocks": audit.totals.blocks,
            "pauses": len(journal_of.pauses),
            "acknowledged": len(audit.acknowledged),
        }
        found = {"anomalies": list(map(str, audit.anomalies)), "not_missed": lost}
        click.echo(json.dumps({"journal": str(file), **figures, **found}))
    if alarms or missed:
        raise NotExactlyOnce(f"{alarms} anomalies, {missed} records taken out and not missed")


def audited(of: Kept) -> Audit:
    """The verifier's audit, round by round as it would have gone beside the campaign.

    Raises:
        ValueError: there is no record.
    """
    if not of.records:
        raise ValueError("a journal without a record")
    first = of.records[0][2]
    audit = Audit(first.app, first.source_topic, NEVER_SECONDS)
    left: dict[int, deque[Record]] = {}
    for record in of.records:
        left.setdefault(record[0], deque()).append(record)
    for committed in of.pauses:
        read = {partition: _entry(entry) for partition, entry in committed.items()}
        audit.begin_round(read)
        for partition, offset, commit in _upto(left, committed):
            audit.record(partition, offset, commit)
        audit.committed(read, 0.0)
    for partition, offset, commit in itertools.chain.from_iterable(left.values()):
        audit.record(partition, offset, commit)
    return audit


def some(of: Kept, many: int) -> list[int]:
    """Indexes of records that have one before and one behind them in their partition."""
    last = {partition: at for at, (partition, _, _) in enumerate(of.records)}
    first: dict[int, int] = {}
    for at, (partition, _, _) in enumerate(of.records):
        first.setdefault(partition, at)
    inner = sorted(set(range(len(of.records))) - {*last.values(), *first.values()})
    return random.Random(len(of.records)).sample(inner, min(many, len(inner)))


def named(of: Kept, at: int) -> bool:
    """Whether the audit names a gap in the partition of a record that is taken out."""
    without = replace(of, records=of.records[:at] + of.records[at + 1 :])
    partition = of.records[at][0]
    return any(_is_gap(one, partition) for one in audited(without).anomalies)


def _is_gap(anomaly: Anomaly, partition: int) -> bool:
    return anomaly.kind is AnomalyKind.GAP and anomaly.partition == partition


def _entry(entry: tuple[int, int, int]) -> tuple[int, str]:
    floor, n, offset = entry
    return floor, CommittedOffset(floor, n, offset).metadata


def _upto(left: dict[int, deque[Record]], committed: Committed) -> Iterator[Record]:
    """The records up to those that the group names, taken out of what is left."""
    for partition, records in left.items():
        offset = committed[partition][2] if partition in committed else -1
        while records and records[0][1] <= offset:
            yield records.popleft()


if __name__ == "__main__":
    sys.exit(run_main(replay, "python -m tests.verify.replay"))
