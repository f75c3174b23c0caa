"""Read which rows of a table a recorded statement or mutation may have removed; pure.

Receives text as a person wrote it (system.query_log) or as the server did (system.mutations).
A word counts where it is a command, not within a name, a string or a comment.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Iterator

from relay.clickhouse.quoting import unquoted
from relay.clickhouse.table_engine import deletes_rows

Blocks = frozenset[str] | None
"""Ids of the only blocks whose rows a command can have removed; None: of any."""

_TEXT = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.)*`|"(?:[^"\\]|\\.)*\"""",
    re.DOTALL,
)
_NAME = r"[^\s.,()]+"
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME})?\s+(?:ON\s+CLUSTER\s+{_NAME}\s+)?"
_ALTER = re.compile(
    rf"\s*ALTER\s+(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_SETTINGS = re.compile(r"\sSETTINGS\s+\w+\s*=", re.IGNORECASE)
_COMMAND = re.compile(
    r"\s*(?:\(|(?:ADD|ALTER|APPLY|ATTACH|CLEAR|COMMENT|DELETE|DETACH|DROP|FETCH|FORGET|FREEZE"
    r"|MATERIALIZE|MODIFY|MOVE|REMOVE|RENAME|REPLACE|RESET|REWRITE|UNFREEZE|UPDATE)\s+\w)",
    re.IGNORECASE,
)
"""What begins a command of an ALTER; other items of the list go on with the one before."""
_REMOVES = re.compile(
    r"DELETE\s+(?:WHERE|IN\s+PARTITION|FROM)|REMOVE\s+TTL|REPLACE\s+PARTITION"
    r"|(?:DROP|DETACH)\s+(?:PART|PARTITION)"
    r"|MOVE\s+(?:PART|PARTITION)\b(?!.*\bTO\s+(?:DISK|VOLUME)\b)"
    r"|TRUNCATE|DROP\s+(?:TABLE|DATABASE)|RENAME\s+(?!COLUMN\b|DICTIONARY\b)\S|EXCHANGE\s+TABLES"
    r"|RESTORE|(?:CREATE\s+OR\s+)?REPLACE\s+TABLE|OPTIMIZE\s+TABLE\s+\S.*\sDEDUPLICATE",
    re.IGNORECASE | re.DOTALL,
)
_UPDATE = re.compile(r"UPDATE\s", re.IGNORECASE)
_RULES = re.compile(r"MODIFY\s+TTL\s", re.IGNORECASE)
_MATERIALIZES = re.compile(r"MATERIALIZE\s+TTL\b", re.IGNORECASE)
_TTL = re.compile(r"\bTTL\b", re.IGNORECASE)
_WHERE = re.compile(r"\bWHERE\b", re.IGNORECASE)
_AND, _OR = re.compile(r"\bAND\b", re.IGNORECASE), re.compile(r"\bOR\b|\?", re.IGNORECASE)
_COMMA = re.compile(",")
_COLUMN = re.compile(
    r"""(ADD|DROP|CLEAR|RENAME|MODIFY|ALTER)\s+COLUMN\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?["`]?(\w+)"""
    r"""["`]?(?:\s+TO\s+["`]?(\w+))?""",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"""\s*(?:UPDATE\s+)?(?:{_TABLE}SET\s+)?["`]?(\w+)["`]?\s*=""", re.IGNORECASE | re.DOTALL
)
_LITERAL = r"'(?:[^'\\]|\\.)*'"
_BY_BLOCK = re.compile(
    rf"""[(\s]*["`]?(\w+)["`]?\s*(?:==?|\bIN\b)\s*[(\[]?\s*({_LITERAL}(?:\s*,\s*{_LITERAL})*)"""
    r"[)\]\s]*",
    re.IGNORECASE,
)
"""A condition that rows are of these blocks."""
_NAMED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_NO_ROWS = re.compile(r"DELETE\s+WHERE[\s(]+0[\s)]*", re.IGNORECASE)
"""All of a command that no row meets: one that waits for the deletions before it."""
_EXISTS = "_row_exists"
"""The column that a lightweight DELETE sets."""
_TARGET = re.compile(
    rf"\s*(?:ALTER\s+(?:TEMPORARY\s+)?TABLE|DELETE\s+FROM|OPTIMIZE\s+TABLE|UPDATE)\s+"
    rf"(?:IF\s+EXISTS\s+)?(?:({_NAME})\s*\.\s*)?({_NAME})",
    re.IGNORECASE,
)
STOPPED_WAITING = (159, 236, 341, 394, 735, 999)
"""ClickHouse's errors that end a statement whose mutation is made: it took too long, the server
stopped, the mutation failed or was killed, the statement was killed, its client went, or Keeper
did not answer. Some parts may be rewritten by then, and others later. A mutation that is killed is
in no system table any more; its statement is in the query log."""


def removed_by(
    text: str, block_column: str, *, ttl_only_moves: bool = False, stamped: bool = False
) -> Iterator[Blocks]:
    """Yield, of each command that removes rows or takes their block's id from them, which blocks'.

    Args:
        text: of a statement, or of a mutation's commands.
        block_column: that holds block ids.
        ttl_only_moves: the table has a TTL, which deletes no rows: nor does its MATERIALIZE TTL.
        stamped: only rows that carry the id of their block matter: a column that is added, or gets
            the name, takes none.
    """
    for command in _commands(text):
        if _removes(command, block_column, ttl_only_moves=ttl_only_moves, stamped=stamped):
            yield _only(command, block_column)


def _removes(command: str, block_column: str, *, ttl_only_moves: bool, stamped: bool) -> bool:
    flat = _flat(command)
    if _UPDATE.match(flat):
        return bool(_assigned(command) & {block_column, _EXISTS})
    if column := _COLUMN.match(command):
        if stamped and (column[1].upper() == "ADD" or column[3] == block_column):
            return False  # that another command took the column before counts by itself
        takes_value = column[1].upper() not in {"MODIFY", "ALTER"} or _TTL.search(flat)
        return block_column in column.groups() and bool(takes_value)
    if ttl := _RULES.match(flat):
        return any(map(deletes_rows, _split(command[ttl.end() :])))
    if _MATERIALIZES.match(flat):
        return not ttl_only_moves
    return _REMOVES.match(flat) is not None and not _NO_ROWS.fullmatch(command)


def _commands(text: str) -> Iterator[str]:
    """The commands of an ALTER or of a mutation, or the one statement; without SETTINGS."""
    flat = _flat(text)
    settings, alter = _SETTINGS.search(flat), _ALTER.match(flat)
    command = ""
    for item in _split(text[alter.end() if alter else 0 : settings.start() if settings else None]):
        if command and _COMMAND.match(_flat(item)):
            yield _unwrapped(command)
            command = item
        else:
            command = f"{command},{item}" if command else item
    yield _unwrapped(command)


def _only(command: str, block_column: str) -> Blocks:
    """The blocks that the command's condition names, where nothing but their rows meets it."""
    where = _WHERE.search(_flat(command))
    if where is None:
        return None
    condition = _unwrapped(command[where.end() :])
    if _OR.search(_flat(condition)):
        return None
    for part in _split(condition, _AND):
        match = _BY_BLOCK.fullmatch(part)
        if match is not None and match[1] == block_column:
            return frozenset(_NAMED.findall(match[2]))
    return None


def _assigned(command: str) -> set[str]:
    """The columns that an UPDATE sets."""
    where = _WHERE.search(_flat(command))
    matches = map(_ASSIGNED.match, _split(command[: where.start() if where else None]))
    return {match[1] for match in matches if match}


def _split(text: str, separator: re.Pattern[str] = _COMMA) -> Iterator[str]:
    """Yield the parts of a text between separators outside of brackets."""
    begin = 0
    for match in separator.finditer(_flat(text)):
        yield text[begin : match.start()]
        begin = match.end()
    yield text[begin:]


def _unwrapped(text: str) -> str:
    """Without blanks, comments and semicolons around it, and without brackets around all of it."""
    flat = _flat(text)
    stripped = flat.strip(" \t\r\n;")
    begin = flat.find(stripped)
    text = text[begin : begin + len(stripped)]
    if stripped[:1] == "(" and stripped[-1:] == ")" and stripped.count("(") == 1:
        return _unwrapped(text[1:-1])
    return text


def _flat(text: str) -> str:
    """The same text, of the same length, with nothing in its brackets, strings and names."""
    bare = _TEXT.sub(lambda match: (" " if match["comment"] else "x") * len(match[0]), text)
    signs, depth = [], 0
    for sign in bare:
        depth -= sign in ")]" and depth > 0
        signs.append("x" if depth else sign)
        depth += sign in "(["
    return "".join(signs)


def target(text: str, database: str) -> tuple[str, str]:
    """Return database and name of the table that a statement changes; two empty texts: none.

    ALTER TABLE, DELETE, UPDATE and OPTIMIZE change one. `database` is that in which it ran.
    """
    match = _TARGET.match(_flat(text))
    if match is None:
        return "", ""
    named, table = (unquoted(text[slice(*match.span(group))], '`"') for group in (1, 2))
    return named or database, table


def may_lack(finished: int, oldest: int, since: int, keeps: int) -> bool:
    """Return whether a table may have had more mutations since then than the server shows.

    It forgets the oldest first, and none that is not finished: it shows so many `finished` ones, of
    which the oldest was made at that Unix second, and keeps so many at most; 0: all of them.
    """
    return 0 < keeps <= finished and oldest >= since
