"""Which texts a JSON column takes: the relay judges as the server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from relay.schema.types.value_checks import json_check
from tests.schema.engine import EngineError

if TYPE_CHECKING:
    from tests.schema.engine import Engine

REFUSED = {
    "many digits and an exponent": f'{{"a": {"9" * 290}e99}}',
    "many digits and a fraction": f'{{"a": -{"9" * 310}.5}}',
    "an exponent": '{"a": 1e309}',
    "a path": '{"a": {"b": 1}, "a.b": 2}',
    "a path with an escaped dot": r'{"a": {"b": 1}, "a\u002eb": 2}',
    "a path with an escaped quote": r'{"a": {"b\"": 1}, "a.b\"": 2}',
    "a path in a list": '{"a": [1, {"b": {"c": 1}, "b.c": 2}]}',
    "a path in lists": '{"a": [[{"x": [{"b": {"c": 1}, "b.c": 2}]}]]}',
    "half a character": r'{"a": "\ud800"}',
}
TAKEN = {
    "many digits": f'{{"a": {"9" * 290}, "b": {"9" * 210}e9}}',
    "an escaped dot": r'{"a": 1, "b\u002ec": {"d": 1}}',
    "dots in values": r'{"a": "x.y:\u002e", "b": ["1.5", 1.5], "": "."}',
    "the same path in several objects": '{"a": [{"b.c": 1}, {"b": {"c": 2}}], "b.c": 3}',
    "a whole character": r'{"a": "\ud83d\ude00"}',
}


def refused(text: str) -> bool:
    """Between good ones, as in a column."""
    bad: Any = json_check(pa.array(["{}", text, None, '{"a": 1}']))
    if bad is None:
        return False
    assert bad.to_pylist() in ([False, True, False, False], [False] * 4)
    return bool(bad[1].as_py())


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_the_server_refuses_is_refused_before(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_looks_like_it_is_taken(text: str) -> None:
    assert not refused(text)


def test_a_whole_number_beyond_float64_is_refused() -> None:
    """25.8 refuses it, 26.9 makes a text of it."""
    assert refused(f'{{"a": 1{"0" * 309}}}')
    assert not refused(f'{{"a": 1{"0" * 308}}}')


def test_the_server_says_the_same(engine: Engine) -> None:
    """Of each text above but a whole number."""
    for text in TAKEN.values():
        assert engine.query(cast(text))
    for text in REFUSED.values():
        with pytest.raises(EngineError, match="Code: 117"):
            engine.query(cast(text))


def cast(text: str) -> str:
    quoted = text.replace("\\", "\\\\")
    return f"SELECT CAST('{quoted}' AS JSON)"
