"""What is built works where there is no checkout."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from relay.cli.docs import ROOT
from relay.cli.export import RULES
from tests.docs.documents import PATHS

FILES = ("relay/records.proto", "relay/py.typed", "relay/operate/page/page.html")


class Installed:
    """The programs of an installation, run in a directory of their own.

    Attributes:
        relay: how the program is started.
        directory: where.
        environment: with what.
    """

    def __init__(self, relay: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.relay, self.directory, self.environment = relay, directory, environment

    def prints(self, *arguments: str, timeout: float = 60) -> str:
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as setuptools builds it, before it is packed."""
    directory = tmp_path_factory.mktemp("built")
    scratch = ("egg_info", "--egg-base", str(directory), "build", "--build-base", str(directory))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import setuptools; setuptools.setup()",
            "-q",
            *scratch,
            "--build-lib",
            str(directory / "lib"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory / "lib"


def test_what_is_built_holds_what_it_needs(built: Path) -> None:
    """Also every document, and nothing of the tests but those."""
    for file in FILES:
        assert (built / file).is_file(), file
    for path in PATHS:
        assert (built / path).is_file() or (built / "relay/shared" / path).is_file(), path
    assert {one.name for one in built.iterdir()} == {"relay", "loader"}


def test_a_source_distribution_of_a_clean_checkout_is_whole(tmp_path: Path) -> None:
    """Without the list of files that an earlier build left in the checkout, which hides gaps."""
    setup = "import setuptools; setuptools.setup()"
    lists = ("egg_info", "--egg-base", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", setup, "-q", *lists, "sdist", "--dist-dir", str(tmp_path / "dist")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*PATHS, *FILES, RULES, "CHANGELOG.md", "setup.cfg", "pyproject.toml"} - names == set()


def test_it_works_away_from_the_repository(built: Path, tmp_path: Path) -> None:
    """Only the product's modules come from there; other packages are this environment's."""
    program = "import sys; from relay.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(built), *_elsewhere()])}
    compileall.compile_dir(built / "relay/shared", quiet=2)  # as pip does
    relay = [sys.executable, "-S", "-c", program]  # without the site that names the checkout
    where = [sys.executable, "-S", "-c", "import relay; print(relay.__file__)"]
    assert Installed(where, tmp_path, environment).prints().startswith(str(built))
    works_without_a_checkout(Installed(relay, tmp_path, environment))


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


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Built from the sdist, so that this is whole, too; with the demo: rows, relay, loader."""
    dist, home = tmp_path / "dist", tmp_path / "home"
    build = [sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*PATHS, "setup.cfg", RULES} <= names
    with zipfile.ZipFile(wheel) as packed:
        assert set(FILES) <= set(packed.namelist())
    home.mkdir()
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    install = [programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[demo]"]
    subprocess.run(install, check=True, timeout=900)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    works_without_a_checkout(Installed([str(programs / "relay")], home, environment))
    demo = Installed([str(programs / "relay")], home, environment)
    assert "EXACTLY ONCE: yes" in demo.prints("demo", "--rows", "20000", timeout=600)
