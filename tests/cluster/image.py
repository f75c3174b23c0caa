"""Builds the images without a container engine: the Dockerfile's own lines, in chroots.

    nice -n 10 python -m tests.cluster.image      # as root; Debian's debootstrap, minutes

Each stage is a directory: a copy of what its FROM names, in which its RUN lines are run by chroot
and its COPY lines by cp. In the place of the Python image stands a Debian of the same release with
Debian's Python. Prints each image's size as files, and as a compressed layer, which is what a node
pulls; and leaves both as archives that a container engine loads.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from relay.version import __version__
from tests.cluster import image_archive
from tests.k8s.built import K8S, ROOT

CACHE = Path.home() / ".cache" / "block-relay" / "image"
RELEASE = "bookworm"
IMAGES = {
    "relay": f"registry.example/block-relay:{__version__}",
    "loader": f"registry.example/block-relay-loader:{__version__}",
}
"""Stages of the Dockerfile, and their names in overlays."""
_BASE_PACKAGES = "python3-minimal,python3,libpython3-stdlib,ca-certificates,passwd"
_APT = "var/cache/apt"
_NOT_IN_ARCHIVES = (_APT, "proc/*", "usr/share/doc")
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def run(*words: str | Path, **environment: str) -> None:
    """Run it; raise where it fails."""
    subprocess.run([str(w) for w in words], check=True, env={**os.environ, **environment})


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Of a Dockerfile: name and the rest, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def base() -> Path:
    """In the place of the Python image."""
    root = CACHE / "base"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    tool = CACHE / "debootstrap"
    tool.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "debootstrap"], check=True, cwd=tool)
    (package,) = tool.glob("debootstrap_*.deb")
    run("dpkg", "-x", package, tool)
    mirror = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]
    run(
        *("sh", tool / "usr" / "sbin" / "debootstrap", "--variant=minbase"),
        *(f"--include={_BASE_PACKAGES}", RELEASE, root, mirror),
        DEBOOTSTRAP_DIR=str(tool / "usr" / "share" / "debootstrap"),
    )
    (root / "usr" / "local" / "bin" / "python").symlink_to("/usr/bin/python3")
    shutil.rmtree(root / "var" / "lib" / "apt" / "lists")
    for package in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
        package.unlink()
    (root / "complete").touch()
    return root


class Stage:
    """One of them.

    Args:
        root: its directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}
        self.directory = "/"
        self.config: dict[str, object] = {}

    def run(self, line: str) -> None:
        """Run a shell line in it, with this machine's settings of pip and its authorities."""
        given = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        given |= {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root"}
        given |= {"DEBIAN_FRONTEND": "noninteractive", **self.environment}
        script = f"cd {self.directory} && {line}"
        there = 'mount -t proc proc $0/proc && exec chroot $0 sh -c "$1"'  # Java asks for it
        own = ("unshare", "--mount", "sh", "-c", there, self.root, script)
        run("env", "-i", *map("=".join, given.items()), *own)

    def copy(self, words: list[str], stages: dict[str, Stage]) -> None:
        """COPY, from the repository or from another stage."""
        origin = ROOT
        if words[0].startswith("--from="):
            origin = stages[words.pop(0).partition("=")[2]].root
        *sources, to = words
        target = self.root / self.directory.lstrip("/") / to
        if to.startswith("/"):
            target = self.root / to.lstrip("/")
        for source in sources:
            found = origin / source.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, target, symlinks=True, ignore=_ignored)
            else:
                into = target / found.name if to.endswith("/") else target
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, into)


def _ignored(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


def stage(name: str, root: Path) -> Stage:
    """A new one: a copy of `root`, with what this machine needs to reach its registries."""
    target = CACHE / "stages" / name
    if target.exists():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    run("cp", "-a", root, target)
    for file in ("resolv.conf", "hosts"):  # which a container engine brings along
        shutil.copy(f"/etc/{file}", target / "etc" / file)
    shutil.copy(_AUTHORITIES, target / _AUTHORITIES.lstrip("/"))
    return Stage(target)


def build(text: str) -> dict[str, Stage]:
    """All stages of a Dockerfile, by name."""
    stages: dict[str, Stage] = {}
    now = Stage(Path("/nowhere"))
    for name, rest in instructions(text):
        if name == "FROM":
            of, _, called = rest.partition(" AS ")
            now = stages[called] = stage(called, stages[of].root if of in stages else base())
            if of in stages:
                now.directory = stages[of].directory
            if called.endswith("-build"):  # the Python image has pip
                now.run("apt-get update -q && apt-get install -qy --no-install-recommends "
                        "python3-pip python3-venv")  # fmt: skip
        elif name == "RUN":
            print(f"RUN {rest[:100]}", flush=True)
            now.run(rest)
        elif name == "COPY":
            now.copy(rest.split(), stages)
        elif name == "WORKDIR":
            now.directory = rest
            (now.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            pairs = dict(re.findall(r"(\w+)=(\S+)", rest))
            path = pairs.get("PATH", "").replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
            now.environment |= pairs | ({"PATH": path} if path else {})
        elif name in {"ENTRYPOINT", "CMD"}:
            now.config[name.capitalize()] = json.loads(rest)
        elif name == "USER":
            now.config["User"] = rest
    return stages


def archive(name: str) -> Path:
    """Of an image."""
    return CACHE / f"{name}.tar"


def write_archive(name: str, stage: Stage) -> None:
    """As the Dockerfile describes it."""
    env = [f"{key}={value}" for key, value in stage.environment.items()]
    config = {**stage.config, "Env": env, "WorkingDir": stage.directory}
    image_archive.write(stage.root, IMAGES[name], config, archive(name), _NOT_IN_ARCHIVES)


def sizes(root: Path) -> tuple[float, float]:
    """Megabytes as files, and as a compressed layer; without apt's caches, as the Python image."""
    files = subprocess.run(
        ["du", "--summarize", "--block-size=1", f"--exclude={_APT}", root],
        capture_output=True,
        text=True,
        check=True,
    )
    packed = subprocess.run(
        [
            *("sh", "-c"),
            f"tar -C {shlex.quote(str(root))} --exclude=./{_APT} -c . | gzip -6 | wc -c",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(files.stdout.split()[0]) / 1e6, int(packed.stdout) / 1e6


def main() -> None:
    """Build them, and say how large they are."""
    if os.geteuid() != 0:
        sys.exit("only root may chroot: run it as root")
    stages = build((K8S / "Dockerfile").read_text(encoding="utf-8"))
    for name in ("base", *IMAGES):
        files, packed = sizes(base() if name == "base" else stages[name].root)
        print(f"{name}: {files:.0f} MB as files, {packed:.0f} MB compressed", flush=True)
    for name, called in IMAGES.items():
        write_archive(name, stages[name])
        print(f"{called}: {archive(name)}", flush=True)


if __name__ == "__main__":
    main()
