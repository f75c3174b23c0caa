"""`relay retire`: aborts transactions that members left open and will not come back to."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import click

from relay.cli.options import config_argument, settings_of, within_one_cluster
from relay.config.settings import Settings
from relay.errors import ConfigError, Refused
from relay.operate.view.group import GroupReader, journal_members
from relay.process.retire import end, plan, unknown
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_json


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option(
    "--member",
    "members",
    multiple=True,
    required=True,
    help="Name of a member that will not come back, as given to `relay run --member`; repeatable.",
)
@click.option(
    "--run",
    "for_real",
    is_flag=True,
    help="Abort them. Without --run the command only prints what it would do.",
)
@click.option(
    "--never-committed",
    is_flag=True,
    help="Take the names as they are given, without looking for them in the journal: a relay that "
    "was killed before its first commit is in no record.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per member.")
def retire(
    config_file: Path,
    members: tuple[str, ...],
    *,
    for_real: bool,
    never_committed: bool,
    as_json: bool,
) -> None:
    """Abort the transactions that members left open, after you scaled down.

    A relay that was killed and never starts again leaves its transaction open until the
    transaction times out, and readers of its topics wait until then. This command starts a newer
    producer under the same transactional id: Kafka aborts the open transaction, and if the old
    process still runs somewhere, it is fenced and can never commit again. Rows are not affected:
    other members have taken over the partitions and continue from the committed offsets.

    The command refuses while the member is in the group; a static member stays there until
    relay.session_timeout_seconds after its end. It also refuses a name that neither the group nor
    the journal has. A member that starts again needs no retire: it aborts its old transaction
    itself.

    \b
    Example: relay retire relay.toml --member relay-3 --member relay-4 --run
    Exit status: 0 done, or printed what would be done · 2 the configuration is wrong, or nobody
    knows such a member · 4 no broker answered · 5 a member is in the group, or the brokers
    refused · 7 another producer started under the same id at the same time.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # errors say what clients would log
    for member in members:  # each a name that a relay could have
        settings = settings_of(config_file, {"relay.member": member})
    step = (
        "start a relay: when it takes over a source partition, it ends the transactions that are "
        "open there"
    )
    within_one_cluster(settings, "retire", step)
    group = {member.name: member.partitions for member in GroupReader(settings).read().members}
    if not never_committed:
        _refuse_unknown(settings, members, group)
    retirements = plan(settings.app, members, group)
    obstacles = [retirement.obstacle for retirement in retirements if retirement.obstacle]
    if for_real and obstacles:
        raise Refused(
            "; ".join(obstacles),
            f"stop that relay and wait {settings.relay.session_timeout_seconds:g} s until its "
            "session ends, or leave the member out; nothing was done",
        )
    for retirement in retirements:
        if for_real:
            end(settings, retirement)
        if as_json:
            fields = {
                "member": retirement.member,
                "transactional_id": retirement.transactional_id,
                "obstacle": retirement.obstacle,
                "ended": for_real,
            }
            print_json(fields)
        else:
            would = retirement.obstacle or "its transaction would be aborted"
            click.echo(f"{retirement.transactional_id}: {'ended' if for_real else would}")
    if not for_real and not as_json:
        click.echo("nothing was done; add --run to do it")


def _refuse_unknown(settings: Settings, members: Collection[str], group: Collection[str]) -> None:
    """Refuse a misspelled name: its end would look like that of a member that is gone."""
    gone = {*members} - {*group}
    recorded = journal_members(settings, gone) if gone else ()
    if lines := list(unknown(members, group, recorded)):
        raise ConfigError(
            "; ".join(lines),
            "correct the name; of a relay that was killed before its first commit, or whose "
            "records are deleted, nothing is known: add --never-committed if it had this name. "
            "Nothing was done",
        )
