"""Explains a start that the brokers refused for its transaction timeout, with both numbers.

Receives the refusal, which has only the name of the brokers' limit; see relay.intake.broker_limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.errors import Refused
from relay.intake.broker_limits import UNTOLD, read_limits

if TYPE_CHECKING:
    from relay.config.settings import Settings

ERROR = "INVALID_TRANSACTION_TIMEOUT"
"""As relay.kafka.errors names it in a message."""
LIMIT = "transaction.max.timeout.ms"


def with_both_numbers(error: Refused, settings: Settings) -> Refused:
    """Return the same error; if it is about the transaction's timeout, in numbers."""
    if ERROR not in error.message:
        return error
    asked_ms = round(settings.relay.transaction_timeout_seconds * 1000)
    allowed_ms = min(read_limits(settings.kafka, LIMIT).get(LIMIT, ()), default=None)
    if allowed_ms is None:
        limit, remedy = UNTOLD, "lower relay.transaction_timeout_seconds"
    else:
        limit = f"{LIMIT} = {allowed_ms}"
        remedy = f"set relay.transaction_timeout_seconds = {allowed_ms / 1000:g}"
    return Refused(
        f"{error.message}: relay.transaction_timeout_seconds is {asked_ms} ms, and the brokers "
        f"allow less ({limit})",
        f"{remedy}, or raise {LIMIT} of the brokers, then start again",
    )
