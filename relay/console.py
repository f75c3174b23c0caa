"""Where tables for people are printed."""

from __future__ import annotations

from rich.console import Console


def console_of(width: int) -> Console:
    """The terminal, or `width` columns where there is none to ask."""
    console = Console()
    return console if console.is_terminal else Console(width=width)
