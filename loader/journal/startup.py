"""What a loader finds before it starts: the ledger, and where in the journal to begin.

Receives settings, gives the ledger and a Start. Nothing of Spark's engine is started here.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import ledger_table
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.servers import several
from loader.console import Say, say
from loader.core.entries import NewEntry
from loader.core.plan import doubt
from loader.core.positions import Noted, Why, column_row, rows_of
from loader.journal import begin_plan, past_letters, rewinds
from loader.journal.checkpoint import Checkpoint, CheckpointPositions, unread
from loader.journal.reader import JournalPolling, RecordRows
from relay import names
from relay.clickhouse.replicas import is_shared
from relay.config.settings import Settings
from relay.errors import ConfigError, ErrorPage, Refused, Unavailable
from relay.failpoints import reached
from relay.kafka.topics import READ, Topics
from relay.program.waiting import pauses

if TYPE_CHECKING:  # Spark is not installed everywhere
    from loader.journal.source import Start

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries of a server that is away."""
Rest = Callable[[float, str], None]
"""Waits so many seconds between two tries; is told what for. May raise, to end it. Where it is told
nothing, nobody waits: it only looks whether to end."""


def _sleep(seconds: float, _: str) -> None:
    time.sleep(seconds)


def ledger_of(settings: Settings, *, make: bool = False) -> Ledger:
    """Return the app's ledger; `make`: create its table if it does not exist.

    Raises:
        Unavailable, Refused, ContractBroken: as loader.clickhouse.ledger and its table.
        ConfigError: several replicas are named, and the ledger is not replicated.
        Refused: one address is several servers, and there is no quorum; or rows of the ledger are
            hidden from this user.
    """
    client = clickhouse_client.connect(settings.clickhouse, settings.loader.insert_timeout_seconds)
    ledger = Ledger(client, settings.loader.database, settings.app)
    engine = ledger.engine()
    ledger_table.check_engine(ledger.name, engine)
    many = len(settings.clickhouse.urls) > 1 or (make and several(settings.clickhouse, engine))
    if many and (engine or make) and not is_shared(engine):
        steps = ledger_table.replace_on_replicas if engine else ledger_table.make_on_replicas
        raise ConfigError(
            f"clickhouse.url names several replicas, but {ledger.name} is not replicated",
            f"{steps(settings.loader.database)}. Or name one replica in clickhouse.url.",
            page=ErrorPage.REPLICAS,
        )
    if make:
        ledger.ensure()
    if make or engine:
        ledger.check_seen()
    return ledger


def waited(
    settings: Settings,
    call: Callable[[], T],
    rest: Rest = _sleep,
    tell: Say = say,
    longest: float | None = None,
) -> T:
    """Call until the server answers, for loader.wait_for_servers_seconds at most.

    `rest` waits between two tries; `tell`: a line for people before each; `longest`: seconds, at
    most, that are waited for this call; None: as for all.
    """
    limit = settings.loader.wait_for_servers_seconds or math.inf
    limit = limit if longest is None else min(limit, longest)
    started = time.monotonic()
    later = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return call()
        except Unavailable as error:
            if time.monotonic() - started > limit:
                raise
            step = f" (next: {error.next_step})" if error.next_step else ""
            pause, why = next(later), f"{error.message}{step}"
            tell(f"waiting, next try in {pause:.1f} s: {why}", level=logging.WARNING)
        rest(pause, why)  # the back-off itself; `call` is the condition


def start(settings: Settings, ledger: Ledger | None) -> Start:
    """Read the journal's id and the ledger's position; record nothing.

    `ledger`: None where there is none yet.

    Raises:
        ContractBroken: the ledger's positions belong to another journal, or to records of this one
            that are deleted or lost.
    """
    from loader.journal.source import Start  # noqa: PLC0415 - Spark

    topic = names.journal_topic(settings.app)
    journal = topic_id(settings, topic)
    noted = Noted() if ledger is None else ledger.noted()
    begin_plan.check_journal(settings.app, journal, noted)
    mine = noted.of(journal)
    began = noted.began_of(journal)
    if mine:
        bounds = _bounds(settings, topic)
        begin_plan.check_end(topic, mine, bounds)
        begin_plan.check_unread(topic, mine, bounds, began)
    return Start(settings, journal, mine, noted.unsure_of(journal), began)


def begin(
    settings: Settings,
    ledger: Ledger,
    checkpoint: Checkpoint,
    *,
    lost: bool = False,
    rest: Rest = _sleep,
    tell: Say = say,
) -> Start:
    """Decide where to begin; record in the ledger what it did not know.

    `checkpoint`: Spark's, which is moved aside where the ledger says otherwise; `lost`: a person
    says that the ledger was lost; `rest` and `tell`: as of `waited`.

    Raises:
        ContractBroken: ledger, journal and checkpoint disagree, and only a person knows why.
        ConfigError, Unavailable: the checkpoint cannot be read.
    """
    from loader.journal.source import Start  # noqa: PLC0415 - Spark

    topic = names.journal_topic(settings.app)
    beginning = _Beginning(settings, ledger, rest, tell)
    wait = beginning.wait
    journal = wait(lambda: topic_id(settings, topic))
    facts = begin_plan.StartFacts(
        settings.app,
        ledger.name,
        journal,
        wait(ledger.noted),
        wait(lambda: _bounds(settings, topic)),
        _found(checkpoint),
        checkpoint.where,
        lost,
    )
    column = settings.loader.block_column
    begin_plan.check_column(ledger.name, settings.app, column, facts.noted)
    plan = begin_plan.decide(facts)
    beginning.check_rewinds(facts, plan)
    for warning in plan.warnings:
        tell(warning, level=logging.WARNING, went_back=True)
    if plan.cut_off:
        tell(
            f"{plan.cut_off}. The loader goes on without it, and asks each table which of the "
            "following blocks it has before it inserts them",
            level=logging.WARNING,
        )
    # Before the note, which makes the next start know of nothing unusual any more.
    beginning.record_letters(facts, plan)
    wait(lambda: beginning.doubt_waiting(plan))
    rows = rows_of(journal, plan.new, plan.ends, plan.why)
    if column not in facts.noted.columns:
        rows.append(column_row(column))
    if rows:
        wait(lambda: ledger.note(rows))
    # From here on the ledger itself holds what the checkpoint said.
    reached("beginning_noted")
    if plan.aside:
        tell(f"the checkpoint was moved to {checkpoint.set_aside()}", level=logging.WARNING)
    return Start(settings, journal, plan.positions, plan.unsure, plan.began)


