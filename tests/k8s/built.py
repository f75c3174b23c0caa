"""What `kubectl kustomize` makes of an overlay, and the pods and containers in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
COMPONENTS = ("monitoring", "spark-operator")
OVERLAYS = ("small", "large")
KUBECTL = Path(sys.executable).parent / "kubectl"

Manifest = dict[str, Any]
_TEMPLATES = {"StatefulSet", "Deployment", "Job"}


class Pod(NamedTuple):
    """A pod that somebody will start.

    Attributes:
        name: `kind/name` of who starts it.
        spec: its own.
        labels: its own.
    """

    name: str
    spec: Manifest
    labels: dict[str, str]


def kustomized(directory: Path) -> list[Manifest]:
    """All objects, as the real tool builds them."""
    done = subprocess.run(
        [KUBECTL, "kustomize", directory], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


@cache
def overlay(name: str) -> list[Manifest]:
    """Of k8s/overlays; tests that change it work on a copy."""
    return kustomized(K8S / "overlays" / name)


def with_components(directory: Path, *names: str) -> list[Manifest]:
    """The small overlay with components, as a user would write it."""
    copy = directory / "k8s"
    shutil.copytree(K8S, copy)
    path = copy / "overlays" / "small" / "kustomization.yaml"
    listed = "".join(f"  - ../../components/{name}\n" for name in names)
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}components:\n{listed}", encoding="utf-8")
    return kustomized(path.parent)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == kind]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name]
    return found


def pods(manifests: list[Manifest]) -> list[Pod]:
    """Templates of workloads, and the executors that Spark makes of its template."""
    found = []
    for one in manifests:
        name = f"{one['kind']}/{one['metadata']['name']}"
        if one["kind"] in _TEMPLATES:
            template = one["spec"]["template"]
            found.append(Pod(name, template["spec"], template["metadata"]["labels"]))
        elif one["kind"] == "SparkApplication":
            found += [_of_spark(name, one["spec"], part) for part in ("driver", "executor")]
        elif one["kind"] == "ConfigMap" and "executor-pod.yaml" in one["data"]:
            made = yaml.safe_load(one["data"]["executor-pod.yaml"])
            found.append(Pod(f"{name}/executor-pod.yaml", made["spec"], made["metadata"]["labels"]))
    return found


def _of_spark(name: str, spec: Manifest, part: str) -> Pod:
    """A pod as the operator makes it of an application's part."""
    given = spec[part]
    container = {
        "name": part,
        "args": ["loader", *spec["arguments"]] if part == "driver" else [],
        "resources": {"limits": given, "requests": given},
        **{key: given[key] for key in ("env", "securityContext", "volumeMounts") if key in given},
    }
    made = {"containers": [container], "volumes": spec["volumes"]}
    made["securityContext"] = given["podSecurityContext"]
    made["terminationGracePeriodSeconds"] = given["terminationGracePeriodSeconds"]
    made["serviceAccountName"] = given["serviceAccount"]
    return Pod(f"{name}/{part}", made, given["labels"])


def config_map(manifests: list[Manifest], file: str) -> str:
    """The text of the file that some ConfigMap holds."""
    (found,) = [one["data"][file] for one in of_kind(manifests, "ConfigMap") if file in one["data"]]
    return str(found)
