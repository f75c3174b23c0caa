"""Numbers of things as people write them."""

# pure

from __future__ import annotations


def several(number: int, noun: str, plural: str = "") -> str:
    """Return "1 error" or "1,204 errors"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"
