"""What a bench prints: a table for people, JSON for machines, and where it was measured.

Receives results, gives text. Never measures.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
from rich.console import Console
from rich.table import Table

from relay.program import java
from tests.bench import filesystem, history
from tests.bench.contenders import STREAMS_COORDINATE
from tests.bench.figures import Figure
from tests.bench.measure import EVERY_SECONDS, SHORT_SECONDS, WARM_UP, Result

_PACKAGES = (
    *("block-relay", "confluent-kafka", "ptars", "pyarrow", "pyspark"),
    *("clickhouse-connect", "chdb-core"),
)


def best_peer(results: list[Result], per_message: int) -> Result:
    """The peer's fastest variant by its median."""
    peers = [r for r in results if r.role == "peer" and r.per_message == per_message]
    return max(peers, key=lambda result: result.median)


def ratios(results: list[Result]) -> list[dict[str, Any]]:
    """The product's median over the best peer's and over each ceiling's and other's, per shape."""
    return [
        {
            "rows_per_message": result.per_message,
            "product": result.contender,
            "beside": beside.contender,
            "role": beside.role,
            "ratio": result.median / beside.median,
        }
        for result in _of_role(results, "product")
        for beside in (best_peer(results, result.per_message), *_alone(results, result))
    ]


def _alone(results: list[Result], of: Result) -> list[Result]:
    """Those that are no variants of one another."""
    beside = [*_of_role(results, "ceiling"), *_of_role(results, "other")]
    return [r for r in beside if r.per_message == of.per_message]


def _of_role(results: list[Result], role: str) -> list[Result]:
    return [result for result in results if result.role == role]


def machine(place: Path) -> dict[str, Any]:
    """Where it was measured, with servers that write below `place`."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "files": filesystem.kind(place),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """With what it was measured."""
    found = {name: metadata.version(name) for name in _PACKAGES}
    answer = subprocess.run(
        [str(java.require()), "-version"], capture_output=True, text=True, check=True
    )
    return {
        "python": platform.python_version(),
        **found,
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "java": answer.stderr.splitlines()[0],
        "kafka-streams": STREAMS_COORDINATE.rpartition(":")[2],
    }


def figures(results: list[Result]) -> list[Figure]:
    """Medians and ratios, as a history compares them."""
    found = [
        Figure(f"{r.contender}, {r.per_message} per message", r.median, "rows/s", "higher")
        for r in results
    ]
    for ratio in ratios(results):
        beside = "best peer" if ratio["role"] == "peer" else ratio["beside"]
        name = f"{ratio['product']} / {beside}, {ratio['rows_per_message']} per message"
        found.append(Figure(name, ratio["ratio"], "", "higher"))
    return found


def show(
    results: list[Result], run: history.Entry, before: dict[str, float], *, as_json: bool
) -> None:
    """Prints it to standard output; `run` and `before` as for `show_figures`."""
    if as_json:
        text = {
            **run,
            "before": before,
            "results": [result.as_json() for result in results],
            "ratios": ratios(results),
        }
        print(json.dumps(text, indent=2))
        return
    console = _console()
    console.print(_table(run["bench"], results))
    for ratio in ratios(results):
        console.print(
            f"{ratio['product']} / {ratio['beside']}, rows per message "
            f"{ratio['rows_per_message']}: [bold]{ratio['ratio']:.2f}[/bold]"
        )
    if before:
        _print_figures(console, figures(results), run, before)
    console.print(
        f"\nRows per second between the first sample with {WARM_UP:.0%} of the work done and the "
        f"one with all of it, by what is committed or visible (sampled every "
        f"{EVERY_SECONDS * 1000:.0f} ms, ClickHouse every 100 ms); start-up is left out for all. "
        "~ means that the clock ran too short to say much: take more --rows."
    )
    _surroundings(console, run)


def show_figures(
    of: list[Figure],
    run: history.Entry,
    before: dict[str, float],
    *,
    as_json: bool,
    summary: Table | None = None,
) -> None:
    """Prints figures beside what they were.

    Args:
        of: the figures.
        run: this run's entry in a history.
        before: medians of earlier runs by figure.
        as_json: for machines.
        summary: what people see first.
    """
    if as_json:
        told = [
            {
                **asdict(figure),
                "held": figure.held,
                "before": before.get(figure.name),
                "worse": history.worse(figure, before.get(figure.name)),
            }
            for figure in of
        ]
        print(json.dumps({**run, "figures": told}, indent=2))
        return
    console = _console()
    if summary is not None:
        console.print(summary)
    _print_figures(console, of, run, before)
    _surroundings(console, run)


def _print_figures(
    console: Console, of: list[Figure], run: history.Entry, before: dict[str, float]
) -> None:
    table = Table(title=run["bench"])
    for name in ("figure", "value", "unit", "demanded", "before", ""):
        right = name in {"value", "demanded", "before"}
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    for figure in of:
        table.add_row(*_row(figure, before.get(figure.name)))
    console.print(table)
    if before:
        console.print(
            "before: median of earlier runs of this bench with these parameters on a machine of "
            f"this kind; WORSE: by more than {history.WORSE_SHARE:.0%}"
        )


def _row(figure: Figure, before: float | None) -> list[str]:
    sign = "\u2265" if figure.better == "higher" else "\u2264"
    marks = [
        *["MISSED"] * (figure.held is False),
        *["WORSE"] * history.worse(figure, before),
    ]
    return [
        figure.name,
        _number(figure.value),
        figure.unit,
        "" if figure.limit is None else f"{sign} {_number(figure.limit)}",
        "" if before is None else _number(before),
        ", ".join(marks),
    ]


def _number(value: float) -> str:
    """Three digits that count, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _console() -> Console:
    # Where nobody looks on, as in CI, lines need not fit a terminal.
    return Console(width=None if sys.stdout.isatty() else 120)


def _surroundings(console: Console, run: history.Entry) -> None:
    for facts in (run["machine"], run["versions"], {"commit": run["commit"]}):
        console.print(", ".join(f"{key} {value}" for key, value in facts.items()), style="dim")


def _table(title: str, results: list[Result]) -> Table:
    table = Table(title=f"{title}: rows per second")
    table.add_column("rows per\nmessage", justify="right")
    table.add_column("contender", no_wrap=True)
    table.add_column("role")
    table.add_column("rows/s,\nmedian", justify="right", no_wrap=True)
    table.add_column("runs,\n1000 rows/s", justify="right")
    table.add_column("clock,\nseconds", justify="right")
    table.add_column("with start,\nseconds", justify="right")
    table.add_column("to best\npeer", justify="right")
    before = results[0].per_message
    for result in results:
        if result.per_message != before:
            table.add_section()
            before = result.per_message
        table.add_row(*_cells(result, best_peer(results, result.per_message)))
    return table


def _cells(result: Result, peer: Result) -> list[str]:
    short = "~" if min(run.seconds for run in result.runs) < SHORT_SECONDS else ""
    return [
        str(result.per_message),
        result.contender,
        result.role,
        f"{short}{result.median:,.0f}",
        " ".join(f"{run.rows_per_second / 1000:,.0f}" for run in result.runs),
        " ".join(f"{run.seconds:.1f}" for run in result.runs),
        " ".join(f"{run.seconds_with_start:.1f}" for run in result.runs),
        f"{result.median / peer.median:.2f}",
    ]


def _cpu_model() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
