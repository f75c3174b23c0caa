"""`relay verify --once`: audits one app over all that is retained; more with --deep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

import click

from relay import names
from relay.config.settings import Settings
from relay.errors import Refused, Unavailable
from relay.kafka.topics import READ, Topics
from relay.operate.verify import rounds
from relay.operate.verify.audit import Audit
from relay.operate.verify.deep import Deep
from relay.operate.verify.judge.anomaly import Anomaly
from relay.operate.verify.judge.beginning import LedgerReach, beginnings
from relay.operate.verify.read.journal import Reader
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.records_pb2 import Commit


def once(
    settings: Settings,
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    note: Callable[[int, int, Commit], None] = lambda *_: None,
    *,
    deep: bool,
    removed: Collection[str] = (),
) -> None:
    """Audit all that is retained, with a new reader; `deep`: the rows as well.

    `say` gets anomalies as they are found, `note` partition, offset and record before they are
    judged. Of the tables in `removed` a person removed rows.

    Raises:
        RelayError: as reader and deep audit raise them; `audit` has what was found until then.
    """
    reader.grow()
    source = _source(reader)
    if not deep:
        rounds.once(reader, audit, say, note)
        _begin_history(reader, audit, source, None)
        return
    with contextlib.closing(Deep(settings, audit, removed)) as further:

        def keep(partition: int, offset: int, commit: Commit) -> None:
            note(partition, offset, commit)
            further.keep(partition, offset, commit)

        rounds.once(reader, audit, say, keep)
        # What the journal alone shows holds, whatever ClickHouse does.
        _begin_history(reader, audit, source, None)
        _begin_history(reader, audit, source, _settled(settings))
        for anomaly in further.judge(lambda what: click.echo(what, err=True)):
            audit.anomalies.append(anomaly)
            say(anomaly)


def _begin_history(
    reader: Reader,
    audit: Audit,
    source: Mapping[int, int],
    settled: Mapping[int, LedgerReach] | None,
) -> None:
    """Note where the audited history begins, as far as ledger and source topic tell."""
    audit.history = beginnings(audit.firsts, reader.starts, source, audit.floors(), settled)


def _source(reader: Reader) -> dict[int, int]:
    """Return where the source's partitions begin; nothing if this user may not know."""
    with contextlib.suppress(Unavailable, Refused):
        return reader.source_starts()
    return {}


def _settled(settings: Settings) -> dict[int, LedgerReach]:
    """Return what the ledger has settled of the journal that exists now."""
    journal = Topics(settings).describe(names.journal_topic(settings.app), (READ,))
    return {} if journal is None else LandedBlocks(settings).reach(journal.topic_id)
