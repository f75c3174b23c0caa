"""What the manifests say to the programs, the programs understand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pyspark
import pytest
import yaml

from loader.cli import loader
from relay.cli import cli
from relay.config import settings_file
from relay.config.secrets import FROM_ENVIRONMENT, USERS_FROM_ENVIRONMENT
from relay.operate.doctor.judge import rights
from relay.program.command import HELP
from tests.config.test_load import problems
from tests.k8s.built import (
    COMPONENTS,
    K8S,
    OVERLAYS,
    ROOT,
    Manifest,
    config_map,
    kustomized,
    named,
    of_kind,
    overlay,
    pods,
    with_components,
)

PROGRAMS: dict[str, click.Group] = {"relay": cli, "loader": loader}
SPARK = "spark-defaults.conf"
SCRIPT = "load-spark-env.sh"
MOUNT = "/etc/relay/passwords"
USER = ("_USER", "_USERNAME")


@pytest.fixture(scope="module", params=[*OVERLAYS, "operated"])
def manifests(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Manifest]:
    if request.param == "operated":
        return with_components(tmp_path_factory.mktemp("operated"), *COMPONENTS)
    return overlay(request.param)


def understood(args: list[str]) -> click.Context:
    """The context of the command that the arguments name, parsed; raises where they do not fit."""
    program, *rest = args
    group = PROGRAMS[program]
    command = group.get_command(click.Context(group, **HELP), rest[0])
    assert command is not None, f"{program} has no command {rest[0]}"
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type.exists = False
    return command.make_context(rest[0], rest[1:])


def commands(manifests: list[Manifest]) -> list[list[str]]:
    every = [c.get("args", []) for pod in pods(manifests) for c in pod.spec["containers"]]
    return [args for args in every if args]


def test_every_flag_is_one_of_the_programs(manifests: list[Manifest]) -> None:
    found = commands(manifests)
    assert sorted(args[:2] for args in found) == [
        ["loader", "run"],
        ["relay", "doctor"],
        ["relay", "doctor"],
        ["relay", "doctor"],
        ["relay", "run"],
        ["relay", "verify"],
    ]
    for args in found:
        understood(args)
    judged = [args[args.index("--role") + 1] for args in found if args[1] == "doctor"]
    assert sorted(judged) == sorted(rights.ROLES)


def test_a_flag_that_is_gone_is_found() -> None:
    """Negative control: also a command, and a value that an option does not take."""
    for args in (["relay", "run", "x", "--no-such"], ["relay", "walk"]):
        with pytest.raises((click.UsageError, AssertionError)):
            understood(args)


def known_variables() -> set[str]:
    """Of the programs: secrets, users, options; and what Spark's own scripts read."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for package in ("relay", "loader")
        for path in (ROOT / package).rglob("*.py")
    )
    home = Path(pyspark.__path__[0])
    spark = "".join(
        path.read_text("utf-8") for path in (home / "java_gateway.py", home / "bin" / SCRIPT)
    )
    ours = set(re.findall(r'"(RELAY_[A-Z_]+)"', source))
    assert {*FROM_ENVIRONMENT, *USERS_FROM_ENVIRONMENT} <= ours
    named_by_settings = re.findall(r"\$\{env:(\w+)\}", config_map(overlay("small"), SPARK))
    return ours | {*named_by_settings, *re.findall(r"SPARK_CONF_DIR|PYSPARK_SUBMIT_ARGS", spark)}


def test_every_environment_variable_is_read_by_someone(manifests: list[Manifest]) -> None:
    """By the program, by Spark, or in the same container's arguments."""
    known = known_variables()
    seen = set()
    for pod in pods(manifests):
        for container in pod.spec["containers"]:
            for variable in container.get("env", ()):
                name = variable["name"]
                assert name in known or f"$({name})" in container["args"], f"{pod.name}: {name}"
                seen.add(name)
    assert {"POD_NAME", "RELAY_KAFKA_SASL_USERNAME", "RELAY_CLICKHOUSE_USER"} <= seen
    assert "RELAY_KAFKA_SASL_USER" not in known, "negative control"


