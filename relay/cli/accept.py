"""`relay accept`: a person takes note of what relays stop at, and they go on."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from functools import partial
from pathlib import Path

import click

from relay import log
from relay.cli.options import config_argument, settings_of, within_one_cluster
from relay.cli.output import rewind
from relay.operate.rewind import accepting
from relay.operate.rewind.records import Author
from relay.operate.rewind.servers import Servers
from relay.program.command import chosen_pipeline


@click.command()
@config_argument
@click.option("--partition", type=click.IntRange(min=0), help="Only this source partition.")
@click.option(
    "--from",
    "begin",
    type=click.IntRange(min=0),
    help="Where to go on, with --partition, after a topic was made anew or lost its end.",
)
@click.option("--why", default="", metavar="TEXT", help="Your reason, for the journal.")
@click.option(
    "--run/--dry-run", "do", default=False, help="Accept; without --run it only says what."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def accept(
    config_file: Path,
    partition: int | None,
    begin: int | None,
    why: str,
    *,
    do: bool,
    as_json: bool,
) -> None:
    """Take note of what makes `relay run` stop with status 6, so that it goes on.

    Retention that passed unread messages: relays go on at the log's start, and the gap is on
    record. A source topic made anew: they begin with its oldest message, or at --from. A source
    log that lost its end: at --from. Offsets of the group that were moved, deleted or have
    expired: where the journal ends, which loses and doubles nothing. The journal keeps both
    values and your reason, in the transaction that moves the offset; `relay verify` goes on
    naming it.

    \b
    Examples:
      relay accept relay.toml
      relay accept relay.toml --run --why 'retention passed it during the outage of 1 August'
    Exit status: 0 done · 2 an argument is wrong · 6 something cannot be accepted; nothing was
    changed · 4, 7 broken off: run it again.
    """
    log.setup(json=False)
    if begin is not None and partition is None:
        raise click.UsageError("--from applies to one source partition: name it with --partition")
    why = " ".join(why.split())
    if do and not why:
        raise click.UsageError("say why with --why TEXT; the journal keeps the reason")
    settings = settings_of(config_file)
    step = (
        "restore what is missing, or begin under a new `app`, with source.start where reading "
        "should continue"
    )
    within_one_cluster(settings, "accept", step)
    begins = {} if begin is None or partition is None else {partition: begin}
    with contextlib.closing(Servers(settings, config_file, chosen_pipeline())) as servers:
        author = partial(_author, why) if do else None
        found = accepting.accept(servers, begins, partition, author)
    for line in rewind.notes(found, accepted=do, as_json=as_json):
        sys.stdout.write(f"{line if isinstance(line, str) else json.dumps(line)}\n")


def _author(why: str) -> Author:
    return Author("accept", time.time_ns() // 1_000_000, why)
