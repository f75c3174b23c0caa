"""`loader prepare`: Spark's JVM maps the classes that an earlier one wrote, if they fit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loader.spark import class_archive
from relay.program import java
from tests.jvms import prepare_spark
from tests.loader.blocks import DEADLINE

pytestmark = pytest.mark.servers

_START = """
import sys
from loader.spark import class_archive
from loader.spark.session import started
spark = started("test", "local[1,1]", sys.argv[1:])
with open(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps") as maps:
    print("MAPPED", "an archive" if ".jsa" in maps.read().replace("classes.jsa", "") else "nothing")
print("COUNTED", spark.range(10).count())
spark.stop()
"""
"""Java's own archive, classes.jsa, is always mapped."""


@pytest.fixture(scope="module")
def archive() -> Path:
    prepare_spark()
    return class_archive.written()[-1]


def started(options: list[str]) -> tuple[str, str]:
    """What a process that starts Spark with these options prints, by stream."""
    command = [sys.executable, "-c", _START, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return done.stdout, done.stderr


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an environment's archives, which has none."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    directory = class_archive.place().parent
    directory.mkdir(parents=True)
    return directory


def test_spark_maps_the_archive(archive: Path) -> None:
    assert archive.stat().st_size > 50_000_000
    said, _ = started(class_archive.reading())
    assert "MAPPED an archive" in said
    assert "COUNTED 10" in said


@pytest.mark.long
def test_an_archive_of_another_java_is_not_used(archive: Path, elsewhere: Path) -> None:
    """As after an upgrade in place: Spark starts as without one, and says nothing of it."""
    content = archive.read_bytes()
    head = re.sub(
        rb"\(1\d\.[^)]+\)", lambda found: b"(" + b"9" * (len(found[0]) - 2) + b")", content[:2000]
    )
    assert head != content[:2000]
    (elsewhere / archive.name).write_bytes(head + content[2000:])
    options = class_archive.reading()
    assert str(elsewhere) in options[0]
    said, errors = started(options)
    assert "MAPPED nothing" in said
    assert "COUNTED 10" in said
    assert not re.search(r"archive|\bcds\b", errors), errors


def test_an_archive_that_was_cut_off_is_not_used(archive: Path, elsewhere: Path) -> None:
    """A JVM that maps it ends with SIGBUS."""
    cut = elsewhere / archive.name
    cut.write_bytes(archive.read_bytes()[:1_000_000])
    assert class_archive.reading() == []
    command = [java.find(), f"-XX:SharedArchiveFile={cut}", "-version"]
    assert subprocess.run(command, capture_output=True, check=False, cwd=elsewhere).returncode


@pytest.mark.usefixtures("elsewhere")
def test_nothing_is_read_where_nobody_prepared() -> None:
    assert class_archive.reading() == []


def test_a_path_with_a_blank_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits the options of its JVM at blanks."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my environment"))
    there = class_archive.place(0)
    there.parent.mkdir(parents=True)
    there.touch()
    assert class_archive.written() == [there]
    assert class_archive.reading() == []


@pytest.mark.long
def test_the_command_writes_it_and_says_where(archive: Path) -> None:
    """In place of the one that is there; a loader that has it mapped keeps the old file."""
    before = archive.stat().st_ino
    command = [sys.executable, "-m", "loader.cli", "prepare", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    (new,) = class_archive.written()
    assert json.loads(done.stdout) == {"archive": str(new), "bytes": new.stat().st_size}
    assert new.stat().st_ino != before
    assert not list(archive.parent.glob("*.part.*"))


def test_an_environment_of_somebody_else_is_named(tmp_path: Path) -> None:
    """Its files cannot be written: status 3, with the path."""
    blocked = tmp_path / "share"
    blocked.write_text("no directory")
    script = (
        f"import sys; sys.prefix = {str(tmp_path)!r}; from loader.cli import main; "
        "main(['prepare'])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 3
    assert str(blocked) in done.stderr
