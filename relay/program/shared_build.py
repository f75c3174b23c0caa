"""Build steps of setup.cfg: the package gets a copy of the files that it needs from outside of it.

Receives what setuptools builds. `relay docs` and `relay export` read these files beside the code in
a checkout, and in an installed package in relay/shared, where this copies them;
relay.program.shared_files finds them. setuptools loads this file by itself, without the package.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parents[2]
SHARED = (
    "CHANGELOG.md",
    "README.md",
    "k8s/**/*",
    "tests/README.md",
    "tests/bench/RESULTS.md",
    "tests/chaos/RESULTS.md",
)
"""Files and, with stars, what is in directories; an image is built without some of them."""


class BuildWithShared(build_py):
    """Also copies the files of SHARED; not in an editable installation, which has them."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "relay" / "shared"
        for path in _paths():
            copy = target / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, copy)


class SourceWithShared(sdist):
    """Also packs the files of SHARED, so that a wheel that is built from it has them."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files of the source distribution.

        The list of files is egg_info's own, which asks no method of this class for more.
        """
        shared = (str(path) for path in _paths())
        super().make_release_tree(base_dir, sorted({*files, *shared}))


def _paths() -> Iterator[Path]:
    """The files of SHARED that are here, from the repository's root."""
    for pattern in SHARED:
        for file in sorted(ROOT.glob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT)
