"""`relay doctor`: checks the servers for settings that would lose, double or delay rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from relay.cli.arguments import TABLE
from relay.cli.options import config_argument, pipelines_of
from relay.config.settings import Settings
from relay.operate.doctor import examine
from relay.operate.doctor import grants as granting
from relay.operate.doctor.examine import ExaminationScope
from relay.operate.doctor.findings import EXIT_WARNINGS, Finding, Severity, exit_status, worst_first
from relay.operate.doctor.grants import Role
from relay.operate.doctor.judge import rights
from relay.operate.doctor.judge.sample import OfTable
from relay.operate.doctor.versions import Version, parsed
from relay.program.config_argument import ConfiguredCommand
from relay.program.console import console_of
from relay.program.json_output import print_json
from relay.program.plural import several

_HOUR = 3600.0
_ALIKE = 10  # lines of findings that differ in the table or topic alone
_WIDTH = 140  # columns, where there is no terminal to ask
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option(
    "--outage-hours",
    type=click.FloatRange(min=0, min_open=True),
    default=72.0,
    show_default=True,
    help="The longest outage of relay or loader that you plan for. Retention of topics and offsets "
    "and deduplication windows are compared with it.",
)
@click.option(
    "--table",
    "tables",
    type=TABLE,
    multiple=True,
    help="Also check this target table. Tables that have a block topic are always checked; "
    "repeatable.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Also compare the brokers' clock with this machine's: creates topic APP.doctor, writes "
    "one record and deletes the topic.",
)
@click.option(
    "--try",
    "tries",
    is_flag=True,
    help="Also test that this server drops a repeated INSERT, in a table and behind a view. The "
    "test uses tables of its own in the ledger's database and drops them afterwards.",
)
@click.option(
    "--sample",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Also decode the newest N messages of the source topic as the relay would, and say for "
    "each table how many are good and what is wrong with the others.",
)
@click.option(
    "--grants",
    is_flag=True,
    help="Contact no server; print the minimal rights of each role as kafka-acls commands and "
    "GRANT statements for the users in the configuration.",
)
@click.option(
    "--clickhouse-version",
    metavar="X.Y",
    help="With --grants: print what this ClickHouse version needs, for example 26.3. Without it, "
    "rights that only some versions need are marked.",
)
@click.option(
    "--role",
    "only",
    multiple=True,
    help="Judge the rights of this user as relay, loader or verifier; without it, as relay and "
    "loader. With --grants: print only this role's; it also knows operator, retirer, replayer, "
    "rewinder, producer and feeder. Repeatable.",
)
@click.option(
    "--errors-only",
    is_flag=True,
    help="Exit with status 0 instead of 8 if there are only warnings.",
)
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON lines, totals last.")
def doctor(  # noqa: PLR0913 - one argument for each option
    config_file: Path,
    outage_hours: float,
    tables: tuple[str, ...],
    only: tuple[str, ...],
    clickhouse_version: str | None,
    sample: int | None,
    *,
    probe: bool,
    tries: bool,
    grants: bool,
    errors_only: bool,
    as_json: bool,
) -> int:
    """Check Kafka and ClickHouse for settings that could lose, double or delay rows.

    Run it before the first start and at any time later. Each finding says what was found, why it
    matters, and the command that fixes it. The checks use the rights of the user in the
    configuration. They change nothing, except that the brokers learn the transactional id
    APP.relay.#doctor. If the file has several pipelines, all of them are checked and the worst
    finding decides the exit status.

    \b
    Example: relay doctor relay.toml
             relay doctor relay.toml --table shop.orders --outage-hours 24 --json
             relay doctor relay.toml --sample 1000
             relay doctor relay.toml --role loader
             relay doctor relay.toml --grants --table shop.orders --role loader
    Exit status: 0 nothing or notes only · 8 warnings, no errors · 1 errors · 2 the
    configuration is wrong · 4 a server did not answer · 5 a server rejected user or password.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # findings say what clients would log
    pipelines = pipelines_of(config_file)
    if grants:
        for name, settings in pipelines:
            _print_head(name, as_json=as_json)
            targets = {*tables, *settings.block.tables}
            roles = granting.roles(settings, targets, _parse_version(clickhouse_version))
            _print_grants(settings, roles, only, name, as_json=as_json)
        return 0
    if clickhouse_version is not None:
        raise click.UsageError(
            "--clickhouse-version concerns the rights that --grants prints: give both"
        )
    scope = ExaminationScope(outage_hours * _HOUR, tables, probe, tries, _roles_to_judge(only))
    all_findings: list[Finding] = []
    for name, settings in pipelines:
        findings = examine.examine(settings, scope)
        sampled: list[OfTable] = []
        if sample is not None:
            sampled, of_sample = examine.sample(settings, sample)
            findings = worst_first([*findings, *of_sample])
        all_findings += findings
        _print_head(name, as_json=as_json)
        if sampled:
            _print_sample(sampled, name, as_json=as_json)
        if as_json:
            _print_json(findings, name)
        else:
            _print(findings)
    status = exit_status(all_findings)
    return 0 if errors_only and status == EXIT_WARNINGS else status


