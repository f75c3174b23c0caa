"""The Helm chart gives the objects of the overlays, and is made of the same files."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.k8s.built import Manifest, config_map, named, of_kind, overlay, with_components
from tests.k8s.chart import helm, made
from tests.k8s.chart.helm import needs_helm
from tests.k8s.chart.objects import DOCTORS_CONFIG, spec_of
from tests.k8s.chart.template_text import Expressions
from tests.k8s.policies import POLICIES

CHART = made.CHART
_DIGEST = re.compile(r"^(relay-config|spark-config)-[0-9a-z]{10}$")
TYPO: dict[str, Any] = {"relay": {"replica": 3}}


def test_it_is_as_the_base_makes_it() -> None:
    """Run `python -m tests.k8s.chart` after a change in k8s."""
    assert made.there() == made.files()


def alike(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """The objects by kind and name, without what kustomize and Helm have to do otherwise.

    These are digests in names, the namespace, the annotations by which a Job is a hook, and the
    hook's own copy of the configuration, which has to be the same.
    """
    found = {}
    for one in copy.deepcopy(manifests):
        if one["kind"] == "Namespace":
            continue
        metadata, key = one["metadata"], (one["kind"], one["metadata"]["name"])
        metadata["name"] = _DIGEST.sub(r"\1", key[1])
        if key == ("ConfigMap", DOCTORS_CONFIG):
            assert one["data"]["relay.toml"] == config_map(without(manifests), "relay.toml")
            continue
        if key == ("Job", "doctor"):
            del metadata["annotations"]
        for volume in spec_of(one)["volumes"] if "template" in one.get("spec", {}) else ():
            if "configMap" in volume:
                name = _DIGEST.sub(r"\1", volume["configMap"]["name"])
                volume["configMap"]["name"] = name.replace(DOCTORS_CONFIG, "relay-config")
        found[one["kind"], metadata["name"]] = cleared(one)
    return found


def without(manifests: list[Manifest]) -> list[Manifest]:
    """All but the doctor's copy of the configuration."""
    return [one for one in manifests if one["metadata"]["name"] != DOCTORS_CONFIG]


def cleared(value: Any) -> Any:
    """Without lists and mappings that are empty, which are as good as none."""
    if isinstance(value, dict):
        pairs = ((key, cleared(one)) for key, one in value.items())
        return {key: one for key, one in pairs if one not in (None, [], {}) or key == "podSelector"}
    return [cleared(one) for one in value] if isinstance(value, list) else value


@needs_helm
@pytest.mark.parametrize("name", ["small", "large"])
def test_its_objects_are_those_of_the_overlay(tmp_path: Path, name: str) -> None:
    options = ("--values", CHART / "values-large.yaml") if name == "large" else ()
    assert alike(helm.rendered(CHART, tmp_path, *options)) == alike(overlay(name))


@needs_helm
def test_its_monitoring_is_the_component(tmp_path: Path) -> None:
    """Alerts and dashboard have expressions of their own, which Helm must not read."""
    given = helm.rendered(CHART, tmp_path, values={"monitoring": {"enabled": True}})
    assert alike(given) == alike(with_components(tmp_path, "monitoring"))


@needs_helm
def test_another_object_is_found(tmp_path: Path) -> None:
    """Negative control."""
    given = helm.rendered(CHART, tmp_path, values={"relay": {"replicas": 2}})
    assert alike(given) != alike(overlay("small"))


@needs_helm
@pytest.mark.parametrize("large", [False, True])
def test_it_keeps_every_policy(tmp_path: Path, *, large: bool) -> None:
    """As the overlays do; the namespace alone is not the chart's."""
    options = ("--values", CHART / "values-large.yaml") if large else ()
    namespace = {"kind": "Namespace", "metadata": {"name": "block-relay"}}
    given = [*helm.rendered(CHART, tmp_path, *options), namespace]
    assert [found for policy in POLICIES.values() for found in policy(given)] == []


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value by its keys; those that hold what Kubernetes takes as a whole."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "resources":
            found |= leaves(value, (*path, key))
        else:
            found[(*path, key)] = value
    return found


VALUES = leaves(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))
OTHERS: dict[str, Any] = {
    "config": 'app = "other"\n',
    "resources": {"limits": {"cpu": "7"}},
    "pod": {"nodeSelector": {"disk": "fast"}},
    "settings": {"spark.executor.memory": "1g"},
    "labels": {"release": "prometheus"},
    "pullSecrets": [{"name": "mine"}],
    "serverPorts": [9094],
}


def other(key: str, value: Any) -> Any:
    """Another value of the same kind."""
    if key in OTHERS:
        return OTHERS[key]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"other{value}"


