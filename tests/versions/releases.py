"""The engine versions that PyPI serves, each in an environment of its own.

An environment has nothing but that version's engine, and behind it the packages of the one that
runs this: they must be of the same Python. It is made once, in a cache directory outside of the
repository.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "block-relay" / "engines"
_SECONDS = 900


@dataclass(frozen=True)
class Release:
    """A wheel with an engine.

    Attributes:
        package: on PyPI.
        version: of the wheel.
        engine: ClickHouse's version in it, the first two numbers.
        listens: whether it holds the whole server; else an HTTP front stands before it.
    """

    package: str
    version: str
    engine: str
    listens: bool

    @property
    def installed(self) -> bool:
        """Whether the environment that runs this has it."""
        try:
            return importlib.metadata.version(self.package) == self.version
        except importlib.metadata.PackageNotFoundError:
            return False


RELEASES = (
    Release("chdb", "3.7.2", "25.8", listens=False),
    Release("chdb-core", "26.1.0", "26.1", listens=False),
    Release("chdb-core", "26.3.0", "26.3", listens=False),
    Release("chdb-core", "26.5.0", "26.5", listens=False),
    Release("chdb-core", "26.7.3", "26.7", listens=True),
    Release("chdb-core", "26.9.0", "26.9", listens=True),
)
"""Oldest first. Tried beside these: chdb 3.6.0 and 3.4.1 hold 25.5, 2.1.1 holds 24.8."""
(NOW,) = (release for release in RELEASES if release.installed)
"""Which the tests run on."""


def by_engine(engine: str) -> Release:
    """The release of `26.3`.

    Raises:
        KeyError: there is none.
    """
    return {release.engine: release for release in RELEASES}[engine]


def python_of(release: Release, cache: Path = CACHE) -> Path:
    """The interpreter of the release's environment, which is made where it is not there yet."""
    if release.installed:
        return Path(sys.executable)
    place = _place(release, cache)
    python = place / "bin" / "python"
    if is_made(release, cache):
        return python
    shutil.rmtree(place, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(place))
    wanted = f"{release.package}=={release.version}"
    options = ("--quiet", "--no-deps", "--only-binary", ":all:")
    _run(str(python), "-m", "pip", "install", *options, wanted)
    (within,) = (place / "lib").glob("python*/site-packages")
    packages = sysconfig.get_path("purelib")
    (within / "zz-behind.pth").write_text(f"{packages}\n")
    (place / "behind").write_text(packages)
    (place / "complete").touch()
    return python


def is_made(release: Release, cache: Path = CACHE) -> bool:
    """Whether the release can be run without fetching it first."""
    place = _place(release, cache)
    made = (place / "complete").exists()
    behind = sysconfig.get_path("purelib")
    return release.installed or (made and (place / "behind").read_text() == behind)


def _place(release: Release, cache: Path) -> Path:
    mine = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache / f"{release.package}-{release.version}-{mine}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
