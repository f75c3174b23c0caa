"""API server, etcd and controllers of a Kubernetes of its own, on loopback."""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from relay.dev.layout import HOST, free_ports

VERSION = "1.35.4"
SOURCE = Path(__file__).with_name("plane")
PROGRAM = Path.home() / ".cache" / "block-relay" / "cluster" / "control-plane"
SERVICE_PORT = 443
"""Of the Service `kubernetes`."""
_STAMP = "k8s.io/component-base/version"
_ENDS_SECONDS = 20.0


class ClusterError(Exception):
    """It could not be built, started or asked."""


def build() -> None:
    """Make PROGRAM, if it is not there: some minutes, with Go 1.25 or newer."""
    if not PROGRAM.exists():
        go_build(SOURCE, PROGRAM)


def go_build(source: Path, program: Path) -> None:
    """Build a program of Kubernetes' modules, which says VERSION of itself."""
    program.parent.mkdir(parents=True, exist_ok=True)
    major, minor, _ = VERSION.split(".")
    flags = f"-s -w -X {_STAMP}.gitVersion=v{VERSION}"
    flags += f" -X {_STAMP}.gitMajor={major} -X {_STAMP}.gitMinor={minor}"
    command = ["nice", "-n", "10", "go", "build", "-trimpath", "-ldflags", flags, "-o"]
    subprocess.run([*command, program, "."], cwd=source, check=True)


@dataclass
class ControlPlane:
    """One that runs.

    Attributes:
        directory: of its keys, data and logs.
        url: of the API server.
        token: of a user who may do everything.
        processes: theirs, with what tells them from others of the same number.
    """

    directory: Path
    url: str
    token: str
    processes: list[tuple[int, float]] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        """For kubectl, as that user."""
        return self.directory / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate that signed the API server's."""
        return self.directory / "ca.crt"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        kind: str = "application/merge-patch+json",
    ) -> Any:
        """The API server's answer.

        Raises:
            urllib.error.HTTPError: it refuses.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", kind if method == "PATCH" else "application/json")
        context = ssl.create_default_context(cafile=str(self.authority))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.load(answer)

    def save(self) -> None:
        """Write down what `load` needs."""
        kept = {"url": self.url, "token": self.token, "processes": self.processes}
        (self.directory / "plane.json").write_text(json.dumps(kept), encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> ControlPlane:
        """One that `save` wrote down."""
        kept = json.loads((directory / "plane.json").read_text(encoding="utf-8"))
        found = [(pid, created) for pid, created in kept["processes"]]
        return cls(directory, kept["url"], kept["token"], found)

    def end(self) -> None:
        """End its processes, and no others."""
        alive = []
        for pid, created in reversed(self.processes):
            try:
                process = psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue
            if process.create_time() == created:
                process.terminate()
                alive.append(process)
        for process in psutil.wait_procs(alive, timeout=_ENDS_SECONDS)[1]:
            process.kill()


def start(directory: Path, node: str = "", service: str = "") -> ControlPlane:
    """Start one in an empty directory, and wait until it answers.

    Args:
        directory: of its keys, data and logs.
        node: address of a node, with which there is a scheduler; "": there is none.
        service: address of the Service `kubernetes`, by which the node's pods reach it.

    Raises:
        ClusterError: a program ended, or nothing answers; its log says why.
    """
    directory.mkdir(parents=True, exist_ok=True)
    client, peer, port = free_ports(3)
    port = SERVICE_PORT if node else port
    plane = ControlPlane(directory, f"https://{HOST}:{port}", secrets.token_hex(16))
    _write_keys(plane, *filter(None, (node, service)))
    _write_kubeconfig(plane)
    try:
        _run(plane, "etcd", *_etcd(directory, client, peer))
        _run(plane, "kube-apiserver", *_api_server(directory, client, port, node))
        _wait(plane)
        _run(plane, "kube-controller-manager", *_controllers(directory))
        if node:
            _run(plane, "kube-scheduler", *_scheduler(directory))
    except BaseException:
        plane.end()
        raise
    plane.save()
    return plane


def _write_keys(plane: ControlPlane, *addresses: str) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(plane.authority)
    server = authority.issue_cert(HOST, "kubernetes.default.svc", *addresses)
    server.private_key_and_cert_chain_pem.write_to_path(plane.directory / "server.pem")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (plane.directory / "accounts.key").write_bytes(pem)
    users = f'{plane.token},admin,admin,"system:masters"\n'
    (plane.directory / "tokens.csv").write_text(users, encoding="utf-8")


def _write_kubeconfig(plane: ControlPlane) -> None:
    cluster = {"server": plane.url, "certificate-authority": str(plane.authority)}
    context = {"cluster": "it", "user": "admin"}
    given = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": plane.token}}],
        "contexts": [{"name": "it", "context": context}],
        "current-context": "it",
    }
    plane.kubeconfig.write_text(yaml.safe_dump(given), encoding="utf-8")


def _etcd(directory: Path, client: int, peer: int) -> list[str]:
    here = f"http://{HOST}:{client}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls=http://{HOST}:{peer}",
        "--unsafe-no-fsync",
    ]


def _api_server(directory: Path, etcd: int, port: int, node: str) -> list[str]:
    return [
        f"--etcd-servers=http://{HOST}:{etcd}",
        f"--bind-address={'0.0.0.0' if node else HOST}",
        f"--advertise-address={node or HOST}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--secure-port={port}",
        f"--tls-cert-file={directory / 'server.pem'}",
        f"--tls-private-key-file={directory / 'server.pem'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={directory / 'accounts.key'}",
        f"--service-account-signing-key-file={directory / 'accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
    ]


def _controllers(directory: Path) -> list[str]:
    return [
        f"--kubeconfig={directory / 'kubeconfig'}",
        f"--service-account-private-key-file={directory / 'accounts.key'}",
        f"--root-ca-file={directory / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def _scheduler(directory: Path) -> list[str]:
    return [
        f"--kubeconfig={directory / 'kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def _run(plane: ControlPlane, name: str, *arguments: str) -> None:
    with (plane.directory / f"{name}.log").open("wb") as log:
        process = psutil.Popen(
            [str(PROGRAM), name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "GOMAXPROCS": "2"},
        )
    plane.processes.append((process.pid, process.create_time()))


def _wait(plane: ControlPlane, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            plane.ask("GET", "/api/v1/namespaces/default")
        except OSError as error:
            why = error
        else:
            return
        dead = [pid for pid, _ in plane.processes if not psutil.pid_exists(pid)]
        if dead or time.monotonic() > end:
            log = plane.directory / "kube-apiserver.log"
            raise ClusterError(f"the API server does not answer: {why}; see {log}")
        time.sleep(0.2)