@dataclass(frozen=True)
class _Beginning:
    """What a start looks at and records; `rest` and `tell` as of `waited`."""

    settings: Settings
    ledger: Ledger
    rest: Rest
    tell: Say

    def wait(self, call: Callable[[], T], longest: float | None = None) -> T:
        """Call until the server answers, as `waited` does."""
        return waited(self.settings, call, self.rest, self.tell, longest)

    def check_rewinds(self, facts: begin_plan.StartFacts, plan: begin_plan.StartPlan) -> None:
        """Stop where the tables may hold rows of blocks that a rewind superseded."""
        ends = {p: high for p, (_, high) in facts.bounds.items()}
        # Nothing follows a rewind's record until the rewind has ended. So a loader that ran
        # meanwhile stands right behind that record, and so does a backup that was made then.
        begin = {p: max(low, plan.positions[p] - 1) for p, (low, _) in facts.bounds.items()}
        if ended := self.wait(lambda: rewinds.ended(self.settings, begin, ends)):
            noted = self.wait(self.ledger.noted)  # a rewind may have ended meanwhile
            begin_plan.check_rewinds(self.ledger.name, facts.journal, noted, ended)

    def record_letters(self, facts: begin_plan.StartFacts, plan: begin_plan.StartPlan) -> None:
        """Record which messages are dead letters since the moment of which the ledger is."""
        # Letters of what waits move no position: so whether they are newer than the ledger is
        # looked at even where all positions agree. Of the journal's blocks that is needed only
        # where some are unsure.
        begin = {p: plan.positions[p] for p in facts.bounds}
        stretch = past_letters.JournalStretch(begin, begin_plan.end_unsure(plan, facts.bounds))
        since = self.wait(lambda: past_letters.since(self.settings, self.ledger, stretch))
        if since is None:
            return
        check = partial(self.rest, 0.0, "")
        letters = self._read_letters(since, facts, plan.why, check)
        if letters is None:
            return

        def record() -> None:
            self.ledger.write(
                past_letters.lacking(
                    self.settings, self.ledger, stretch, letters, check, lost=plan.why == "lost"
                )
            )
            self.ledger.note(letters.looked)

        self.wait(record)

    def _read_letters(
        self, since_ms: int, facts: begin_plan.StartFacts, why: Why, check: past_letters.Check
    ) -> past_letters.FoundLetters | None:
        """Read them; None where they cannot be read, and the loader may go on without."""
        looked = facts.noted.letters
        try:
            return self.wait(
                lambda: past_letters.read(self.settings, since_ms, looked, why, self.tell, check),
                past_letters.bound_wait(why, self.settings),
            )
        except (Refused, Unavailable) as error:
            if past_letters.is_needed(why, self.settings.loader.rejected):
                raise
            if reason := past_letters.describe_unread(error, why):
                self.tell(reason, level=logging.WARNING)
            return None

    def doubt_waiting(self, plan: begin_plan.StartPlan) -> None:
        """Record for which waiting blocks the ledger may have lost an entry.

        What settles a waiting block moves no position. So where all positions agree, too, the
        ledger may be older than the tables: then the tables are asked, and of most starts they know
        nothing. Of what stands aside loader.spark.set_aside asks then, before it tries it: that may
        be so much that no block would be loaded for minutes.
        """
        waiting = self.ledger.waiting(aside=bool(plan.ends))
        forgot = [entry.block for entry in waiting if begin_plan.forgot(entry.claims, plan.why)]
        if not plan.ends:
            Forgotten.of_waiting(self.ledger, self.settings).doubt(forgot)
            return
        lost = plan.why == "lost"
        self.ledger.write([NewEntry(block, doubt(block.rows, lost=lost)) for block in forgot])


def _found(checkpoint: Checkpoint) -> CheckpointPositions | None:
    try:
        return checkpoint.found()
    except OSError as error:
        raise unread(checkpoint.where, error) from error


def _bounds(settings: Settings, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of each partition of the journal."""
    polling = JournalPolling(settings.kafka, topic, lambda *_: RecordRows([]))
    try:
        return {p: polling.watermarks(p) for p in polling.partitions()}
    finally:
        polling.close()


def topic_id(settings: Settings, topic: str) -> str:
    """Return the topic's id, which differs after the topic was created again.

    Raises:
        Unavailable: no answer, or no such topic.
    """
    facts = Topics(settings).describe(topic, (READ,))
    if facts is None:
        raise Unavailable(
            f"topic {topic} does not exist", "Start `relay run` once, which creates the topic."
        )
    return facts.topic_id
