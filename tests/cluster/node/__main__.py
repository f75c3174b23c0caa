"""`python -m tests.cluster.node DIRECTORY`: makes what is missing, and walks (`rows`)."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster import image
from tests.cluster.node import machine, namespaces, spark_operator, tools

SECONDS = 1_800.0


def walk(directory: Path, seconds: float = SECONDS) -> int:
    """The exit status of `rows`, in namespaces of its own."""
    command = (sys.executable, "-m", "tests.cluster.node.rows", directory)
    try:
        return namespaces.run(command, seconds)
    finally:
        machine.remove_groups()


def what_is_missing() -> str:
    """What keeps this machine from it; "": nothing."""
    if not namespaces.is_possible():
        return "namespaces, mounts and chroots want root"
    if not (tools.is_built() and spark_operator.is_built()):
        return "there is no node: python -m tests.cluster.node DIRECTORY builds it, in minutes"
    if not all(image.archive(name).exists() for name in image.IMAGES):
        return "there are no images: python -m tests.cluster.image builds them, in minutes"
    return ""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.cluster.node DIRECTORY")
    tools.build()
    spark_operator.build()
    if missing := what_is_missing():
        sys.exit(missing)
    sys.exit(walk(Path(sys.argv[1])))
