"""Dead letters that the source topic does not accept, as their messages came compressed."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.topic_changes import set_topic
from tests.dead.letters import Command, in_source, marked, write

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

MOST = 30_000
"""Bytes that the source topic accepts at first."""
LETTERS = 12
LARGE = {3: 40_000, 8: 31_000}
"""Bytes of those that are larger, by their number."""


def value_of(number: int) -> bytes:
    return b"%d" % number * LARGE.get(number, 5_000)


@pytest.fixture
def letters(pipeline: Pipeline) -> list[bytes]:
    """Of which the small ones fit one by one, and not in one record batch."""
    values = write(pipeline, LETTERS, value_of)
    limit(pipeline, MOST)
    return values


def limit(pipeline: Pipeline, most: int) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    set_topic(admin, pipeline.source, max_message_bytes=most)


def test_the_others_are_sent_and_the_too_large_ones_once_they_fit(
    pipeline: Pipeline, letters: list[bytes]
) -> None:
    """Red before: the replay ended with the first, and said to lower block.chunk_bytes and to
    grant Write."""
    small = Counter(value for number, value in enumerate(letters) if number not in LARGE)

    said = Command(pipeline, "replay", "--run").end(5)
    assert f"sent {LETTERS - len(LARGE)} messages" in said
    assert in_source(pipeline) == small
    assert marked(pipeline) == LETTERS - len(LARGE)
    told = Command(pipeline, "replay", "--run", "--json").end(5)
    [tally] = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert (tally["messages"], len(tally["too_large"])) == (0, len(LARGE))

    enough = max(one["bytes"] for one in tally["too_large"])
    for text in (said, told):
        assert f"topic {pipeline.source} refused 2 messages as too large" in text
        assert f"max.message.bytes={enough}" in text
        assert "block.chunk_bytes" not in text
    limit(pipeline, enough)
    assert "sent 2 messages" in Command(pipeline, "replay", "--run").end(0)
    assert in_source(pipeline) == Counter(letters)
    assert marked(pipeline) == LETTERS


@pytest.mark.usefixtures("letters")
def test_what_is_too_large_for_the_client_is_named_likewise(pipeline: Pipeline) -> None:
    """Where kafka.client sets a limit of its own, the topic's alone would not help."""
    limit(pipeline, 1_000_000)
    config = pipeline.config('[kafka.client]\n"message.max.bytes" = 30000\n"batch.size" = 20000\n')

    said = Command(pipeline, "replay", "--run", config=config).end(5)
    assert f"sent {LETTERS - len(LARGE)} messages" in said
    assert "message.max.bytes in [kafka.client]" in said
    assert sum(in_source(pipeline).values()) == LETTERS - len(LARGE)
