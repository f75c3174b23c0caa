"""How long a search for a counterexample is: briefly in each run, for long on request."""

from __future__ import annotations

from hypothesis import settings

LONG = "long"
"""The profile of `python -m pytest tests/schema --hypothesis-profile=long`."""
MANY = 1_000
"""Examples of each test with it."""


def examples(few: int) -> int:
    """So many, or MANY with the long profile."""
    return MANY if is_long() else few


def is_long() -> bool:
    """Whether this run has that profile."""
    return settings.get_current_profile_name() == LONG
