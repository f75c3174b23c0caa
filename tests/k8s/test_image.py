"""The image: pinned, not root, and its entry point starts what Spark asks for."""

from __future__ import annotations

import configparser
import itertools
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.k8s.built import K8S, OVERLAYS, ROOT, overlay, pods

DOCKERFILE = (K8S / "Dockerfile").read_text(encoding="utf-8")


def test_bases_name_an_exact_version() -> None:
    """And every stage begins with the one that is named."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"[a-z/.]+:\d+\.\d+\.\d+-\w+-\w+(@sha256:[0-9a-f]{64})?", base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    named = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert set(stages) == {"${BASE}", "relay-build"}
    assert named == ["relay-build", "loader-build", "loader", "relay"]


def test_the_user_is_that_of_the_manifests() -> None:
    (user,) = set(re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE))
    assert set(re.findall(r"^RUN useradd --uid (\d+)", DOCKERFILE, re.MULTILINE)) == {user}
    for name in OVERLAYS:
        for pod in pods(overlay(name)):
            assert pod.spec["securityContext"]["runAsUser"] == int(user)


def test_what_is_copied_is_there_and_let_through() -> None:
    allowed = (K8S / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        name
        for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for name in words.split()[:-1]
    ]
    assert len(copied) > 5
    for name in copied:
        assert (ROOT / name).exists(), name
        within = [f"!{one}" for one in (name, *map(str, Path(name).parents))]
        assert set(within) & set(allowed), name


def test_pinned_packages_are_within_their_ranges() -> None:
    """What the image installs is what setup.cfg allows."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = {
        canonicalize_name(Requirement(line).name): Requirement(line)
        for line in (
            setup["options"]["install_requires"] + setup["options.extras_require"]["loader"]
        ).splitlines()
        if line and not line.startswith("#")
    }
    lines = (K8S / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    shared = wanted.keys() & pins.keys()
    assert len(shared) > 8
    for name in shared:
        assert wanted[name].specifier.contains(pins[name]), f"{name} {pins[name]}"


@pytest.fixture
def entrypoint(tmp_path: Path) -> Path:
    """Beside programs of the same names that only say how they were called."""
    for name in ("tini", "java", "python"):
        said = "echo /spark" if name == "python" else 'printf "%s\\n" "$@"'
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{said}\n", encoding="utf-8")
        program.chmod(0o755)
    return tmp_path


def called(directory: Path, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["/bin/sh", K8S / "image" / "entrypoint.sh", *arguments],
        env={"PATH": f"{directory}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.splitlines()


EXECUTOR = {
    "SPARK_JAVA_OPT_0": "-Dfirst=1",
    "SPARK_JAVA_OPT_10": "-Dsecond=2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@loader-0.loader:7078",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "loader-exec-7",
}
"""What Spark 4.3 sets in an executor's container."""


def test_an_executor_is_started_with_what_spark_set(entrypoint: Path) -> None:
    words = called(entrypoint, "executor", **EXECUTOR)
    assert words[:2] == ["--", "java"]
    given = dict(itertools.pairwise(words))
    assert {"-Dfirst=1", "-Dsecond=2", "-Xmx512m"} <= set(words)
    assert given["-cp"] == "/spark/conf:/spark/jars/*"
    assert "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend" in words
    assert given["--driver-url"] == EXECUTOR["SPARK_DRIVER_URL"]
    assert given["--executor-id"] == "7"
    assert given["--podName"] == "loader-exec-7"


def test_an_executor_without_its_environment_does_not_start(entrypoint: Path) -> None:
    """Negative control: nothing is guessed."""
    lacking = {key: value for key, value in EXECUTOR.items() if key != "SPARK_DRIVER_URL"}
    with pytest.raises(subprocess.CalledProcessError):
        called(entrypoint, "executor", **lacking)


def test_a_driver_is_submitted_and_a_command_is_run(entrypoint: Path) -> None:
    words = called(entrypoint, "driver", "--x", "y", SPARK_DRIVER_BIND_ADDRESS="10.0.0.2")
    assert words[1] == "/spark/bin/spark-submit"
    assert words[-2:] == ["--x", "y"]
    assert "spark.driver.bindAddress=10.0.0.2" in words
    assert called(entrypoint, "relay", "run", "a b") == ["--", "relay", "run", "a b"]
