"""`relay run --http`: what it serves while it works."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from relay.operate.metrics.client_definitions import CLIENTS
from relay.operate.metrics.definitions import CURRENT
from tests.docs.process_metrics import PROCESS
from tests.metrics.asking import address_in, got, values

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def missing(address: str) -> list[str]:
    """Listed metrics that are not served; what is counted comes with its first event, and what
    is held of a table while something is held."""
    found = values(address)
    steady = (one for one in (*CURRENT, *CLIENTS, *PROCESS) if "table" not in one.labels)
    return [one.name for one in steady if one.name not in found]


def test_a_relay_serves_metrics_and_health(pipeline: Pipeline) -> None:
    """Alive at once, ready with its partitions; rows are counted, and no lag is left though
    transaction markers are; every metric of its clients is there."""
    config = pipeline.config('[kafka.client]\n"statistics.interval.ms" = 200\n')
    process = pipeline.start("m", config, arguments=["--http", "127.0.0.1:0"])
    pipeline.until(lambda: address_in(pipeline.log(process)) is not None, "the address")
    address = address_in(pipeline.log(process)) or ""
    assert got(address, "/healthz")[0] == 200
    pipeline.until(lambda: got(address, "/readyz")[0] == 200, "readiness")
    pipeline.send(range(100))
    pipeline.send(range(100, 300), partition=1)
    pipeline.until(lambda: values(address)["relay_rows_committed_total"] == 300, "300 rows")
    pipeline.until(lambda: missing(address) == [], "every metric")
    pipeline.until(lambda: values(address)["relay_partition_lag_offsets"] == 0, "no lag")
    status, said = got(address, "/healthz")
    assert (status, json.loads(said)["failed"]) == (200, [])
    process.send_signal(signal.SIGTERM)
    pipeline.until(lambda: process.poll() is not None, "the end", pipeline.end_seconds)
    assert process.returncode == 0
    pipeline.exactly_once()
