"""The loader's HTTP client of ClickHouse, and what its errors mean.

Receives the connection settings, gives a clickhouse-connect client and sorts failures
by relay.clickhouse.errors. Never retries a statement itself: whether one
that got no answer may be sent again is decided in loader.core.plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient
from clickhouse_connect.driver.summary import QuerySummary

from relay.clickhouse.error_text import answer_line, error_line, unanswered
from relay.clickhouse.errors import PASSING, RAISE_THE_LIMIT, RIGHTS, About, about, number
from relay.clickhouse.replicas import connected, writing
from relay.errors import ConfigError, ErrorPage, Refused, Unavailable

if TYPE_CHECKING:
    from relay.config.settings import ClickHouse

_READONLY = 164


class TableRefused(Refused):
    """ClickHouse or Kafka refuses what one table needs; the others' blocks go on."""


class ReplicaSilent(Unavailable):
    """A replica gives no answer, without which one block is not decided; other blocks go on."""


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
            connect_timeout=10,
            send_receive_timeout=int(timeout) + 1,
            query_retries=0,
            compress=False,
            settings=writing(settings, timeout),
        )
    except ClickHouseError as error:
        raise failure(error, _connecting(settings, error)) from error
    client.http_retries = 0
    return client


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


def rows_written(answer: object) -> int | None:
    """Return how many rows the server says an INSERT wrote; None where it does not say."""
    rows = answer.summary.get("written_rows") if isinstance(answer, QuerySummary) else None
    return None if rows is None else int(rows)


def failure(error: Exception, what: str) -> Unavailable | Refused:
    """Return the error for a failed statement that the loader cannot do without."""
    text = error_line(error, what)[:500]
    if not is_permanent(error):
        start = "Start ClickHouse, or correct clickhouse.url."
        return Unavailable(text, RAISE_THE_LIMIT if about(str(error)) is About.SIZE else start)
    if is_denied(error):
        return Refused(
            text,
            "Give the loader's user the rights that `relay doctor CONFIG --grants --role loader` "
            "prints, or correct user and password.",
            page=ErrorPage.CREDENTIALS if about(str(error)) is About.USER else "",
        )
    return Refused(text, "Correct what the server's message names, then start the loader again.")


def table_failure(error: Exception, what: str) -> Unavailable | Refused:
    """Return the error for a failed statement that only some tables' blocks need.

    A right that is missing on a system table is missing for all of them, and who may not even ask
    (READONLY, of a question that writes nothing) has a profile that does not fit.
    """
    why, text = failure(error, what), str(error)
    denied = error_code(error) == _READONLY or (is_denied(error) and " ON system." in text)
    if isinstance(why, Unavailable) or about(text) is About.USER or denied:
        return why
    return TableRefused(why.message, why.next_step)


def one_line(error: Exception) -> str:
    """Return an error's text without line breaks, at most 500 characters."""
    return unanswered(error) or answer_line(str(error))[:500]
