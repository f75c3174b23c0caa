"""`loader supersede`: settles the blocks that a rewind replaces; `relay rewind` starts it."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import TextIO

import click
from google.protobuf.message import DecodeError

from loader.cli.options import config_argument, settings_of
from loader.journal.startup import ledger_of
from relay.errors import ConfigError
from relay.program.config_argument import ConfiguredCommand
from relay.records_pb2 import Block


@click.command(cls=ConfiguredCommand, hidden=True)
@config_argument
@click.option(
    "--blocks",
    type=click.File("r"),
    required=True,
    metavar="FILE",
    help="File of journal records, one per line in base64; - reads standard input.",
)
@click.option("--keep-rows", is_flag=True, help="Do not remove rows from the tables.")
@click.option("--why", default="", metavar="TEXT", help="Reason; the ledger keeps it.")
def supersede(config_file: Path, blocks: TextIO, why: str, *, keep_rows: bool) -> None:
    """Settle superseded blocks and remove their rows; `relay rewind` runs this command itself.

    Each line of FILE is a block's journal record in base64. The command discards blocks that are
    not loaded, under a claim as a loader does, and then deletes rows that carry the ids of the
    blocks. Loaders may keep running, and the command may be repeated.

    \b
    loader supersede relay.toml --blocks - < superseded.txt
    """
    from loader.operate.supersede import supersede as settle  # noqa: PLC0415 - Kafka and Arrow

    settings = settings_of(config_file)
    listed = [_block(settings.app, line) for line in blocks if line.strip()]
    done = settle(settings, ledger_of(settings, make=True), listed, keep=keep_rows, why=why)
    click.echo(json.dumps({"blocks": done.blocks, "rows": done.rows}))


def _block(app: str, line: str) -> Block:
    try:
        block = Block.FromString(base64.b64decode(line.strip(), validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ConfigError(
            f"not a block's journal record in base64: {line.strip()[:60]!r}",
            "pass the lines that `relay rewind` wrote, unchanged",
        ) from (error)
    if not block.id.startswith(f"{app}:{block.table}:"):
        raise ConfigError(
            f"{block.id!r} is not a block of app {app}", "name that app's configuration file"
        )
    return block