def _parse_version(text: str | None) -> Version | None:
    if text is None:
        return None
    version = parsed(text)
    if version is None:
        raise click.UsageError(f"--clickhouse-version {text!r} is not a version such as 26.3")
    return version


def _roles_to_judge(only: tuple[str, ...]) -> tuple[str, ...]:
    """The roles whose rights are judged."""
    if unknown := [name for name in only if name not in rights.ROLES]:
        raise click.UsageError(
            f"the doctor cannot judge role {unknown[0]!r}, only {', '.join(rights.ROLES)}; "
            "--grants prints the rights of every role"
        )
    return only or rights.DATA_PATH


def _print_head(pipeline: str, *, as_json: bool) -> None:
    if pipeline and not as_json:
        click.echo(f"# ---- pipeline {pipeline}")


def _print_grants(
    settings: Settings,
    roles: Sequence[Role],
    only: tuple[str, ...],
    pipeline: str,
    *,
    as_json: bool,
) -> None:
    names = [role.name for role in roles]
    if unknown := [name for name in only if name not in names]:
        raise click.UsageError(f"there is no role {unknown[0]!r}; name one of {', '.join(names)}")
    for role in roles:
        if only and role.name not in only:
            continue
        if as_json:
            print_json(granting.as_json(settings, role) | _pipeline_field(pipeline))
        else:
            click.echo("\n".join(granting.as_text(settings, role)))


def _count(findings: Sequence[Finding]) -> dict[str, int]:
    return {
        f"{severity}s": sum(finding.severity is severity for finding in findings)
        for severity in Severity
    }


def _print_json(findings: Sequence[Finding], pipeline: str) -> None:
    for finding in findings:
        print_json({"finding": finding.as_json(), **_pipeline_field(pipeline)})
    print_json({**_count(findings), "status": exit_status(findings), **_pipeline_field(pipeline)})


def _pipeline_field(pipeline: str) -> dict[str, str]:
    """Return the field that names the pipeline, if the file has several."""
    return {"pipeline": pipeline} if pipeline else {}


def _print_sample(sampled: Sequence[OfTable], pipeline: str, *, as_json: bool) -> None:
    """Print which messages of each table are good, and which not."""
    if as_json:
        for table in sampled:
            print_json({"sample": table.as_json(), **_pipeline_field(pipeline)})
        return
    view = Table("table", "good", "bad", "messages, reason, and the place of one", show_lines=True)
    view.columns[0].no_wrap = True
    for table in sampled:
        problems = "\n".join(
            f"{problem.messages:,}: {problem.reason} ({problem.partition}:{problem.offset})"
            for problem in table.largest()
        )
        name = table.table or "(none)"
        view.add_row(name, f"{table.good:,}", f"{table.bad:,}", escape(problems))
    console_of(_WIDTH).print(view)


def _print(findings: Sequence[Finding]) -> None:
    console = console_of(_WIDTH)
    if findings:
        table = Table("severity", "finding", "what, why, how to fix it", show_lines=True)
        table.columns[0].no_wrap = table.columns[1].no_wrap = True
        by_code: dict[str, list[Finding]] = {}
        for finding in findings:
            by_code.setdefault(finding.code, []).append(finding)
        for code, alike in by_code.items():
            severity, lines = alike[0].severity, "\n".join(_lines(alike))
            table.add_row(f"[{_STYLES[severity]}]{severity}[/]", code, escape(lines))
        console.print(table)
    counts = _count(findings).items()
    console.print(", ".join(several(count, name.removesuffix("s")) for name, count in counts))


def _lines(alike: Sequence[Finding]) -> Iterator[str]:
    """Yield what each finding of a kind says, why it matters, and each different fix once."""
    yield from _cut_lines([finding.what for finding in alike])
    yield f"why: {alike[0].why}"
    mends = dict.fromkeys(finding.mend for finding in alike if finding.mend)
    yield from _cut_lines([f"fix: {mend}" for mend in mends])


def _cut_lines(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_ALIKE]
    if len(lines) > _ALIKE:
        yield f"and {len(lines) - _ALIKE:,} more: --json has all"
