"""Kubeflow's Spark operator, from its Go module: controller and webhook, as processes of the node.

Its chart would run both as pods; they are the same program with the same arguments, and ask the
API server with an administrator's token. The webhook, which gives a driver its volumes and its
security context, is reached by a Service whose address is the node's as well.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster import control_plane
from tests.cluster.node.namespaces import API_SERVER, WEBHOOK
from tests.cluster.test_control_plane import NAMESPACE, kubectl

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane

VERSION = "2.4.0"
PROGRAM = control_plane.PROGRAM.parent / f"spark-operator-{VERSION}"
RESOURCES = PROGRAM.with_name(f"{PROGRAM.name}.yaml")
"""Definitions of what it works on, of the same module."""
_MODULE = f"github.com/kubeflow/spark-operator/v2@v{VERSION}"
_OWN = "spark-operator"
"""Its namespace, and the name of everything of it."""
_PORT = 9443
_HOOKS = {
    "mutate--v1-pod": ("", "v1", "pods"),
    "mutate-sparkoperator-k8s-io-v1beta2-sparkapplication": (
        "sparkoperator.k8s.io",
        "v1beta2",
        "sparkapplications",
    ),
}
"""Paths of the webhook, each with group, version and name of what it is asked about."""


def build() -> None:
    """Make what is not there: some minutes, with Go."""
    if PROGRAM.exists() and RESOURCES.exists():
        return
    words = ["go", "mod", "download", "-json", _MODULE]
    found = subprocess.run(words, check=True, capture_output=True, text=True, cwd="/")
    source = Path(json.loads(found.stdout)["Dir"])
    command = ["nice", "-n", "10", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", PROGRAM]
    subprocess.run([*command, "./cmd/operator"], cwd=source, check=True)
    defined = sorted((source / "config" / "crd" / "bases").glob("*.yaml"))
    RESOURCES.write_text("".join(one.read_text(encoding="utf-8") for one in defined))


def is_built() -> bool:
    """Whether `build` has nothing to do."""
    return PROGRAM.exists() and RESOURCES.exists()


def start(plane: ControlPlane, directory: Path) -> None:
    """Start it; it ends with the namespaces.

    Args:
        plane: whose SparkApplications it submits.
        directory: of its files.

    Raises:
        AssertionError: the API server refuses what it needs.
    """
    _apply(plane, RESOURCES.read_text(encoding="utf-8"))
    established = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    done = kubectl(plane, *established)
    assert done.returncode == 0, done.stdout + done.stderr
    # Into the Secret, empty here, the webhook writes the certificate that it makes.
    metadata = {"name": _OWN, "namespace": _OWN}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _OWN}}
    ports = {"clusterIP": WEBHOOK, "ports": [{"port": _PORT}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    for one in (namespace, service, secret, _hooks()):
        _apply(plane, json.dumps(one))
    own = ("--leader-election=false", f"--namespaces={NAMESPACE}", "--metrics-bind-address=0")
    _run(plane, directory, "controller", *own, "--health-probe-bind-address=:8181")
    _run(
        plane,
        directory,
        "webhook",
        *own,
        "--health-probe-bind-address=:8182",
        f"--webhook-cert-dir={directory}",
        f"--webhook-port={_PORT}",
        f"--mutating-webhook-name={_OWN}",
        f"--webhook-secret-name={_OWN}",
        f"--webhook-secret-namespace={_OWN}",
        f"--webhook-svc-name={_OWN}",
        f"--webhook-svc-namespace={_OWN}",
    )


def has_its_authority(plane: ControlPlane) -> bool:
    """Whether the API server knows by which authority to believe the webhook."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    hooks = plane.ask("GET", f"{path}/{_OWN}")["webhooks"]
    return all(one["clientConfig"].get("caBundle") for one in hooks)


def _hooks() -> dict[str, Any]:
    launched = {"matchLabels": {"sparkoperator.k8s.io/launched-by-spark-operator": "true"}}
    within = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": _OWN},
        "webhooks": [
            {
                "name": f"{name}.sparkoperator.k8s.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {
                        "name": _OWN,
                        "namespace": _OWN,
                        "port": _PORT,
                        "path": f"/{path}",
                    }
                },
                "sideEffects": "NoneOnDryRun",
                "namespaceSelector": within,
                **({"objectSelector": launched} if name == "pods" else {}),
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "resources": [name],
                        "operations": ["CREATE", "UPDATE"][: 1 if name == "pods" else 2],
                    }
                ],
            }
            for path, (group, version, name) in _HOOKS.items()
        ],
    }


def _apply(plane: ControlPlane, text: str) -> None:
    done = kubectl(plane, "--namespace", _OWN, "apply", "--server-side", "-f", "-", given=text)
    assert done.returncode == 0, done.stdout + done.stderr


def _run(plane: ControlPlane, directory: Path, part: str, *arguments: str) -> None:
    spark = find_spec("pyspark")
    assert spark is not None, "pyspark is not installed"
    assert spark.origin is not None
    # It submits by Spark's own program, to the address that pods are given.
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "SPARK_HOME": str(Path(spark.origin).parent),
        "KUBERNETES_SERVICE_HOST": API_SERVER,
        "KUBERNETES_SERVICE_PORT": str(control_plane.SERVICE_PORT),
    }
    with (directory / f"{part}.log").open("wb") as log:
        subprocess.Popen(
            [PROGRAM, part, "start", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
