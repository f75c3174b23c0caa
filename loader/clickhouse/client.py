"""The loader's HTTP client of ClickHouse, and what its errors mean.

Receives the connection settings, gives a clickhouse-connect client and sorts failures
by relay.clickhouse.errors. Never retries a statement itself: whether one
that got no answer may be sent again is decided in loader.core.plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient

from relay.clickhouse.error_text import answer_line, error_line, unanswered
from relay.clickhouse.errors import PASSING, RIGHTS, About, about, number
from relay.clickhouse.replicas import connected, writing
from relay.errors import ConfigError, Refused, Unavailable

if TYPE_CHECKING:
    from relay.config.settings import ClickHouse


EVERYWHERE: Mapping[str, object] = {
    # What a profile may set to cut a result short, without an error.
    "limit": 0,
    "offset": 0,
    "read_overflow_mode": "throw",
    "read_overflow_mode_leaf": "throw",
    "result_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
    "timeout_overflow_mode_leaf": "throw",
    "group_by_overflow_mode": "throw",
    "set_overflow_mode": "throw",
    "transfer_overflow_mode": "throw",
    "skip_unavailable_shards": 0,
    "max_rows_to_group_by": 0,
    # What it may refuse a question for: that it uses no key or projection. (Nothing undoes
    # force_data_skipping_indices: none of 25.8 to 26.9 can parse an empty list of them.)
    "force_primary_key": 0,
    "force_index_by_date": 0,
    "force_optimize_projection": 0,
    # What it may make of an aggregate of no rows, of `GROUP BY 1`, of a cast, of a type.
    "aggregate_functions_null_for_empty": 0,
    "empty_result_for_aggregation_by_empty_set": 0,
    "enable_positional_arguments": 1,
    "prefer_column_name_to_alias": 0,
    "cast_keep_nullable": 0,
    "data_type_default_nullable": 0,
    # Dates of the server's logs are by the server's clock.
    "session_timezone": "",
    # The ledger and the tables must be seen as they are, and all of them.
    "use_query_cache": 0,
    "final": 0,
    "apply_deleted_mask": 1,
    "apply_patch_parts": 1,
    "enable_parallel_replicas": 0,
    "implicit_transaction": 0,
    "additional_table_filters": {},
    "additional_result_filter": "",
    "transform_null_in": 0,
}
"""Settings of every statement, as far as the server knows them: with these a statement means the
same whatever the user's profile says."""

_READONLY = 164


class TableRefused(Refused):
    """ClickHouse refuses what one table needs; the others' blocks go on."""


def connect(settings: ClickHouse, timeout: float) -> HttpClient:
    """Return a client without session, whose requests end after `timeout` seconds.

    Of several replicas one is asked; after a failure the next (relay.clickhouse.replicas).

    Raises:
        Unavailable: nobody answers there.
        Refused: user or password is wrong.
        ConfigError: the password file cannot be read.
    """
    try:
        password = settings.secret()
    except OSError as error:
        raise ConfigError(
            f"clickhouse.password_file: {error}", "Name a file that this process can read."
        ) from error
    try:
        client = connected(
            settings,
            password,
            is_permanent,
            prepare=_as_everywhere,
            connect_timeout=10,
            send_receive_timeout=int(timeout) + 1,
            query_retries=0,
            compress=False,
            settings=writing(settings, timeout),
        )
    except ClickHouseError as error:
        raise failure(error, _connecting(settings, error)) from error
    assert isinstance(client, HttpClient)
    return client


def _as_everywhere(client: HttpClient) -> None:
    """Give the client the settings of every statement, as far as the server knows them."""
    client.http_retries = 0
    for name, value in EVERYWHERE.items():
        known = client.server_settings.get(name)
        if known is not None and not known.readonly:
            client.set_client_setting(name, value)


def _connecting(settings: ClickHouse, error: Exception) -> str:
    """What an error of it is about; one of a silent server names that itself."""
    if unanswered(error) is None:
        return f"ClickHouse at {settings.url}"
    return f"none of {settings.url} answers" if len(settings.urls) > 1 else "opening a connection"


def error_code(error: Exception) -> int | None:
    """Return ClickHouse's code of an error; None where the server did not answer properly."""
    return number(str(error))


def is_denied(error: Exception) -> bool:
    """Return whether the server rejects this user and password, or denies the right."""
    return about(str(error)) is About.USER or error_code(error) in RIGHTS


def is_permanent(error: Exception) -> bool:
    """Return whether a retry is useless until somebody acts."""
    return about(str(error)) not in PASSING


def failure(error: Exception, what: str) -> Unavailable | Refused:
    """Return the error for a failed statement that the loader cannot do without."""
    text = _cut(error_line(error, what))
    if not is_permanent(error):
        return Unavailable(text, "Start ClickHouse, or correct clickhouse.url.")
    if is_denied(error):
        return Refused(
            text,
            "Give the loader's user the rights that `relay doctor CONFIG --grants --role loader` "
            "prints, or correct user and password.",
        )
    return Refused(text, "Correct what the server's message names, then start the loader again.")


def table_failure(error: Exception, what: str) -> Unavailable | Refused:
    """Return the error for a failed statement that only some tables' blocks need.

    A right that is missing on a system table is missing for all of them, and who may not even ask
    (READONLY, of a question that writes nothing) has a profile that does not fit.
    """
    found, text = failure(error, what), str(error)
    denied = error_code(error) == _READONLY or (is_denied(error) and " ON system." in text)
    for_all = about(text) is About.USER or denied
    if isinstance(found, Unavailable) or for_all:
        return found
    return TableRefused(found.message, found.next_step)


def one_line(error: Exception) -> str:
    """Return an error's text without line breaks, at most 500 characters."""
    return unanswered(error) or _cut(answer_line(str(error)))


def _cut(text: str) -> str:
    return text[:500]
