"""Which filesystem a bench's servers write to, and whether deleted files make it slow.

Receives a directory, gives the filesystem's kind and a warning. Never writes.
"""

from __future__ import annotations

from pathlib import Path

import psutil

JOURNALS = Path("/proc/fs/jbd2")
"""Has an entry for each journal of an ext4, which is named by the device, a dash and a number."""
NO_JOURNAL = "ext4 without a journal"
"""It uses no inode again for one minute, or for five where its table is not written yet
(`recently_deleted` in Linux' fs/ext4/ialloc.c)."""


def kind(directory: Path, journals: Path = JOURNALS) -> str:
    """Return the type of the filesystem that has the directory; NO_JOURNAL of such an ext4.

    "": the system does not say.
    """
    place = directory.resolve()
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if place.is_relative_to(mount.mountpoint)
    ]
    if not mounts:
        return ""
    mount = max(mounts, key=lambda one: len(Path(one.mountpoint).parts))
    device = Path(mount.device).resolve().name
    if mount.fstype == "ext4" and not any(journals.glob(f"{device}-*")):
        return NO_JOURNAL
    return str(mount.fstype)


def warning(kind: str) -> str:
    """Return what spoils a measurement on a filesystem of this kind; "": nothing known."""
    if kind != NO_JOURNAL:
        return ""
    return (
        "warning: the servers write to an ext4 without a journal, which leaves inodes of deleted "
        "files unused for up to five minutes: whoever creates a file walks past them all. After "
        "another bench, ClickHouse takes up to half as much processor time again. Set TMPDIR to a "
        "directory on ext4 with a journal."
    )
