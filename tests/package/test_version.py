"""The version is in relay/version.py; every place that repeats it says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.version import __version__

ROOT = Path(__file__).parents[2]
NUMBER = r"(\d+\.\d+\.\d+)"
IMAGE = rf"registry\.example/block-relay(?:-loader)?:{NUMBER}"
PLACES = {
    "k8s/overlays/small/kustomization.yaml": (rf'newTag: "{NUMBER}"', 2),
    "k8s/overlays/large/kustomization.yaml": (rf'newTag: "{NUMBER}"', 2),
    "k8s/Dockerfile": (IMAGE, 2),
    "k8s/README.md": (IMAGE, 2),
    "k8s/chart/Chart.yaml": (rf"(?m)^(?:version|appVersion): {NUMBER}$", 2),
    "k8s/chart/values.yaml": (IMAGE, 2),
    "relay/docs/upgrade.md": (rf"This is version {NUMBER}", 1),
}
"""Files, with how the version looks there and how often."""
DOCUMENTS = ("k8s", "relay/docs", "loader/docs")


def repeated(text: str, how: str) -> list[str]:
    return re.findall(how, text)


@pytest.mark.parametrize("path", PLACES)
def test_each_place_says_the_version(path: str) -> None:
    how, times = PLACES[path]
    text = (ROOT / path).read_text(encoding="utf-8")
    assert repeated(text, how) == [__version__] * times


def test_no_other_place_repeats_it() -> None:
    files = [
        ROOT / "README.md",
        *(file for one in DOCUMENTS for file in (ROOT / one).rglob("*") if file.is_file()),
    ]
    said = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.]*\d)".encode())
    found = {f.relative_to(ROOT).as_posix() for f in files if said.search(f.read_bytes())}
    assert found == PLACES.keys()


def test_the_newest_release_of_the_change_log_is_this_one() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(rf"(?m)^## \[{NUMBER}\]", changes)[0] == __version__


def test_a_place_that_was_forgotten_is_found() -> None:
    """Negative control."""
    how, _ = PLACES["k8s/README.md"]
    assert repeated("docker build -t registry.example/block-relay:0.0.9 .", how) == ["0.0.9"]


def test_a_release_has_each_heading_once() -> None:
    """In the order of Keep a Changelog."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *releases = re.split(r"(?m)^## ", changes)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for one in releases:
        headings = re.findall(r"(?m)^### (\w+)$", one)
        assert headings == sorted(set(headings), key=order.index), one.splitlines()[0]