@needs_helm
@pytest.mark.parametrize("path", VALUES, ids=".".join)
def test_every_value_changes_something(tmp_path: Path, path: tuple[str, ...]) -> None:
    """One that the templates do not read would be skipped in silence."""
    base = {"monitoring": {"enabled": path != ("monitoring", "enabled")}}
    changed: dict[str, Any] = copy.deepcopy(base)
    place = changed
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = other(path[-1], VALUES[path])
    before, after = (helm.rendered(CHART, tmp_path, values=one) for one in (base, changed))
    assert before != after
    wanted = str(place[path[-1]])
    if isinstance(place[path[-1]], str) and path != ("config",):
        assert wanted in yaml.safe_dump(after, width=10_000)


def problems(values: dict[str, Any]) -> list[str]:
    """What the schema says of values, as Helm asks it."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return [one.message for one in jsonschema.Draft7Validator(schema).iter_errors(values)]


def test_the_schema_takes_the_values_and_no_others() -> None:
    """Keys that nobody knows, and values of another kind."""
    for name in ("values.yaml", "values-large.yaml"):
        assert problems(yaml.safe_load((CHART / name).read_text(encoding="utf-8"))) == []
    assert problems({"relay": {"pod": {"tolerations": []}}, "global": {"any": 1}}) == []
    for wrong in (TYPO, {"relays": {}}, {"relay": {"replicas": "3"}}, {"relay": {"replicas": 0}}):
        assert len(problems(wrong)) == 1, wrong


@needs_helm
def test_a_value_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = helm.run("template", CHART, "--values", "-", home=tmp_path, given=yaml.safe_dump(TYPO))
    assert done.returncode != 0
    assert "replica" in done.stderr


@needs_helm
def test_helm_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    done = helm.run("lint", CHART, "--strict", home=tmp_path)
    assert done.returncode == 0, done.stdout


@needs_helm
def test_a_changed_setting_rolls_the_pods_out(tmp_path: Path) -> None:
    """The ConfigMap's name holds a digest of it; so does that of Spark's settings."""
    before = helm.rendered(CHART, tmp_path)
    after = helm.rendered(CHART, tmp_path, values={"tls": {"authority": "ca.crt"}})

    def mounted(built: list[Manifest], role: str, volume: str) -> str:
        volumes = spec_of(named(built, "StatefulSet", role))["volumes"]
        (found,) = [one for one in volumes if one["name"] == volume]
        return str(found["configMap"]["name"])

    for role in ("relay", "loader"):
        assert mounted(before, role, "config") != mounted(after, role, "config")
        named(after, "ConfigMap", mounted(after, role, "config"))
    assert mounted(before, "loader", "spark") == mounted(after, "loader", "spark")
    moved = helm.rendered(CHART, tmp_path, "--namespace", "elsewhere")
    assert mounted(before, "loader", "spark") != mounted(moved, "loader", "spark")
    toml = config_map(without(after), "relay.toml")
    assert '"ssl.ca.location" = "/etc/relay/passwords/ca.crt"' in toml
    assert 'ca_file = "/etc/relay/passwords/ca.crt"' in toml


@needs_helm
def test_every_object_is_in_the_releases_namespace(tmp_path: Path) -> None:
    given = helm.rendered(CHART, tmp_path, "--namespace", "elsewhere")
    assert {one["metadata"]["namespace"] for one in given} == {"elsewhere"}
    (binding,) = of_kind(given, "RoleBinding")
    assert [one["namespace"] for one in binding["subjects"]] == ["elsewhere"]
    spark = config_map(given, "spark-defaults.conf")
    assert re.search(r"^spark\.kubernetes\.namespace +elsewhere$", spark, re.MULTILINE)


def test_expressions_stand_where_values_stood() -> None:
    """And what only looks like one is escaped."""
    expressions = Expressions()
    value = {
        "one": expressions.scalar(".Values.one"),
        "part": f"a {expressions.scalar('.Values.part')} b",
        "list": [{"tree": expressions.tree(".Values.tree"), "alert": "{{ $labels.app }}"}],
        "file": expressions.block("a.name"),
        **expressions.merged(".Values.more"),
    }
    assert expressions.written(value) == (
        "one: {{ .Values.one }}\n"
        "part: a {{ .Values.part }} b\n"
        "list:\n"
        "- tree: {{- toYaml .Values.tree | nindent 4 }}\n"
        "  alert: '{{ \"{{\" }} $labels.app }}'\n"
        "file: |\n"
        '  {{- include "a.name" . | nindent 2 }}\n'
        "{{- with .Values.more }}\n"
        "{{- toYaml . | nindent 0 }}\n"
        "{{- end }}\n"
    )
