"""A question to the brokers whose lack of an answer is an error for people.

Receives a call of a client, gives its answer.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from relay.errors import Unavailable


def answer_of(question: Any) -> Any:
    """Return the answer.

    Raises:
        Unavailable: there is none.
    """
    try:
        return question()
    except KafkaException as error:
        raise away(error.args[0]) from error


def away(cause: KafkaError) -> Unavailable:
    """Return what to raise if the brokers did not answer."""
    said = f"the brokers did not answer: {cause.str()} ({cause.name()})"
    return Unavailable(said, "check kafka.bootstrap and that the brokers are up")
