"""Each overlay keeps every policy, and each policy goes red where it is broken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest

from tests.k8s.built import OVERLAYS, Manifest, named, of_kind, overlay, with_operator
from tests.k8s.policies import POLICIES

OLDEST = "1.34"
CUSTOM = {"ServiceMonitor", "PrometheusRule", "SparkApplication"}
"""Kinds that Kubernetes' own schemas do not know."""


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return with_operator(tmp_path_factory.mktemp("operated"))


def judged(manifests: list[Manifest], version: str) -> None:
    for one in manifests:
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_object_is_as_kubernetes_schemas_say(name: str, version: str) -> None:
    judged(overlay(name), version)
    assert {one["kind"] for one in overlay(name)} >= {"StatefulSet", "Deployment", "Job", "Role"}


def test_a_misspelt_key_is_found_by_the_schemas() -> None:
    """Negative control: strict schemas refuse what they do not know, and wrong types."""
    for change in ({"replica": 1}, {"replicas": "one"}):
        broken = copy.deepcopy(named(overlay("small"), "StatefulSet", "relay"))
        broken["spec"].update(change)
        with pytest.raises(kubernetes_validate.ValidationError):
            judged([broken], OLDEST)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_policy_is_kept(name: str, policy: str) -> None:
    assert list(POLICIES[policy](overlay(name))) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_kept_under_the_operator(operated: list[Manifest], policy: str) -> None:
    assert list(POLICIES[policy](operated)) == []


def test_the_operator_takes_the_place_of_the_driver_alone(operated: list[Manifest]) -> None:
    """The Service stays, and finds the operator's driver; names that kustomize made are met."""
    judged(operated, OLDEST)
    assert [one["metadata"]["name"] for one in of_kind(operated, "StatefulSet")] == ["relay"]
    spec = named(operated, "SparkApplication", "loader")["spec"]
    service = named(operated, "Service", "loader")
    assert service["spec"]["selector"].items() <= spec["driver"]["labels"].items()
    maps = {one["metadata"]["name"] for one in of_kind(operated, "ConfigMap")}
    assert {v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v} <= maps
    relay = named(operated, "StatefulSet", "relay")["spec"]["template"]["spec"]["containers"][0]
    assert spec["image"] == relay["image"]


def spec_of(manifests: list[Manifest], name: str = "relay") -> Any:
    return named(manifests, "StatefulSet", name)["spec"]["template"]["spec"]


def container(manifests: list[Manifest], name: str = "relay") -> Any:
    return spec_of(manifests, name)["containers"][0]


def without(table: Any, key: str) -> None:
    del table[key]


def appended(manifests: list[Manifest], **given: Any) -> None:
    manifests.append({"metadata": {"name": "x", "namespace": "block-relay"}, **given})


BROKEN: dict[str, list[Callable[[list[Manifest]], Any]]] = {
    "non_root": [
        lambda m: spec_of(m)["securityContext"].update(runAsUser=0),
        lambda m: without(spec_of(m)["securityContext"], "runAsNonRoot"),
        lambda m: without(spec_of(m)["securityContext"], "seccompProfile"),
        lambda m: spec_of(m).update(hostNetwork=True),
        lambda m: container(m)["securityContext"].update(runAsUser=0),
    ],
    "confined": [
        lambda m: container(m)["securityContext"].update(readOnlyRootFilesystem=False),
        lambda m: without(container(m)["securityContext"], "allowPrivilegeEscalation"),
        lambda m: container(m)["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
        lambda m: container(m)["volumeMounts"].pop(),
        lambda m: spec_of(m)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        lambda m: spec_of(m)["volumes"].append({"name": "x", "emptyDir": {}}),
    ],
    "limited": [
        lambda m: without(container(m)["resources"], "limits"),
        lambda m: without(container(m)["resources"]["requests"], "memory"),
    ],
    "probed": [
        lambda m: without(container(m), "livenessProbe"),
        lambda m: container(m)["livenessProbe"]["httpGet"].update(path="/readyz"),
        lambda m: container(m)["ports"][0].update(containerPort=80),
        lambda m: without(container(m, "loader"), "readinessProbe"),
        lambda m: m.remove(named(m, "Deployment", "verifier")),
    ],
    "one_identity_each": [
        lambda m: named(m, "StatefulSet", "relay").update(kind="Deployment"),
        lambda m: container(m)["args"].remove("$(POD_NAME)"),
        lambda m: container(m)["env"].pop(0),
        lambda m: container(m)["args"].extend(["--processes", "2"]),
        lambda m: named(m, "StatefulSet", "relay")["spec"].update(podManagementPolicy="Parallel"),
    ],
    "disruption_budget": [
        lambda m: m.remove(named(m, "PodDisruptionBudget", "relay")),
        lambda m: m.append(named(m, "PodDisruptionBudget", "relay")),
        lambda m: named(m, "PodDisruptionBudget", "relay")["spec"].update(maxUnavailable=0),
    ],
    "isolated": [
        lambda m: m.remove(named(m, "NetworkPolicy", "nothing-else")),
        lambda m: spec_of(m).update(automountServiceAccountToken=True),
        lambda m: spec_of(m, "loader").update(automountServiceAccountToken=False),
    ],
    "rights_of_the_api": [
        lambda m: named(m, "Role", "loader")["rules"][0].update(verbs=["*"]),
        lambda m: named(m, "Role", "loader")["rules"][0].update(resources=["secrets"]),
        lambda m: appended(m, kind="ClusterRole"),
    ],
    "pinned": [
        lambda m: container(m).update(image="registry.example/block-relay"),
        lambda m: container(m).update(image="registry.example/block-relay:latest"),
    ],
    "no_secret": [
        lambda m: appended(m, kind="Secret", data={}),
        lambda m: container(m)["env"].append({"name": "RELAY_KAFKA_SASL_PASSWORD", "value": "x"}),
    ],
    "unique_names": [
        lambda m: m.append(named(m, "Service", "relay")),
        lambda m: named(m, "Service", "relay")["metadata"].update(namespace="elsewhere"),
    ],
}
CASES = [(policy, at) for policy, changes in BROKEN.items() for at in range(len(changes))]


@pytest.mark.parametrize(("policy", "at"), CASES)
def test_a_broken_policy_is_found(policy: str, at: int) -> None:
    """Negative control of each."""
    broken = copy.deepcopy(overlay("small"))
    BROKEN[policy][at](broken)
    assert list(POLICIES[policy](broken)) != []


def test_every_policy_has_a_negative_control() -> None:
    assert BROKEN.keys() == POLICIES.keys()


def test_the_large_overlay_is_larger() -> None:
    """In relays, executors and memory; by nothing else than what it says."""
    small, large = overlay("small"), overlay("large")
    relays = [named(one, "StatefulSet", "relay")["spec"]["replicas"] for one in (small, large)]
    assert relays == [1, 8]
    env = [
        {e["name"]: e.get("value") for e in container(m, "loader")["env"]} for m in (small, large)
    ]
    submitted = [one["PYSPARK_SUBMIT_ARGS"] for one in env]
    assert submitted == [f"--conf spark.executor.instances={n} pyspark-shell" for n in (1, 8)]
    assert [*env[0]] == [*env[1]], "the patch replaced another variable"
    assert {(m["kind"], m["metadata"]["name"]) for m in small} == {
        (m["kind"], m["metadata"]["name"]) for m in large
    }
