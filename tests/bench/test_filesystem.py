"""Which filesystem a directory is on, and when that spoils a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.bench import filesystem


class _Mount(NamedTuple):
    """What psutil says of one."""

    device: str
    mountpoint: str
    fstype: str


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with three filesystems, of which the ext4 "sdb1" alone has a journal."""
    mounts = [
        *(_Mount("/dev/sda1", "/", "ext4"), _Mount("/dev/sdb1", "/data", "ext4")),
        _Mount("/dev/sdc1", "/data/fast", "xfs"),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    (tmp_path / "sdb1-8").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/elsewhere/x", filesystem.NO_JOURNAL),
        ("/data/x", "ext4"),
        ("/data/fast/x", "xfs"),
        ("/datum", filesystem.NO_JOURNAL),
    ],
)
def test_the_innermost_filesystem_counts(journals: Path, directory: str, kind: str) -> None:
    """And an ext4 is one without a journal where the kernel has none of its device."""
    assert filesystem.kind(Path(directory), journals) == kind


def test_an_unknown_place_has_no_kind(journals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container shows no mounts."""
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [])
    assert filesystem.kind(Path("/data/x"), journals) == ""


def test_only_an_ext4_without_a_journal_is_warned_of() -> None:
    """The warning says what to do."""
    assert "TMPDIR" in filesystem.warning(filesystem.NO_JOURNAL)
    assert not any(map(filesystem.warning, ("ext4", "xfs", "overlay", "")))
