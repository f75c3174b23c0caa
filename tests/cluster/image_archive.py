"""A directory of files as an image that container engines load (`docker save`'s format)."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def write(
    root: Path, name: str, config: Mapping[str, object], to: Path, without: Sequence[str] = ()
) -> None:
    """Write it, with all files in one layer.

    Args:
        root: its files.
        name: with its tag.
        config: User, Env, Entrypoint, Cmd and WorkingDir, as images have them.
        to: the archive.
        without: directories of `root` that it does not get.
    """
    layer = to.with_suffix(".layer")
    left_out = [f"--exclude=./{one}" for one in without]
    words = ["tar", "-C", root, "--numeric-owner", *left_out, "-cf", layer, "."]
    subprocess.run([str(word) for word in words], check=True)
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(to, "w") as archive:
        _add(archive, "manifest.json", manifest)
        _add(archive, "config.json", described)
        archive.add(layer, "layer.tar")
    layer.unlink()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, value: object) -> None:
    data = json.dumps(value).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
