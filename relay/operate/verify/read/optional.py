"""Questions to ClickHouse that may be refused: the lack of an answer is an answer.

Never writes.
"""

from __future__ import annotations

import re
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.clickhouse.quoting import readable_user
from relay.clickhouse.statement_settings import may_set

_SECONDS = 25
"""After which the server says that it takes too long, before the client gives up."""
_UNKNOWN_TABLE = 60
_ACCESS_DENIED = 497
_DENIED = re.compile(r"\bgrant SELECT\b.* ON (system\.\w+)")


class Optional:
    """Questions through one client, by a user whom the advice names."""

    def __init__(self, client: Client, user: str) -> None:
        self._client, self._user = client, user
        limit = "max_execution_time"
        self._settings = {limit: _SECONDS} if may_set(client, limit) else {}
        self.unanswered: dict[str, str] = {}
        """Why there was no answer, by what was asked."""

    def ask(self, what: str, sql: str, **parameters: Any) -> list[Any] | None:
        """Return the answer's rows; None where the server gave none.

        `what` is asked, as `system.part_log`, is the key in `unanswered` then.

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
            grant = f"GRANT SELECT ON {what} TO {readable_user(self._user)}"
            return f"this user may not read {what} ({grant})"
        return f"{what} gave error {code}: {' '.join(text.split())[:200]}"
