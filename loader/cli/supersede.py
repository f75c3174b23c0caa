"""`loader supersede`: settles the blocks that a rewind replaces; `relay rewind` starts it."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, TypeVar

import click
from google.protobuf.message import DecodeError

from loader.cli.options import config_argument, settings_of
from loader.journal.startup import ledger_of
from loader.operate.starter import end_with_starter
from relay.errors import ConfigError
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_json
from relay.records_pb2 import Block, Commit

R = TypeVar("R", Block, Commit)


def _table_and_epoch(text: str) -> tuple[str, int]:
    """Parse `database.table=7`; a table's name may have the sign in it, too."""
    table, sign, epoch = text.rpartition("=")
    if not sign or not epoch.isdecimal():
        raise click.BadParameter(f"{text!r} is not TABLE=EPOCH")
    return table, int(epoch)


@click.command(cls=ConfiguredCommand, hidden=True)
@config_argument
@click.option(
    "--blocks",
    type=click.File("r"),
    required=True,
    metavar="FILE",
    help="File of journal records, one per line in base64: the rewind's, then those of its blocks; "
    "- reads standard input.",
)
@click.option(
    "--at", type=int, required=True, metavar="OFFSET", help="The rewind's record in the journal."
)
@click.option(
    "--first-epoch",
    "first_epochs",
    type=_table_and_epoch,
    multiple=True,
    metavar="TABLE=EPOCH",
    help="Superseded blocks of this table, of this epoch or later, may be missing from FILE: their "
    "journal records were deleted.",
)
@click.option(
    "--while-open",
    "starter",
    type=int,
    metavar="FD",
    help="End when this descriptor, of a pipe, reaches its end: whoever started the command is "
    "gone.",
)
def supersede(
    config_file: Path,
    blocks: TextIO,
    at: int,
    first_epochs: Sequence[tuple[str, int]],
    starter: int | None,
) -> None:
    """Settle superseded blocks and remove their rows; `relay rewind` runs this command itself.

    The command discards blocks that are not loaded, under a claim as a loader does, and then
    deletes rows that carry the ids of the blocks, except in tables whose rows the rewind keeps.
    Before each of these steps it asks the journal whether the rewind still stands as it was given.
    Last it notes in the ledger that this was done for the rewind. Loaders may keep running, and the
    command may be repeated.

    \b
    loader supersede relay.toml --blocks - --at 120 < superseded.txt
    """
    if starter is not None:
        end_with_starter(starter)

    from loader.journal.rewind_check import RewindCheck  # noqa: PLC0415 - Kafka
    from loader.operate.supersede import Rewound, carry_out  # noqa: PLC0415 - Kafka and Arrow

    settings = settings_of(config_file)
    first, *lines = [line.strip() for line in blocks if line.strip()] or [""]
    record = _record(Commit, "the rewind's", first)
    if record.app != settings.app:
        raise _foreign(f"the rewind is of app {record.app!r}, not {settings.app!r}")
    listed = [_block(settings.app, line) for line in lines]
    rewound = Rewound(record, at, dict(first_epochs))
    with contextlib.closing(RewindCheck(settings, record, at)) as journal:
        ledger = ledger_of(settings, make=True)
        done = carry_out(settings, ledger, listed, rewound, journal.check)
    print_json({"blocks": done.blocks, "rows": done.rows})


def _block(app: str, line: str) -> Block:
    block = _record(Block, "a block's", line)
    if not block.id.startswith(f"{app}:{block.table}:"):
        raise _foreign(f"{block.id!r} is not a block of app {app}")
    return block


def _record(kind: type[R], whose: str, text: str) -> R:
    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ConfigError(
            f"not {whose} journal record in base64: {text[:60]!r}",
            "pass the lines that `relay rewind` wrote, unchanged",
        ) from error


def _foreign(message: str) -> ConfigError:
    return ConfigError(message, "name that app's configuration file")
