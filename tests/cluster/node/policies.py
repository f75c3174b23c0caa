"""Enforces NetworkPolicies on the node, by nftables; a small part of what networks' plugins do.

`ruleset` is pure: what the API server lists goes in, a program for nft comes out. A thread gives
nft a new one when something changed. Connections from the node itself, as the kubelet's probes,
are never held up, as Kubernetes has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.cluster.node.namespaces import DNS
from tests.cluster.node.tools import set_table

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane

LOOK_SECONDS = 0.2
_NAME = "kubernetes.io/metadata.name"
_TABLE = "policies"

Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """What policies ask of one.

    Attributes:
        address: its own.
        namespace: labels of its namespace, its name among them.
        labels: its own.
        ports: numbers by name.
    """

    address: str
    namespace: dict[str, str]
    labels: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)


NAMES = Pod(DNS, {_NAME: "kube-system"}, {"k8s-app": "kube-dns"})
"""Who answers for names: the node, in the place of a pod of this label."""


def pods_of(namespaces: Iterable[Object], pods: Iterable[Object]) -> list[Pod]:
    """Those that have an address, and NAMES."""
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
    found = [NAMES]
    for one in pods:
        if address := one["status"].get("podIP"):
            listed = (port for each in one["spec"]["containers"] for port in each.get("ports", ()))
            ports = {port["name"]: port["containerPort"] for port in listed if "name" in port}
            of = one["metadata"]
            found.append(Pod(address, labels[of["namespace"]], of.get("labels", {}), ports))
    return found


def ruleset(policies: Iterable[Object], pods: list[Pod]) -> str:
    """Return the rules of nft's table; a connection has to pass both ends' policies."""
    kept = list(policies)
    lines = {
        kind: [*_rules(kind, kept, pods), *_rest(kind, kept, pods)]
        for kind in ("Egress", "Ingress")
    }
    chains = "".join(
        f"chain {kind.lower()} {{\n{chr(10).join(of)}\n}}\n" for kind, of in lines.items()
    )
    known = "ct state established,related accept"
    return (
        f"{chains}"
        f"chain forward {{ type filter hook forward priority 0; {known}; "
        "jump egress; jump ingress; }\n"
        f"chain input {{ type filter hook input priority 0; {known}; jump egress; }}\n"
    )


def _rules(kind: str, policies: list[Object], pods: list[Pod]) -> Iterator[str]:
    """What is allowed."""
    own, other, peers = ("saddr", "daddr", "to") if kind == "Egress" else ("daddr", "saddr", "from")
    for policy in policies:
        for pod in _selected(kind, policy, pods):
            for rule in policy["spec"].get(kind.lower(), ()):
                words = [f"ip {own} {pod.address}"]
                if peers in rule:
                    found = _addresses(rule[peers], policy, pods)
                    if not found:
                        continue
                    words.append(f"ip {other} {{ {', '.join(found)} }}")
                for port in _ports(rule, pod):
                    yield " ".join([*words, port, "return"])


def _rest(kind: str, policies: list[Object], pods: list[Pod]) -> Iterator[str]:
    """What is not, of pods that a policy selects."""
    own = "saddr" if kind == "Egress" else "daddr"
    for address in sorted({p.address for one in policies for p in _selected(kind, one, pods)}):
        yield f"ip {own} {address} reject"


def _selected(kind: str, policy: Object, pods: list[Pod]) -> list[Pod]:
    if kind not in policy["spec"]["policyTypes"]:
        return []
    namespace = policy["metadata"]["namespace"]
    return [
        pod
        for pod in pods
        if pod.namespace.get(_NAME) == namespace
        and _matches(policy["spec"]["podSelector"], pod.labels)
    ]


def _addresses(peers: list[Object], policy: Object, pods: list[Pod]) -> list[str]:
    own = {"matchLabels": {_NAME: policy["metadata"]["namespace"]}}
    found = set()
    for peer in peers:
        assert peer.keys() <= {"namespaceSelector", "podSelector"}, f"not known here: {peer}"
        of = peer.get("namespaceSelector", own)
        found |= {
            pod.address
            for pod in pods
            if _matches(of, pod.namespace) and _matches(peer.get("podSelector", {}), pod.labels)
        }
    return sorted(found)


def _ports(rule: Object, pod: Pod) -> Iterator[str]:
    """Of a rule, as a condition each; a name that the pod does not have is no port of it."""
    if "ports" not in rule:
        yield ""
    for port in rule.get("ports", ()):
        assert "endPort" not in port, f"not known here: {port}"
        number = port["port"] if isinstance(port["port"], int) else pod.ports.get(port["port"])
        if number is not None:
            yield f"{port.get('protocol', 'TCP').lower()} dport {number}"


def _matches(selector: Object, labels: dict[str, str]) -> bool:
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    return exact and all(_meets(one, labels) for one in selector.get("matchExpressions", ()))


def _meets(expression: Object, labels: dict[str, str]) -> bool:
    assert expression["operator"] == "In", f"not known here: {expression}"
    return labels.get(expression["key"]) in expression["values"]


class Enforcement(threading.Thread):
    """Follows what the API server lists, until stopped."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane, self._left = plane, threading.Event()
        self._now = ""

    def run(self) -> None:
        """Look again and again."""
        while not self._left.wait(LOOK_SECONDS):
            self._look()

    def stop(self) -> None:
        """Let everything through again."""
        self._left.set()
        self.join()
        set_table(_TABLE)

    def _look(self) -> None:
        def listed(path: str) -> list[Object]:
            found: list[Object] = self._plane.ask("GET", path)["items"]
            return found

        pods = pods_of(listed("/api/v1/namespaces"), listed("/api/v1/pods"))
        wanted = ruleset(listed("/apis/networking.k8s.io/v1/networkpolicies"), pods)
        if wanted != self._now:
            set_table(_TABLE, wanted)
            self._now = wanted
