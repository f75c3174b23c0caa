"""Guesses the format of a message that is not ours, by its first bytes and headers' names.

Receives value and headers, gives words for people; guesses, and says so ("looks like"). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay import names
from relay.schema.dead_reason import DeadReason

_AVRO = b"Obj\x01"
_MARK = b"\xef\xbb\xbf"
"""A byte order mark of UTF-8."""
_CONFLUENT_HEAD = 5
"""Bytes before the payload: 0, then the schema's id, most significant byte first."""
_LOOKED_AT = 200
_SHOWN = 60
"""Characters of a header that are shown; of one that is longer, so many and a mark."""
_NAMED = 5
"""Names of headers that are shown."""


def foreign(value: bytes | None) -> str:
    """Return which known format a value is in that can't be a row message; empty: none is known.

    No protobuf message begins so: byte 0 and "{", "[" and "O" are no tags that a row could have.
    """
    if value is None:
        return ""
    if value.startswith(_AVRO):
        return "an Avro container file"
    if len(value) >= _CONFLUENT_HEAD and value[0] == 0:
        number = int.from_bytes(value[1:_CONFLUENT_HEAD], "big")
        return f"Confluent's wire format (schema id {number})"
    text = value.removeprefix(_MARK)
    if text.lstrip()[:1] in {b"{", b"["} and _is_text(text):
        return "JSON"
    return ""


def of_value(value: bytes | None) -> str:
    """Return what a value looks like; as `foreign`, and where that says nothing, what it may be."""
    if value is None:
        return "none (a tombstone)"
    if not value:
        return "empty"
    if format_ := foreign(value):
        return f"looks like {format_}"
    return "looks like plain text" if _is_text(value) else "may be protobuf"


def of_headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    """Return why these headers name no table: which are there, or what stands in `table`."""
    values = [value for name, value in headers if name == names.TABLE_HEADER]
    if len(values) > 1:
        return f"it has header 'table' {len(values)} times"
    if values:
        return f"its header 'table' is {_header_text(values[0])}"
    others = list(dict.fromkeys(names.shown_header(name) for name, _ in headers))
    if not others:
        return "it has no header (of more than 100,000 headers the client library reads none)"
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"its headers are {', '.join(map(_short, others[:_NAMED]))}{more}"


def explained(
    reason: DeadReason, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> DeadReason:
    """Return the reason of a dead letter, with what the message looks like.

    `headers` are given where they name no table.
    """
    if headers is not None:  # the value first: reasons are cut where many are shown
        more = f"its value {_value_clause(value)}; {of_headers(headers)}"
    elif format_ := foreign(value):
        more = f"its value looks like {format_}"
    else:
        return reason
    return reason._replace(text=f"{reason.text}; {more}")


def _value_clause(value: bytes | None) -> str:
    if value is None:
        return "is null (a tombstone)"
    return of_value(value) if value else "is empty"


def _header_text(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"not UTF-8 (bytes {raw[:8].hex(' ')})"
    without = ", a name without its database" if text and "." not in text else ""
    return f"{_short(text)}{without}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _is_text(value: bytes) -> bool:
    """Whether the value begins with printable UTF-8; the last character may be cut."""
    head = value[:_LOOKED_AT]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(value) <= len(head) or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    return all(character.isprintable() or character in "\t\r\n" for character in text)
