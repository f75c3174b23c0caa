"""`relay verify`: the runtime verifier."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from relay import log
from relay.cli.arguments import TABLE
from relay.cli.options import config_argument, pipelines_of
from relay.cli.output import verify as output_verify
from relay.cli.verify import several as verify_several
from relay.cli.verify.follow import Outlets, follow
from relay.cli.verify.once import once
from relay.config.settings import Settings
from relay.errors import ContractBroken, ErrorPage, NotExactlyOnce, RelayError
from relay.operate.verify.audit import Audit, audit_of
from relay.operate.verify.judge.beginning import gaps, next_steps
from relay.operate.verify.read.journal import Reader
from relay.program.command import log_format_option, one_of, show_error
from relay.program.config_argument import ConfiguredCommand
from relay.program.plural import several
from relay.program.spelling import did_you_mean_table
from relay.program.supervision import worst

_KEEP = (
    "do not restart anything yet: keep the records of journal and source topic (raise their "
    "retention), and look at the records that the anomaly names"
)
_LONGER = (
    "Keep the topics' records longer than relay and loader may be stopped (`relay doctor` checks "
    "it)"
)


@click.command(cls=ConfiguredCommand)
@config_argument
@one_of("mode", "--once", "once", "Audit all records that are retained, then exit (the default).")
@one_of("mode", "--follow", "follow", "Keep auditing new records until SIGTERM.")
@click.option(
    "--deep",
    is_flag=True,
    help="Also compare block topics, ClickHouse and the source topic with the journal.",
)
@click.option(
    "--removed",
    type=TABLE,
    metavar="DATABASE.TABLE",
    multiple=True,
    help="With --deep: rows of this table were removed on purpose, so do not report missing ones.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    default="",
    help="With --follow: serve the status page at /, metrics for Prometheus at /metrics, and "
    "/healthz. The second pipeline serves at PORT+1, and so on.",
)
@click.option(
    "--webhook",
    "webhook_url",
    metavar="URL",
    default="",
    envvar="RELAY_VERIFY_WEBHOOK",
    help="With --follow: POST every anomaly to this URL as JSON. If the URL is a secret, set "
    "RELAY_VERIFY_WEBHOOK instead.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Print every anomaly, not only the first of each table and kind.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print all anomalies, then totals, as JSON lines."
)
@log_format_option
def verify(  # noqa: PLR0913 - one for each option
    config_file: Path,
    mode: str | None,
    listen: str,
    webhook_url: str,
    *,
    deep: bool,
    removed: tuple[str, ...],
    every: bool,
    as_json: bool,
    log_format: str,
) -> None:
    """Prove from the recorded history that no row was lost and none was doubled.

    Reads the journal and the group's committed offsets and reports where they contradict each
    other (backward, overlap, gap, torn, foreign, stuck, late). It also says where its history
    begins and what was deleted before. It changes nothing, and any number of verifiers may run.

    If the file has several pipelines, all of them are audited side by side, and each line names
    its pipeline. A pipeline whose servers do not answer does not delay the others.

    \b
    Examples:
      relay verify relay.toml --once
      relay verify relay.toml --follow --http 127.0.0.1:9466
    Exit status: 0 no anomaly · 1 anomalies were found · 2 the configuration is wrong ·
    4 a server did not answer · 6 source messages were deleted before they were in blocks, or
    (--deep) journal records before a loader had settled them.
    """
    log.setup(json=log_format == "json")
    if deep and mode == "follow":
        raise click.UsageError(
            "--deep runs once and cannot be combined with --follow: run it from time to time "
            "beside `relay verify --follow`"
        )
    if removed and not deep:
        raise click.UsageError("--removed concerns the rows that --deep counts: give both")
    if listen and mode != "follow":
        raise click.UsageError("--http serves what --follow finds: give both")
    source = click.get_current_context().get_parameter_source("webhook_url")
    if source is ParameterSource.COMMANDLINE and mode != "follow":
        raise click.UsageError("--webhook gets what --follow finds: give both")
    pipelines, outlets = pipelines_of(config_file), Outlets(listen, webhook_url)
    few = output_verify.Few(every=every or mode == "follow")
    if len(pipelines) == 1:
        settings = pipelines[0].settings
        audits = [
            _audit_one(settings, mode, outlets, few, deep=deep, removed=removed, as_json=as_json)
        ]
    elif mode == "follow":
        audits = verify_several.follow(pipelines, outlets, as_json=as_json)
    else:
        audits = verify_several.once_each(
            pipelines, few, deep=deep, removed=removed, as_json=as_json
        )
    _warn_of_unknown(removed, {table for audit in audits for table in audit.totals.rows_by_table})
    _judge(audits)


def _warn_of_unknown(removed: Collection[str], tables: Collection[str]) -> None:
    for table in sorted({*removed} - {*tables}):
        hint = did_you_mean_table(table, tables)
        text = f"--removed {table}: the journal that was read has no block of it{hint}"
        click.echo(text, err=True)


def _judge(audits: Sequence[Audit]) -> None:
    """Whether anything was found, or kept from being looked for; the worst first."""
    errors = [error for audit in audits for error in audit.errors]
    history = [one for audit in audits for one in audit.history]
    lost = list(gaps(history))
    anomalies = [anomaly for audit in audits for anomaly in audit.anomalies]
    summary = ""
    if anomalies:
        summary = f"{several(len(anomalies), 'anomaly', 'anomalies')}; the first: {anomalies[0]}"
    if lost:
        more = f" (and {several(len(lost) - 1, 'more gap')})" if len(lost) > 1 else ""
        steps = [_KEEP] if anomalies else []
        raise ContractBroken(
            "; ".join(filter(None, [f"{lost[0]}{more}", summary])),
            ". ".join([*steps, *next_steps(history), _LONGER]),
            page=ErrorPage.GAP,
        )
    if anomalies:
        raise NotExactlyOnce(summary, _KEEP)
    if errors:
        status = worst(error.exit_code for error in errors)
        raise next(error for error in errors if error.exit_code == status)


def _audit_one(
    settings: Settings,
    mode: str | None,
    outlets: Outlets,
    few: output_verify.Few,
    *,
    deep: bool,
    removed: Collection[str],
    as_json: bool,
) -> Audit:
    audit = audit_of(settings)
    began = time.monotonic()
    say = output_verify.say_json if as_json else few.say
    with contextlib.closing(Reader(settings, lasting=mode == "follow")) as reader:
        if mode == "follow":
            follow(settings, reader, audit, say, outlets)
        else:
            try:
                once(settings, reader, audit, say, deep=deep, removed=removed)
            except RelayError as error:
                audit.errors.append(error)
                if audit.anomalies or any(gaps(audit.history)):
                    show_error("relay", error)  # another is raised
    if audit.totals.records or not audit.errors:
        output_verify.conclude(audit, time.monotonic() - began, as_json=as_json, hidden=few.hidden)
    return audit
