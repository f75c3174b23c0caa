"""Which tokens a ClickHouse server surely knows that others were given; pure.

A server keeps a hash of each token. Up to 26.1 it was another one than from 26.6 on; the versions
between keep both of each token, and look for both. So a server that is upgraded past them, or set
back behind them, has the tokens and does not know them: a repeat would double the rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from loader.core.table_rules import Window

_UNIFIED = frozenset({"26.3", "26.5", "26.7", "26.9"})
KNOWN_BY: Mapping[str, Collection[str]] = {
    "25.8": frozenset({"25.8", "26.1", "26.3", "26.5"}),
    "26.1": frozenset({"26.1", "26.3", "26.5"}),
    **dict.fromkeys(sorted(_UNIFIED), _UNIFIED),
}
"""By version: those that know its tokens, on the same data. Only what was tried
(tests/versions/test_upgraded.py); a patch release is taken to be like the others of its version."""
_REMEMBERED: Mapping[str, int] = {"25.8": 1_000}
"""Parts that a replicated table remembers by default, in versions before it became 10 000."""
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
_BOTH_FROM, _ONE_FROM = (26, 2), (26, 7)


def knows_tokens(now: str, before: Collection[str]) -> bool:
    """Return whether a server surely knows the tokens of INSERTs that others may have run.

    `now`: its version, as version() gives it; `before`: the versions that may have run them; "": it
    is not known which.
    """
    return all(old == now or _numbers(now) in KNOWN_BY.get(_numbers(old), ()) for old in before)


def surely_remembered(of: Window, claimed_seconds: float, now: str, before: Collection[str]) -> int:
    """Return how many parts may follow an INSERT with its token surely remembered; -1: none.

    Args:
        of: the table's, now. A server that was upgraded meanwhile may have forgotten by a smaller
            default; whether the table names a window of its own is not asked.
        claimed_seconds: since the INSERT was claimed.
        now: the server's version, as version() gives it.
        before: the versions that may have run the INSERT, or those after it.
    """
    parts = of.margin(claimed_seconds)
    if of.counter == "log":
        windows = [_REMEMBERED.get(_numbers(old)) for old in before if old != now]
        parts = min([parts, *(window // 2 for window in windows if window)])
    return parts // max(map(hashes_of_a_token, [now, *before]))


def hashes_of_a_token(version: str) -> int:
    """Return how many entries of a table's window one part may take.

    26.2 to 26.5 keep both hashes by default, and 26.6 where it is told to: a window remembers half
    as many parts then.
    """
    if (numbers := _NUMBERS.match(version)) is None:
        return 2
    return 2 if _BOTH_FROM <= (int(numbers[1]), int(numbers[2])) < _ONE_FROM else 1


def _numbers(version: str) -> str:
    """The first two of a version, as 26.3 of 26.3.9.1."""
    numbers = _NUMBERS.match(version)
    return numbers[0] if numbers else ""
