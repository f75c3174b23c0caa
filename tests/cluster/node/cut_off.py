"""Relays on a node that is cut off: their names run elsewhere, and they come back as zombies."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.broker.pipeline import wait_until
from tests.cluster.node.machine import FIRST, OTHER
from tests.cluster.node.tools import set_table
from tests.cluster.test_control_plane import NAMESPACE

if TYPE_CHECKING:
    from tests.cluster.node.machine import Machine

Kubectl = Callable[..., str]
ZOMBIES = ("relay-1", "relay-2")
_SECONDS = 180


def run(
    other: Machine,
    kubectl: Kubectl,
    send: Callable[[], None],
    rows_come: Callable[[str], None],
) -> None:
    """Cut the node off with two relays in it, start these elsewhere, and let the first ones back.

    Args:
        other: the node; the first one goes on.
        kubectl: runs it in the relays' namespace.
        send: rows, without waiting for them.
        rows_come: waits until all that were sent are in ClickHouse once, and says after what.

    Raises:
        AssertionError: rows are missing or double, or a zombie is not fenced.
    """
    kubectl("cordon", FIRST.name)
    kubectl("scale", "statefulset", "relay", "--replicas=3")
    kubectl("rollout", "status", "statefulset/relay", f"--timeout={_SECONDS}s")
    send()
    rows_come("with three relays, two of them on another node")
    uids = {pod: field(kubectl, pod, "{.metadata.uid}") for pod in ZOMBIES}
    assert {field(kubectl, pod, "{.spec.nodeName}") for pod in ZOMBIES} == {OTHER.name}
    send()  # so that they have something in their hands
    with _cut_off(other):
        zombies = [process for uid in uids.values() for process in _relays_of(uid)]
        assert len(zombies) == len(ZOMBIES)
        kubectl("uncordon", FIRST.name)
        kubectl("cordon", OTHER.name)
        kubectl("delete", "pod", *ZOMBIES, "--force", "--grace-period=0")
        kubectl("rollout", "status", "statefulset/relay", f"--timeout={_SECONDS}s")
        rows_come("while the node was cut off: both relays run on the first one")
        assert all(one.is_running() for one in zombies), "none has ended of itself"
    _wait_for_the_fence(other, uids, zombies)
    send()
    rows_come("after the zombies came back and were fenced")
    other.signal(signal.SIGCONT)
    kubectl("uncordon", OTHER.name)
    wait_until(other.is_ready, "the node that was cut off", _SECONDS)
    kubectl("scale", "statefulset", "relay", "--replicas=1")
    wait_until(lambda: _are_retired(kubectl), "the retirement of both", _SECONDS)


def _are_retired(kubectl: Kubectl) -> bool:
    """Whether `relay retire`, the README's last step of a scale-down, has nothing against it."""
    members = [word for pod in ZOMBIES for word in ("--member", pod)]
    retire = ("relay", "retire", "/etc/relay/config/relay.toml", *members, "--run")
    try:
        kubectl("exec", "relay-0", "--", *retire)
    except AssertionError:  # they are members until their session ends
        return False
    return True


def field(kubectl: Kubectl, pod: str, path: str) -> str:
    """Return what the API server has of a pod at a JSONPath."""
    return kubectl("get", "pod", pod, "-o", f"jsonpath={path}")


def _relays_of(uid: str) -> Iterator[psutil.Process]:
    """The first process of each container of a pod that runs a relay."""
    for process in psutil.process_iter():
        try:
            groups = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8")
            words = process.cmdline()
        except (psutil.Error, OSError):  # it has ended
            continue
        if uid in groups and "run" in words and _parent_is_a_shim(process):
            yield process


def _parent_is_a_shim(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and parent.name().startswith("containerd-shim")


@contextmanager
def _cut_off(node: Machine) -> Iterator[None]:
    """Nothing of the node, neither kubelet nor pods, reaches anybody; the kubelet stays stopped."""
    node.signal(signal.SIGSTOP)
    of = node.place.pods
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority -10; jump held; }}\n"
        for hook in ("forward", "input", "output")
    )
    set_table("cut", f"chain held {{ ip saddr {of} drop; ip daddr {of} drop; }}\n{chains}")
    try:
        yield
    finally:
        set_table("cut")


def _wait_for_the_fence(
    node: Machine, uids: dict[str, str], zombies: Sequence[psutil.Process]
) -> None:
    """Each has ended, by its own log since somebody else has its name."""
    wait_until(lambda: not any(map(_runs, zombies)), "the end of both zombies", _SECONDS)
    for pod, uid in uids.items():
        log = node.log_of(NAMESPACE, pod, uid, "relay")
        assert "another process" in log, f"{pod} was not fenced: {log[-3000:]}"


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
