"""Files that a command writes because a person named them.

Receives path and content; what is wrong with the path is an error of the person's, with its
cause, also where the disk is full and Python's own error does not name the file.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relay.errors import ConfigError
from relay.program.command import OTHER_PATH


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that cannot be written, as far as that is seen without writing.

    For a command that works for long, or reads servers, before it writes.

    Raises:
        ConfigError: it is a directory, its directory is not there, or this user has no right.
    """
    reason = ""
    if path.is_dir():
        reason = "it is a directory"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "this user has no right to write it"
    if reason:
        raise _not_written(path, reason)


def write_file(path: Path, data: bytes) -> None:
    """Write a file, or write it anew; raise ConfigError if it cannot be written."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _not_written(path, error.strerror or str(error)) from error


def copy_tree(source: Path, target: Path, without: str) -> None:
    """Copy a directory's files, but those of the pattern `without`, over those of the same name.

    Raises ConfigError if the directory, or a file in it, cannot be written.
    """
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(without), dirs_exist_ok=True)
    except shutil.Error as error:  # of single files; it has all of them
        _, path, reason = error.args[0][0]
        raise _not_written(path, reason) from error
    except OSError as error:
        raise _not_written(target, error.strerror or str(error)) from error


def _not_written(path: Path | str, reason: str) -> ConfigError:
    return ConfigError(f"cannot write {path}: {reason}", OTHER_PATH)
