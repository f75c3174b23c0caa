"""Puts an error of ClickHouse's client into words, the cause first.

Receives the error of a client whose connections are relay.clickhouse.http_pool's, gives one line.
If nobody answered, the client's own text begins with a class and the whole URL, whose parameters
hide the cause; before a server's answer it names twice what kind of answer that is.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator

from urllib3 import exceptions
from urllib3.exceptions import HTTPError, MaxRetryError, NameResolutionError

from relay.config.server_settings import native_port

_ASKED = "asked_server"
"""Attribute of the connections' errors: the address that gave no answer."""
_LONGEST = 200
_CLIENT = re.compile(
    r"^Received ClickHouse exception, code: \d+, server response: (?=Code: )| \(for url \S+\)$"
)
_EXCEPTION = re.compile(r"^(Code: \d+\.) DB::Exception: ")


def note_server(error: HTTPError, scheme: str, host: str, port: int | None) -> None:
    """Keep in an error whom it is about; of several replicas only the connection knows."""
    where = f"[{host}]" if ":" in host else host
    setattr(error, _ASKED, f"{scheme}://{where}:{port}")


def unanswered(error: BaseException) -> str | None:
    """Return "ClickHouse URL: why" of an error without an answer; None of every other error."""
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, HTTPError) and (where := getattr(cause, _ASKED, None)):
            hint = native_port(where)
            return f"ClickHouse {where}: {_why(chain[-1])}{'; ' if hint else ''}{hint}"
    return None


def error_line(error: BaseException, doing: str) -> str:
    """Return an error's text on one line: of a silent server that first, then what was done."""
    silence = unanswered(error)
    return f"{doing}: {answer_line(str(error))}" if silence is None else f"{silence} ({doing})"


def answer_line(text: str) -> str:
    """Return a server's answer on one line, as `Code: 60. Table x.y does not exist`."""
    line = _CLIENT.sub("", " ".join(text.split()))
    return _EXCEPTION.sub(r"\1 ", line)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then what each was caused by, the first cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        if isinstance(cause, NameResolutionError):
            return  # what is below is the system's, with numbers of its own
        inner = [value for value in cause.args if isinstance(value, BaseException)]
        reason = cause.reason if isinstance(cause, MaxRetryError) else None
        cause = reason or (inner[0] if inner else cause.__cause__)


def _why(cause: BaseException) -> str:
    """Return the cause in a few words; an unknown one in its own, cut."""
    if isinstance(cause, NameResolutionError):
        return "its name cannot be resolved (DNS)"
    if isinstance(cause, exceptions.TimeoutError | OSError) and "timed out" in str(cause):
        return "no answer in time"
    if isinstance(cause, ConnectionError) and not cause.errno:  # http.client's, of its own words
        return "the connection was closed without an answer"
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
        return os.strerror(cause.errno).lower()
    return " ".join(str(cause).split())[:_LONGEST]
