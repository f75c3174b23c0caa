"""How many bytes a block's rows may take as columns, for who seals a buffer and who decodes it."""

from __future__ import annotations

ALONE = 4
"""A message alone may take this many times what a block may: it cannot be cut, and as one of 1 MiB,
the brokers' default, with three values of a thousand columns in a row, it takes 221 MB."""
DENSE = 2
"""Rows that take no more than so many times their messages' bytes set their fields, and the memory
is the messages': a backlog of them is cut at ALONE only, since each cut costs a transaction."""


def block_bytes(setting: int, messages: int) -> int:
    """Return bytes that a block's rows may take as columns, no more than a message alone may.

    `setting`: block.max_decoded_bytes; `messages`: bytes of the buffer's messages, 0: not known.
    """
    return min(ALONE * setting, max(setting, DENSE * messages))
