"""k8s/roll-out.sh: again and again, and no further than a doctor that fails.

A program in kubectl's place keeps what a server would: which Secrets and Jobs there are, that a
Job cannot be changed, and how the doctor ends.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.k8s.built import K8S

PLAYED = '''#!{python}
"""Plays the server: state is files in a directory."""
import sys
from pathlib import Path

state = Path({state!r})
words = [w for w in sys.argv[1:] if w not in ("--namespace", "block-relay")]
with (state / "calls").open("a") as calls:
    print(*words, file=calls)
ends = (state / "ends").read_text()
job = state / "job"
match words:
    case ["get", "secret", name, *_]:
        sys.exit(0 if (state / name).exists() else 1)
    case ["delete", "job", *_]:
        job.unlink(missing_ok=True)
    case ["apply", _, where, "--selector", _]:
        if job.exists():
            sys.exit("The Job doctor is invalid: spec.template: field is immutable")
        job.write_text(ends)
    case ["apply", _, where]:
        pass
    case ["get", "job", *_]:
        print("SuccessCriteriaMet" if ends == "Complete" else "FailureTarget")
        print(ends)
    case ["logs", *_]:
        print("[pod/doctor-x/loader] right-table: GRANT INSERT ON shop.orders TO loader")
    case ["get", "statefulsets,deployments", *_]:
        print("statefulset.apps/relay deployment.apps/verifier")
    case ["rollout", "status", what, *_]:
        sys.exit(1 if (state / "stuck").exists() else 0)
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

    def applied_everything(self) -> bool:
        calls = (self.state / "calls").read_text().splitlines()
        return any(c.startswith("apply") and c.endswith("overlays/small") for c in calls)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_it_works_twice_and_after_a_failed_one(cluster: Cluster) -> None:
    """The Job of the last time is in the way of no later one."""
    for ends, status in (("Complete", 0), ("Complete", 0), ("Failed", 1), ("Complete", 0)):
        cluster.doctor_ends(ends)
        done = cluster.roll_out()
        assert done.returncode == status, done.stderr
        assert cluster.applied_everything() is (status == 0)


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
    assert "selector block-relay.io/phase=before" not in (cluster.state / "calls").read_text()


def test_pods_that_do_not_come_end_it_with_their_log(cluster: Cluster) -> None:
    (cluster.state / "stuck").touch()
    done = cluster.roll_out()
    assert done.returncode == 1
    assert "statefulset.apps/relay does not run as applied" in done.stderr
    assert "logs statefulset.apps/relay" in (cluster.state / "calls").read_text()


def test_a_job_that_stays_is_refused(cluster: Cluster) -> None:
    """Negative control of the played server: by this the second roll-out failed."""
    cluster.roll_out()
    words = ["apply", "--kustomize", "x", "--selector", "y"]
    again = subprocess.run([cluster.kubectl, *words], capture_output=True, text=True, check=False)
    assert "immutable" in again.stderr
