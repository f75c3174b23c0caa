"""Where there is no ledger: was there one? Other databases, Spark's checkpoint or the journal say.

Often nothing tells a ledger that was lost from a loader that has yet to run. Never writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.clickhouse.table_engine import LISTED_HERE
from relay.config.allowed_tables import LEDGER, LEDGER_COLUMNS
from relay.config.settings import Settings
from relay.errors import Refused

Ask = Callable[[str, dict[str, Any]], Sequence[Sequence[Any]]]
"""A question to ClickHouse, with its parameters; raises Refused where the user may not ask."""

_LEDGERS = f"""
SELECT database FROM system.columns
WHERE table = {{name:String}} AND name IN {{columns:Array(String)}} AND {LISTED_HERE}
GROUP BY database HAVING uniqExact(name) = {{wanted:UInt64}} ORDER BY database
"""  # noqa: S608 - constants
_OF_APP = "SELECT 1 FROM {ledger:Identifier}.ledger WHERE app = {app:String} LIMIT 1"


def describe_loss(
    settings: Settings,
    elsewhere: Sequence[str],
    stands: Mapping[int, int],
    begins: Mapping[int, int],
) -> str:
    """Describe how it is known that the ledger was lost; empty: nothing says so.

    Args:
        settings: of the app.
        elsewhere: databases whose ledgers have entries of the app.
        stands: where Spark's checkpoint stands, by journal partition; empty where it is not on this
            machine, or of another journal.
        begins: the first offset of each journal partition; empty: not asked.
    """
    app, loader = settings.app, settings.loader
    known, other = [], "loader.database names another database"
    if elsewhere:
        ledgers = ", ".join(f"{database}.{LEDGER}" for database in elsewhere)
        known.append(f"{ledgers} has entries of app {app}")
    if read := _first_beyond_0(stands):
        where = f"offset {read[1]} of the journal's partition {read[0]}"
        known.append(f"checkpoint {loader.checkpoint} stands at {where}")
    if not known and (cut := _first_beyond_0(begins)):
        known.append(f"the journal's partition {cut[0]} begins at offset {cut[1]}")
        other = "no loader loaded what retention deleted before it"
    if not known:
        return ""
    return (
        f"there is no ledger {loader.database}.{LEDGER}, but {' and '.join(known)}: the ledger was "
        f"lost, or {other}"
    )


def _first_beyond_0(offsets: Mapping[int, int]) -> tuple[int, int] | None:
    """The first partition with an offset other than 0, and that offset."""
    return next((place for place in sorted(offsets.items()) if place[1]), None)


def elsewhere(ask: Ask, app: str) -> tuple[str, ...]:
    """Return the databases whose ledgers have entries of the app and may be read."""
    wanted = {"columns": sorted(LEDGER_COLUMNS), "wanted": len(LEDGER_COLUMNS), "name": LEDGER}
    ledgers = [str(database) for (database,) in ask(_LEDGERS, wanted)]
    return tuple(database for database in ledgers if _has(ask, database, app))


def _has(ask: Ask, database: str, app: str) -> bool:
    try:
        return bool(ask(_OF_APP, {"ledger": database, "app": app}))
    except Refused:
        return False


def checkpointed(where: str, journal: str) -> dict[int, int]:
    """Return where Spark's checkpoint stands, by journal partition; empty where none is here.

    A batch that was only planned does not count: the loader repeats it (loader.journal.checkpoint).
    Nor does the checkpoint of a journal with another topic id, as one of an app that was removed
    and begun again: it says nothing of this journal's blocks.
    """
    directory = Path(where)
    try:
        planned = _batches(directory / "offsets")
        done = _batches(directory / "commits")
        ended = [batch for batch in planned if batch < planned[-1] or batch in done]
        if not ended:
            return {}
        text = (directory / "offsets" / str(ended[-1])).read_text(encoding="utf-8")
        offsets = json.loads(text.splitlines()[-1])
        if offsets.pop("journal", None) != journal:
            return {}
        return {int(p): int(offset) for p, offset in offsets.items()}
    except (OSError, IndexError, ValueError, AttributeError):
        return {}


def _batches(directory: Path) -> list[int]:
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdigit())
