"""Copies into the package what an installed one needs from outside of it; setup.cfg has the rest.

`relay docs` and `relay export` read these files beside the code in a checkout, and in an installed
package where they are copied to, relay/shared; relay/program/shared_files.py finds them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHARED = (
    "CHANGELOG.md",
    "README.md",
    "k8s/**/*",
    "tests/README.md",
    "tests/bench/RESULTS.md",
    "tests/chaos/RESULTS.md",
)
"""Files and, with stars, what is in directories."""


class BuildWithShared(build_py):
    """Also copies the files of SHARED; not in an editable installation, which has them."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "relay" / "shared"
        for file in (file for pattern in SHARED for file in ROOT.glob(pattern) if file.is_file()):
            copy = target / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


setup(cmdclass={"build_py": BuildWithShared})
