"""What is built works where there is no checkout."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from relay.cli.docs import ROOT
from relay.cli.export import RULES
from relay.dev.layout import free_ports
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, wait_until
from tests.demo.left_running import running_in
from tests.docs.documents import PATHS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

FILES = ("relay/records.proto", "relay/py.typed", "relay/operate/page/page.html")


class Installed(NamedTuple):
    """A program of an installation, run in a directory of its own."""

    relay: list[str]
    """How it is started."""
    directory: Path
    environment: dict[str, str]

    def prints(self, *arguments: str, timeout: float = 240) -> str:
        """Return what it prints; it has to end with status 0."""
        done = subprocess.run(
            [*self.relay, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        """It runs for as long as the context; then SIGTERM ends it with status 0."""
        log = self.directory / f"{arguments[0]}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.relay, *arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield
            process.terminate()
            assert process.wait(60) == 0, log.read_text(encoding="utf-8")
        finally:
            process.kill()
            process.wait()


def works_without_a_checkout(installed: Installed) -> None:
    """Every document, the rules, the dashboard, the manifests, and a configuration."""
    listed = installed.prints("docs", "--json")
    assert "Only in the source repository" not in listed
    names = [one["name"] for one in json.loads(listed)]
    assert len(names) == len(PATHS) + 1  # the change log
    for name in ("tutorial", "kubernetes", "speed", "changelog", "spark"):
        assert installed.prints("docs", name).startswith("# "), name
    rules = yaml.safe_load(installed.prints("export", "alerts"))
    assert rules == yaml.safe_load((ROOT / RULES).read_text(encoding="utf-8"))["spec"]
    assert json.loads(installed.prints("export", "dashboard"))["panels"]
    installed.prints("export", "kubernetes", "manifests")
    copied = sorted(installed.directory.glob("manifests/**/*"))
    assert [one.relative_to(installed.directory / "manifests") for one in copied] == [
        one.relative_to(ROOT / "k8s")
        for one in sorted(ROOT.glob("k8s/**/*"))
        if "__pycache__" not in one.parts
    ]
    installed.prints("config", "init", "relay.toml", "--short")
    assert "ok" in installed.prints("config", "check")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel made of it, as a release builds them from a clean checkout."""
    directory = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, directory / "source", ignore=_left_in_a_checkout)
    build = [sys.executable, "-m", "build", "--outdir", directory, directory / "source"]
    done = subprocess.run(build, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def _left_in_a_checkout(directory: str, names: list[str]) -> set[str]:
    """What is no source: builds write into a checkout, and tests must not."""
    top = {"build", "dist"} if Path(directory) == ROOT else set()
    return {one for one in names if one in top or one.startswith(".") or one.endswith(".egg-info")}


@pytest.fixture(scope="module")
def built(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel holds."""
    directory = tmp_path_factory.mktemp("lib")
    with zipfile.ZipFile(distributions[1]) as packed:
        packed.extractall(directory)
    return directory


@pytest.fixture(scope="module")
def installed(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The wheel in an environment that was empty, with what it says that it needs."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory / "venv", symlinks=True, with_pip=True)
    programs = directory / "venv/bin"
    # Modules are compiled when they are imported: most of these never are.
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, f"{distributions[1]}[demo]"], check=True, timeout=600)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    home = directory / "home"
    home.mkdir()
    return Installed([str(programs / "relay")], home, environment)


def test_what_is_built_holds_what_it_needs(built: Path) -> None:
    """Also every document, and nothing of the tests but those."""
    for file in FILES:
        assert (built / file).is_file(), file
    for path in PATHS:
        assert (built / path).is_file() or (built / "relay/shared" / path).is_file(), path
    names = {one.name for one in built.iterdir() if not one.name.endswith(".dist-info")}
    assert names == {"relay", "loader"}


def test_a_source_distribution_of_a_clean_checkout_is_whole(
    distributions: tuple[Path, Path],
) -> None:
    """Without the list of files that an earlier build left in the checkout, which hides gaps."""
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*PATHS, *FILES, RULES, "CHANGELOG.md", "setup.cfg", "pyproject.toml"} - names == set()


@pytest.mark.long  # 227 s on a busy machine: an environment is made anew
def test_it_works_away_from_the_repository(installed: Installed) -> None:
    """All of its modules are its own."""
    python = str(Path(installed.relay[0]).with_name("python"))
    where = [python, "-c", "import relay, loader; print(relay.__file__, loader.__file__)"]
    found = Installed(where, installed.directory, installed.environment).prints().split()
    environment = installed.directory.parent / "venv"
    assert [Path(one).is_relative_to(environment) for one in found] == [True, True]
    works_without_a_checkout(installed)


@pytest.mark.servers
@pytest.mark.long  # Spark starts twice, without its archive
def test_its_demo_ends_with_yes_and_leaves_nothing_running(
    installed: Installed, tmp_path: Path
) -> None:
    """The whole, smaller, as a user starts it: killed in the middle, every row arrives once."""
    directory = tmp_path / "demo"
    text = installed.prints("demo", "--rows", "20000", "--directory", str(directory), timeout=500)
    assert text.splitlines()[-1] == "EXACTLY ONCE: yes"
    killed = re.search(r"SIGKILL to demo-0 and the loader \((\d+) processes\): ([\d,]+)", text)
    assert killed is not None, text
    assert int(killed[1]) >= 3  # the relay, the loader, its JVM
    assert 0 < int(killed[2].replace(",", "")) < 20_000
    assert "Newark Liberty" in text
    assert running_in(directory) == []


@pytest.mark.servers
@pytest.mark.long  # it starts once, which is 80 s beside other tests
def test_its_relay_and_loader_bring_the_rows_of_a_file(
    installed: Installed,
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    config = str(pipeline.config())
    (installed.directory / "t.csv").write_text("id,v\n1,one\n2,two\n", encoding="utf-8")
    installed.prints("produce", config, "t.csv", "--table", pipeline.table)
    with installed.running("run", config, "--member", "installed"):
        wait_until(lambda: pipeline.has_blocks_of("installed"), "a block")
    loader = installed._replace(relay=[str(Path(installed.relay[0]).with_name("loader"))])
    loader.prints("run", config, "--once", "--master", "local[1]", timeout=180)
    rows = client.query(f"SELECT id, v FROM {pipeline.table} ORDER BY id").result_rows
    assert rows == [(1, "one"), (2, "two")]


@pytest.mark.long  # 133 s on a busy machine: an environment is made anew
def test_its_verifier_serves_the_page(installed: Installed, pipeline: Pipeline) -> None:  # noqa: F811
    """Before any relay has run."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with installed.running("verify", str(pipeline.config()), "--follow", "--http", address):
        wait_until(lambda: "<title>" in page(address), "the page")


def page(address: str) -> str:
    """What is served; empty: nothing yet."""
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return ""


def test_a_package_without_the_files_is_found(built: Path, tmp_path: Path) -> None:
    """Negative control."""
    lib = tmp_path / "lib"
    shutil.copytree(built, lib, ignore=shutil.ignore_patterns("shared"))
    program = "import sys; from relay.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(lib), *_elsewhere()])}
    relay = [sys.executable, "-S", "-c", program]
    with pytest.raises(AssertionError):
        works_without_a_checkout(Installed(relay, tmp_path, environment))


def _elsewhere() -> list[str]:
    """Where other packages are."""
    return [one for one in sys.path if one and Path(one) != ROOT and "site-packages" in one]
