"""Dead letters that loaders wrote against the ledger; each rule with what it must find."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from relay.operate.verify.judge.contents import LetterJudge, LoaderLetter, RefusedMessages

BLOCK = "shop:shop.orders:0:0:0:left-out"
DEAD = RefusedMessages("dead", 0, frozenset({17, 42}), since=5, rows=0)
OTHER = LoaderLetter(BLOCK, 3)
BOTH = [LoaderLetter(BLOCK, 17), LoaderLetter(BLOCK, 42)]


def judged(
    letters: list[LoaderLetter],
    refused: RefusedMessages | None,
    begin: int = 0,
    *,
    known: bool = True,
    later: RefusedMessages | None = None,
) -> tuple[list[str], list[str]]:
    """What is wrong, and what is not judged; `later` is the ledger's, asked again."""
    judge = LetterJudge(0, begin, {BLOCK.removesuffix(":left-out")} if known else set())

    def again(blocks: Collection[str]) -> dict[str, RefusedMessages]:
        assert (blocks, refused) == ([BLOCK], None), "only what the ledger did not know"
        assert known
        return {} if later is None else {BLOCK: later}

    found = judge.judge(letters, {} if refused is None else {BLOCK: refused}, again)
    return [f"{one.kind.value}: {one.text}" for one in found], judge.not_judged


def test_each_message_once_is_clean() -> None:
    assert judged(BOTH, DEAD) == ([], [])


@pytest.mark.parametrize("state", ["prepared", "aside", "parked", "discarded"])
def test_what_is_not_settled_yet_is_no_anomaly(state: str) -> None:
    """A loader may have died between its letters and the ledger."""
    assert judged(BOTH, replace(DEAD, state=state)) == ([], [])
    assert judged([], replace(DEAD, state=state)) == ([], [])


@pytest.mark.parametrize(
    ("letters", "refused", "anomaly"),
    [
        (BOTH[:1], DEAD, "gap: block BLOCK: messages 42 are no dead letters, as the ledger says"),
        ([*BOTH, BOTH[0]], DEAD, "overlap: block BLOCK: messages 17 are dead letters more than"),
        ([*BOTH, OTHER], DEAD, "torn: block BLOCK: messages 3 are dead letters, and"),
        (BOTH, None, "foreign: block BLOCK: messages 17, 42 are dead letters, and the ledger"),
        (BOTH, replace(DEAD, state="loaded"), "overlap: block BLOCK: messages 17, 42 are dead"),
        (BOTH, replace(DEAD, rows=2), "overlap: block BLOCK: messages 17, 42 are dead letters"),
    ],
)
def test_what_is_wrong_is_found(
    letters: list[LoaderLetter], refused: RefusedMessages | None, anomaly: str
) -> None:
    (found,), not_judged = judged(letters, refused)
    assert found.replace(BLOCK, "BLOCK").startswith(anomaly)
    assert not not_judged


@pytest.mark.parametrize("letters", [BOTH, BOTH[:1]])
@pytest.mark.parametrize("state", ["prepared", "dead"])
def test_what_a_loader_left_out_since_the_ledger_was_read(
    letters: list[LoaderLetter], state: str
) -> None:
    """Its letters were `foreign`; of some of them the transaction may have come later still."""
    assert judged(letters, None, later=replace(DEAD, state=state)) == ([], [])


def test_letters_that_are_wrong_by_the_ledger_of_now() -> None:
    (found,), _ = judged([*BOTH, OTHER], None, later=DEAD)
    assert "messages 3 are dead letters, and were not left out of it" in found
    (found,), _ = judged([*BOTH, BOTH[0]], None, later=DEAD)
    assert "messages 17 are dead letters more than once" in found
    (found,), _ = judged(BOTH, None, later=replace(DEAD, partition=1))
    assert found.startswith("foreign"), "of another partition"


def test_what_retention_took_is_not_judged() -> None:
    found, (said,) = judged([], DEAD, begin=6)
    assert (found, said) == (
        [],
        f"block {BLOCK}: 2 of its 2 dead letters may have gone by retention: the topic begins at 6",
    )
    assert judged(BOTH, None, known=False) == ([], []), "a journal and a ledger that were cleaned"
    (found,), _ = judged([], DEAD, begin=5)
    assert found.startswith("gap")
