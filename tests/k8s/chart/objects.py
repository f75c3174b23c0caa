"""What of the overlays' objects is a value of the chart.

Receives the objects of the overlay `small` with monitoring, gives the chart's templates by file.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from tests.k8s.built import Manifest, config_map, named, of_kind
from tests.k8s.chart.template_text import Expressions

NAMESPACE = "block-relay"
ROLES = ("relay", "loader", "verifier")
WORKLOADS = {"relay": "StatefulSet", "loader": "StatefulSet", "verifier": "Deployment"}
DOCTORS_CONFIG = "doctor-config"
_DIGEST = re.compile(r"^(relay-config|spark-config)-[0-9a-z]{10}$")
_TEXTS = {"relay-config": "block-relay.config", "spark-config": "block-relay.spark"}
_CLASSES = {
    "relay": {"relay"},
    "loader": {"loader", "loader-executor"},
    "verifier": {"verifier"},
}
MONITORING = ("ServiceMonitor", "PrometheusRule", "grafana-dashboard")
_HOOKS = {
    "helm.sh/hook": "pre-install,pre-upgrade",
    "helm.sh/hook-delete-policy": "before-hook-creation",
}


def spec_of(workload: Manifest) -> Manifest:
    """Return the spec of the pods that it makes."""
    found: Manifest = workload["spec"]["template"]["spec"]
    return found


def container(workload: Manifest, at: int = 0) -> Manifest:
    """Return one container of the pods that it makes."""
    found: Manifest = spec_of(workload)["containers"][at]
    return found


def env(of: Manifest, name: str) -> Manifest:
    """Return a container's variable."""
    (found,) = [one for one in of["env"] if one["name"] == name]
    return dict_of(found)


def dict_of(value: Any) -> Manifest:
    """Return it; it has to be a mapping."""
    assert isinstance(value, dict), value
    return value


def plain_name(name: str) -> str:
    """Return a ConfigMap's name without kustomize's digest."""
    found = _DIGEST.match(name)
    return found[1] if found else name


