"""Files that a person names for a command: what is wrong with them is told as that, status 2."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest

from relay.cli import cli
from relay.cli.named_files import refuse_unwritable, write_file
from relay.errors import ConfigError
from relay.program.command import run_main

INIT = ["config", "init", "--force"]
EXPORT = ["export", "kubernetes", "--force"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory with a file, a directory, and a configuration of no servers."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    assert run_main(cli, "relay", ["config", "init", "relay.toml", "--bootstrap", "[::1]:1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*INIT, "none/f"], "none/f: No such file or directory"),
        ([*INIT, "file/f"], "file/f: Not a directory"),
        ([*INIT, "n" * 300], "File name too long"),
        ([*INIT, "/proc/f"], "/proc/f: No such file or directory"),
        ([*INIT, "/dev/full"], "/dev/full: No space left on device"),
        ([*EXPORT, "file/d"], "file/d: Not a directory"),
        ([*EXPORT, "/proc/d"], "/proc/d: No such file or directory"),
        (["dead", "show", "relay.toml", "0:17", "--raw", "none/f"], "there is no directory none"),
        (["dead", "show", "relay.toml", "0:17", "--raw", "file/f"], "there is no directory file"),
        (["dead", "show", "relay.toml", "0:17", "--raw", "folder"], "it is a directory"),
        (["dev", "status", "--directory", "file/d"], "file/d/stack.json: Not a directory"),
    ],
)
def test_a_path_that_cannot_be_used_is_named_with_its_cause(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    """Before any server is asked; a full disk, too."""
    assert run_main(cli, "relay", arguments) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "next: " in said


def test_a_file_of_the_manifests_that_is_a_directory_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With --force, into a directory of another's."""
    Path("folder/README.md").mkdir()
    Path("folder/README.md/README.md").mkdir()
    assert run_main(cli, "relay", [*EXPORT, "folder"]) == 2
    assert "cannot write folder/README.md" in capsys.readouterr().err


def test_a_file_without_the_right_to_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of root every file is writable: the system's answer is given."""
    refuse_unwritable(Path("file"))
    monkeypatch.setattr(os, "access", lambda path, _: path != Path("file"))
    refuse_unwritable(Path("another"))
    with pytest.raises(ConfigError, match="cannot write file: this user has no right"):
        refuse_unwritable(Path("file"))


def test_a_file_is_written_anew() -> None:
    write_file(Path("file"), b"1\n2")
    write_file(Path("file"), b"3")
    assert Path("file").read_bytes() == b"3"


def end_with(error: OSError) -> int:
    @click.command()
    def command() -> None:
        raise error

    return run_main(command, "relay", [])


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EISDIR])
@pytest.mark.parametrize("path", ["/no/such", b"/no/such"])
def test_any_error_of_a_path_is_no_bug(
    capsys: pytest.CaptureFixture[str], code: int, path: str | bytes
) -> None:
    assert end_with(OSError(code, os.strerror(code), path)) == 2
    assert capsys.readouterr().err.startswith(f"relay: /no/such: {os.strerror(code)}\n  next: ")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files", "/etc/hosts"),
        OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
        OSError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_what_passes_or_names_no_file_is_for_the_supervisor(error: OSError) -> None:
    """It starts programs again after 70, not after 2."""
    assert end_with(error) == 70
