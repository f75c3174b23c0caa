"""A Spark standalone cluster on loopback, of the pip package's jars: a master and two workers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from relay.dev import process
from relay.program import java
from tests.broker.pipeline import wait_until

START_SECONDS = 120.0
"""For a JVM on a crowded machine."""
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER = "master"
_WORKERS = ("worker-0", "worker-1")
_BACKEND = "CoarseGrainedExecutorBackend"
_SOON_UP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SMALL = f"-Xmx256m {_SOON_UP}"


@dataclass(frozen=True)
class Cluster:
    """Its address, and the directory under which its processes run."""

    directory: Path
    master: str

    def executors(self) -> list[psutil.Process]:
        """JVMs that this cluster's workers have started for a loader."""
        workers = [process.find(self.directory, name) for name in _WORKERS]
        children = [child for one in workers if one is not None for child in one.children()]
        return [child for child in children if any(_BACKEND in part for part in _command(child))]

    def environment(self, failpoint: str = "", cores: int = 2) -> dict[str, str]:
        """Of a loader, whose executors get the failpoint; each has one core."""
        options = {
            "spark.cores.max": str(cores),
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": _SOON_UP,
            "spark.executor.extraJavaOptions": _SOON_UP,
            "spark.executorEnv.RELAY_FAILPOINT": failpoint,
        }
        given = " ".join(f"--conf '{name}={value}'" for name, value in options.items() if value)
        return {**_LOOPBACK, "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"}


_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Starts it, and ends what it started."""
    directory.mkdir()
    try:
        _start(directory, _MASTER, "master.Master")
        log = process.log_file(directory, _MASTER)
        process.await_ready(
            directory, _MASTER, lambda: _ADDRESS.search(log.read_text()) is not None, START_SECONDS
        )
        match = _ADDRESS.search(log.read_text())
        assert match is not None
        for name in _WORKERS:
            work = str(directory / name)
            _start(directory, name, "worker.Worker", "--cores", "1", "--work-dir", work, match[1])
        for name in _WORKERS:
            said = process.log_file(directory, name)
            process.await_ready(
                directory,
                name,
                lambda said=said: "Successfully registered" in said.read_text(),  # type: ignore[misc]
                START_SECONDS,
            )
        yield Cluster(directory, match[1])
    finally:
        for name in (*_WORKERS, _MASTER):
            _end(directory, name)


def _start(directory: Path, name: str, what: str, *arguments: str) -> None:
    home = Path(pyspark.__path__[0])
    command = [str(java.require()), *_SMALL.split(), f"-Dof={directory}"]  # by which it is known
    command += ["-Dspark.master.rest.enabled=false"]  # its port is fixed, and may be taken
    command += ["-cp", str(home / "jars" / "*"), f"org.apache.spark.deploy.{what}"]
    command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
    (core,) = (home / "jars").glob("spark-core_*.jar")
    environment = {
        **_LOOPBACK,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(directory),
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
    }
    process.spawn(directory, name, command, environment)


def _end(directory: Path, name: str) -> None:
    """The server and the executors that it started, which it may leave behind."""
    server = process.find(directory, name)
    children = [] if server is None else server.children(recursive=True)
    process.end(directory, name)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    wait_until(lambda: not any(map(runs, children)), f"the end of what {name} started")


def runs(one: psutil.Process) -> bool:
    """Whether it has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    return False


def _command(one: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return one.cmdline()
    return []
