"""`relay run`: runs the relay."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from relay import log
from relay.cli.options import config_argument, pipelines_of
from relay.config.pipelines import Pipeline
from relay.process import loop as relay_run
from relay.process import several
from relay.program.command import chosen_pipeline, log_format_option
from relay.program.config_argument import ConfiguredCommand


@click.command(cls=ConfiguredCommand)
@config_argument
@click.option("--member", help="Name of this process in the group; overrides relay.member.")
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    help="Where to begin in a partition that the app has never read; overrides source.start.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of relays to run, as members MEMBER-0, MEMBER-1, ...; each uses about one core.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz at this address. With several processes the second "
    "serves at PORT+1, and so on; processes of the first pipeline come first.",
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
    """Read the source topic and form blocks, in Kafka transactions, until SIGTERM or Ctrl-C.

    If the configuration has several pipelines, each runs in a process of its own (or in
    --processes of them). A process that ends is started again after a pause and does not end the
    others, unless it ended with a status that needs a person (2, 3, 5, 6) or was fenced (7) four
    times in a row. The exit status of the command is then the most severe one.

    \b
    Exit status: 0 stopped on request · 2 the configuration is wrong · 4 a server did not answer
    for relay.wait_for_servers_seconds at the start · 5 a server refused · 6 recorded and found
    state disagree, a person has to decide · 7 another process runs under this member name ·
    70 a bug.
    """
    pipeline = chosen_pipeline() or ""
    log.setup(json=log_format == "json", pipeline=pipeline)
    options = {"relay.member": member, "source.start": start}
    overrides = {key: value for key, value in options.items() if value is not None}
    pipelines = pipelines_of(config_file, overrides)
    if processes == len(pipelines) == 1:
        relay_run.run(pipelines[0].settings, listen or "")
        return
    common = [*(["--start", start] if start else []), "--log-format", log_format]
    sys.exit(several.supervise(commands(config_file, pipelines, processes, listen, common)))


def commands(
    config_file: Path,
    pipelines: Sequence[Pipeline],
    processes: int,
    listen: str | None,
    common: Sequence[str],
) -> dict[str, list[str]]:
    """Return the arguments of each process, by a name for the log.

    Each pipeline gets so many processes. The first process serves at `listen`, HOST:PORT, the next
    ones at the ports behind it; None: none serves.
    """
    result: dict[str, list[str]] = {}
    for name, settings in pipelines:
        for index in range(processes):
            member = settings.relay.member + (f"-{index}" if processes > 1 else "")
            chosen = ["--pipeline", name] if name else []
            result[f"{name}, {member}" if name else member] = [
                *(str(config_file), *chosen, "--member", member, *common),
                *several.listen_arguments(listen, len(result)),
            ]
    return result
