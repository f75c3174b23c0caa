"""Fetches Java libraries with the Ivy that pyspark ships.

Receives: Maven coordinates. Gives: the jars, cached and checked by hash before
each use. Never leaves a half-filled directory under the final name: a set of
jars is gathered beside it under a lock, checked, and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from relay.errors import MissingTool, install
from relay.program import java

KAFKA_DEFAULT = "4.1.1"
KAFKA_VERSION = os.environ.get("RELAY_DEV_KAFKA", KAFKA_DEFAULT)
"""Of the brokers that `relay dev` starts, and so of those in tests and campaigns."""
KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Kafka logs through slf4j 1.7 and brings log4j, but nothing that joins them: without this
    # a broker that dies says nothing.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
_MANIFEST = "jars.json"
_FETCH_SECONDS = 900
_OFFLINE = (
    "check the network and run it again; to use a mirror set RELAY_IVY_SETTINGS to an Ivy "
    "settings file, to use a proxy set JAVA_TOOL_OPTIONS"
)

Progress = Callable[[str], None]


def classpath(progress: Progress) -> list[Path]:
    """Return the jars of the broker, about 45 files and 43 MB; fetched the first time (about 40 s).

    Raises:
        MissingTool: no Java, no pyspark, or the jars cannot be fetched.
    """
    return _cached(f"jars-{KAFKA_VERSION}", KAFKA, progress)


def resolve(coordinate: str, progress: Progress) -> list[Path]:
    """Return the jars of one `group:artifact:version` with its dependencies; raise as classpath."""
    _, artifact, version = coordinate.split(":")
    return _cached(f"jars-{artifact}-{version}", (coordinate,), progress)


def _cached(name: str, coordinates: Sequence[str], progress: Progress) -> list[Path]:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "block-relay"
    target = root / name
    jars = verified(target)
    if jars is None:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / "jars.lock", progress):
            jars = verified(target)  # whoever held the lock may have fetched them
            if jars is None:
                progress(f"fetching {', '.join(coordinates)} (first time only, about a minute)")
                _fetch(root, target, coordinates)
                jars = verified(target)
    if jars is None:
        raise MissingTool(f"{target} changed while it was read", "run it again")
    return jars


def verified(directory: Path) -> list[Path] | None:
    """Return the jars of a gathered directory; None unless each has its size and hash."""
    try:
        manifest: dict[str, str] = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        jars = [directory / name for name in sorted(manifest)]
        good = all(_digest(jar) == manifest[jar.name] for jar in jars)
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return jars if good and jars else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching jars, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(root: Path, target: Path, coordinates: Sequence[str]) -> None:
    """Gather the jars beside `target`, check them, and rename; the caller holds the lock."""
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{target.name}.part-") as scratch:
        gathered = Path(scratch) / target.name
        gathered.mkdir()
        try:
            _ivy(root / "ivy", gathered, coordinates)
            _write_manifest(gathered)
        except MissingTool:
            # A damaged Ivy cache would fail for ever; the next run starts from nothing.
            shutil.rmtree(root / "ivy", ignore_errors=True)
            raise
        if target.exists():  # found damaged by verified()
            target.rename(Path(scratch) / "damaged")
        gathered.rename(target)


def _ivy(cache: Path, into: Path, coordinates: Sequence[str]) -> None:
    module = into.with_suffix(".ivy.xml")
    module.write_text(_ivy_module(coordinates), encoding="utf-8")
    settings = os.environ.get("RELAY_IVY_SETTINGS")
    command = [
        *(str(java.require()), "-jar", str(_ivy_jar()), "-ivy", str(module), "-cache", str(cache)),
        *(("-settings", settings) if settings else ()),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MissingTool(f"Ivy did not end within {_FETCH_SECONDS} s", _OFFLINE) from error
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise MissingTool(f"Ivy could not fetch {', '.join(coordinates)}:\n{output}", _OFFLINE)


def _ivy_module(coordinates: Sequence[str]) -> str:
    lines = [
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>'
        for group, artifact, version in (text.split(":") for text in coordinates)
    ]
    return (
        '<ivy-module version="2.0"><info organisation="relay" module="dev"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingTool("pyspark is not installed", install("demo"))
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingTool(f"no ivy-*.jar beside {spec.origin}", "pip install pyspark from PyPI")
    return jars[-1]


def _write_manifest(directory: Path) -> None:
    """Write the hashes of all jars, each first read to its end as the archive it should be."""
    manifest: dict[str, str] = {}
    for jar in sorted(directory.glob("*.jar")):
        try:
            with zipfile.ZipFile(jar) as archive:
                damaged = archive.testzip()
        except zipfile.BadZipFile as error:
            raise MissingTool(
                f"{jar.name} was not downloaded completely: {error}", _OFFLINE
            ) from error
        if damaged is not None:
            raise MissingTool(
                f"{jar.name} was not downloaded completely: {damaged} differs", _OFFLINE
            )
        manifest[jar.name] = _digest(jar)
    if not manifest:
        raise MissingTool("Ivy fetched no jar", _OFFLINE)
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
