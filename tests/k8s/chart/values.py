"""The chart's values, as the overlays have them, and their schema.

Receives objects of overlays, gives the text of values.yaml, values-large.yaml and
values.schema.json. A value that nobody knows is refused by the schema: Helm alone would skip it.
"""

from __future__ import annotations

import json
import textwrap
from typing import Any

import yaml

from tests.k8s.built import Manifest, config_map, named
from tests.k8s.chart.objects import ROLES, WORKLOADS, container, env, executors, spec_of

OPEN = ("resources", "pod", "settings", "labels")
"""Values that hold what Kubernetes or Spark take: any keys."""
_AUTHORITY = "/etc/relay/passwords/{{ . }}"


def values(small: list[Manifest]) -> str:
    """Return values.yaml."""
    roles = {role: _role(small, role) for role in ROLES}
    relay = named(small, "StatefulSet", "relay")
    return _VALUES.format(
        relay_image=container(relay)["image"],
        loader_image=container(named(small, "StatefulSet", "loader"))["image"],
        config=_indented(_with_authority(config_map(small, "relay.toml")), 2),
        replicas=relay["spec"]["replicas"],
        instances=executors(small)[0],
        ports=_server_ports(small),
        namespace=_monitoring_namespace(small),
        **roles,
    )


def values_large(large: list[Manifest]) -> str:
    """Return values-large.yaml: only what the overlay `large` has otherwise."""
    relay, loader = (named(large, "StatefulSet", role) for role in ("relay", "loader"))
    instances, settings = executors(large)
    spread = {"topologySpreadConstraints": spec_of(relay)["topologySpreadConstraints"]}
    found = {
        "relay": {
            "replicas": relay["spec"]["replicas"],
            "resources": container(relay)["resources"],
            "pod": spread,
        },
        "loader": {
            "executors": {"instances": instances, "settings": settings},
            "resources": container(loader)["resources"],
        },
    }
    return f"{_LARGE}{yaml.safe_dump(found, sort_keys=False)}"


def schema(text: str) -> str:
    """Return values.schema.json of a values.yaml."""
    whole = _schema_of("", yaml.safe_load(text))
    whole["properties"]["global"] = {}  # Helm's own, for charts that have this one in them
    whole["$schema"] = "http://json-schema.org/draft-07/schema#"
    return json.dumps(whole, indent=1) + "\n"


def _schema_of(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        found: dict[str, Any] = {"type": "object"}
        if name not in OPEN:
            found["additionalProperties"] = False
            found["properties"] = {key: _schema_of(key, one) for key, one in value.items()}
        return found
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 1}
    return {"type": "array"} if isinstance(value, list) else {"type": "string"}


def _role(built: list[Manifest], role: str) -> str:
    """What every program has, as lines of its section."""
    workload = named(built, WORKLOADS[role], role)
    user = env(container(workload), "RELAY_KAFKA_SASL_USERNAME")["value"]
    (secret,) = [one["secret"] for one in spec_of(workload)["volumes"] if "secret" in one]
    found = {
        "user": user,
        "secret": secret["secretName"],
        "resources": container(workload)["resources"],
        "pod": {},
    }
    return _indented(yaml.safe_dump(found, sort_keys=False), 2).rstrip()


def _with_authority(toml: str) -> str:
    """relay.toml with the lines that the value tls.authority adds."""
    for section, key in (("kafka.client", '"ssl.ca.location"'), ("clickhouse", "ca_file")):
        head = f"[{section}]\n"
        assert toml.count(head) == 1, f"{head!r} stands once in k8s/base/relay.toml"
        lines = f'{{{{- with .Values.tls.authority }}}}\n{key} = "{_AUTHORITY}"\n{{{{- end }}}}\n'
        toml = toml.replace(head, f"{head}{lines}")
    return toml


def _server_ports(built: list[Manifest]) -> str:
    egress = named(built, "NetworkPolicy", "names-and-servers")["spec"]["egress"]
    (servers,) = [one for one in egress if "to" not in one]
    return str([port["port"] for port in servers["ports"]])


def _monitoring_namespace(built: list[Manifest]) -> str:
    (rule,) = named(built, "NetworkPolicy", "metrics")["spec"]["ingress"]
    labels = rule["from"][0]["namespaceSelector"]["matchLabels"]
    return str(labels["kubernetes.io/metadata.name"])


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


_LARGE = """\
# Eight relays and eight executors, spread over nodes: helm install -f k8s/chart/values-large.yaml
# Made of the overlay `large` by `python -m tests.k8s.chart`.
"""
_VALUES = """\
# What people change. Made of k8s/overlays/small by `python -m tests.k8s.chart`: change that, or
# give values of your own with `--values mine.yaml`. A key that is not here is refused.

images:
  relay: {relay_image}
  loader: {loader_image}
  # Secrets with the password of a registry: [{{name: my-registry}}]
  pullSecrets: []

# relay.toml of all programs. A file of your own: --set-file config=relay.toml (it has to have
# loader.master and loader.checkpoint as here). Helm reads it as a template.
config: |
{config}
tls:
  # The key of the three Secrets below that holds the certificate of your own authority, as ca.crt;
  # empty: those of Debian's ca-certificates. A config of your own has to name the file itself.
  authority: ""

# Of each program: `user` in Kafka and ClickHouse; `secret` with its passwords under the keys kafka
# and clickhouse, which the chart does not make; `pod` holds further keys of its pods' spec, as
# nodeSelector, tolerations, affinity.
relay:
  # At most the source's partitions do work.
  replicas: {replicas}
{relay}

loader:
  executors:
    instances: {instances}
    # Of Spark, before those of spark-defaults.conf: spark.executor.memory: 1g
    settings: {{}}
{loader}

verifier:
{verifier}

# A Job before each install and upgrade, which goes no further where the Job finds an error.
doctor:
  enabled: true
  pod: {{}}

network:
  # Without policies, who reaches the programs is the cluster's affair.
  policies: true
  # Ports of Kafka and ClickHouse, which may be reached anywhere.
  serverPorts: {ports}

monitoring:
  # ServiceMonitor and PrometheusRule of the Prometheus operator, whose custom resources the cluster
  # must have, and a dashboard for Grafana's sidecar.
  enabled: false
  # From where Prometheus asks for metrics.
  namespace: {namespace}
  # Of ServiceMonitor and PrometheusRule, where the operator chooses by label: release: prometheus
  labels: {{}}
"""
