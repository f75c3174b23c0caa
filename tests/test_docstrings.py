"""Public docstrings begin with a verb in the imperative, by a dictionary that is not ours.

lemminflect holds the verbs, nouns and adjectives of the SPECIALIST lexicon of the National Library
of Medicine, so that nobody can make the list fit a docstring. A word counts as an imperative if it
is a verb and its own base form ("Return", not "Returns"). Some base forms are nouns, too ("Name of
the table"): before "of", "which", "whose" and "that" a word is read as a noun, but for "that"
behind verbs of saying ("Note that a block is loaded").

Properties are left out, as attributes are: a noun says what they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from lemminflect import getAllLemmas

from tests.test_tidy import source, written

LEAST = 0.95
SAYING = frozenset(
    {
        *("assert", "assume", "check", "ensure", "explain", "find", "note", "promise", "prove"),
        *(
            "remember",
            "report",
            "require",
            "say",
            "see",
            "show",
            "suppose",
            "tell",
            "warn",
            "write",
        ),
    }
)
"""Verbs whose object may be a clause with "that"."""


def is_imperative(docstring: str) -> bool:
    """Whether the docstring's first word is a verb that tells somebody to do it."""
    words = re.match(r"([A-Za-z]+)\b(?: (\w+))?", docstring)
    if words is None:
        return False
    first, second = words[1].lower(), words[2]
    lemmas = getAllLemmas(first)
    if first not in lemmas.get("VERB", ()):
        return False
    noun = "NOUN" in lemmas and second in {"of", "which", "whose", "that"}
    return not noun or (second == "that" and first in SAYING)


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether callers see an attribute."""
    decorators = [ast.unparse(one) for one in function.decorator_list]
    return any(re.search(r"property$|\.setter$", one) for one in decorators)


def docstrings(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Name and docstring of every public function and method."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from docstrings(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not node.name.startswith("_") and not is_property(node):
                yield node.name, text


def test_public_docstrings_begin_with_a_verb() -> None:
    """95 of 100, over both programs."""
    every = [
        (f"{module}: {name}", text.splitlines()[0])
        for module in written()
        for name, text in docstrings(ast.parse(source(module)))
    ]
    other = {name: text for name, text in every if not is_imperative(text)}
    assert len(every) > 1000, "the product's functions were found"
    assert len(other) <= (1 - LEAST) * len(every), other


@pytest.mark.parametrize(
    "text",
    [
        "The rows of a block.",
        "Returns the rows.",
        "Rows of a block.",
        "Name of the table.",
        "Group that owns the partition.",
        "Whether it is one.",
        "As HttpClient's.",
        "`name[:action]`, as in the environment.",
        "",
    ],
)
def test_other_beginnings_are_found(text: str) -> None:
    """Negative control."""
    assert not is_imperative(text)


@pytest.mark.parametrize("text", ["Return rows.", "Note that it ended.", "Unload it.", "Park it."])
def test_imperatives_pass(text: str) -> None:
    """Negative control the other way."""
    assert is_imperative(text)


def test_a_property_and_a_private_function_are_left_out() -> None:
    """And a method is not."""
    code = """
class A:
    @property
    def size(self): "Bytes."
    def rows(self): "All of them."
    def _rows(self): "All of them."
"""
    assert list(docstrings(ast.parse(code))) == [("rows", "All of them.")]
