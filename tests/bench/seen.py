"""When rows became queryable: ClickHouse is asked again and again which blocks it shows.

Receives a client and tables with a `_block` column, gives a time for each block: that of the first
answer that held it, so never too early. A block's rows are one part: visible together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

EVERY_SECONDS = 0.1  # a look costs the engine, which is at work
_BEHIND_ROWS_SECONDS = 5.0
"""Looks begin so far behind the newest rows of the partition that is furthest behind: all of a
table would cost the engine more with each look. What comes later still is seen by the last."""


@dataclass(slots=True)
class Tail:
    """Where the next look into a table begins.

    Attributes:
        margin: rows that `_BEHIND_ROWS_SECONDS` are.
        newest: highest row number by source partition.
    """

    margin: int
    partitions: int
    newest: dict[int, int] = field(default_factory=dict)

    def note(self, block: str, highest: int) -> None:
        """A block was seen; its id says from which partition it is."""
        partition = int(block.split(":")[2])
        self.newest[partition] = max(self.newest.get(partition, 0), highest)

    @property
    def begin(self) -> int:
        """The first row number to ask for."""
        if len(self.newest) < self.partitions:
            return 0
        return max(0, min(self.newest.values()) - self.margin)


class Watch:
    """Looks, and remembers.

    Args:
        tables: `database.table` with rows per second of each.
        partitions: of the source topic.
    """

    def __init__(
        self, client: Client, tables: Sequence[tuple[str, float]], partitions: int
    ) -> None:
        self._client = client
        self._tails = {
            table: Tail(int(rate * _BEHIND_ROWS_SECONDS), partitions) for table, rate in tables
        }
        self.seen: dict[str, float] = {}
        """Block id to Unix time."""
        self.resolutions: list[tuple[float, int]] = []
        """Of each look: seconds from the beginning of the one before to its own answer, and 1."""
        self._before = time.monotonic()

    def look(self, *, whole: bool = False) -> int:
        """One look; blocks that are new in it. `whole`: at all rows there are."""
        began = time.monotonic()
        found = self._client.query(
            " UNION ALL ".join(self._questions(whole=whole)), settings={"max_threads": 1}
        ).result_rows
        now = time.time()
        self.resolutions.append((time.monotonic() - self._before, 1))
        self._before = began
        new = 0
        for table, block, highest in found:
            self._tails[table].note(block, highest)
            new += self.seen.setdefault(block, now) == now
        return new

    def _questions(self, *, whole: bool) -> Iterator[str]:
        for table, tail in self._tails.items():
            begin = 0 if whole else tail.begin
            yield (
                f"SELECT '{table}' AS place, _block, max(event) FROM {table} "
                f"WHERE event >= {begin} GROUP BY _block"
            )