class Templates:
    """The objects, made into templates one kind of change after the other.

    Args:
        built: what kustomize made.
    """

    def __init__(self, built: list[Manifest]) -> None:
        kept = [one for one in built if one["kind"] != "Namespace"]
        self._objects = copy.deepcopy(kept)
        self._helm = Expressions()

    def files(self) -> dict[str, str]:
        """Return text by the file's name."""
        helpers = self._helpers()
        self._workloads()
        self._loader()
        self._doctor()
        self._secrets()
        self._network()
        self._monitoring()
        self._names()
        found: dict[str, str] = {}
        for one in self._objects:
            file, text = self._file(one), self._helm.written(one)
            found[file] = f"{found[file]}---\n{text}" if file in found else text
        wrapped = {name: _within(self._condition(name), text) for name, text in found.items()}
        return {"_helpers.tpl": helpers, **wrapped}

    def _workloads(self) -> None:
        """Images, resources, users, and what a person adds to pods."""
        helm = self._helm
        for role, kind in WORKLOADS.items():
            workload = named(self._objects, kind, role)
            made = container(workload)
            image = "loader" if role == "loader" else "relay"
            made["image"] = helm.scalar(f".Values.images.{image} | quote")
            made["resources"] = helm.tree(f".Values.{role}.resources")
            self._users(made, role)
            spec_of(workload).update(helm.merged(f".Values.{role}.pod"))
        relay = named(self._objects, "StatefulSet", "relay")
        relay["spec"]["replicas"] = helm.scalar(".Values.relay.replicas")
        for account in of_kind(self._objects, "ServiceAccount"):
            account["imagePullSecrets"] = helm.scalar("toJson .Values.images.pullSecrets")

    def _users(self, made: Manifest, role: str) -> None:
        for name in ("RELAY_KAFKA_SASL_USERNAME", "RELAY_CLICKHOUSE_USER"):
            env(made, name)["value"] = self._helm.scalar(f".Values.{role}.user | quote")

    def _loader(self) -> None:
        made = container(named(self._objects, "StatefulSet", "loader"))
        env(made, "LOADER_EXECUTOR_IMAGE")["value"] = self._helm.scalar(
            ".Values.images.loader | quote"
        )
        env(made, "PYSPARK_SUBMIT_ARGS")["value"] = self._helm.scalar(
            'include "block-relay.submitted" .'
        )

    def _doctor(self) -> None:
        """A hook: Helm goes no further where it fails. So it has a copy of the configuration."""
        helm = self._helm
        job = named(self._objects, "Job", "doctor")
        job["metadata"]["annotations"] = {**_HOOKS, "helm.sh/hook-weight": "-5"}
        for at, role in enumerate(ROLES):
            container(job, at)["image"] = helm.scalar(".Values.images.relay | quote")
            self._users(container(job, at), role)
        spec_of(job)["imagePullSecrets"] = helm.scalar("toJson .Values.images.pullSecrets")
        spec_of(job).update(helm.merged(".Values.doctor.pod"))
        (volume,) = [one for one in spec_of(job)["volumes"] if one["name"] == "config"]
        volume["configMap"]["name"] = DOCTORS_CONFIG
        (config,) = [
            one
            for one in of_kind(self._objects, "ConfigMap")
            if plain_name(one["metadata"]["name"]) == "relay-config"
        ]
        mine = copy.deepcopy(config)
        mine["metadata"]["name"] = DOCTORS_CONFIG
        mine["metadata"]["annotations"] = {**_HOOKS, "helm.sh/hook-weight": "-10"}
        self._objects.append(mine)

    def _secrets(self) -> None:
        for kind in ("StatefulSet", "Deployment", "Job"):
            for workload in of_kind(self._objects, kind):
                for volume in spec_of(workload)["volumes"]:
                    if "secret" in volume:
                        role = volume["secret"]["secretName"].removesuffix("-passwords")
                        volume["secret"]["secretName"] = self._helm.scalar(f".Values.{role}.secret")

    def _network(self) -> None:
        helm = self._helm
        egress = named(self._objects, "NetworkPolicy", "names-and-servers")["spec"]["egress"]
        (servers,) = [one for one in egress if "to" not in one]
        servers["ports"] = helm.scalar('include "block-relay.serverPorts" .')
        (metrics,) = named(self._objects, "NetworkPolicy", "metrics")["spec"]["ingress"]
        labels = metrics["from"][0]["namespaceSelector"]["matchLabels"]
        labels["kubernetes.io/metadata.name"] = helm.scalar(".Values.monitoring.namespace")

    def _monitoring(self) -> None:
        for kind in ("ServiceMonitor", "PrometheusRule"):
            (one,) = of_kind(self._objects, kind)
            labels = one["metadata"].setdefault("labels", {})
            labels.update(self._helm.merged(".Values.monitoring.labels"))

    def _names(self) -> None:
        """Namespaces, and ConfigMaps whose names change with what they hold."""
        namespace = self._helm.scalar(".Release.Namespace")
        for one in self._objects:
            one["metadata"]["namespace"] = namespace
            if one["kind"] == "RoleBinding":
                for subject in one["subjects"]:
                    subject["namespace"] = namespace
            if one["kind"] == "ConfigMap":
                self._config_map(one)
            for volume in spec_of(one)["volumes"] if _has_pods(one) else ():
                if "configMap" in volume:
                    volume["configMap"]["name"] = self._digested(volume["configMap"]["name"])

    def _config_map(self, one: Manifest) -> None:
        name = one["metadata"]["name"]
        one["metadata"]["name"] = self._digested(name)
        if name == DOCTORS_CONFIG or plain_name(name) == "relay-config":
            one["data"] = {"relay.toml": self._helm.block("block-relay.config")}
        elif plain_name(name) == "spark-config":
            one["data"] = {file: self._helm.block(f"block-relay.{file}") for file in one["data"]}

    def _digested(self, name: str) -> str:
        plain = plain_name(name)
        if plain not in _TEXTS:
            return name
        digest = self._helm.scalar(f'include "{_TEXTS[plain]}" . | sha256sum | trunc 10')
        return f"{plain}-{digest}"

    def _file(self, one: Manifest) -> str:
        name, kind = plain_name(one["metadata"]["name"]), one["kind"]
        if kind in MONITORING or name in MONITORING:
            return "monitoring.yaml"
        if kind == "NetworkPolicy":
            return "network.yaml"
        if "doctor" in name:
            return "doctor.yaml"
        if kind == "ConfigMap":
            return "config.yaml"
        (role,) = [role for role, names in _CLASSES.items() if name in names]
        return f"{role}.yaml"

    def _condition(self, file: str) -> str:
        conditions = {
            "monitoring.yaml": ".Values.monitoring.enabled",
            "network.yaml": ".Values.network.policies",
            "doctor.yaml": ".Values.doctor.enabled",
        }
        return conditions.get(file, "")

    def _helpers(self) -> str:
        """Texts that are mounted, by name: their digests are in ConfigMaps' names."""
        helm = self._helm
        spark = config_map(self._objects, "spark-defaults.conf").replace(
            NAMESPACE, helm.scalar(".Release.Namespace")
        )
        pod = config_map(self._objects, "executor-pod.yaml").replace(
            "loader-passwords", helm.scalar(".Values.loader.secret")
        )
        log = config_map(self._objects, "log4j2.properties")
        texts = {
            "spark-defaults.conf": spark,
            "executor-pod.yaml": pod,
            "log4j2.properties": log,
        }
        return _HELPERS + "".join(
            f'{{{{- define "block-relay.{name}" -}}}}\n{helm.filled(text)}{{{{- end }}}}\n'
            for name, text in texts.items()
        )


def _has_pods(one: Manifest) -> bool:
    return one["kind"] in {"StatefulSet", "Deployment", "Job"}


def _within(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def executors(built: list[Manifest]) -> tuple[int, dict[str, str]]:
    """Return how many executors an overlay asks for, and with which other settings of Spark."""
    loader = container(named(built, "StatefulSet", "loader"))
    words = env(loader, "PYSPARK_SUBMIT_ARGS")["value"].split()
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    return int(settings.pop("spark.executor.instances")), settings


_HELPERS = """\
{{- define "block-relay.config" -}}
{{ tpl .Values.config . }}
{{- end }}
{{- define "block-relay.spark" -}}
{{ include "block-relay.spark-defaults.conf" . }}
{{ include "block-relay.executor-pod.yaml" . }}
{{ include "block-relay.log4j2.properties" . }}
{{- end }}
{{- define "block-relay.submitted" -}}
--conf spark.executor.instances={{ .Values.loader.executors.instances }}
{{- range $name, $value := .Values.loader.executors.settings }} --conf {{ $name }}={{ $value }}
{{- end }} pyspark-shell
{{- end }}
{{- define "block-relay.serverPorts" -}}
[
{{- range $at, $port := .Values.network.serverPorts }}
{{- if $at }}, {{ end }}{"port": {{ $port }}, "protocol": "TCP"}
{{- end }}]
{{- end }}
"""
