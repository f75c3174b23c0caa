"""An overlay outside the checkout, as the README has it: nothing in the checkout is changed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from relay.version import __version__
from tests.k8s.built import K8S, kustomized, of_kind, overlay

TOML = 'app = "mine"\n'


def own(directory: Path) -> Path:
    """The README's overlay, with a configuration of its own."""
    readme = (K8S / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n# ~/mine/kustomization.yaml\n(.*?)```", readme, re.DOTALL)
    checkout = os.path.relpath(K8S.resolve(), directory.resolve())
    made = text.replace("../block-relay/k8s", checkout)
    assert made != text
    (directory / "kustomization.yaml").write_text(made, encoding="utf-8")
    (directory / "relay.toml").write_text(TOML, encoding="utf-8")
    return directory


def test_its_configuration_and_images_are_used(tmp_path: Path) -> None:
    found, before = kustomized(own(tmp_path)), overlay("small")
    (config,) = [one for one in of_kind(found, "ConfigMap") if "relay.toml" in one["data"]]
    assert config["data"] == {"relay.toml": TOML}
    labels = [
        one["metadata"]["labels"]
        for one in (config, *of_kind(before, "ConfigMap"))
        if "relay.toml" in one["data"]
    ]
    assert labels[0] == labels[1], "the doctor is asked before the rest is applied"
    assert len(found) == len(before)
    text, name = str(found), config["metadata"]["name"]
    assert text.count(f"'name': '{name}'") == str(before).count("'relay-config-")
    assert "registry.example/block-relay" not in text
    assert f"registry.example/mine/block-relay-loader:{__version__}" in text
