"""What every overlay must keep; each policy gives what breaks it, so that none is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.k8s.built import Manifest, Pod, of_kind, pods

Policy = Callable[[list[Manifest]], Iterator[str]]
SERVED = {"relay": 9464, "loader": 9465, "verifier": 9466}
"""Programs that stay, and where they answer."""
ASKS_THE_API = {"loader"}
"""Service accounts whose pods carry a token."""


def _containers(manifests: list[Manifest]) -> Iterator[tuple[Pod, Manifest]]:
    for pod in pods(manifests):
        for kind in ("initContainers", "containers"):
            for container in pod.spec.get(kind, ()):
                yield pod, container


def _get(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def non_root(manifests: list[Manifest]) -> Iterator[str]:
    """Pods say who they are, and it is not root; no container says otherwise."""
    for pod in pods(manifests):
        context = pod.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser", 0) > 0:
            yield f"{pod.name} may run as root"
        if _get(context, "seccompProfile", "type") != "RuntimeDefault":
            yield f"{pod.name} has no seccomp profile"
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(key):
                yield f"{pod.name} has {key}"
    for pod, container in _containers(manifests):
        if {"runAsUser", "runAsNonRoot", "seccompProfile"} & container["securityContext"].keys():
            yield f"{pod.name}/{container['name']} overrides its pod's user or profile"


def confined(manifests: list[Manifest]) -> Iterator[str]:
    """No privilege, no capability, nothing to write on but volumes; no host's directory."""
    for pod, container in _containers(manifests):
        where, context = f"{pod.name}/{container['name']}", container.get("securityContext", {})
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{where} can write on its root filesystem"
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{where} may gain privileges"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{where} keeps capabilities"
        if "/tmp" not in [mount["mountPath"] for mount in container.get("volumeMounts", ())]:
            yield f"{where} has nowhere to write"
    for pod in pods(manifests):
        for volume in pod.spec.get("volumes", ()):
            if "hostPath" in volume:
                yield f"{pod.name} mounts a directory of its host"
            if "emptyDir" in volume and not _get(volume, "emptyDir", "sizeLimit"):
                yield f"{pod.name} has a volume {volume['name']} without a limit"


def limited(manifests: list[Manifest]) -> Iterator[str]:
    """Requests and limits of both, or what Spark makes them of."""
    for pod, container in _containers(manifests):
        if pod.name.startswith("ConfigMap/"):
            continue  # Spark sets them from its own settings: see test_spark
        for kind in ("requests", "limits"):
            given = _get(container, "resources", kind) or {}
            cpu = "cpu" in given or {"cores", "coreLimit"} <= given.keys()
            if not (cpu and "memory" in given):
                yield f"{pod.name}/{container['name']} has no {kind} of cpu and memory"


def probed(manifests: list[Manifest]) -> Iterator[str]:
    """Those that stay are asked whether they live and whether they are ready, at their port."""
    for pod, container in _containers(manifests):
        port = SERVED.get(container["name"])
        if port is None or ("livenessProbe" not in container and "ports" not in container):
            continue
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        if ports.get("http") != port or f"0.0.0.0:{port}" not in container["args"]:
            yield f"{pod.name} does not serve at {port}"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = _get(container, probe, "httpGet") or {}
            if asked.get("path") not in {"/healthz", "/readyz"} or asked.get("port") != "http":
                yield f"{pod.name} has no {probe}"
        if _get(container, "livenessProbe", "httpGet", "path") == "/readyz":
            yield f"{pod.name} would be killed for waiting for its servers"
    seen = {container["name"] for _, container in _containers(manifests)}
    spark = of_kind(manifests, "SparkApplication")
    for missing in SERVED.keys() - seen - ({"loader"} if spark else set()):
        yield f"there is no {missing}"


def one_identity_each(manifests: list[Manifest]) -> Iterator[str]:
    """A relay's member is its pod's name, and only a StatefulSet gives each name once."""
    for one in manifests:
        for container in _get(one, "spec", "template", "spec", "containers") or ():
            args = container.get("args", [])
            if args[:2] != ["relay", "run"]:
                continue
            where = f"{one['kind']}/{one['metadata']['name']}"
            if one["kind"] != "StatefulSet":
                yield f"{where} gives its pods random names"
            member = args[args.index("--member") + 1] if "--member" in args else ""
            env = {e["name"]: e for e in container.get("env", ())}
            source = _get(env.get("POD_NAME"), "valueFrom", "fieldRef", "fieldPath")
            if member != "$(POD_NAME)" or source != "metadata.name" or "--processes" in args:
                yield f"{where} does not name its members after its pods"


