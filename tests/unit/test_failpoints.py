"""At which passes a failpoint acts; a file stands for the gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.failpoints import Failpoint, parse


@pytest.mark.parametrize(
    ("passes", "acted"),
    [("", [1, 1, 1, 1]), (":1", [1, 1, 1, 1]), (":3", [0, 0, 1, 1]), (":every", [1, 2, 3, 4])],
)
def test_it_acts_at_its_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: str, acted: list[int]
) -> None:
    """At the first, at the one that is named, or at each while the gate is there."""
    acts: list[int] = []
    point = parse(f"after_insert:wait={tmp_path / 'gate'}{passes}")
    monkeypatch.setattr(Failpoint, "act", lambda _: acts.append(1))
    found = []
    for _ in range(4):
        point.passed()
        found.append(len(acts))
    assert found == acted


def test_a_gate_that_is_open_holds_nobody(tmp_path: Path) -> None:
    """And does not say that somebody waits."""
    point = parse(f"after_insert:wait={tmp_path / 'gate'}:every")
    point.passed()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_action_is_refused() -> None:
    """Else a test would wait for what never comes."""
    with pytest.raises(ValueError, match="unknown action 'explode'"):
        parse("after_insert:explode")
