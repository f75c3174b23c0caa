"""`relay verify --once`: one app's audit of all that is retained, with --deep of more."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from relay.verify import run
from relay.verify.deep import Deep

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from relay.records_pb2 import Commit
    from relay.settings import Settings
    from relay.verify.anomaly import Anomaly
    from relay.verify.audit import Audit
    from relay.verify.reading import Reader
    from relay.verify.run import Keep


def once(
    settings: Settings,
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    note: Keep = lambda *_: None,
    *,
    deep: bool,
    removed: Collection[str] = (),
) -> None:
    """All that is retained.

    Args:
        settings: of the app.
        reader: not started yet.
        audit: gets all that is read.
        say: gets anomalies as they are found.
        note: gets partition, offset and record before they are judged.
        deep: block topics, ClickHouse and source topic as well.
        removed: tables of which a person removed rows.

    Raises:
        ConfigError, Unavailable: as reader and deep audit raise them.
    """
    if not deep:
        run.once(reader, audit, say, note)
        return
    with contextlib.closing(Deep(settings, removed)) as further:

        def keep(partition: int, offset: int, commit: Commit) -> None:
            note(partition, offset, commit)
            further.keep(partition, offset, commit)

        run.once(reader, audit, say, keep)
        for anomaly in further.judge(lambda what: click.echo(what, err=True)):
            audit.anomalies.append(anomaly)
            say(anomaly)
        audit.acknowledged += further.acknowledged
        audit.not_judged += further.not_judged