def loaded(manifests: list[Manifest], directory: Path, edit: str = "") -> settings_file.Settings:
    """relay.toml as a pod finds it, passwords beside it."""
    held = directory / "passwords"
    held.mkdir(exist_ok=True)
    for secret in of_kind(kustomized(K8S / "secrets"), "Secret"):
        for key in secret["data"]:
            (held / key).write_text("x", encoding="utf-8")
    text = config_map(manifests, "relay.toml").replace(MOUNT, str(held))
    path = directory / "relay.toml"
    path.write_text(text + edit, encoding="utf-8")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RELAY_KAFKA_SASL_USERNAME", "relay")
        return settings_file.load(path)


def test_every_setting_is_one_of_the_programs(manifests: list[Manifest], tmp_path: Path) -> None:
    settings = loaded(manifests, tmp_path)
    assert settings.kafka.replication == 3
    assert settings.source.start is not None
    assert settings.loader.master.startswith("k8s://")
    with pytest.raises(settings_file.ConfigError, match="unknown key"):
        loaded(manifests, tmp_path, "\n[lauder]\nx = 1\n")
    assert problems(config_map(manifests, "relay.toml")), "negative control: no file is there"


def test_the_grace_period_outlasts_a_transaction(manifests: list[Manifest], tmp_path: Path) -> None:
    """By the time that a buffer takes; and a killed relay's session outlasts its restart."""
    settings = loaded(manifests, tmp_path)
    for pod in pods(manifests):
        if pod.labels["app.kubernetes.io/name"] in {"relay", "loader"}:
            grace = pod.spec["terminationGracePeriodSeconds"]
            assert grace > settings.relay.transaction_timeout_seconds + 15, pod.name


def test_every_file_that_is_named_is_mounted(manifests: list[Manifest]) -> None:
    """Each Secret that a pod names is one of k8s/secrets, and holds every password file."""
    secrets = {
        one["metadata"]["name"]: set(one["data"])
        for one in of_kind(kustomized(K8S / "secrets"), "Secret")
    }
    wanted = set(re.findall(rf'"{MOUNT}/(\w+)"', config_map(manifests, "relay.toml")))
    assert wanted == {"kafka", "clickhouse"}
    maps = {one["metadata"]["name"] for one in of_kind(manifests, "ConfigMap")}
    for pod in pods(manifests):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        for container in pod.spec["containers"]:
            mounts = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"]}
            held = mounts[MOUNT]["secret"]["secretName"]
            assert secrets[held] == wanted, pod.name
            users = {e["value"] for e in container.get("env", ()) if e["name"].endswith(USER)}
            assert users <= {held.removesuffix("-passwords")}, "another role's user"
        for volume in volumes.values():
            assert volume.get("configMap", {"name": next(iter(maps))})["name"] in maps


def test_executors_carry_what_the_driver_carries(manifests: list[Manifest]) -> None:
    """The Secret at the same path: workers read the file themselves."""
    drivers, executors = [], []
    for pod in pods(manifests):
        if pod.labels["app.kubernetes.io/name"] == "loader":
            drivers.append(pod)
        elif pod.labels["app.kubernetes.io/name"] == "loader-executor":
            executors.append(pod)
    assert drivers
    assert executors

    def held(spec: Manifest) -> str:
        (volume,) = [v for v in spec["volumes"] if v["name"] == "passwords"]
        return str(volume["secret"]["secretName"])

    assert {held(pod.spec) for pod in executors} == {held(pod.spec) for pod in drivers}
    assert {pod.spec["securityContext"]["runAsUser"] for pod in (*drivers, *executors)} == {10001}


def properties(manifests: list[Manifest]) -> dict[str, str]:
    lines = config_map(manifests, SPARK).splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", OVERLAYS)
