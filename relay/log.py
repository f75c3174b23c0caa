"""One line per event on stderr, as text for people or JSON for machines.

Receives records of the standard `logging` with `extra={...}`; the extras become
key=value. Never shows payloads: bytes appear as their number, long texts are cut.
"""

from __future__ import annotations

import codecs
import json as _json
import logging
import os
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
FORMAT = "RELAY_LOG_FORMAT"
"""Environment variable: text or json; an option wins over it."""
_ABOUT: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039 - never changed
_ALWAYS: dict[str, object] = {}
"""On every line of this process."""
_LONGEST = 500
"""Characters of one value; a longer one is cut, since it is likely to be somebody's data."""


def setup(json: bool, pipeline: str = "") -> None:  # noqa: FBT001 - log.setup(json=True) reads well
    """Send everything from INFO up to stderr; a second call replaces the first.

    `json`: one object per line instead of text; `pipeline`: that each line names, if any.
    """
    _ALWAYS.clear()
    if pipeline:
        _ALWAYS["pipeline"] = pipeline
    _to_stderr(_Json() if json else _Text(), logging.INFO)
    logging.getLogger("librdkafka").setLevel(logging.NOTSET)
    # Spark's gateway reports each call at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)


def setup_for_answers() -> None:
    """Show warnings only, until `setup`: for commands whose output is an answer, or a screen.

    librdkafka's own lines are not shown, as the command's error has their cause.
    """
    _to_stderr(_Text(), logging.WARNING)
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)


def _to_stderr(formatter: logging.Formatter, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level, force=True)


def in_child() -> None:
    """Set up the log in a child process, as FORMAT in its environment says."""
    if not logging.getLogger().handlers:
        setup(json=os.environ.get(FORMAT) == "json")


def in_use() -> bool | None:
    """Return what `as_parent` gets in a child: whether lines are JSON; None: no log."""
    return is_json() if is_json() or is_text() else None


def as_parent(json: bool | None) -> None:  # noqa: FBT001 - handed over as it is
    """Log as the parent does; say nothing where it has no log, as beside a screen."""
    if json is None:
        logging.getLogger().addHandler(logging.NullHandler())
    else:
        setup(json=json)


def about(**fields: object) -> None:
    """Add these to each line of this thread from now on, in place of those before."""
    _ABOUT.set(fields)


def is_json() -> bool:
    """Return whether `setup` was told to write JSON."""
    return any(isinstance(one.formatter, _Json) for one in logging.getLogger().handlers)


def is_text() -> bool:
    """Return whether `setup` was told to write for people."""
    root = logging.getLogger()
    is_log = root.level == logging.INFO  # and not what commands that answer have to warn of
    return is_log and any(isinstance(one.formatter, _Text) for one in root.handlers)


def clients() -> logging.Logger:
    """Return the logger of librdkafka's own lines; one that repeats is shown once a while."""
    logger = logging.getLogger("librdkafka")
    if not logger.filters:
        logger.addFilter(_OncePerWhile())
    return logger


class _OncePerWhile(logging.Filter):
    """Lets a line pass that differs, in more than its numbers, from those of the last minute."""

    _SECONDS = 60.0
    _REMEMBERED = 1000

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown."""
        line = re.sub(r"\d+", "#", record.getMessage())
        if record.created - self._seen.get(line, 0.0) < self._SECONDS:
            return False
        if len(self._seen) >= self._REMEMBERED:
            self._seen.clear()
        self._seen[line] = record.created
        return True


class _Text(logging.Formatter):
    """`time LEVEL logger message key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the values hold."""
        head = f"{_time(record)} {record.levelname} {record.name} {_escape(record.getMessage())}"
        pairs = [f"{key}={_quoted(value)}" for key, value in _extras(record).items()]
        return " ".join([head, *pairs])


class _Json(logging.Formatter):
    """The same as one JSON object."""

    def __init__(self) -> None:
        super().__init__()
        self._ascii = not is_utf8(sys.stderr)

    def format(self, record: logging.LogRecord) -> str:
        """Extras stand beside time, level, logger and message; those four win."""
        own = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        all_of_it = {**own, **_extras(record), **own}
        return _json.dumps(all_of_it, ensure_ascii=self._ascii, default=str)


def is_utf8(stream: TextIO | None) -> bool:
    """Return whether this stream's text is UTF-8, as readers of JSON expect (RFC 8259, 8.1)."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return codecs.lookup(encoding).name == "utf-8"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as `extra`, and the exception if there is one."""
    given = {k: v for k, v in vars(record).items() if k not in _OWN_ATTRIBUTES}
    extras = {k: _shown(v) for k, v in {**given, **_ABOUT.get(), **_ALWAYS, **given}.items()}
    if record.exc_info and record.exc_info[1] is not None:
        extras["error"] = _shown(f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}")
        # Not cut: it names places in this program, and a half of it helps nobody.
        extras["traceback"] = logging.Formatter().formatException(record.exc_info)
    return extras


def _shown(value: object) -> object:
    """The value as it may be logged: payloads by size, long texts cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(item) for item in value]
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _quoted(value: object) -> str:
    """Bare where it is one word, else quoted, so that a line splits back into its pairs."""
    if isinstance(value, dict | list):
        return _json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = str(value)
    bare = text and text.isprintable() and not set(text) & set(' "=')
    return text if bare else _json.dumps(text, ensure_ascii=False)


def _escape(message: str) -> str:
    """A message on one line: what cannot be printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
