"""`python -m tests.cluster up | down`: the control plane, and how to reach it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.cluster import control_plane
from tests.cluster.control_plane import ControlPlane

DIRECTORY = Path.home() / ".cache" / "block-relay" / "cluster" / "running"


def up() -> None:
    """Build it, if it is not there, and start it anew."""
    control_plane.build()
    if (DIRECTORY / "plane.json").exists():
        sys.exit(f"it runs already: export KUBECONFIG={DIRECTORY / 'kubeconfig'}")
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    plane = control_plane.start(DIRECTORY)
    print(f"export KUBECONFIG={plane.kubeconfig}")


def down() -> None:
    """End it; its logs stay until the next start."""
    if not (DIRECTORY / "plane.json").exists():
        sys.exit("it does not run")
    ControlPlane.load(DIRECTORY).end()
    (DIRECTORY / "plane.json").unlink()


if __name__ == "__main__":
    commands = {"up": up, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit("usage: python -m tests.cluster up | down")
    commands[sys.argv[1]]()
