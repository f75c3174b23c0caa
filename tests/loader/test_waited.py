"""Who waits for a server says for which, and what a person could do."""

from __future__ import annotations

from typing import Any

from loader.journal.startup import waited
from relay.errors import Unavailable
from tests.config.test_kafka_clients import settings


def test_what_is_waited_for_has_its_next_step() -> None:
    """A newcomer who starts the loader before any relay reads that a relay has to be started."""
    errors = [
        Unavailable("topic shop.journal is not there", "Start `relay run` once."),
        Unavailable("no answer"),
    ]
    lines: list[str] = []

    def call() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    def tell(text: str, **_: Any) -> None:
        lines.append(text)

    told: list[str] = []
    assert waited(settings(), call, lambda _, why: told.append(why), tell) == "answer"
    first, second = lines
    assert [line.partition(" s: ")[2] for line in lines] == told
    assert "topic shop.journal is not there (next: Start `relay run` once.)" in first
    assert second.endswith(": no answer")
