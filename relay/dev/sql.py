"""Statements for the ClickHouse of a stack: cuts a text into them, asks one after the other.

Receives text and the settings that reach the server. Gives the answers' bytes as the
server wrote them, in a format that it knows; one session, so that `USE` and `SET` hold.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlencode, urlsplit

from relay.config.server_settings import ClickHouse
from relay.errors import ConfigError, Unavailable

PEOPLE = "PrettyCompactMonoBlock"
"""A table with a frame."""
PROGRAMS = "JSONEachRow"
"""An object per row and line."""

_COMMENT = r"--[^\n]*|#[ !][^\n]*|/\*.*?(?:\*/|\Z)"
# Text in quotes, comments, and heredocs; what is not closed yet reaches to the end.
_WHOLE = re.compile(
    rf"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`(?:[^`\\]|\\.)*(?:`|\Z)"""
    rf"""|(\$\w*\$).*?(?:\1|\Z)|{_COMMENT}|;""",
    re.DOTALL,
)
_ONLY_COMMENTS = re.compile(rf"(?:\s|{_COMMENT})*", re.DOTALL)
_CHUNK = 1 << 16


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that a `;` ends, and the text behind the last of them.

    A `;` in quotes, in a comment or in a heredoc ends nothing; statements that are
    nothing but comments are left out.
    """
    statements, start = [], 0
    for token in _WHOLE.finditer(text):
        if token[0] == ";":
            statements.append(text[start : token.start()])
            start = token.end()
    return [statement.strip() for statement in statements if not is_blank(statement)], text[start:]


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing but comments."""
    return _ONLY_COMMENTS.fullmatch(text) is not None


class Session:
    """One session with the server; `output`: ClickHouse's name of the format of rows."""

    def __init__(self, reached: ClickHouse, output: str = PEOPLE) -> None:
        self._url = reached.url
        address = urlsplit(reached.url)
        self._connection = HTTPConnection(address.hostname or "", address.port)
        self._headers = {"X-ClickHouse-User": reached.user, "X-ClickHouse-Key": reached.secret()}
        options = {
            "session_id": str(uuid.uuid4()),
            "default_format": output,
            # An error after the first rows would otherwise stand among them, with status 200.
            "wait_end_of_query": 1,
            "output_format_pretty_color": 0,
            # A statement may hold the first lines of a file; by default 256 KiB are parsed.
            "max_query_size": 1 << 30,
        }
        self._path = f"/?{urlencode(options)}"

    def ask(self, statement: str, write: Callable[[bytes], object]) -> None:
        """Run one statement, and hand the answer's bytes to `write`.

        Raises:
            ConfigError: the server says that the statement is wrong or failed; in one line.
            Unavailable: it does not answer.
        """
        with self._asking():
            self._connection.request("POST", self._path, statement.encode(), self._headers)
            answer = self._connection.getresponse()
            if answer.status != 200:
                raise ConfigError(one_line(answer.read().decode(errors="replace")))
            chunk = answer.read(_CHUNK)
        while chunk:
            write(chunk)  # its errors are the output's: `| head` closes it
            with self._asking():
                chunk = answer.read(_CHUNK)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise Unavailable for errors of the connection."""
        try:
            yield
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise Unavailable(
                f"ClickHouse at {self._url} does not answer: {error or type(error).__name__}",
                "start it with: relay dev up",
            ) from error

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def one_line(text: str) -> str:
    """Return ClickHouse's words for an error without its version and line breaks."""
    return re.sub(r" \(version [^()]*\)$", "", " ".join(text.split()))
