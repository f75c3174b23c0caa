"""The Helm chart on a real API server: installed, upgraded, stopped by the doctor, rolled back."""

from __future__ import annotations

import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.pipeline import wait_until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import Kubelet
from tests.k8s.built import K8S, KUBECTL
from tests.k8s.chart import helm, made

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    helm.needs_helm,
]
NAMESPACE = "charted"
EMPTY = "uncharted"
"""Where nothing is: a Job, such as the doctor's, cannot be applied over one that is there."""
RELAY = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/relay"
WITHIN = f"/api/v1/namespaces/{NAMESPACE}"


@pytest.fixture(scope="module")
def kubelet(plane: ControlPlane) -> Iterator[Kubelet]:
    """With the labels of k8s/namespace on the namespace, and the Secrets that a person makes."""
    text = (K8S / "namespace" / "namespace.yaml").read_text(encoding="utf-8")
    labels = yaml.safe_load(text)["metadata"]["labels"]
    namespace = {"metadata": {"name": NAMESPACE, "labels": labels}}
    plane.ask("POST", "/api/v1/namespaces", namespace)
    for role in ("relay", "loader", "verifier"):
        plane.ask("POST", f"{WITHIN}/secrets", {"metadata": {"name": f"{role}-passwords"}})
    with Kubelet(plane, NAMESPACE) as played:
        yield played


class Release:
    """One of the chart.

    Args:
        plane: where.
        home: of Helm.
    """

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self._plane, self._home = plane, home
        self._words = ("--namespace", NAMESPACE, "--kubeconfig", plane.kubeconfig)

    def run(self, verb: str, *words: str | Path, **values: Any) -> subprocess.CompletedProcess[str]:
        chart = (made.CHART, "--values", "-") if verb in {"install", "upgrade"} else ()
        return helm.run(
            *(verb, "block-relay", *chart, *words, *self._words),
            home=self._home,
            given=yaml.safe_dump(values) if chart else None,
        )

    def image(self) -> str:
        """Of the relays, as the StatefulSet has it."""
        template = self._plane.ask("GET", RELAY)["spec"]["template"]["spec"]
        return str(template["containers"][0]["image"])

    def config(self) -> str:
        """What the relays' configuration says."""
        volumes = self._plane.ask("GET", RELAY)["spec"]["template"]["spec"]["volumes"]
        (name,) = [one["configMap"]["name"] for one in volumes if "configMap" in one]
        return str(self._plane.ask("GET", f"{WITHIN}/configmaps/{name}")["data"]["relay.toml"])

    def running(self, image: str) -> bool:
        """Whether relay-0 runs with this image, and the driver runs."""
        pods = self._plane.ask("GET", f"{WITHIN}/pods")["items"]
        found = {
            one["metadata"]["name"]: one["spec"]["containers"][0]["image"]
            for one in pods
            if one["status"].get("phase") == "Running"
        }
        return found.get("relay-0") == image and "loader-0" in found


def images(version: str) -> dict[str, str]:
    return {"relay": f"x/relay:{version}", "loader": f"x/loader:{version}"}


def test_it_is_installed_upgraded_and_rolled_back(
    plane: ControlPlane, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The version before, this one with another setting, one that the doctor refuses, and back."""
    release = Release(plane, tmp_path)
    done = release.run("install", images=images("1"))
    assert done.returncode == 0, done.stderr
    assert "PodSecurity" not in done.stderr, "a warning of admission"
    wait_until(lambda: release.running("x/relay:1"), "the pods", 60)

    changed = {"images": images("2"), "tls": {"authority": "ca.crt"}}
    done = release.run("upgrade", **changed)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: release.running("x/relay:2"), "the pods of the next version", 60)
    assert "ssl.ca.location" in release.config()

    kubelet.jobs_end = "Failed"
    done = release.run("upgrade", "--timeout", "120s", images=images("3"))
    kubelet.jobs_end = "Succeeded"
    assert done.returncode != 0
    assert "pre-upgrade hooks failed" in done.stderr
    assert release.image() == "x/relay:2", "nothing else was applied"
    assert "ssl.ca.location" in release.config()

    done = release.run("upgrade", images=images("3"))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: release.running("x/relay:3"), "the pods after a failed upgrade", 60)
    assert "ssl.ca.location" not in release.config()

    done = release.run("rollback", "2")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: release.running("x/relay:2"), "the pods of the version before", 60)
    assert "ssl.ca.location" in release.config()

    assert release.run("uninstall").returncode == 0
    with pytest.raises(urllib.error.HTTPError, match="404"):
        plane.ask("GET", RELAY)


def test_the_api_server_takes_every_object(plane: ControlPlane, tmp_path: Path) -> None:
    """Of the large values, too: fields that it does not know are refused."""
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": EMPTY}})
    large = ("--values", made.CHART / "values-large.yaml")
    rendered = helm.rendered(made.CHART, tmp_path, "--namespace", EMPTY, *large)
    words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    for broken in (False, True):
        if broken:
            rendered[-1]["spec"] = {**rendered[-1].get("spec", {}), "nosuch": 1}
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", plane.kubeconfig, *words],
            input=yaml.safe_dump_all(rendered),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is broken, done.stderr
