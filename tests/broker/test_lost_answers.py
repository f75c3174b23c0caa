"""A request that reached the broker and whose answer was lost is neither lost nor done twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.proxy_wire import Api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.proxied_pipeline import ProxiedPipeline

EVERY = 10_000
"""More answers than a relay asks for until it gives the commit up."""


def patient(pipeline: ProxiedPipeline) -> Path:
    """The client hears of silence early, and no transaction times out, on a slow machine too."""
    return pipeline.config(
        '[kafka.client]\n"socket.timeout.ms" = 2000',
        session_timeout_seconds=40.0,
        transaction_timeout_seconds=30.0,
    )


@pytest.mark.parametrize(
    ("api", "answers", "fate"),
    [
        (Api.INIT_PRODUCER_ID, 2, "unanswered"),
        (Api.ADD_PARTITIONS_TO_TXN, 2, "unanswered"),
        (Api.PRODUCE, 2, "unanswered"),
        (Api.PRODUCE, 1, "muted"),
        (Api.ADD_OFFSETS_TO_TXN, 2, "unanswered"),
        (Api.TXN_OFFSET_COMMIT, 2, "unanswered"),
        (Api.END_TXN, 2, "unanswered"),
        (Api.END_TXN, 1, "muted"),
    ],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_lost_answers(proxied_pipeline: ProxiedPipeline, api: Api, answers: int, fate: str) -> None:
    """The connection ends before the answer, or the client has to time out: every row once."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    before = proxy.counts()[fate]
    if api is not Api.INIT_PRODUCER_ID:  # which a producer asks for when it is made
        pipeline.supervise("a", patient(pipeline))
        pipeline.started()
    proxy.drop_answers(api, answers, pipeline.client("a"), silent=fate == "muted")
    if api is Api.INIT_PRODUCER_ID:
        pipeline.supervise("a", patient(pipeline))

    pipeline.send(range(100))
    pipeline.send(range(100, 200), partition=1)
    pipeline.until(lambda: proxy.counts()[fate] == before + answers, "the loss of the answers")
    pipeline.send(range(200, 300))
    pipeline.exactly_once()


def test_commit_whose_answer_never_comes(proxied_pipeline: ProxiedPipeline) -> None:
    """The outcome is unknown for good: the producer is replaced, the truth is read, no second copy.

    Whether the commit happened is decided by what the broker says afterwards alone.
    """
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    pipeline.supervise("a", pipeline.config())
    pipeline.started()
    proxy.drop_answers(Api.END_TXN, EVERY, pipeline.client("a"))
    pipeline.send(range(100))
    pipeline.until(lambda: sum(pipeline.rows().values()) == 100, "the commit on the broker")
    pipeline.until(lambda: "for too long" in pipeline.logs(), "the relay gives the commit up")
    proxy.heal()

    pipeline.send(range(100, 200))
    pipeline.exactly_once()
