"""`relay accept`: acknowledges a gap or a recreated topic, so that relays can continue."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from relay import log
from relay.cli.options import config_argument, run_option, settings_of, within_one_cluster
from relay.cli.output import rewind as output_rewind
from relay.errors import NEW_APP
from relay.operate.rewind import accept as accept_steps
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.servers import Servers
from relay.program.command import chosen_pipeline
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_lines


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option(
    "--partition", type=click.IntRange(min=0), help="Acknowledge only for this source partition."
)
@click.option(
    "--from",
    "begin",
    type=click.IntRange(min=0),
    help="Offset at which to continue after the topic was recreated or lost its end; needs "
    "--partition.",
)
@click.option("--why", default="", metavar="TEXT", help="Your reason; the journal keeps it.")
@run_option("Acknowledge it. Without --run the command only prints what it would do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def accept(
    config_file: Path,
    partition: int | None,
    begin: int | None,
    why: str,
    *,
    do: bool,
    as_json: bool,
) -> None:
    """Acknowledge what makes `relay run` stop with status 6, so that relays can continue.

    \b
    Retention deleted unread messages:   relays continue at the first message that is left.
    The source topic was recreated:      relays begin with its oldest message, or at --from.
    The source topic lost its end:       relays continue at --from.
    The group's offsets were moved,      relays continue where the journal ends, which loses
    deleted or have expired:             and doubles nothing.

    The journal records both offsets and your reason in the transaction that moves the offset, and
    `relay verify` keeps reporting them.

    \b
    Examples:
      relay accept relay.toml
      relay accept relay.toml --run --why 'retention passed it during the outage of 1 August'
    Exit status: 0 done · 2 an argument is wrong · 6 something cannot be acknowledged, nothing was
    changed · 4, 7 interrupted: run it again.
    """
    log.setup(json=False)
    if begin is not None and partition is None:
        raise click.UsageError("--from applies to one source partition: name it with --partition")
    why = " ".join(why.split())
    if do and not why:
        raise click.UsageError("say why with --why TEXT; the journal keeps the reason")
    settings = settings_of(config_file)
    within_one_cluster(settings, "accept", f"restore what is missing, or {NEW_APP}")
    begins = {} if begin is None or partition is None else {partition: begin}

    def author() -> RewindAuthor:
        return RewindAuthor("accept", time.time_ns() // 1_000_000, why)

    with contextlib.closing(Servers(settings, config_file, chosen_pipeline())) as servers:
        notes = accept_steps.accept(servers, begins, partition, author if do else None)
    print_lines(output_rewind.describe_notes(notes, accepted=do, as_json=as_json))
