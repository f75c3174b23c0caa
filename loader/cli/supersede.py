"""`loader supersede`: what `relay rewind` starts, so that no block of before is loaded any more."""

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
from relay.records_pb2 import Block


@click.command()
@config_argument
@click.option("--blocks", type=click.File("r"), required=True, metavar="FILE", help="- for stdin.")
@click.option("--keep-rows", is_flag=True, help="Leave in the tables what is there.")
@click.option("--why", default="", metavar="TEXT", help="For the ledger.")
def supersede(path: Path, blocks: TextIO, why: str, *, keep_rows: bool) -> None:
    """Settle superseded blocks and remove their rows; `relay rewind` starts this by itself.

    FILE holds one journal record of a block per line, in base64. Blocks that are not loaded are
    discarded, under a claim as a loader's; then rows that carry their ids are deleted. Running
    loaders need no stop, and it may be repeated.

    \b
    loader supersede relay.toml --blocks - < superseded.txt
    """
    from loader.operate.supersede import supersede as settle  # noqa: PLC0415 - Kafka and Arrow

    settings = settings_of(path)
    listed = [_block(settings.app, line) for line in blocks if line.strip()]
    done = settle(settings, ledger_of(settings, make=True), listed, keep=keep_rows, why=why)
    click.echo(json.dumps({"blocks": done.blocks, "rows": done.rows}))


def _block(app: str, line: str) -> Block:
    try:
        block = Block.FromString(base64.b64decode(line.strip(), validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ConfigError(
            f"not a block id: {line.strip()[:60]!r}",
            "pass the block ids that `relay rewind` wrote, one a line",
        ) from (error)
    if not block.id.startswith(f"{app}:{block.table}:"):
        raise ConfigError(f"{block.id!r} is no block of app {app}", "check the configuration file")
    return block
