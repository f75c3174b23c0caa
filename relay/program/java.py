"""Finds Java. Gives: the path of a `java` new enough for Kafka and Spark. Never installs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from relay.errors import MissingTool

LEAST_VERSION = 17
"""Kafka 4 brokers and Spark 4 both ask for it."""

_HOW = (
    f"install Java {LEAST_VERSION} or newer, for example `apt-get install "
    "openjdk-17-jre-headless`, `dnf install java-17-openjdk-headless` or `brew install "
    "openjdk@17`, or point JAVA_HOME at one"
)


def require() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH.

    Raises:
        MissingTool: there is none, it does not start, or it is too old.
    """
    java = find()
    try:
        answer = subprocess.run(  # noqa: S603 - a java of this machine
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingTool(f"{java} does not start: {error}", _HOW) from error
    # JAVA_TOOL_OPTIONS and the version both go to stderr.
    version = parse_version(answer.stderr + answer.stdout)
    if version is None or version < LEAST_VERSION:
        version_text = "says no version" if version is None else f"is Java {version}"
        raise MissingTool(f"{java} {version_text}; Java {LEAST_VERSION} or newer is needed", _HOW)
    return java


def find() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH, whether or not it starts.

    Raises:
        MissingTool: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise MissingTool(f"JAVA_HOME is {home!r}, but {java} is not there", _HOW)
        return java
    path = shutil.which("java")
    if path is None:
        raise MissingTool("there is no java in PATH, and JAVA_HOME is not set", _HOW)
    return Path(path)


def parse_version(text: str) -> int | None:
    """Return the major version of `java -version`: 17 of "17.0.15", 8 of "1.8.0_452"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
