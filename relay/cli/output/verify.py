"""Prints for `relay verify`: anomalies, what people acknowledged, totals."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from relay.cli.output.status import clock
from relay.operate.verify.judge import beginning
from relay.program.json_output import print_json
from relay.program.plural import several

if TYPE_CHECKING:
    from relay.operate.verify.anomaly_order import DatedAnomaly
    from relay.operate.verify.audit import Audit
    from relay.operate.verify.judge.anomaly import Anomaly


_FEW = 10
"""So many anomalies need no summary by table."""
_EACH = 5
"""So many of one table and kind are shown one by one."""


class Few:
    """Of anomalies of one table and kind the first, unless all are wanted: the rest is counted.

    Args:
        every: show all of them.
    """

    def __init__(self, *, every: bool = False) -> None:
        self._every = every
        self._seen: Counter[tuple[str, str]] = Counter()

    def shows(self, anomaly: Anomaly) -> bool:
        """Return whether this one is to be shown; called once for each."""
        which = anomaly.table, anomaly.kind.value
        self._seen[which] += 1
        return self._every or self._seen[which] <= _EACH

    @property
    def hidden(self) -> int:
        """How many were not."""
        if self._every:
            return 0
        return sum(max(number - _EACH, 0) for number in self._seen.values())

    def say(self, anomaly: Anomaly) -> None:
        """Print it for people."""
        if self.shows(anomaly):
            say(anomaly)


def say(anomaly: Anomaly) -> None:
    """Print it for people."""
    click.echo(f"anomaly: {anomaly}", err=True)


def say_hidden(number: int) -> None:
    """Print how many anomalies were left out of the list."""
    more = several(number, "more is", "more are")
    click.echo(f"anomalies: {more} not shown one by one: --all or --json shows them", err=True)


def say_json(anomaly: Anomaly) -> None:
    """Print it as JSON."""
    now_ms = time.time_ns() // 1_000_000
    print_json({"anomaly": anomaly.as_json(), "at_ms": now_ms})


def tell(dated: DatedAnomaly, *, as_json: bool) -> None:
    """Print one anomaly of several pipelines'."""
    if as_json:
        found = {"anomaly": dated.anomaly.as_json(), "pipeline": dated.pipeline}
        now_ms = time.time_ns() // 1_000_000
        print_json({**found, "committed_ms": dated.committed_ms, "at_ms": now_ms})
        return
    when = clock(dated.committed_ms)
    click.echo(f"anomaly: {when} UTC  {dated.pipeline}  {dated.anomaly}", err=True)


def conclude(
    audit: Audit, seconds: float, pipeline: str = "", *, as_json: bool, hidden: int = 0
) -> None:
    """Print what people acknowledged, and how much was audited.

    Args:
        audit: that has ended.
        seconds: it took.
        pipeline: of which; empty where there is only one.
        as_json: for machines.
        hidden: anomalies that were not shown one by one.
    """
    named = {"pipeline": pipeline} if pipeline else {}
    before = f"{pipeline}: " if pipeline else ""
    _history(audit, named, before, as_json=as_json)
    for kind, texts in (  # no anomalies, and never hidden
        ("acknowledged", audit.acknowledged),
        ("waiting", audit.waiting),
        ("not judged", audit.not_judged),  # no proof either
    ):
        for text in texts:
            if as_json:
                print_json({kind.replace(" ", "_"): text, **named})
            else:
                click.echo(f"{kind}: {before}{text}", err=True)
    for partition in audit.unfinished():
        text = (
            f"partition {partition}: a rewind was begun and is not finished; relays cannot start "
            "until `relay rewind CONFIG --run` finishes it"
        )
        if as_json:
            print_json({"unfinished": text, **named})
        else:
            click.echo(f"unfinished: {before}{text}", err=True)
    if not as_json:
        _by_table(audit, before)
        if hidden:
            say_hidden(hidden)
    _totals(audit, seconds, pipeline, as_json=as_json)


def _history(audit: Audit, named: dict[str, str], before: str, *, as_json: bool) -> None:
    """Where it begins, and what lay before."""
    if as_json and audit.history:
        begins = [beginning.as_json(one) for one in audit.history]
        print_json({"history": begins, **named})
        return
    for text in (*beginning.history_lines(audit.history), *beginning.gaps(audit.history)):
        click.echo(f"{before}{text}", err=True)


def _by_table(audit: Audit, before: str) -> None:
    """Where there are many anomalies, how many of each kind a table has."""
    if len(audit.anomalies) <= _FEW:
        return
    counts: dict[str, Counter[str]] = {}
    for anomaly in audit.anomalies:
        counts.setdefault(anomaly.table, Counter())[anomaly.kind.value] += 1
    for table, kinds in sorted(counts.items()):
        each = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        click.echo(f"anomalies: {before}{table or 'of no one table'}: {each}", err=True)


def _totals(audit: Audit, seconds: float, pipeline: str, *, as_json: bool) -> None:
    totals = audit.totals
    summary: dict[str, Any] = {
        "journal records": totals.records,
        "flush points": totals.flush_points,
        "blocks": totals.blocks,
        "rows": totals.rows,
        "source messages": totals.messages,
        "dead letters": totals.dead_letters,
        "anomalies": len(audit.anomalies),
    }
    if as_json:
        named = {key.replace(" ", "_"): value for key, value in summary.items()}
        which = {"pipeline": pipeline} if pipeline else {}
        found = {**named, "seconds": seconds, "tables": totals.rows_by_table, **which}
        print_json(found)
        return
    of = f" of {pipeline}" if pipeline else ""
    table = Table("looked at", "count", title=f"Journal{of}, judged in {seconds:.1f} s")
    table.columns[1].justify = "right"
    for name, value in summary.items():
        table.add_row(name, f"{value:,}")
    Console().print(table)
