"""One app whose source is in another cluster than all that it writes (`source.kafka`).

The two may be one broker: what fences, and what is believed, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.broker.pipeline import Pipeline

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class CrossPipeline(Pipeline):
    """`other` is the source's cluster; empty: the target's."""

    other: str = ""

    @property
    def source_bootstrap(self) -> str:
        return self.other or self.bootstrap

    def config(self, extra: str = "", **relay: float | str) -> Path:
        source = f'[source.kafka]\nbootstrap = "{self.source_bootstrap}"\n'
        return super().config(source + extra, **relay)

    def committed_is_journal_head(self) -> None:
        """What the group shows comes after each commit: in the end, and never ahead of it."""

        def shown() -> bool:
            # in this order: what the relay writes between the two looks is ahead of the group
            places = self.committed()
            heads = {p: records[-1:] for p, records in self.journal().items()}
            for place in places:
                there = [record.floor for record in heads[place.partition]]
                assert not there or place.offset <= there[0], "the group is ahead of the journal"
            return all(
                [max(at.offset, 0)] == [r.floor for r in heads[at.partition]]
                for at in places
                if heads[at.partition]
            )

        self.until(shown, "the journal's heads in the group")
