"""The manifests on a real API server with real controllers; a program plays the kubelet."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loader.spark.leftovers import Api, remove
from tests.broker.pipeline import wait_until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import BROKEN, Kubelet
from tests.k8s.built import K8S, KUBECTL, config_map, overlay
from tests.k8s.test_own_overlay import TOML, own

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
]
NAMESPACE = "block-relay"
WITHIN = f"/api/v1/namespaces/{NAMESPACE}"
ROLES = ("relay", "loader", "verifier")


@pytest.fixture(scope="module")
def kubelet(plane: ControlPlane) -> Iterator[Kubelet]:
    with Kubelet(plane, NAMESPACE) as made:
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for role in ROLES:
            plane.ask("POST", f"{WITHIN}/secrets", {"metadata": {"name": f"{role}-passwords"}})
        yield made


def kubectl(plane: ControlPlane, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KUBECTL, "--kubeconfig", plane.kubeconfig, "--namespace", NAMESPACE, *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def roll_out(
    plane: ControlPlane, directory: Path = K8S / "overlays" / "small", seconds: int = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [K8S / "roll-out.sh", directory],
        env={
            "PATH": "/usr/bin:/bin",
            "KUBECTL": str(KUBECTL),
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(plane.directory),  # kubectl keeps what it asked there
            "ROLL_OUT_SECONDS": str(seconds),
        },
        capture_output=True,
        text=True,
        timeout=seconds + 340,  # the doctor's are 330
        check=False,
    )


def pods(plane: ControlPlane) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in plane.ask("GET", f"{WITHIN}/pods")["items"]}


def test_it_rolls_out_twice_and_after_a_failed_one(plane: ControlPlane, kubelet: Kubelet) -> None:
    """The doctor's Job is made anew each time; a failed one stops it."""
    for ends, status in (("Succeeded", 0), ("Succeeded", 0), ("Failed", 1), ("Succeeded", 0)):
        kubelet.jobs_end = ends
        done = roll_out(plane)
        assert done.returncode == status, done.stdout + done.stderr
        if status:
            assert "the doctor failed; nothing else was applied" in done.stderr
        assert "PodSecurity" not in done.stderr, "a warning of admission"
    assert {"relay-0", "loader-0"} <= pods(plane).keys()


