"""Prints for `relay verify`: anomalies, what people acknowledged, totals."""

from __future__ import annotations

import time
from collections import Counter

import click
from rich.console import Console
from rich.table import Table

from relay.cli.output.status import clock
from relay.operate.verify.anomaly_order import DatedAnomaly
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge import beginning
from relay.operate.verify.judge.anomaly import Anomaly
from relay.program.json_output import print_json
from relay.program.plural import several

_FEW = 10
"""So many anomalies need no summary by table."""
_EACH = 5
"""So many of one table and kind are shown one by one."""


class Few:
    """Of anomalies of one table and kind the first, or every one; `hidden` counts the rest."""

    def __init__(self, *, every: bool = False) -> None:
        self._every = every
        self._seen: Counter[tuple[str, str]] = Counter()
        self.hidden = 0

    def shows(self, anomaly: Anomaly) -> bool:
        """Return whether this one is to be shown; called once for each."""
        which = anomaly.table, anomaly.kind.value
        self._seen[which] += 1
        is_shown = self._every or self._seen[which] <= _EACH
        self.hidden += not is_shown
        return is_shown

    def say(self, anomaly: Anomaly) -> None:
        """Print the anomaly for people, unless it is only counted."""
        if self.shows(anomaly):
            click.echo(f"anomaly: {anomaly}", err=True)


def say_hidden(number: int) -> None:
    """Print how many anomalies were left out of the list."""
    more = several(number, "more is", "more are")
    click.echo(f"anomalies: {more} not shown one by one: --all or --json shows them", err=True)


def say_json(anomaly: Anomaly) -> None:
    """Print the anomaly as JSON."""
    print_json({"anomaly": anomaly.as_json(), "at_ms": time.time_ns() // 1_000_000})


def tell(dated: DatedAnomaly, *, as_json: bool) -> None:
    """Print an anomaly of one of several pipelines."""
    if as_json:
        fields = {
            "anomaly": dated.anomaly.as_json(),
            "pipeline": dated.pipeline,
            "committed_ms": dated.committed_ms,
            "at_ms": time.time_ns() // 1_000_000,
        }
        print_json(fields)
    else:
        when = clock(dated.committed_ms)
        click.echo(f"anomaly: {when} UTC  {dated.pipeline}  {dated.anomaly}", err=True)


def conclude(
    audit: Audit, seconds: float, pipeline: str = "", *, as_json: bool, hidden: int = 0
) -> None:
    """Print what people acknowledged, and how much the audit of so many seconds judged.

    `hidden` anomalies were not shown one by one.
    """
    named = {"pipeline": pipeline} if pipeline else {}
    before = f"{pipeline}: " if pipeline else ""
    _print_history(audit, named, before, as_json=as_json)
    unfinished = [
        f"partition {partition}: a rewind was begun and is not finished; relays cannot start until "
        "`relay rewind CONFIG --run` finishes it"
        for partition in audit.unfinished()
    ]
    for kind, texts in (  # no anomalies, and never hidden
        ("acknowledged", audit.acknowledged),
        ("waiting", audit.waiting),
        ("not judged", audit.not_judged),  # no proof either
        ("unfinished", unfinished),
    ):
        for text in texts:
            if as_json:
                print_json({kind.replace(" ", "_"): text, **named})
            else:
                click.echo(f"{kind}: {before}{text}", err=True)
    if as_json:
        totals = {key.replace(" ", "_"): count for key, count in _totals(audit).items()}
        by_table = audit.totals.rows_by_table
        print_json({**totals, "seconds": seconds, "tables": by_table, **named})
        return
    _print_by_table(audit, before)
    if hidden:
        say_hidden(hidden)
    title = f"Journal{f' of {pipeline}' if pipeline else ''}, judged in {seconds:.1f} s"
    table = Table("looked at", "count", title=title)
    table.columns[1].justify = "right"
    for key, count in _totals(audit).items():
        table.add_row(key, f"{count:,}")
    Console().print(table)


def _print_history(audit: Audit, named: dict[str, str], before: str, *, as_json: bool) -> None:
    """Print where the history begins, and what lay before."""
    if as_json and audit.history:
        print_json({"history": list(map(beginning.as_json, audit.history)), **named})
        return
    for text in (*beginning.history_lines(audit.history), *beginning.gaps(audit.history)):
        click.echo(f"{before}{text}", err=True)


def _print_by_table(audit: Audit, before: str) -> None:
    """Print how many anomalies of each kind a table has, if there are many."""
    if len(audit.anomalies) <= _FEW:
        return
    counts: dict[str, Counter[str]] = {}
    for anomaly in audit.anomalies:
        counts.setdefault(anomaly.table, Counter())[anomaly.kind.value] += 1
    for table, kinds in sorted(counts.items()):
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        click.echo(f"anomalies: {before}{table or 'of no one table'}: {counted}", err=True)


def _totals(audit: Audit) -> dict[str, int]:
    totals = audit.totals
    return {
        "journal records": totals.records,
        "flush points": totals.flush_points,
        "blocks": totals.blocks,
        "rows": totals.rows,
        "source messages": totals.messages,
        "dead letters": totals.dead_letters,
        "anomalies": len(audit.anomalies),
    }
