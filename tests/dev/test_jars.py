"""Jars are used only whole, and fetched once; Java is new enough or a sentence says so."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from relay.dev import jars
from relay.errors import MissingTool
from relay.program import java

SMALL = "org.slf4j:slf4j-nop:1.7.36"
"""Two jars: itself and slf4j-api."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "block-relay"


def _jar(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.class", b"x" * 1000)


def test_two_processes_fetch_once_and_whole(cache: Path) -> None:
    """Two processes at once end with the same whole jars; only one fetches."""
    code = f"from relay.dev import jars; print(*jars.resolve({SMALL!r}, print), sep='\\n')"
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [child.communicate(timeout=200)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert "".join(said).count("first time only") == 1
    found = jars.resolve(SMALL, pytest.fail)
    assert [path.name for path in found] == ["slf4j-api-1.7.36.jar", "slf4j-nop-1.7.36.jar"]
    assert sorted(path.name for path in cache.iterdir()) == [
        "ivy",
        "jars-slf4j-nop-1.7.36",
        "jars.lock",
    ], "no half-filled directory stays"
    # A jar cut short afterwards is noticed and fetched again.
    found[0].write_bytes(found[0].read_bytes()[:1000])
    lines: list[str] = []
    again = jars.resolve(SMALL, lines.append)
    assert again == found
    assert len(lines) == 1
    assert zipfile.is_zipfile(found[0])


@pytest.mark.parametrize("harm", ["none", "cut", "changed", "missing", "no manifest", "empty"])
def test_only_whole_directories_are_used(tmp_path: Path, harm: str) -> None:
    """verified() takes a directory as it was gathered (the control) and no other."""
    jar = tmp_path / "a.jar"
    _jar(jar)
    jars._write_manifest(tmp_path)
    if harm == "cut":
        jar.write_bytes(jar.read_bytes()[:-1])
    elif harm == "changed":
        data = jar.read_bytes()
        jar.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    elif harm == "missing":
        jar.unlink()
    elif harm == "no manifest":
        (tmp_path / "jars.json").unlink()
    elif harm == "empty":
        (tmp_path / "jars.json").write_text("{}")
    assert (jars.verified(tmp_path) == [jar]) is (harm == "none")


def test_a_jar_fetched_in_part_is_refused(tmp_path: Path) -> None:
    """A jar that does not read to its end gets no manifest."""
    jar = tmp_path / "a.jar"
    _jar(jar)
    jar.write_bytes(jar.read_bytes()[:-30])
    with pytest.raises(MissingTool, match=r"a\.jar was not downloaded completely"):
        jars._write_manifest(tmp_path)
    assert not (tmp_path / "jars.json").exists()


@pytest.mark.usefixtures("cache")
def test_unknown_coordinate_is_named() -> None:
    """What cannot be fetched is an error that names it and says what to do."""
    with pytest.raises(MissingTool, match=r"slf4j-nop:0\.0\.0-none") as caught:
        jars.resolve("org.slf4j:slf4j-nop:0.0.0-none", lambda _: None)
    assert "RELAY_IVY_SETTINGS" in caught.value.next_step


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_452"', 8),
        ("no idea", None),
    ],
)
def test_java_versions(text: str, version: int | None) -> None:
    """The major version is read from old and new ways of writing it."""
    assert java.parse_version(text) == version


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11; Java 17 or newer"),
        ("exit 1", "does not start"),
        (None, "is not there"),
    ],
)
def test_without_a_usable_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    """An old, broken or missing Java is a sentence that says how to get one."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if script is not None:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "java"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    with pytest.raises(MissingTool, match=message) as caught:
        java.require()
    assert "openjdk-17" in caught.value.next_step


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without JAVA_HOME and with an empty PATH the error says so."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep)
    with pytest.raises(MissingTool, match="no java in PATH"):
        java.require()
