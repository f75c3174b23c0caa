"""Finds out from librdkafka's own log how a transaction really ended.

librdkafka repeats a lost EndTxn by itself and then reports success (librdkafka#5423), and
no callback says so: error_cb hears neither lost connections nor timeouts (seen with 2.16). Its
debug log has a line for each answer to EndTxn and each lost connection. Receives those
lines in the place of a client's `logger`; gives whether the end is beyond doubt. Lines that
are missing, or worded otherwise in another version, leave the doubt: never the other way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

_CONTEXTS = ("eos", "broker")
"""Of the setting `debug`: about 40 lines a transaction, one more for each partition in it."""
_MOST_VERBOSE = 7
_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""Levels of `logging` by librdkafka's own, 0 to 7; as the binding maps them."""

_LOST = frozenset({"FAIL", "REQTMOUT"})
"""A connection was lost, or an answer did not come in time: with debug on, never left out."""
_CARRIED_NOTHING = re.compile(
    r"\]: \S+/bootstrap: |in state (INIT|DOWN|TRY_CONNECT|CONNECT|(SSL|APIVERSION|AUTH)_\w+)\b"
)
"""Of a transaction: not yet up, or known by its bootstrap address only, as every client has
some for a moment after its start."""
_ANSWERED = "EndTxn returned NO_ERROR "
_UNANSWERED = "EndTxn returned _"
"""Errors of librdkafka's own begin with _; those of a broker are answers, and end a request."""
_NOTHING_TO_END = "No partitions registered: not sending EndTxn"


class TransactionEvidence:
    """What is known about the end of the transaction that began last.

    Args:
        config: of the producer; its `logger` gets what it would have got without this.

    Attributes:
        config: the same, with this in the place of the logger.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        wanted = [context for context in str(config.get("debug", "")).split(",") if context]
        self._logger: logging.Logger = config["logger"]
        level = int(config.get("log_level", _MOST_VERBOSE))
        self._shown_from = max(_LEVELS[level], _LEVELS[7] if wanted else _LEVELS[6])
        self.config: dict[str, Any] = {
            **config,
            "logger": self,
            "log_level": _MOST_VERBOSE,
            "debug": ",".join(dict.fromkeys([*wanted, *_CONTEXTS])),
        }
        self.forget()

    @property
    def doubt(self) -> str:
        """Why the transaction may not have ended, or may end another; empty: it ended, once."""
        return self._lost or ("" if self._ended else "librdkafka's log shows no answer to EndTxn")

    def begun(self) -> None:
        """Begin a transaction: its end is in doubt until something is known of it."""
        self._ended, self._lost = False, ""

    def forget(self) -> None:
        """Forget it, with another producer's epoch: no earlier request can end anything."""
        self._ended, self._lost = True, ""

    def suspect(self, why: str) -> None:
        """Note that a request may have been sent twice: harmless before a transaction or after."""
        if not self._ended:
            self._lost = self._lost or why

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Take one line of librdkafka; called by the binding while the client is polled.

        librdkafka logs a lost connection before the answer that follows it.
        """
        lost = facility in _LOST and not _CARRIED_NOTHING.search(text)
        if lost or _UNANSWERED in text:
            self.suspect(f"{facility} {text}")
        elif _ANSWERED in text or _NOTHING_TO_END in text:
            self._ended = True
        if level >= self._shown_from:
            self._logger.log(level, template, facility, client, text)
