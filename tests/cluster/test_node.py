"""The manifests on a node with a real kubelet: their pods bring rows to ClickHouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.node.__main__ import SECONDS, walk, what_is_missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS + 60)]


def test_rows_come_once_through_pods_that_are_deleted_by_force(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With TLS, SCRAM, the printed rights and enforced network policies; relay and loader deleted,
    rolled out twice, drained of relays while ClickHouse is away."""
    if missing := what_is_missing():
        pytest.skip(missing)
    status = walk(tmp_path)
    said = capfd.readouterr().out
    assert (status, said.count("each once")) == (0, 10), said
