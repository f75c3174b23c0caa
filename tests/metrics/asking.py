"""What a running program serves under `--http`, asked as Prometheus and Kubernetes do."""

from __future__ import annotations

import http.client
import re
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

_ADDRESS = re.compile(r"serving metrics and health.*?(127\.0\.0\.1:\d+)")


def address_in(log: str) -> str | None:
    """Where it serves, as its log says; None: it has not said yet."""
    found = _ADDRESS.search(log)
    return None if found is None else found[1]


def got(address: str, path: str) -> tuple[int, str]:
    """Status and body."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def values(address: str) -> Counter[str]:
    """The sum of each sample's values over its labels, by name; 0 for what is not there."""
    status, text = got(address, "/metrics")
    assert status == 200, text
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert "app" in sample.labels, f"{sample.name} does not say whose it is"
            found[sample.name] += sample.value  # type: ignore[assignment]
    return found
