"""How long a search for a counterexample is: briefly in each run, for long on request."""

from __future__ import annotations

from hypothesis import settings

MANY = 1_000
"""Examples of each test with --hypothesis-profile=long, which sets as many as its default."""


def examples(few: int) -> int:
    """So many, or MANY with the long profile."""
    return MANY if is_long() else few


def is_long() -> bool:
    """Whether this run has --hypothesis-profile=long."""
    return settings.default is not None and settings.default.max_examples >= MANY
