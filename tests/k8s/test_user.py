"""Spark's JVM starts as the user of the image, in an environment that says nothing.

In a mount namespace of its own, where /etc/passwd is what the Dockerfile's line makes of this
machine's: the real entry point, and Hadoop's own question for the user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.k8s.built import K8S

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may take another user and mount"
)
NAMESPACE = """
set -eu
mount --bind "$1" /mnt
mount --bind "$2" /mnt/jars
mount --bind /mnt/etc/passwd /etc/passwd
mount --bind /mnt/etc/group /etc/group
uid=$3
cd /mnt
shift 3
exec setpriv --reuid="$uid" --regid="$uid" --clear-groups --no-new-privs \\
  env -i PATH=/mnt/bin:/usr/bin:/bin TMPDIR=/mnt/tmp sh image/entrypoint.sh "$@"
"""
WHO = (
    *("java", "-XshowSettings:properties", "-cp", "jars/*"),
    "org.apache.hadoop.security.UserGroupInformation",
)


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the entry point finds in the image."""
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    shutil.copytree(K8S / "image", root / "image")
    for name in ("jars", "bin", "etc", "tmp"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    tini = root / "bin" / "tini"
    tini.write_text('#!/bin/sh\nshift\nexec "$@"\n', encoding="utf-8")
    tini.chmod(0o755)
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", root / "etc" / name)
        (root / "etc" / name).chmod(0o644)
    return root


def add_users(root: Path) -> None:
    """Run the Dockerfile's lines that make users, once each."""
    text = (K8S / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in sorted(set(re.findall(r"^RUN (useradd .*)$", text, re.MULTILINE))):
        command = line.replace("useradd", f"useradd --prefix {root}", 1)
        subprocess.run(["/bin/sh", "-c", command], timeout=60, check=True, capture_output=True)


def run_as(image: Path, uid: int, *command: str) -> subprocess.CompletedProcess[str]:
    """The entry point with a command, as a user of that number."""
    jars = Path(pyspark.__path__[0]) / "jars"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", NAMESPACE, "sh"]
        + [str(word) for word in (image, jars, uid, *command)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_spark_knows_its_user(image: Path) -> None:
    add_users(image)
    done = run_as(image, 10001, *WHO)
    assert done.returncode == 0, done.stderr
    assert "User: relay" in done.stdout
    assert re.search(r"^Groups: relay", done.stdout, re.MULTILINE), "else a stack at each start"
    assert "Exception" not in done.stdout + done.stderr
    assert re.search(r"user\.home = /tmp$", done.stderr, re.MULTILINE), "Ivy writes there"


def test_hadoop_refuses_a_user_without_a_name(image: Path) -> None:
    """Negative control: by this error the loader never started on a cluster."""
    done = run_as(image, 10001, "env", "-u", "LD_PRELOAD", *WHO)
    assert done.returncode != 0
    assert "Invalid UID" in done.stderr


def test_a_user_that_the_cluster_picks_gets_a_name(image: Path) -> None:
    """libnss-wrapper reads the file; tests/cluster tries it with the image's own."""
    add_users(image)
    environment = dict(
        line.split("=", 1) for line in run_as(image, 1_000_650_000, "env").stdout.splitlines()
    )
    assert environment["LD_PRELOAD"] == "libnss_wrapper.so"
    assert environment["NSS_WRAPPER_PASSWD"] == "/mnt/tmp/passwd"
    lines = (image / "tmp" / "passwd").read_text(encoding="utf-8").splitlines()
    assert "relay:x:1000650000:1000650000::/tmp:/usr/sbin/nologin" in lines
    groups = (image / "tmp" / "group").read_text(encoding="utf-8").splitlines()
    assert "relay:x:1000650000:" in groups
    assert "LD_PRELOAD" not in run_as(image, 10001, "env").stdout, "which has one"