def test_an_overlay_outside_the_checkout_rolls_out(
    plane: ControlPlane, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The README's: its own configuration, and nothing changed in the checkout."""
    kubelet.jobs_end = "Succeeded"
    done = roll_out(plane, own(tmp_path))
    assert done.returncode == 0, done.stderr
    maps = plane.ask("GET", f"{WITHIN}/configmaps")["items"]
    assert TOML in {one.get("data", {}).get("relay.toml") for one in maps}


def test_a_job_that_stays_cannot_be_changed(plane: ControlPlane, kubelet: Kubelet) -> None:
    """Negative control of the server: by this the second roll-out failed."""
    kubelet.jobs_end = "Succeeded"
    assert roll_out(plane).returncode == 0
    patch = '{"spec": {"template": {"spec": {"serviceAccountName": "relay"}}}}'
    done = kubectl(plane, "patch", "job", "doctor", "--patch", patch)
    assert "field is immutable" in done.stderr


def relay_of(name: str, image: str, policy: str) -> str:
    """The relay's StatefulSet, with two pods and a name of its own, as YAML.

    It is no part of block-relay, for whose parts a roll-out waits, and runs under the namespace's
    own account, since the relay's is there only after a roll-out.
    """
    (found,) = [
        json.loads(json.dumps(one))
        for one in overlay("small")
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "relay"
    ]
    labels = {"app.kubernetes.io/name": name}
    found["metadata"] = {"name": name, "labels": labels}
    spec = {"replicas": 2, "podManagementPolicy": policy, "minReadySeconds": 0, "serviceName": name}
    found["spec"] |= {**spec, "selector": {"matchLabels": labels}}
    found["spec"]["template"]["metadata"]["labels"] = labels
    del found["spec"]["template"]["spec"]["serviceAccountName"]
    found["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return yaml.safe_dump(found)


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize(("policy", "mended"), [("Parallel", True), ("OrderedReady", False)])
def test_a_broken_roll_out_is_mended_by_the_next(
    plane: ControlPlane, policy: str, *, mended: bool
) -> None:
    """OrderedReady, as the manifests had it, waits for ever for the pod that cannot run."""
    name = f"of-{policy.lower()}"
    first, broken, third = "x/relay:1", f"x/{BROKEN}:2", "x/relay:3"

    def there() -> dict[str, tuple[str, str]]:
        """Image and phase of each of its pods; one that is being replaced is missing."""
        return {
            pod.removeprefix(f"{name}-"): (
                one["spec"]["containers"][0]["image"],
                one["status"]["phase"],
            )
            for pod, one in pods(plane).items()
            if pod.startswith(f"{name}-")
        }

    def rolled(image: str) -> None:
        done = kubectl(plane, "apply", "-f", "-", given=relay_of(name, image, policy))
        assert done.returncode == 0, done.stderr

    try:
        rolled(first)
        wait_until(lambda: there() == dict.fromkeys("01", (first, "Running")), "both pods", 60)
        rolled(broken)
        stuck = {"0": (first, "Running"), "1": (broken, "Pending")}
        wait_until(lambda: there() == stuck, "the broken pod, one at a time", 60)
        rolled(third)
        status = kubectl(plane, "rollout", "status", f"statefulset/{name}", "--timeout=25s")
        assert (status.returncode == 0) is mended, status.stdout + status.stderr
        assert there() == (dict.fromkeys("01", (third, "Running")) if mended else stuck)
    finally:
        kubectl(plane, "delete", "statefulset", name, "--cascade=foreground")


def evicted(plane: ControlPlane, pod: str) -> int:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    try:
        plane.ask("POST", f"{WITHIN}/pods/{pod}/eviction?dryRun=All", body)
    except urllib.error.HTTPError as error:
        return error.code
    return 201


@pytest.mark.usefixtures("kubelet")
def test_a_relay_that_is_not_ready_may_be_evicted(plane: ControlPlane) -> None:
    """So a node drains; red where the budget says nothing of it."""
    assert roll_out(plane).returncode == 0
    kubectl(plane, "scale", "statefulset", "relay", "--replicas=3")
    wait_until(lambda: {"relay-1", "relay-2"} <= pods(plane).keys(), "three relays", 60)
    budget = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/relay"
    allowed = lambda: plane.ask("GET", budget)["status"]["disruptionsAllowed"]  # noqa: E731
    wait_until(lambda: allowed() == 1, "a budget of one", 60)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    for pod in ("relay-1", "relay-2"):
        plane.ask("PATCH", f"{WITHIN}/pods/{pod}/status", unready)
    wait_until(lambda: allowed() == 0, "none is left", 60)
    assert evicted(plane, "relay-1") == 201
    assert evicted(plane, "relay-0") == 429, "negative control: a ready one is kept"
    plane.ask("PATCH", budget, {"spec": {"unhealthyPodEvictionPolicy": None}})
    wait_until(lambda: evicted(plane, "relay-1") == 429, "the refusal of before", 60)
    kubectl(plane, "scale", "statefulset", "relay", "--replicas=1")


@pytest.mark.usefixtures("kubelet")
def test_the_loaders_rights_are_enough_and_no_more(plane: ControlPlane) -> None:
    """With its own token: executors from the template are admitted, what a killed driver left
    behind is removed; Secrets and other accounts are refused."""
    assert roll_out(plane).returncode == 0
    wait_until(lambda: "loader-0" in pods(plane), "the driver", 60)
    driver = pods(plane)["loader-0"]["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "loader-0", "uid": driver}
    labels = {"spark-role": "executor", "spark-app-selector": "of-before"}
    template = yaml.safe_load(config_map(overlay("small"), "executor-pod.yaml"))
    template["metadata"] |= {"name": "exec-1", "ownerReferences": [owner]}
    template["metadata"]["labels"] |= labels
    template["spec"]["containers"][0]["image"] = "x/loader:1"
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "spark-exec-1"}}
    settings["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    loader = f"--as=system:serviceaccount:{NAMESPACE}:loader"
    for one in (template, settings):
        done = kubectl(plane, "create", loader, "-f", "-", given=yaml.safe_dump(one))
        assert done.returncode == 0, done.stderr
    token = kubectl(plane, "create", "token", "loader").stdout.strip()
    api = Api(plane.url, token, ssl.create_default_context(cafile=str(plane.authority)))
    assert remove(api, NAMESPACE, "loader-0") == ["pods/exec-1", "configmaps/spark-exec-1"]
    assert remove(api, NAMESPACE, "loader-0") == []
    with pytest.raises(urllib.error.HTTPError, match="403"):
        api.ask("GET", f"{WITHIN}/secrets")
    other = kubectl(plane, "create", "token", "relay").stdout.strip()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        remove(Api(plane.url, other, api.context), NAMESPACE, "loader-0")


@pytest.mark.usefixtures("kubelet")
def test_a_pod_that_may_become_root_is_not_admitted(plane: ControlPlane) -> None:
    assert roll_out(plane).returncode == 0
    spec = {"containers": [{"name": "x", "image": "x"}]}
    with pytest.raises(urllib.error.HTTPError) as caught:
        plane.ask("POST", f"{WITHIN}/pods", {"metadata": {"name": "x"}, "spec": spec})
    assert "violates PodSecurity" in caught.value.read().decode()
