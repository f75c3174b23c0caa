"""Tells whether the rows of a repeated INSERT have the same keys as before; pure.

Receives sorting key, partition key and DEFAULTs of system.tables and system.columns. A field that
a message leaves out takes its DEFAULT when the INSERT runs, and so does a null: `now()` is another
time then. Whether a block carries a column in every row is not asked: who judges a table later
could not know.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.clickhouse.quoting import unquoted

_TOKEN = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\b\d[\w.]*|::\s*\w+(?:\([^()]*\))?"
    r"|(?P<name>`(?:[^`\\]|\\.)*`|[A-Za-z_][\w.]*)(?P<call>\s*\(\s*\)?)?"
    r"|(?P<odd>[\"$@{])"
)
"""A text, a number, a cast of what is before it; a column, a word or a function; else nothing that
is known here."""
_WORDS = frozenset(
    ["AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "ASC", "DESC"]
)
_FIXED = re.compile(
    r"to(?:U?Int\d+|Float\d+|Decimal\d+|Date|Date32|DateTime|DateTime64|String|FixedString|UUID|Bool"
    r"|IPv[46]|LowCardinality|Nullable|StartOf\w+|LastDayOf\w+|Monday|YYYYMM\w*|Year|Quarter|Month"
    r"|Week|YearWeek|ISO\w+|Day[A-Z]\w+|Hour|Minute|Second|UnixTimestamp\w*|Interval[A-Z]\w+"
    r"|TimeZone|Relative\w+)(?:Or(?:Zero|Null|Default))?"
    r"|CAST|accurateCast\w*|fromUnixTimestamp\w*|dateTrunc|date_trunc|formatDateTime"
    r"|(?:add|subtract)(?:Year|Month|Week|Day|Hour|Minute|Second)s"
    r"|(?:city|sip|xx|farm|metro|int|murmur|wy|java|hive)Hash\w*|xxh3|halfMD5|MD5|SHA\d+\w*"
    r"|if|multiIf|ifNull|nullIf|coalesce|assumeNotNull|isNull|isNotNull|tuple|array|greatest|least"
    r"|equals|notEquals|less|greater|lessOrEquals|greaterOrEquals|and|or|not|xor|in|notIn"
    r"|plus|minus|multiply|divide|intDiv|intDivOrZero|modulo|positiveModulo|negate|abs|sign"
    r"|round|floor|ceil|trunc|bit(?:And|Or|Xor|Not|ShiftLeft|ShiftRight)"
    r"|lower|upper|lowerUTF8|upperUTF8|trim\w*|concat|substring\w*|left|right|length|empty|notEmpty"
    r"|reverse|startsWith|endsWith|position|splitBy\w+|replace(?:All|One)|extract|hex|unhex"
    r"|geoToH3|geohashEncode"
)
"""Functions that give the same of the same, whenever; not those that go by today where a text says
no year, as parseDateTimeBestEffort. Any other may vary."""


@dataclass(frozen=True, slots=True)
class TableKeys:
    """What a table tells rows apart by, and what it fills in where nothing is given.

    Attributes:
        sorting: system.tables.sorting_key.
        partition: system.tables.partition_key.
        defaults: system.columns.default_expression, by name of each column; "": it has none.
    """

    sorting: str = ""
    partition: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)

    def vary(self, version: str = "") -> bool:
        """Return whether keys or TableEngine.version of the same messages may vary at a repeat."""
        return any(map(self._varies, (self.sorting, self.partition, version)))

    def _varies(self, expression: str, within: frozenset[str] = frozenset()) -> bool:
        """Whether an expression may, or the DEFAULT of a column in it."""
        for token in _TOKEN.finditer(expression):
            name, call = token["name"], token["call"]
            if token["odd"]:
                return True
            if name is None:
                continue
            column = unquoted(name)
            if column in self.defaults and not call:
                inner = self.defaults[column]
                if column in within or self._varies(inner, within | {column}):
                    return True
            elif name.upper() not in _WORDS and not _is_fixed(name, call or ""):
                return True
        return False


def _is_fixed(name: str, call: str) -> bool:
    """Whether this is a known function; of nothing at all it would make its value itself."""
    return call != "" and not call.endswith(")") and _FIXED.fullmatch(name) is not None
