"""Questions to ClickHouse that may be refused: the lack of an answer is an answer.

Receives a client and SQL, gives rows, or the reason for which there are none. Never writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clickhouse_connect.driver.client import Client

_SECONDS = 25
"""After which the server says that it takes too long, before the client gives up."""
_UNKNOWN_TABLE = 60
_ACCESS_DENIED = 497
_DENIED = re.compile(r"\bgrant SELECT\b.* ON (system\.\w+)")
EXACTLY: Mapping[str, Any] = {
    # A profile may ask for less than all rows, for a part of an answer, or for an old one.
    "read_overflow_mode": "throw",
    "read_overflow_mode_leaf": "throw",
    "group_by_overflow_mode": "throw",
    "result_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
    "use_query_cache": 0,
    "final": 0,
    "max_rows_to_group_by": 0,
    "empty_result_for_aggregation_by_empty_set": 0,
    "aggregate_functions_null_for_empty": 0,
    "enable_positional_arguments": 1,
    "apply_deleted_mask": 1,
    "apply_patch_parts": 1,
    "force_primary_key": 0,
    "force_optimize_projection": 0,
}
"""Settings without which a count may be of less than all that is there."""


def allowed(client: Client, wanted: Mapping[str, Any] = EXACTLY) -> dict[str, Any]:
    """Return those of the settings that the server knows and lets this user set."""
    known = client.server_settings
    return {k: v for k, v in wanted.items() if k in known and not int(known[k].readonly)}


class Optional:
    """Questions through one client.

    Args:
        client: of the server.
        user: that asks, for the advice.
    """

    def __init__(self, client: Client, user: str) -> None:
        self._client, self._user = client, user
        self._settings = allowed(client, {**EXACTLY, "max_execution_time": _SECONDS})
        self.unanswered: dict[str, str] = {}
        """Why there was no answer, by what was asked."""

    def ask(self, what: str, sql: str, **parameters: Any) -> list[Any] | None:
        """Return the answer's rows; None where the server gave none.

        Args:
            what: was asked, as `system.part_log`.
            sql: that asks.
            parameters: of the statement.

        Raises:
            ClickHouseError: the server did not answer at all.
        """
        try:
            result = self._client.query(sql, parameters=parameters, settings=self._settings)
        except ClickHouseError as error:
            code = getattr(error, "code", None)
            if code is None:
                raise
            self.unanswered[what] = self._why(what, code, str(error))
            return None
        self.unanswered.pop(what, None)
        return list(result.result_rows)

    def _why(self, what: str, code: int, text: str) -> str:
        what = what.partition(" ")[0]  # in brackets stands which question about it
        if code == _UNKNOWN_TABLE:
            return f"the server keeps no {what}"
        if code == _ACCESS_DENIED:
            if denied := _DENIED.search(text):  # of a question about more than one of them
                what = denied[1]
            return f"this user may not read {what} (GRANT SELECT ON {what} TO {self._user})"
        return f"{what} gave error {code}: {' '.join(text.split())[:200]}"
