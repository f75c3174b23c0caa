"""What a bench says when its broker does not answer.

Receives a question to a Kafka client, gives one kind of error for all of them. Never asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from relay.errors import Unavailable


@contextmanager
def answered(question: str) -> Iterator[None]:
    """Around one question, or a few about the same.

    Args:
        question: what is asked for, as "the topics".

    Raises:
        Unavailable: the client says why there is no answer.
    """
    try:
        yield
    except KafkaException as problem:
        raise Unavailable(
            f"the broker does not give {question}: {problem.args[0].str()}",
            "Look at the free disk space: a broker without any ends. With --keep DIRECTORY its "
            "log stays there.",
        ) from problem