def mendable(manifests: list[Manifest]) -> Iterator[str]:
    """A mended template reaches pods that a broken one keeps from becoming ready."""
    for one in of_kind(manifests, "StatefulSet"):
        if one["spec"].get("podManagementPolicy") != "Parallel":
            yield f"{one['metadata']['name']} waits for ever for a pod that cannot become ready"
        strategy = one["spec"].get("updateStrategy", {})
        if strategy.get("type") != "RollingUpdate" or "maxUnavailable" in strategy.get(
            "rollingUpdate", {}
        ):
            yield f"{one['metadata']['name']} is not rolled out one pod after the other"


def disruption_budget(manifests: list[Manifest]) -> Iterator[str]:
    """Exactly one for the relays; at most one of them away, and never none, or nodes hang."""
    budgets = of_kind(manifests, "PodDisruptionBudget")
    for one in of_kind(manifests, "StatefulSet"):
        labels = one["spec"]["template"]["metadata"]["labels"]
        mine = [
            b for b in budgets if b["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        if len(mine) != (1 if one["metadata"]["name"] == "relay" else 0):
            yield f"{one['metadata']['name']} has {len(mine)} disruption budgets"
        for budget in mine:
            if budget["spec"].get("maxUnavailable") != 1 or "minAvailable" in budget["spec"]:
                yield f"{budget['metadata']['name']} allows not just one to be away"
            if budget["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
                yield f"{budget['metadata']['name']} keeps a pod that does no work on its node"


def isolated(manifests: list[Manifest]) -> Iterator[str]:
    """Whatever no policy allows is refused, and only who asks the API server has a token."""
    denies = [
        one
        for one in of_kind(manifests, "NetworkPolicy")
        if one["spec"]["podSelector"] == {} and not {"ingress", "egress"} & one["spec"].keys()
    ]
    if [one["spec"]["policyTypes"] for one in denies] != [["Ingress", "Egress"]]:
        yield "traffic is not refused by default"
    accounts = {
        one["metadata"]["name"]: one.get("automountServiceAccountToken")
        for one in of_kind(manifests, "ServiceAccount")
    }
    for pod in pods(manifests):
        wanted = pod.spec.get("serviceAccountName") in ASKS_THE_API
        said = pod.spec.get("automountServiceAccountToken")
        if said is None:  # under the operator, which gives no such setting to its pods
            said = accounts.get(pod.spec.get("serviceAccountName", "default"))
        if said is not wanted:
            yield f"{pod.name}: a token of the API server {'is missing' if wanted else 'is there'}"


def rights_of_the_api(manifests: list[Manifest]) -> Iterator[str]:
    """No wildcard, no Secret, nothing outside the namespace."""
    for one in manifests:
        if one["kind"] in {"ClusterRole", "ClusterRoleBinding"}:
            yield f"{one['metadata']['name']} reaches beyond the namespace"
        if one["kind"] != "Role":
            continue
        for rule in one["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            if words & {"*", "secrets", "pods/exec", "roles", "rolebindings", "escalate"}:
                yield f"{one['metadata']['name']} may do too much: {rule}"


def pinned(manifests: list[Manifest]) -> Iterator[str]:
    """Images name a version."""
    for pod, container in _containers(manifests):
        image = container.get("image")
        if image is not None and image.rpartition(":")[2] in {"", "latest", image}:
            yield f"{pod.name}/{container['name']}: {image} is whatever is newest"


def no_secret(manifests: list[Manifest]) -> Iterator[str]:
    """An overlay writes no Secret, and nothing secret is in an environment."""
    for one in of_kind(manifests, "Secret"):
        yield f"Secret {one['metadata']['name']} would overwrite a password"
    for pod, container in _containers(manifests):
        for variable in container.get("env", ()):
            if "PASSWORD" in variable["name"] or _get(variable, "valueFrom", "secretKeyRef"):
                yield f"{pod.name}: {variable['name']} is shown to all that see the process"


def unique_names(manifests: list[Manifest]) -> Iterator[str]:
    """Each object once, all in one namespace."""
    names = Counter((one["kind"], one["metadata"]["name"]) for one in manifests)
    yield from (f"{kind}/{name} stands twice" for (kind, name), n in names.items() if n > 1)
    namespaces = {
        one["metadata"].get("namespace") for one in manifests if one["kind"] != "Namespace"
    }
    if namespaces != {one["metadata"]["name"] for one in of_kind(manifests, "Namespace")}:
        yield f"objects are in {namespaces}"


POLICIES: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        non_root,
        confined,
        limited,
        probed,
        one_identity_each,
        mendable,
        disruption_budget,
        isolated,
        rights_of_the_api,
        pinned,
        no_secret,
        unique_names,
    )
}
