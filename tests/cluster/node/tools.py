"""What a node is made of: the kubelet, from its Go module; containerd and runc, from Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster import control_plane, image_archive

SOURCE = Path(__file__).with_name("program")
CACHE = control_plane.PROGRAM.parent
KUBELET = CACHE / "kubelet"
ROOT = CACHE / "debian"
"""Of Debian's packages, unpacked and not installed."""
CNI = ROOT / "usr" / "lib" / "cni"
PROGRAMS = (ROOT / "usr" / "bin", ROOT / "usr" / "sbin")
"""Directories of containerd, its shim, its client ctr, and runc."""
PAUSE = "registry.example/pause:1"
"""The image of each pod's first container, which only waits."""
_NFT = ROOT / "usr" / "sbin" / "nft"
_LIBRARIES = ROOT / "usr" / "lib" / "x86_64-linux-gnu"
"""That nft wants."""
_PACKAGES = (
    *("containerd", "runc", "containernetworking-plugins", "busybox-static"),
    *("nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libedit2", "libbsd0"),
    "libxtables12",
)


def build() -> None:
    """Make what is not there: some minutes, with Go 1.25 or newer, on Debian."""
    control_plane.build()
    if not KUBELET.exists():
        control_plane.go_build(SOURCE, KUBELET)
    if not ROOT.exists():
        _unpack()


def is_built() -> bool:
    """Whether `build` has nothing to do."""
    return control_plane.PROGRAM.exists() and KUBELET.exists() and ROOT.exists()


def pause(directory: Path) -> Path:
    """Make the archive of PAUSE, and return it."""
    root, archive = directory / "pause", directory / "pause.tar"
    (root / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "busybox", root / "bin" / "busybox")
    image_archive.write(root, PAUSE, {"Entrypoint": ["/bin/busybox", "sleep", "inf"]}, archive)
    return archive


def set_table(name: str, rules: str = "") -> None:
    """Give nftables a table in the place of the one of this name; without rules, take it away."""
    table = f"table ip {name}"
    program = f"{table}\ndelete {table}\n" + (f"{table} {{\n{rules}}}\n" if rules else "")
    libraries = {**os.environ, "LD_LIBRARY_PATH": str(_LIBRARIES)}
    subprocess.run([_NFT, "-f", "-"], input=program, text=True, check=True, env=libraries)


def _unpack() -> None:
    files = CACHE / "packages"
    files.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "--quiet", *_PACKAGES], check=True, cwd=files)
    unpacked = ROOT.with_name("unpacked")
    for package in files.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
    unpacked.rename(ROOT)
