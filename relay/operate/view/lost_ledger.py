"""Where there is no ledger: was there one? Other databases, Spark's checkpoint or the journal say.

Receives questions' answers, gives a sentence, which is empty where nothing tells a ledger that was
lost from a loader that has yet to run. Never writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.clickhouse.table_engine import LISTED_HERE
from relay.config.allowed_tables import LEDGER, LEDGER_COLUMNS
from relay.errors import Refused

Ask = Callable[[str, dict[str, Any]], Sequence[Sequence[Any]]]
"""A question to ClickHouse, with its parameters; raises Refused where the user may not ask."""

_LEDGERS = f"""
SELECT database FROM system.columns
WHERE table = {{name:String}} AND name IN {{columns:Array(String)}} AND {LISTED_HERE}
GROUP BY database HAVING uniqExact(name) = {{wanted:UInt64}} ORDER BY database
"""  # noqa: S608 - constants
_OF_APP = "SELECT 1 FROM {ledger:Identifier}.ledger WHERE app = {app:String} LIMIT 1"


@dataclass(frozen=True, slots=True)
class LedgerTraces:
    """What may tell that there was a ledger.

    Attributes:
        database: where there is none.
        app: the app's name.
        elsewhere: databases whose ledgers have entries of the app.
        checkpoint: where Spark's is.
        stands: where it stands, by journal partition; empty where it is not on this machine, or
            of another journal.
        begins: the first offset of each journal partition; empty: not asked.
    """

    database: str
    app: str
    elsewhere: Sequence[str] = ()
    checkpoint: str = ""
    stands: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)


def describe_loss(traces: LedgerTraces) -> str:
    """Describe how it is known that the ledger was lost; empty: nothing says so."""
    other = "loader.database names another database"
    gone = "no loader loaded what retention deleted before it"
    elsewhere = [*_elsewhere(traces), *_stands(traces)]
    known = elsewhere or list(_begins(traces))
    if not known:
        return ""
    return (
        f"there is no ledger {traces.database}.{LEDGER}, but {' and '.join(known)}: the ledger was "
        f"lost, or {other if elsewhere else gone}"
    )


def _elsewhere(traces: LedgerTraces) -> Iterator[str]:
    if traces.elsewhere:
        named = ", ".join(f"{database}.{LEDGER}" for database in traces.elsewhere)
        yield f"{named} has entries of app {traces.app}"


def _stands(traces: LedgerTraces) -> Iterator[str]:
    if read := [(p, offset) for p, offset in sorted(traces.stands.items()) if offset]:
        partition, offset = read[0]
        where = f"offset {offset} of the journal's partition {partition}"
        yield f"checkpoint {traces.checkpoint} stands at {where}"


def _begins(traces: LedgerTraces) -> Iterator[str]:
    if cut := [(p, offset) for p, offset in sorted(traces.begins.items()) if offset]:
        partition, offset = cut[0]
        yield f"the journal's partition {partition} begins at offset {offset}"


def elsewhere(ask: Ask, app: str) -> tuple[str, ...]:
    """Return the databases whose ledgers have entries of the app and may be read."""
    wanted = {"columns": sorted(LEDGER_COLUMNS), "wanted": len(LEDGER_COLUMNS), "name": LEDGER}
    found = [str(database) for (database,) in ask(_LEDGERS, wanted)]
    return tuple(database for database in found if _has(ask, database, app))


def _has(ask: Ask, database: str, app: str) -> bool:
    try:
        return bool(ask(_OF_APP, {"ledger": database, "app": app}))
    except Refused:
        return False


def checkpointed(where: str, journal: str) -> dict[int, int]:
    """Return where Spark's checkpoint stands, by journal partition; empty where none is here.

    A batch that was only planned does not count: the loader repeats it (loader.journal.checkpoint).
    Nor does the checkpoint of another journal, as one of an app that was removed and begun again:
    it says nothing of this journal's blocks.

    Args:
        where: loader.checkpoint.
        journal: the topic id of the app's journal now.
    """
    directory = Path(where)
    try:
        planned = _batches(directory / "offsets")
        done = _batches(directory / "commits")
        ended = [one for one in planned if one < planned[-1] or one in done]
        if not ended:
            return {}
        text = (directory / "offsets" / str(ended[-1])).read_text(encoding="utf-8")
        said = json.loads(text.splitlines()[-1])
        if said.pop("journal", None) != journal:
            return {}
        return {int(p): int(offset) for p, offset in said.items()}
    except (OSError, IndexError, ValueError, AttributeError):
        return {}


def _batches(directory: Path) -> list[int]:
    return sorted(int(one.name) for one in directory.iterdir() if one.name.isdigit())
