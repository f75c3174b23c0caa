"""Explains a start that the brokers refused for its transaction timeout, with both numbers.

Receives the refusal, which has only the name of the brokers' limit; see relay.kafka.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.kafka.errors import timeout_refused

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.errors import Refused

ERROR = "INVALID_TRANSACTION_TIMEOUT"
"""As relay.kafka.errors names it in a message."""


def with_both_numbers(error: Refused, settings: Settings) -> Refused:
    """Return the same error; if it is about the transaction's timeout, in numbers."""
    if ERROR not in error.message:
        return error
    asked_ms = round(settings.relay.transaction_timeout_seconds * 1000)
    setting = "relay.transaction_timeout_seconds"
    return timeout_refused(error.message, setting, asked_ms, settings.kafka)
