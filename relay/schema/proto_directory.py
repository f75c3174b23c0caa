"""Writes the `.proto` files of many tables into one directory, laid out as `buf` wants them.

Receives a table's row messages, the current one last, gives where its file lies and what was done:
package `shop.orders` is in `shop/orders/row.proto`. A file that somebody else wrote or edited is
left as it is, unless told otherwise.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from relay import names
from relay.errors import ConfigError
from relay.records_pb2 import TableSchema
from relay.schema.evolution import proto_text

FILE = "row.proto"
WRITTEN, UNCHANGED, KEPT = "written", "unchanged", "kept"


class Placed(NamedTuple):
    """What became of a table's file: WRITTEN, UNCHANGED, or KEPT, as it holds no version of it."""

    path: Path
    outcome: str


def path_of(directory: Path, table: str) -> Path:
    """Return where the table's file lies: in the directory of its package."""
    return directory.joinpath(*names.split_table(table), FILE)


def decide(before: str | None, versions: Sequence[str], *, force: bool) -> str:
    """Return what is to be done with a file that held `before`; None: it is not there.

    It may hold one of the versions without being anybody else's, and shall hold the last.
    """
    if before == versions[-1]:
        return UNCHANGED
    return WRITTEN if force or before is None or before in versions else KEPT


def place(directory: Path, schemas: Sequence[TableSchema], *, force: bool) -> Placed:
    """Write a table's file where it is missing or older.

    Raises:
        ConfigError: it cannot be written.
    """
    path = path_of(directory, schemas[-1].table)
    texts = [proto_text(schema) for schema in schemas]
    try:
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
        outcome = decide(before, texts, force=force)
        if outcome == WRITTEN:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, texts[-1])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "choose another --out directory") from error
    return Placed(path, outcome)


def _replace(path: Path, text: str) -> None:
    """At once: whoever compiles it meanwhile reads the old one or the new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
