"""`relay verify`: the runtime verifier."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from relay import config, log
from relay.cli.options import config_argument
from relay.cli.verifyfollow import follow
from relay.cli_support import log_format_option
from relay.errors import NotExactlyOnce
from relay.verify import run
from relay.verify.audit import Audit
from relay.verify.deep import Deep
from relay.verify.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.settings import Settings
    from relay.verify.anomaly import Anomaly


@click.command()
@config_argument
@click.option("--once", "mode", flag_value="once", help="Audit all that is retained, and end.")
@click.option("--follow", "mode", flag_value="follow", help="Go on beside the relay until SIGTERM.")
@click.option(
    "--deep",
    is_flag=True,
    help="Also read block topics, ClickHouse and the source topic, each against the journal.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    default="",
    help="With --follow: serve the page at /, /metrics for Prometheus, and /healthz.",
)
@click.option(
    "--webhook",
    "webhook_url",
    metavar="URL",
    default="",
    envvar="RELAY_VERIFY_WEBHOOK",
    help="With --follow: POST every anomaly there, as JSON. A URL that is a secret stands "
    "better in RELAY_VERIFY_WEBHOOK.",
)
@click.option("--json", "as_json", is_flag=True, help="Anomalies and totals as JSON lines.")
@log_format_option
def verify(
    config_file: Path,
    mode: str | None,
    listen: str,
    webhook_url: str,
    *,
    deep: bool,
    as_json: bool,
    log_format: str,
) -> None:
    """Prove from what was recorded that no row was lost and none came twice.

    Reads the journal and the group's committed offsets, and says where they cannot be true:
    backward, overlap, gap, torn, foreign, stuck. Changes nothing; any number may run.

    \b
    Examples:
      relay verify relay.toml --once
      relay verify relay.toml --follow --http 127.0.0.1:9466
    Exit status: 0 no anomaly · 1 anomalies were found · 2 wrong configuration ·
    4 servers away.
    """
    log.setup(json=log_format == "json")
    if deep and mode == "follow":
        raise click.UsageError("--deep looks once: run it from time to time beside --follow")
    if listen and mode != "follow":
        raise click.UsageError("--http serves what --follow finds: give both")
    source = click.get_current_context().get_parameter_source("webhook_url")
    if source is ParameterSource.COMMANDLINE and mode != "follow":
        raise click.UsageError("--webhook gets what --follow finds: give both")
    settings = config.load(config_file)
    held_seconds = 2 * settings.relay.transaction_timeout_seconds
    audit = Audit(settings.app, settings.source.topic, held_seconds)
    began = time.monotonic()
    say = _say_json if as_json else _say
    with contextlib.closing(Reader(settings)) as reader:
        if mode == "follow":
            follow(settings, reader, audit, say, listen, webhook_url)
        elif deep:
            _deeply(settings, reader, audit, say)
        else:
            run.once(reader, audit, say)
    _acknowledge(audit, as_json=as_json)
    _show(audit, time.monotonic() - began, as_json=as_json)
    if audit.anomalies:
        raise NotExactlyOnce(
            f"{len(audit.anomalies)} anomalies; the first: {audit.anomalies[0]}",
            "do not restart anything yet: keep journal and source topic from retention, and "
            "look at the records named",
        )


def _deeply(
    settings: Settings,
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
) -> None:
    with contextlib.closing(Deep(settings)) as deep:
        run.once(reader, audit, say, deep.keep)
        for anomaly in deep.judge(lambda what: click.echo(what, err=True)):
            audit.anomalies.append(anomaly)
            say(anomaly)
        audit.acknowledged += deep.acknowledged


def _acknowledge(audit: Audit, *, as_json: bool) -> None:
    """What people took note of; it is no anomaly, and is never hidden."""
    for text in audit.acknowledged:
        if as_json:
            click.echo(json.dumps({"acknowledged": text}))
        else:
            click.echo(f"acknowledged: {text}", err=True)
    for partition in audit.unfinished():
        text = f"partition {partition}: a rewind was begun and has not ended; relays wait"
        if as_json:
            click.echo(json.dumps({"unfinished": text}))
        else:
            click.echo(f"unfinished: {text}", err=True)


def _say(anomaly: Anomaly) -> None:
    click.echo(f"anomaly: {anomaly}", err=True)


def _say_json(anomaly: Anomaly) -> None:
    now_ms = time.time_ns() // 1_000_000
    click.echo(json.dumps({"anomaly": anomaly.as_json(), "at_ms": now_ms}))


def _show(audit: Audit, seconds: float, *, as_json: bool) -> None:
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
        click.echo(json.dumps({**named, "seconds": seconds, "tables": totals.rows_by_table}))
        return
    table = Table("looked at", "count", title=f"Journal, judged in {seconds:.1f} s")
    table.columns[1].justify = "right"
    for name, value in summary.items():
        table.add_row(name, f"{value:,}")
    Console().print(table)
