"""Each overlay keeps every policy, and each policy goes red where it is broken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest

from tests.k8s.built import (
    COMPONENTS,
    OVERLAYS,
    Manifest,
    config_map,
    named,
    of_kind,
    overlay,
    with_components,
)
from tests.k8s.policies import POLICIES

OLDEST = "1.34"
CUSTOM = {"ServiceMonitor", "PrometheusRule", "SparkApplication"}
"""Kinds that Kubernetes' own schemas do not know, and a cluster may not have."""
SMALL_NODE_CPUS = 2.0
"""What `small` is for."""


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return with_components(tmp_path_factory.mktemp("operated"), *COMPONENTS)


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
    name, _, tag = relay["image"].rpartition(":")
    assert spec["image"] == f"{name}-loader:{tag}"


def test_an_operators_driver_has_what_the_stateful_set_has(operated: list[Manifest]) -> None:
    """A token by its account alone; and the settings without which its end draws refusals."""
    accounts = {
        one["metadata"]["name"]: one["automountServiceAccountToken"]
        for one in of_kind(operated, "ServiceAccount")
    }
    assert accounts == {
        **dict.fromkeys(("relay", "verifier", "loader-executor"), False),
        "loader": True,
    }
    given = named(operated, "SparkApplication", "loader")["spec"]["sparkConf"]
    lines = config_map(overlay("small"), "spark-defaults.conf").splitlines()
    asks = {
        key: value
        for key, value in (line.split(None, 1) for line in lines if line.startswith("spark."))
        if "PersistentVolumeClaim" in key or "deleteOnTermination" in key
    }
    assert len(asks) == 3
    assert asks.items() <= given.items()
    assert set(asks.values()) == {"false"}


def test_a_token_that_an_account_lacks_is_found(operated: list[Manifest]) -> None:
    """Negative control: by this the operator's driver could not ask for executors."""
    broken = copy.deepcopy(operated)
    named(broken, "ServiceAccount", "loader")["automountServiceAccountToken"] = False
    assert list(POLICIES["isolated"](broken)) == [
        "SparkApplication/loader/driver: a token of the API server is missing"
    ]


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_overlay_needs_another_programs_resources(name: str) -> None:
    """Without their definitions every apply would end with status 1; components bring them."""
    assert not CUSTOM & {one["kind"] for one in overlay(name)}


def test_components_bring_what_they_are_for(operated: list[Manifest]) -> None:
    assert {one["kind"] for one in operated} >= CUSTOM


def cpus(text: str) -> float:
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def test_the_small_overlay_fits_a_small_node() -> None:
    """With an executor, and the doctor's Job beside it; half a CPU is left for the node's own."""
    built = overlay("small")
    lines = config_map(built, "spark-defaults.conf").splitlines()
    (executor,) = [
        line.split()[1]
        for line in lines
        if line.startswith("spark.kubernetes.executor.request.cores")
    ]
    wanted = cpus(executor) + sum(
        one["spec"].get("replicas", 1)
        * sum(
            cpus(container["resources"]["requests"]["cpu"])
            for container in one["spec"]["template"]["spec"]["containers"]
        )
        for one in built
        if one["kind"] in {"StatefulSet", "Deployment", "Job"}
    )
    assert 1.0 < wanted <= SMALL_NODE_CPUS - 0.5


def spec_of(manifests: list[Manifest], name: str = "relay") -> Any:
    return named(manifests, "StatefulSet", name)["spec"]["template"]["spec"]


def container(manifests: list[Manifest], name: str = "relay") -> Any:
    return spec_of(manifests, name)["containers"][0]


def without(table: Any, key: str) -> None:
    del table[key]


def appended(manifests: list[Manifest], **given: Any) -> None:
    manifests.append({"metadata": {"name": "x", "namespace": "block-relay"}, **given})


READY = "OrderedReady"
SIDE_BY_SIDE = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
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
    ],
    "mendable": [
        lambda m: named(m, "StatefulSet", "relay")["spec"].update(podManagementPolicy=READY),
        lambda m: without(named(m, "StatefulSet", "loader")["spec"], "podManagementPolicy"),
        lambda m: named(m, "StatefulSet", "relay")["spec"].update(updateStrategy=SIDE_BY_SIDE),
    ],
    "disruption_budget": [
        lambda m: m.remove(named(m, "PodDisruptionBudget", "relay")),
        lambda m: m.append(named(m, "PodDisruptionBudget", "relay")),
        lambda m: named(m, "PodDisruptionBudget", "relay")["spec"].update(maxUnavailable=0),
        lambda m: without(
            named(m, "PodDisruptionBudget", "relay")["spec"], "unhealthyPodEvictionPolicy"
        ),
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
    more = "--conf spark.kubernetes.executor.request.cores=1 "
    assert submitted == [
        f"--conf spark.executor.instances={n} {also}pyspark-shell"
        for n, also in ((1, ""), (8, more))
    ]
    assert [*env[0]] == [*env[1]], "the patch replaced another variable"
    assert {(m["kind"], m["metadata"]["name"]) for m in small} == {
        (m["kind"], m["metadata"]["name"]) for m in large
    }