def test_sparks_settings_name_what_is_there(name: str) -> None:
    """The driver's pod, service, ports, accounts, image and namespace."""
    built = overlay(name)
    given = properties(built)
    driver = named(built, "StatefulSet", "loader")
    (container,) = driver["spec"]["template"]["spec"]["containers"]
    pod = f"{driver['metadata']['name']}-0"
    assert given["spark.kubernetes.driver.pod.name"] == pod
    assert given["spark.driver.host"] == f"{pod}.{driver['spec']['serviceName']}"
    assert given["spark.kubernetes.namespace"] == driver["metadata"]["namespace"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert given["spark.kubernetes.container.image"] == "${env:LOADER_EXECUTOR_IMAGE}"
    assert env["LOADER_EXECUTOR_IMAGE"] == container["image"]
    ports = {one["name"]: str(one["containerPort"]) for one in container["ports"]}
    assert given["spark.driver.port"] == ports["driver"]
    assert given["spark.driver.blockManager.port"] == ports["blocks"]
    served = {p["name"]: str(p["port"]) for p in named(built, "Service", "loader")["spec"]["ports"]}
    assert served == ports
    for account in ("spark.kubernetes.authenticate.executor.serviceAccountName",):
        named(built, "ServiceAccount", given[account])
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    template = given["spark.kubernetes.executor.podTemplateFile"]
    assert template == f"{mounts['spark']}/executor-pod.yaml"
    memory = [
        int(given[f"spark.executor.{key}"].removesuffix("m"))
        for key in ("memory", "memoryOverhead")
    ]
    assert min(memory) >= 384, "below what Spark and pyarrow need to start"


def test_network_policies_let_through_what_the_settings_name(
    manifests: list[Manifest], tmp_path: Path
) -> None:
    """Kafka's and ClickHouse's ports, the driver's, and the ports that are served."""
    settings = loaded(manifests, tmp_path)
    outward = {
        str(port["port"])
        for rule in named(manifests, "NetworkPolicy", "names-and-servers")["spec"]["egress"]
        for port in rule["ports"]
    }
    kafka = {broker.rpartition(":")[2] for broker in settings.kafka.bootstrap.split(",")}
    assert kafka | {settings.clickhouse.url.rpartition(":")[2], "53"} == outward
    driver = named(manifests, "NetworkPolicy", "spark-driver")["spec"]
    given = properties(manifests)
    assert {str(port["port"]) for rule in driver["ingress"] for port in rule["ports"]} == {
        given["spark.driver.port"],
        given["spark.driver.blockManager.port"],
    }


def test_monitors_find_services_by_label_and_port(tmp_path: Path) -> None:
    manifests = with_components(tmp_path, "monitoring")
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    (wanted,) = monitor["spec"]["selector"]["matchExpressions"]
    services = {
        one["metadata"]["labels"][wanted["key"]]: {port["name"] for port in one["spec"]["ports"]}
        for one in of_kind(manifests, "Service")
    }
    assert set(wanted["values"]) == services.keys()
    for endpoint in monitor["spec"]["endpoints"]:
        assert all(endpoint["port"] in ports for ports in services.values())


def test_every_service_finds_its_pods(manifests: list[Manifest]) -> None:
    labels = [pod.labels for pod in pods(manifests)]
    for service in of_kind(manifests, "Service"):
        selector = service["spec"]["selector"].items()
        assert any(selector <= one.items() for one in labels), service["metadata"]["name"]


def test_a_changed_setting_rolls_the_pods_out(tmp_path: Path) -> None:
    """The ConfigMap's name holds a digest of it, and what mounts it follows."""
    copy = tmp_path / "k8s"
    shutil.copytree(K8S, copy)
    path = copy / "base" / "relay.toml"
    path.write_text(path.read_text(encoding="utf-8") + "\n[block]\nmax_rows = 5\n", "utf-8")
    before, after = overlay("small"), kustomized(copy / "overlays" / "small")

    def mounted(built: list[Manifest]) -> str:
        spec = named(built, "StatefulSet", "relay")["spec"]["template"]["spec"]
        (volume,) = [v for v in spec["volumes"] if v["name"] == "config"]
        return str(volume["configMap"]["name"])

    assert mounted(before) != mounted(after)
    named(after, "ConfigMap", mounted(after))


def test_what_comes_before_the_roll_out_is_the_doctor() -> None:
    """Chosen by a label, as its file says; its failure is the Job's."""
    before = [
        one
        for one in overlay("small")
        if one["metadata"].get("labels", {}).get("block-relay.io/phase") == "before"
    ]
    kinds = {one["kind"] for one in before}
    assert kinds == {"Job", "ConfigMap", "Namespace"}
    (job,) = of_kind(before, "Job")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] <= 1


def test_every_manifest_is_part_of_an_overlay() -> None:
    """No file lies beside, forgotten."""
    text = "".join(path.read_text(encoding="utf-8") for path in K8S.rglob("kustomization.yaml"))
    for path in {*K8S.rglob("*.yaml")} - {*(K8S / "chart").rglob("*")}:
        if path.name not in {"kustomization.yaml", "executor-pod.yaml"}:
            assert f"- {path.name}\n" in text, path
            assert list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
