"""Containerd and a kubelet beside a control plane, in namespaces that are the nodes' alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.cluster.control_plane import ClusterError, ControlPlane
from tests.cluster.node.names import DOMAIN
from tests.cluster.node.namespaces import DNS, NODE, OTHER_NODE
from tests.cluster.node.tools import CNI, KUBELET, PAUSE, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

READY_SECONDS = 120.0
_GROUPS = Path("/sys/fs/cgroup")


class Place(NamedTuple):
    """What tells one node from the other.

    Attributes:
        name: of the node.
        address: of its kubelet.
        pods: its pods' addresses.
        port: of its kubelet.
    """

    name: str
    address: str
    pods: str
    port: int

    def groups(self) -> list[Path]:
        """Return its own control groups, beneath which its kubelet keeps those of its pods."""
        name = f"block-relay-{self.name}"
        return [one / name for one in _GROUPS.iterdir() if (one / "cgroup.procs").exists()]


FIRST = Place("node-a", NODE, "10.98.0.0/24", 10250)
OTHER = Place("node-b", OTHER_NODE, "10.98.1.0/24", 10251)


def remove_groups() -> None:
    """Remove the control groups of nodes that are no more."""
    for place in (FIRST, OTHER):
        for group in place.groups():
            for directory, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    Path(directory).rmdir()


class Machine:
    """The node's programs.

    Args:
        directory: of their files, empty.
        plane: that it belongs to.
        place: which node it is.
    """

    def __init__(self, directory: Path, plane: ControlPlane, place: Place) -> None:
        self._directory, self._plane, self.place = directory, plane, place
        self._socket = directory / "containerd.sock"
        self._kubelet: subprocess.Popen[bytes] | None = None

    def start(self, images: Iterable[Path]) -> None:
        """Start containerd, give it these archives of images, and start the kubelet.

        Raises:
            ClusterError: one does not come up; its log says why.
        """
        for group in self.place.groups():
            group.mkdir(exist_ok=True)
        self._write_network()
        containerd = self._run("containerd", "--config", self._write_containerd())
        self._wait(self._socket.exists, containerd, "containerd")
        for archive in images:
            self._import(archive)
        self._kubelet = self._run(
            KUBELET,
            *("--config", self._write_kubelet(), "--kubeconfig", self._plane.kubeconfig),
            *("--node-ip", self.place.address, "--hostname-override", self.place.name),
            *("--root-dir", self._directory / "kubelet"),
        )
        self._wait(self.is_ready, self._kubelet, "kubelet")

    def signal(self, number: signal.Signals) -> None:
        """Send the kubelet a signal: its containers go on without it."""
        assert self._kubelet is not None, "it was not started"
        self._kubelet.send_signal(number)

    def log_of(self, namespace: str, pod: str, uid: str, container: str) -> str:
        """Return what a container of the node has printed."""
        logs = self._directory / "pod-logs" / f"{namespace}_{pod}_{uid}" / container
        return "".join(one.read_text(encoding="utf-8") for one in sorted(logs.glob("*.log")))

    def _import(self, archive: Path) -> None:
        ctr = ("ctr", "--address", self._socket, "--namespace", "k8s.io", "images", "import")
        subprocess.run([str(w) for w in (*ctr, archive)], check=True, env=_environment())

    def is_ready(self) -> bool:
        """Whether the API server knows of it that pods may run."""
        try:
            node = self._plane.ask("GET", f"/api/v1/nodes/{self.place.name}")
        except OSError:  # not registered yet
            return False
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions.get("Ready") == "True"

    def _wait(self, ready: Callable[[], bool], of: subprocess.Popen[bytes], name: str) -> None:
        end = time.monotonic() + READY_SECONDS
        while not ready():
            if of.poll() is not None or time.monotonic() > end:
                raise ClusterError(f"no {name}; see {self._log(name)}")
            time.sleep(0.1)

    def _run(self, program: str | Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
        with self._log(Path(program).name).open("wb") as log:
            return subprocess.Popen(
                [str(word) for word in (program, *arguments)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _write_network(self) -> None:
        ranges = [[{"subnet": self.place.pods}]]
        addresses = {
            "type": "host-local",
            "dataDir": str(self._directory / "addresses"),
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
        given = {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}
        (self._directory / "network").mkdir()
        (self._directory / "network" / "10-pods.conflist").write_text(json.dumps(given))

    def _write_containerd(self) -> Path:
        cri = "plugins.'io.containerd.grpc.v1.cri'"
        path = self._directory / "containerd.toml"
        path.write_text(
            f"""version = 2
root = "{self._directory}/containerd"
state = "{self._directory}/containerd-state"
[grpc]
address = "{self._socket}"
[{cri}]
restrict_oom_score_adj = true
disable_apparmor = true
sandbox_image = "{PAUSE}"
[{cri}.cni]
bin_dir = "{CNI}"
conf_dir = "{self._directory}/network"
[{cri}.containerd]
default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
""",
            encoding="utf-8",
        )
        return path

    def _write_kubelet(self) -> Path:
        given: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "port": self.place.port,
            "healthzPort": 0,
            "cgroupRoot": f"/block-relay-{self.place.name}",
            "clusterDNS": [DNS],
            "clusterDomain": DOMAIN,
            "podLogsDir": str(self._directory / "pod-logs"),
            # Of the machine's processors and memory nothing is kept back, and how full its disk is
            # is not the test's affair.
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            # These machines have version 1 of control groups, and no systemd.
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # Nobody but this test reaches the node.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
        }
        path = self._directory / "kubelet.json"
        path.write_text(json.dumps(given), encoding="utf-8")
        return path


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": ":".join([*map(str, PROGRAMS), os.environ["PATH"]])}
