"""What a loader finds before it starts: the ledger, and where in the journal to begin.

Receives settings, gives the ledger and a Start. Nothing of Spark's engine is started here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from loader import clickhouse
from loader.clioptions import say
from loader.ledger import Ledger
from loader.servers import several
from relay import names
from relay.errors import ConfigError, ContractBroken, Unavailable
from relay.replicas import is_shared
from relay.topics import READ, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from loader.clioptions import Say
    from loader.journal_source import Start
    from relay.settings import Settings

T = TypeVar("T")


def ledger_of(settings: Settings, *, make: bool = False) -> Ledger:
    """The app's ledger.

    Args:
        settings: of the app.
        make: the table, where it is not there.

    Raises:
        Unavailable, Refused, ContractBroken: as loader.ledger.
        ConfigError: several replicas are named, and the ledger is not replicated.
        Refused: one address is several servers, and there is no quorum.
    """
    client = clickhouse.connect(settings.clickhouse, settings.loader.insert_timeout_seconds)
    ledger = Ledger(client, settings.loader.database, settings.app)
    engine = ledger.engine(settings.loader.database)
    many = len(settings.clickhouse.urls) > 1 or (make and several(settings.clickhouse, engine))
    if many and (engine or make) and not is_shared(engine):
        raise ConfigError(
            f"clickhouse.url names several replicas, and {ledger.name} is not replicated",
            "Make it on all of them as ReplicatedMergeTree (loader/ledger_table.py has the "
            "columns), or name one replica.",
        )
    if make:
        ledger.ensure(settings.loader.database)
    return ledger


def waited(
    settings: Settings,
    call: Callable[[], T],
    rest: Callable[[float], None] = time.sleep,
    tell: Say = say,
) -> T:
    """Calls until the server answers, or loader.wait_for_servers_seconds are over.

    Args:
        settings: of the app.
        call: is asked again while it raises Unavailable.
        rest: waits so many seconds between two tries; may raise, to end it.
        tell: a line for people before each.
    """
    limit, begun, pause = settings.loader.wait_for_servers_seconds, time.monotonic(), 0.5
    while True:
        try:
            return call()
        except Unavailable as error:
            if limit and time.monotonic() - begun > limit:
                raise
            tell(f"waiting, next try in {pause:.1f} s: {error.message}")
        rest(pause)  # the back-off itself; `call` is the condition
        pause = min(pause * 2, 10.0)


def start(
    settings: Settings,
    ledger: Ledger | None,
    rest: Callable[[float], None] = time.sleep,
    tell: Say = say,
) -> Start:
    """Journal and position to begin with.

    Args:
        settings: of the app.
        ledger: of the app; None where there is none yet.
        rest: as of `waited`.
        tell: as of `waited`.

    Raises:
        ContractBroken: the ledger's positions belong to another journal.
    """
    from loader.journal_source import Start  # noqa: PLC0415 - Spark

    topic = names.journal_topic(settings.app)
    journal = waited(settings, lambda: topic_id(settings, topic), rest, tell)
    positions = {} if ledger is None else waited(settings, ledger.positions, rest, tell)
    others = {known for known, _ in positions} - {journal}
    if ledger and others and not any(known == journal for known, _ in positions):
        raise ContractBroken(
            f"the ledger's positions of app {settings.app} belong to journal "
            f"{', '.join(sorted(others))}, the topic {topic} is now {journal}",
            "It was deleted and made anew: use a new app name; or, if every block of the old "
            f"journal is loaded, remove {ledger.name}'s position rows of this app.",
        )
    return Start(
        settings, journal, {p: o for (known, p), o in positions.items() if known == journal}
    )


def topic_id(settings: Settings, topic: str) -> str:
    """The topic's id, which tells one made anew.

    Raises:
        Unavailable: no answer, or no such topic.
    """
    facts = Topics(settings).describe(topic, (READ,))
    if facts is None:
        raise Unavailable(f"topic {topic} is not there", "Start `relay run` once, it creates it.")
    return facts.topic_id
