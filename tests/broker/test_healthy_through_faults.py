"""Health of a relay whose group rebalances, and whose broker goes away for a while."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from tests.metrics.asking import address_in, got

if TYPE_CHECKING:
    from tests.broker.proxied_pipeline import ProxiedPipeline


def test_alive_all_the_time_and_not_ready_while_the_broker_is_away(
    proxied_pipeline: ProxiedPipeline,
) -> None:
    """Asked ever again meanwhile, /healthz never fails; /readyz says why, and comes back."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    config = pipeline.config('[kafka.client]\n"statistics.interval.ms" = 200\n')
    process = pipeline.start("a", config, arguments=["--http", "127.0.0.1:0"])
    pipeline.until(lambda: address_in(pipeline.log(process)) is not None, "the address")
    address = address_in(pipeline.log(process)) or ""
    unwell: list[str] = []
    over = threading.Event()
    asking = threading.Thread(target=ask, args=(address, over, unwell))
    asking.start()
    try:
        pipeline.until(lambda: got(address, "/readyz")[0] == 200, "readiness")
        pipeline.send(range(100))
        pipeline.start("b", pipeline.config())
        pipeline.until(lambda: pipeline.log(process).count(" assigned ") >= 2, "the rebalance")
        pipeline.until(lambda: got(address, "/readyz")[0] == 200, "readiness after the rebalance")
        proxy.refuse()
        pipeline.until(lambda: "servers" in failed(address), "no readiness without a broker")
        proxy.heal()
        pipeline.until(lambda: got(address, "/readyz")[0] == 200, "readiness again")
        pipeline.send(range(100, 200), partition=1)
        pipeline.exactly_once()
    finally:
        over.set()
        asking.join()
    assert process.poll() is None
    assert unwell == []


def ask(address: str, over: threading.Event, unwell: list[str]) -> None:
    """Note every answer of /healthz that is not 200, and that there was none."""
    while not over.wait(0.05):
        try:
            status, body = got(address, "/healthz")
        except OSError as error:
            status, body = 0, repr(error)
        if status != 200:
            unwell.append(body)


def failed(address: str) -> list[str]:
    """The checks of /readyz that say no."""
    found: list[str] = json.loads(got(address, "/readyz")[1])["failed"]
    return found
