"""Namespaces of network, mounts and processes, in which a node's addresses are no other's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = "10.99.0.1"
"""The node's address, of which pods know."""
API_SERVER = "10.96.0.1"
"""Of the Service `kubernetes`: the first of the control plane's range of Services. It is the node's
as well, since there is no proxy that would translate it."""
DNS = "10.96.0.10"
WEBHOOK = "10.96.0.20"
"""Of the Service of the Spark operator's webhook, likewise."""
OTHER_NODE = "10.99.0.2"
"""Of the node that is cut off."""
_GATEWAY = "10.99.0.254"
"""Nobody; the default route that the kubelet looks for leads there."""
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""As the kubelet wants them, else it changes the whole machine's: it is shown these files."""


def run(command: Sequence[str | Path], seconds: float) -> int:
    """Run a command in new namespaces, return its status; with it, whatever it started ends.

    Raises:
        subprocess.TimeoutExpired: after so many seconds.
    """
    separate = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    words = ["unshare", *separate, *map(str, command)]
    return subprocess.run(words, timeout=seconds, check=False).returncode


def furnish(directory: Path) -> None:
    """Give the network its addresses and names, and the kubelet what it looks for in /proc/sys."""
    _sh("mount", "--make-rprivate", "/")
    resolver = directory / "resolv.conf"
    # Kafka's broker asks for each client's name; the machine's resolver is not in this network.
    resolver.write_text(f"nameserver {DNS}\n", encoding="utf-8")
    _sh("mount", "--bind", resolver, "/etc/resolv.conf")
    for name, value in _KERNEL.items():
        there = Path("/proc/sys", name)
        if there.exists():
            shown = directory / name.replace("/", "-")
            shown.write_text(f"{value}\n", encoding="utf-8")
            _sh("mount", "--bind", shown, there)
    _sh("ip", "link", "set", "lo", "up")
    _sh("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    _sh("ip", "addr", "add", f"{NODE}/24", "dev", "node0")
    for address in (OTHER_NODE, API_SERVER, DNS, WEBHOOK):
        _sh("ip", "addr", "add", f"{address}/32", "dev", "node0")
    for end in ("node0", "node1"):
        _sh("ip", "link", "set", end, "up")
    _sh("ip", "route", "add", "default", "via", _GATEWAY, "dev", "node0", "onlink")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="utf-8")


def is_possible() -> bool:
    """Whether this user may have namespaces, chroots and mounts."""
    return os.geteuid() == 0


def _sh(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)
