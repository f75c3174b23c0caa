"""`relay run`: the relay process."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relay import config, log
from relay import processes as several
from relay import run as relay_run
from relay.cli.options import config_argument
from relay.cli_support import log_format_option


@click.command()
@config_argument
@click.option("--member", help="Identity of this process; overrides relay.member.")
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    help="Where a partition that was never read begins; overrides source.start.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Relays to run, as members MEMBER-0, MEMBER-1, ...: one uses about one core.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz there. With --processes, the first process "
    "serves at PORT, the second at PORT+1, and so on.",
)
@log_format_option
def run(
    config_file: Path,
    member: str | None,
    start: str | None,
    processes: int,
    listen: str | None,
    log_format: str,
) -> None:
    """Form blocks from the source topic, in transactions, until SIGTERM or Ctrl-C.

    \b
    Exit status: 0 stopped as asked · 2 wrong configuration · 4 servers away for longer
    than relay.wait_for_servers_seconds at start · 5 a server refused · 6 recorded and
    found state disagree, a human decides · 7 another process has this identity ·
    70 a bug.
    """
    log.setup(json=log_format == "json")
    given = {"relay.member": member, "source.start": start}
    overrides = {key: value for key, value in given.items() if value is not None}
    settings = config.load(config_file, overrides)
    if processes == 1:
        relay_run.run(settings, listen or "")
        return
    arguments = [str(config_file), *(["--start", start] if start else [])]
    arguments += ["--log-format", log_format]
    sys.exit(several.run(arguments, settings.relay.member, processes, listen))
