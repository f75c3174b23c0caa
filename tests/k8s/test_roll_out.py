"""k8s/roll-out.sh: again and again, part after part, no further than a doctor that fails.

A program in kubectl's place keeps what a server would: which Secrets and Jobs there are, that a
Job cannot be changed, how the doctor ends, and that a loader is ready when its app has a journal.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.built import COMPONENTS, K8S, with_components

OF = " --selector app.kubernetes.io/name={}"
NO_PROGRAM = "app.kubernetes.io/name notin (relay, loader, verifier)"

PLAYED = '''#!{python}
"""Plays the server: state is files in a directory."""
import sys
from pathlib import Path

state = Path({state!r})
words = [w for w in sys.argv[1:] if w not in ("--namespace", "block-relay")]
with (state / "calls").open("a") as calls:
    print(*words, file=calls)
ends, app = (state / "ends").read_text(), (state / "app").read_text()
job = state / "job"
match words:
    case ["get", "secret", name, *_]:
        sys.exit(0 if (state / name).exists() else 1)
    case ["delete", "job", *_]:
        job.unlink(missing_ok=True)
    case ["apply", _, where, "--selector", "block-relay.io/phase=before"]:
        if job.exists():
            sys.exit("The Job doctor is invalid: spec.template: field is immutable")
        job.write_text(ends)
    case ["apply", _, where, *selector]:
        everything = where.endswith("overlays/small") and not selector
        if everything or selector[1:] == ["app.kubernetes.io/name=relay"]:
            with (state / "journals").open("a") as journals:
                print(app, file=journals)
    case ["get", "pods", "--selector", wanted, *_] if " in (" in wanted:
        if (state / "away").exists():
            sys.exit("Unable to connect to the server")
        pods = [line.split() for line in (state / "pods").read_text().splitlines()]
        for name, is_ready, of in pods:
            if name in wanted:
                print(is_ready, of, sep=":")
    case ["get", "configmap", name, "--ignore-not-found", *_]:
        print((state / name).read_text() if (state / name).exists() else "")
    case ["get", "job", _, _, output] if "volumes" in output:
        print((state / "config").read_text())
    case ["get", "job", *_]:
        print("SuccessCriteriaMet" if ends == "Complete" else "FailureTarget")
        print(ends)
    case ["logs", *_]:
        print("[pod/doctor-x/loader] right-table: GRANT INSERT ON shop.orders TO loader")
    case ["get", "statefulsets,deployments", "--selector", wanted, *_]:
        every = ["statefulset.apps/relay", "statefulset.apps/loader", "deployment.apps/verifier"]
        parts = dict(one.split("=") for one in wanted.split(","))
        name = parts.get("app.kubernetes.io/name", "")
        print(*(one for one in every if one.endswith(name)))
    case ["rollout", "status", what, *_]:
        stuck = state / "stuck"
        if stuck.exists() and stuck.read_text() == what:
            sys.exit(1)
        sys.exit("loader" in what and app not in (state / "journals").read_text().split())
'''


class Cluster:
    """The played server."""

    def __init__(self, directory: Path) -> None:
        self.state = directory
        for role in ("relay", "loader", "verifier"):
            (directory / f"{role}-passwords").touch()
        self.kubectl = directory / "kubectl"
        self.kubectl.write_text(PLAYED.format(python=sys.executable, state=str(directory)))
        self.kubectl.chmod(0o755)
        self.doctor_ends("Complete")
        (directory / "journals").write_text("shop\n")
        self.overlay_has("shop", "relay-config-0", 'app = "shop"\n')
        self.pods_are_ready(relay="True", loader="True")

    def overlay_has(self, app: str, config: str, toml: str) -> None:
        """Its configuration, under this name."""
        (self.state / "app").write_text(app)
        (self.state / "config").write_text(config)
        (self.state / config).write_text(toml)

    def pods_are_ready(self, config: str = "relay-config-0", **pods: str) -> None:
        """Which there are, by program, with the status of the condition Ready."""
        lines = [f"{program} {status} {config}" for program, status in pods.items()]
        (self.state / "pods").write_text("\n".join(lines))

    def doctor_ends(self, how: str) -> None:
        (self.state / "ends").write_text(how)

    def roll_out(self) -> subprocess.CompletedProcess[str]:
        (self.state / "calls").write_text("")
        return subprocess.run(
            [K8S / "roll-out.sh", K8S / "overlays" / "small"],
            env={"PATH": "/usr/bin:/bin", "KUBECTL": str(self.kubectl)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def calls(self, *verbs: str) -> list[str]:
        """What was asked of the server with these verbs, without the directory of the overlay."""
        lines = (self.state / "calls").read_text().replace(f" {K8S / 'overlays' / 'small'}", "")
        return [line for line in lines.splitlines() if line.startswith(verbs)]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_it_works_twice_and_after_a_failed_one(cluster: Cluster) -> None:
    """The Job of the last time is in the way of no later one."""
    for ends, status in (("Complete", 0), ("Complete", 0), ("Failed", 1), ("Complete", 0)):
        cluster.doctor_ends(ends)
        done = cluster.roll_out()
        assert done.returncode == status, done.stderr
        assert (f"apply --kustomize{OF.format('relay')}" in cluster.calls("apply")) is (status == 0)


def test_a_failed_doctor_is_shown(cluster: Cluster) -> None:
    cluster.doctor_ends("Failed")
    done = cluster.roll_out()
    assert "GRANT INSERT ON shop.orders TO loader" in done.stderr
    assert "the doctor failed; nothing else was applied" in done.stderr
    assert "next: fix what it says" in done.stderr


def test_a_missing_secret_is_named_before_anything_waits_for_it(cluster: Cluster) -> None:
    (cluster.state / "loader-passwords").unlink()
    done = cluster.roll_out()
    assert done.returncode == 1
    assert "no Secret loader-passwords" in done.stderr
    assert not [call for call in cluster.calls("apply") if "overlays" in call or "phase" in call]


def test_pods_that_do_not_come_end_it_with_their_log(cluster: Cluster) -> None:
    (cluster.state / "stuck").write_text("statefulset.apps/relay")
    done = cluster.roll_out()
    assert done.returncode == 1
    assert "statefulset.apps/relay does not run as applied" in done.stderr
    assert cluster.calls("logs statefulset.apps/relay")


def test_relays_are_last(cluster: Cluster) -> None:
    """The order of relay/docs/upgrade.md, each when the one before runs."""
    done = cluster.roll_out()
    assert done.returncode == 0, done.stderr
    steps = [call.partition(" --timeout")[0] for call in cluster.calls("apply", "rollout")]
    assert steps[1:9] == [
        "apply --kustomize --selector block-relay.io/phase=before",
        f"apply --kustomize --selector {NO_PROGRAM}",
        f"apply --kustomize{OF.format('verifier')}",
        "rollout status deployment.apps/verifier",
        f"apply --kustomize{OF.format('loader')}",
        "rollout status statefulset.apps/loader",
        f"apply --kustomize{OF.format('relay')}",
        "rollout status statefulset.apps/relay",
    ]
    assert all(step.startswith("rollout") for step in steps[9:])


def test_no_relay_is_changed_before_the_loader_runs(cluster: Cluster) -> None:
    """An older loader parks what a newer relay writes."""
    (cluster.state / "stuck").write_text("statefulset.apps/loader")
    done = cluster.roll_out()
    assert done.returncode == 1
    assert f"apply --kustomize{OF.format('loader')}" in cluster.calls("apply")
    assert f"apply --kustomize{OF.format('relay')}" not in cluster.calls("apply")
    heading = "Back to an earlier version"
    assert f"\n## {heading}\n" in (K8S / "README.md").read_text(encoding="utf-8")
    assert f"k8s/README.md#{heading.lower().replace(' ', '-')}" in done.stderr


@pytest.mark.parametrize("pods", [{}, {"relay": "False", "loader": "False"}])
def test_nothing_waits_for_a_loader_where_none_was_ready(
    cluster: Cluster, pods: dict[str, str]
) -> None:
    """As at the first time: a loader is ready when a relay has made the journal, no sooner."""
    cluster.pods_are_ready(**pods)
    (cluster.state / "stuck").write_text("statefulset.apps/loader")
    done = cluster.roll_out()
    assert done.returncode == 1, "the wait at the end"
    assert "neither relay nor loader of this app is ready" in done.stdout
    before = cluster.calls("apply", "rollout")
    assert before.index("apply --kustomize") < min(
        before.index(call) for call in before if call.startswith("rollout")
    )


@pytest.mark.parametrize(
    "pods",
    [{"relay": "False", "loader": "True"}, {"loader": "True"}, {"relay": "True"}],
    ids=["relays-that-end", "no-relay", "no-loader"],
)
def test_the_order_is_kept_beside_whatever_runs(cluster: Cluster, pods: dict[str, str]) -> None:
    """By the pods. Red before: a StatefulSet that is not there, as its pods were left alone, or has
    no ready relay, put new relays beside the old loader."""
    cluster.pods_are_ready(**pods)
    (cluster.state / "stuck").write_text("statefulset.apps/loader")
    done = cluster.roll_out()
    assert done.returncode == 1
    assert f"apply --kustomize{OF.format('loader')}" in cluster.calls("apply")
    assert not {"apply --kustomize", f"apply --kustomize{OF.format('relay')}"}.intersection(
        cluster.calls("apply")
    )


NEW = 'app = "shop2"  # was "shop"\n\n[kafka]\napp = "shop"\n'


@pytest.mark.parametrize("relay", ["False", "True"], ids=["relays-that-ended", "relays-that-run"])
def test_a_new_app_waits_for_no_loader_before_its_relays(cluster: Cluster, relay: str) -> None:
    """Its journal is theirs to make. Red before: no loader of it got ready, in any run."""
    cluster.pods_are_ready(relay=relay, loader="True")
    cluster.overlay_has("shop2", "relay-config-1", NEW)
    done = cluster.roll_out()
    assert done.returncode == 0, done.stderr
    assert "neither relay nor loader of this app is ready" in done.stdout
    cluster.pods_are_ready("relay-config-1", relay="False", loader="True")
    assert cluster.roll_out().returncode == 0
    assert f"apply --kustomize{OF.format('relay')}" in cluster.calls("apply"), "in order again"


@pytest.mark.parametrize(
    ("toml", "there"),
    [
        ("  app='shop' # as before\n[kafka]\n", True),
        ('"app" = "shop"\n[kafka]\napp = "other"\n', True),
        ('app = "shop2"\n', False),
    ],
    ids=["in-other-words", "not-understood", "its-pods-have-a-map-that-is-gone"],
)
def test_an_app_is_new_only_where_both_are_known(
    cluster: Cluster, toml: str, *, there: bool
) -> None:
    """Else the order is kept, which is right for the same app."""
    cluster.overlay_has("shop", "relay-config-1", toml)
    if not there:
        (cluster.state / "relay-config-0").unlink()
    assert cluster.roll_out().returncode == 0
    assert f"apply --kustomize{OF.format('relay')}" in cluster.calls("apply")
    assert "apply --kustomize" not in cluster.calls("apply")


def test_a_server_that_does_not_answer_is_not_taken_for_one_without_relays(
    cluster: Cluster,
) -> None:
    (cluster.state / "away").touch()
    done = cluster.roll_out()
    assert done.returncode == 1
    assert "apply --kustomize" not in cluster.calls("apply")


def test_on_the_way_back_the_loaders_pod_waits_for_commands() -> None:
    """By the patch in the README: all else stays, and no probe ends it."""
    (patch,) = re.findall(r"--patch '(\[.*?\])'", (K8S / "README.md").read_text("utf-8"), re.DOTALL)
    objects = yaml.safe_load_all((K8S / "base" / "loader.yaml").read_text("utf-8"))
    (found,) = [one for one in objects if one["kind"] == "StatefulSet"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    for one in json.loads(patch):
        where, _, key = one["path"].rpartition("/")
        assert where == "/spec/template/spec/containers/0"
        assert container.pop(key), "the server refuses a path that is not there"
        if one["op"] == "replace":
            container[key] = one["value"]
    assert container["args"] == ["sleep", "infinity"]
    assert not [key for key in container if key.endswith("Probe")]


@pytest.mark.parametrize("components", [(), COMPONENTS])
def test_every_object_is_of_one_step(tmp_path: Path, components: tuple[str, ...]) -> None:
    """So that the steps together apply all, and whatever runs is in the step that its name says."""
    steps = {"relay", "loader", "verifier", "doctor"}
    for one in with_components(tmp_path, *components):
        labels = one["metadata"].get("labels", {})
        program = labels.get("app.kubernetes.io/name")
        if one["kind"] in {"StatefulSet", "Deployment", "SparkApplication", "Job"}:
            assert program == one["metadata"]["name"]
        assert program is None or program in steps, one["metadata"]["name"]
        if labels.get("block-relay.io/phase") == "before" and one["kind"] != "Namespace":
            back = program == "doctor" or one["data"].keys() == {"relay.toml"}
            assert back, "more than the README puts back with relays"


def test_a_job_that_stays_is_refused(cluster: Cluster) -> None:
    """Negative control of the played server: by this the second roll-out failed."""
    cluster.roll_out()
    words = ["apply", "--kustomize", "x", "--selector", "block-relay.io/phase=before"]
    again = subprocess.run([cluster.kubectl, *words], capture_output=True, text=True, check=False)
    assert "immutable" in again.stderr
