"""The relay's transitions. Everything that changes its state lives in this file.

Theory of operation. Buffers fill from polls. When one is due, a transaction goes
through BEGINNING → PRODUCING → JOURNALLING → SENDING_OFFSETS → COMMITTING, each
left by the answer to the one effect asked for. Whatever goes wrong ends in one
place: the transaction is aborted, or the producer is replaced where that is not
certain; then all buffers are dropped, the committed truth is read again, and the
partitions are polled from their floors. Nothing is ever replayed from memory.

    READY ─► BEGINNING ─► PRODUCING ─► JOURNALLING ─► SENDING_OFFSETS ─► COMMITTING ─► READY
                │             │            │                │               │
                └─────────────┴── failed, revoked ──────────┴───────────────┤
                                      ▼                                     ▼ unknown
                                  ABORTING ───────────────────────────► REPLACING
                                      └──► READY (truth read again) ◄──────┘

Where source and target are two clusters, no group can fence (state.Fencing): each source
partition has a transactional id and thus a transaction of its own, one after the other. Its
owner takes the id over (Fence) before it reads the truth, which is then the journal's head;
there is no SENDING_OFFSETS, as the journal's record holds the floor.

Rule: an event that the table below does not allow in the phase raises, and the
state stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.buffering import (
    advance,
    advance_to_end,
    append,
    count_in_blocks,
    journal_record,
    original_seal,
    settle,
    take_out,
)
from relay.core.holding import stalled_partitions
from relay.core.offsets import CommittedOffset
from relay.core.records import Arrival, SealResult
from relay.core.sealing import (
    count_tokens,
    inserts_per_second,
    is_crowded,
    record_due,
    refill,
    seals_due,
)
from relay.core.state import Buffer, Fencing, Phase, RelayState, Seal, SealReason, Transaction
from relay.core.takeover import take_over
from relay.core.transaction_size import (
    has_full,
    lower_bound,
    must_poll,
    raise_bound,
    size_if_too_slow,
    split_within,
)
from relay.core.turns import take_turns
from relay.errors import Fenced, Refused, RelayError, Unavailable, WrongCredentials

Step = tuple[RelayState, tuple[ef.Effect, ...]]

MAX_FAILURES = 5
"""Producers replaced in a row without one commit, before the process gives up and says so.

One is normal after any broker fault, a second after a coordinator moves; five mean that
a restart by the supervisor, with its back-off, is the better loop.
"""

MAX_CUT = 300
"""Blocks of the first messages of buffers, with no poll in between: a block that is full of columns
takes some tenths of a second, and the group waits five minutes for a poll."""

IN_TRANSACTION = frozenset(
    {Phase.BEGINNING, Phase.PRODUCING, Phase.JOURNALLING, Phase.SENDING_OFFSETS, Phase.COMMITTING}
)


class IllegalEventError(AssertionError):
    """An event that cannot happen in this phase: a bug of the caller."""


def step(state: RelayState, event: ev.Event) -> Step:
    """Return what the relay becomes and asks for, after `event`.

    Raises:
        IllegalEventError: the event is not allowed in the state's phase.
    """
    handler = TRANSITIONS.get((state.phase, type(event)))
    if handler is None:
        raise IllegalEventError(f"cannot handle {type(event).__name__} in phase {state.phase.name}")
    return handler(state, event)


# ---- ownership ----------------------------------------------------------------------------


def _assigned(state: RelayState, event: ev.Assigned) -> Step:
    """Read the truth of partitions that are new here; those still owned are left alone."""
    fresh = event.partitions - state.partitions.keys()
    state = replace(state, pending=state.pending | fresh, turns=None, stalled=frozenset())
    return (state, (_ask_truth(state, fresh),)) if fresh else (state, ())


def _ask_truth(state: RelayState, partitions: frozenset[int]) -> ef.Effect:
    """Fence first where no group does.

    What a paused predecessor commits afterwards would be missing in a truth read before.
    """
    by_partition = state.fencing is Fencing.PARTITION
    return ef.Fence(partitions) if by_partition else ef.ReadTruth(partitions)


def _predecessors_fenced(state: RelayState, event: ev.PredecessorsFenced) -> Step:
    ends = {p: end for p, end in event.ends.items() if p in state.pending}
    return (state, (ef.ReadTruth(frozenset(ends), ends),)) if ends else (state, ())


def _truth_read(state: RelayState, event: ev.TruthRead) -> Step:
    partitions = dict(state.partitions)
    seeks: list[ef.Effect] = []
    for truth in event.found:
        if truth.partition not in state.pending:
            continue  # revoked while its truth was read
        taken = take_over(truth, event.now_ms)
        if isinstance(taken, RelayError):
            return _exit(state, taken)
        partitions[truth.partition] = taken
        seeks.append(ef.Seek(truth.partition, taken.floor))
    read = frozenset(truth.partition for truth in event.found)
    state = replace(
        state,
        partitions=partitions,
        pending=state.pending - read,
        source_partitions=event.source_partitions,
        now_ms=max(state.now_ms, event.now_ms),
    )
    return state, tuple(seeks)


def _revoked(state: RelayState, event: ev.Revoked) -> Step:
    gone = (ef.Drop(event.partitions), *_read_all(state))
    state = replace(
        state,
        partitions={p: v for p, v in state.partitions.items() if p not in event.partitions},
        pending=state.pending - event.partitions,
        turns=None,
        stalled=frozenset(),
    )
    if state.phase in IN_TRANSACTION:
        return replace(state, phase=Phase.ABORTING, transaction=None), (*gone, ef.Abort())
    return state, gone


# ---- forming blocks -----------------------------------------------------------------------


def _polled(state: RelayState, event: ev.Polled) -> Step:
    partitions = dict(state.partitions)
    keeps: list[ef.Effect] = []
    grown: dict[int, dict[str, Buffer]] = {}
    for arrival in event.arrivals:
        partition = partitions.get(arrival.partition)
        if partition is None:
            continue  # polled before a revoke that is already handled
        skip = count_in_blocks(partition, arrival)
        if skip < len(arrival.offsets):
            if arrival.partition not in grown:
                grown[arrival.partition] = dict(partition.buffers)
            buffers = grown[arrival.partition]
            came_ms = _came_ms(arrival, state.now_ms, event.now_ms)
            buffers[arrival.table] = append(buffers.get(arrival.table), arrival, skip, came_ms)
            keeps.append(ef.Keep(arrival, skip))
    for index, offsets in event.offsets.items():
        if index in partitions:
            moved = advance(partitions[index], offsets)
            partitions[index] = replace(moved, buffers=grown.get(index, moved.buffers))
    for index, end in event.read_to.items():
        if index in partitions:
            partitions[index] = advance_to_end(partitions[index], end)
    now_ms = max(state.now_ms, event.now_ms)
    since_ms = now_ms if state.full_since_ms is None else state.full_since_ms
    state = replace(
        state,
        partitions=partitions,
        tokens=refill(state, event.now_ms),
        now_ms=now_ms,
        unpolled_ms=0,
        full_since_ms=since_ms if event.full else None,
    )
    state, read = _next_turns(state, event)
    state, begin = _begin_if_due(state)
    return state, (*keeps, *read, *begin)


def _next_turns(state: RelayState, event: ev.Polled) -> Step:
    """Decide whom to poll; where nobody has a backlog any more, the relay is not behind."""
    turns = take_turns(state, event)
    after = replace(state, turns=turns, stalled=stalled_partitions(state))
    if turns is None and state.turns is not None:
        after = replace(after, full_since_ms=None)
    if not _reads_some(after):
        return after, _read_all(state)
    changed = not _reads_some(state) or after.reading != state.reading
    return after, (ef.Read(after.reading),) if changed else ()


def _reads_some(state: RelayState) -> bool:
    """Whether not all partitions are polled."""
    return state.turns is not None or bool(state.stalled)


def _read_all(state: RelayState) -> tuple[ef.Effect, ...]:
    """Poll all partitions again, if not all were polled."""
    return (ef.Read(None),) if _reads_some(state) else ()


def _came_ms(arrival: Arrival, last_ms: int, now_ms: int) -> int:
    """When the first of its messages came, as far as that is known: since the last poll.

    By their own time, whoever's clock made it, but no further back: a relay that catches up would
    find every buffer past its age. Without one, now.
    """
    if arrival.first_timestamp_ms <= 0:
        return now_ms
    return min(max(arrival.first_timestamp_ms, last_ms), now_ms)


def _schema_changed(state: RelayState, event: ev.SchemaChanged) -> Step:
    state = replace(state, schema_changed=state.schema_changed | event.tables)
    return _begin_if_due(state, at_once=True)


def _decided(state: RelayState, event: ev.TablesDecided) -> Step:
    """Seal what was held back as the rules have it; the next poll reads all partitions again."""
    return replace(state, held=state.held - event.tables), ()


def _stop_requested(state: RelayState, _: ev.StopRequested) -> Step:
    state = replace(state, stopping=True)
    if state.phase is not Phase.READY:
        return state, ()
    state, effects = _begin_if_due(state, at_once=True)
    return (state, effects) if effects else _exit(state, None)


def _begin_if_due(state: RelayState, *, at_once: bool = False, cut: int = 0) -> Step:
    early = state.now_ms - state.committed_at_ms < state.limits.commit_interval_ms
    # What comes within an interval may be a third of the memory, and more.
    if early and not (at_once or state.stopping or is_crowded(state) or has_full(state)):
        return state, ()
    seals = seals_due(state)
    touched = frozenset(seal.partition for seal in seals).union(
        index for index, partition in state.partitions.items() if record_due(state, partition)
    )
    state = replace(state, schema_changed=frozenset())
    if not touched:
        return state, ()
    due = _transactions(state.fencing, seals, touched)
    if state.most_bytes is not None:
        due = split_within(state.most_bytes, due)
    return _begin(state, due, cut)


def _transactions(
    fencing: Fencing, seals: tuple[Seal, ...], touched: frozenset[int]
) -> tuple[Transaction, ...]:
    if fencing is Fencing.GROUP:
        return (Transaction(seals, touched),)
    return tuple(
        Transaction(tuple(s for s in seals if s.partition == index), frozenset({index}))
        for index in sorted(touched)
    )


def _begin(state: RelayState, due: tuple[Transaction, ...], cut: int = 0) -> Step:
    """Begin the first of them; the others follow, with no poll in between."""
    first = replace(due[0], then=due[1:], cut=cut)
    tables = frozenset(seal.table for seal in first.seals)
    alone = state.fencing is Fencing.PARTITION
    begin = ef.Begin(tables, min(first.partitions) if alone else None)
    return replace(state, phase=Phase.BEGINNING, transaction=first), (begin,)


# ---- the transaction, answer by answer ------------------------------------------------------


def _begun(state: RelayState, event: ev.Begun) -> Step:
    if _is_other_source(state, event.source_topic_id):
        # Some of what was polled may be of that one, at offsets of the old one: none of it is
        # committed, and the truth, which is read next, says the rest.
        return replace(state, phase=Phase.ABORTING, transaction=None), (ef.Abort(),)
    seals = _current(state).seals
    alone = state.alone.difference(seal.table for seal in seals) | event.alone
    return replace(state, phase=Phase.PRODUCING, alone=alone), (ef.Produce(seals),)


def _is_other_source(state: RelayState, topic_id: str) -> bool:
    taken_over = {state.partitions[index].source_topic_id for index in _current(state).partitions}
    return topic_id != "" and taken_over != {topic_id}


def _unseen(state: RelayState, _: ev.SourceUnseen) -> Step:
    """Poll on, and ask again: it comes, or the consumer hears that it is gone."""
    state = _forget_transaction(state)
    return _exit(state, None) if state.stopping else (state, ())


def _undecided(state: RelayState, event: ev.TablesUndecided) -> Step:
    """Hold these tables back and begin again without them: nothing stops for a neighbour."""
    if not event.tables - state.held:
        raise AssertionError(f"held back already, and asked again: {sorted(event.tables)}")
    cut = _current(state).cut
    state = replace(_forget_transaction(state), held=state.held | event.tables)
    state, effects = _begin_if_due(state, at_once=True, cut=cut)
    return _exit(state, None) if state.stopping and not effects else (state, effects)


def _forget_transaction(state: RelayState) -> RelayState:
    """The state without the transaction and those that were to follow it."""
    transaction = _current(state)
    state = _due_again(state, (transaction, *transaction.then))
    return replace(state, phase=Phase.READY, transaction=None)


def _due_again(state: RelayState, transactions: tuple[Transaction, ...]) -> RelayState:
    """The state where what these were to seal for a changed table is due again.

    All else that they were to seal is due by what the buffers are.
    """
    seals = (seal for transaction in transactions for seal in transaction.seals)
    changed = {seal.table for seal in seals if seal.reason is SealReason.SCHEMA}
    return replace(state, schema_changed=state.schema_changed | changed)


def _produced(state: RelayState, event: ev.Produced) -> Step:
    transaction = _current(state)
    if tuple(map(original_seal, event.results)) != transaction.seals:
        raise AssertionError("every seal has exactly one result, in order")
    after = {}
    records = []
    for index in sorted(transaction.partitions):
        results = [r for r in event.results if r.seal.partition == index]
        for result in results:
            _check_counts(result)
        before = state.partitions[index]
        left = {r.seal.table: r.left for r in results if r.left is not None}
        after[index] = take_out(before, (r.seal for r in results), state.now_ms, left)
        records.append(journal_record(index, before, after[index], results))
    seals = tuple(result.seal for result in event.results)
    cut = transaction.cut + sum(result.left is not None for result in event.results)
    transaction = replace(transaction, seals=seals, after=after, cut=cut)
    state = replace(state, phase=Phase.JOURNALLING, transaction=transaction)
    return state, (ef.WriteJournal(tuple(records)),)


def _check_counts(result: SealResult) -> None:
    good = result.block.messages if result.block else 0
    if good + result.dead_messages != result.seal.buffer.messages:
        raise AssertionError(
            f"{result.seal.block_id}: {good} messages in the block and {result.dead_messages} "
            f"dead are not the {result.seal.buffer.messages} of the buffer"
        )


def _journal_written(state: RelayState, event: ev.JournalWritten) -> Step:
    offsets = {
        index: CommittedOffset(partition.floor, partition.n, event.offsets[index])
        for index, partition in _current(state).after.items()
    }
    state = replace(state, transaction=replace(_current(state), offsets=offsets))
    if state.fencing is Fencing.PARTITION:
        return replace(state, phase=Phase.COMMITTING), (ef.Commit(),)
    return replace(state, phase=Phase.SENDING_OFFSETS), (ef.SendOffsets(offsets),)


def _offsets_sent(state: RelayState, _: ev.OffsetsSent) -> Step:
    return replace(state, phase=Phase.COMMITTING), (ef.Commit(),)


def _committed(state: RelayState, event: ev.Committed) -> Step:
    transaction = _current(state)
    partitions = {**state.partitions, **{i: settle(p) for i, p in transaction.after.items()}}
    sealed = [((seal.partition, seal.table), seal.buffer) for seal in transaction.seals]
    tokens = state.tokens - count_tokens(sealed, state.alone)
    changed = {  # and something is left of what was read under the old columns
        seal.table
        for seal in transaction.seals
        if seal.reason is SealReason.SCHEMA and seal.table in partitions[seal.partition].buffers
    }
    state = replace(
        state,
        phase=Phase.READY,
        schema_changed=state.schema_changed | changed,
        partitions=partitions,
        transaction=None,
        committed_at_ms=state.now_ms,
        failures=0,
        most_bytes=raise_bound(state, transaction, event.took_ms),
        unpolled_ms=state.unpolled_ms + event.took_ms,
        tokens=max(-inserts_per_second(state), tokens),
    )
    state, effects = _after_commit(state, transaction, clean=event.clean)
    if state.fencing is Fencing.PARTITION:
        effects = (ef.ShowOffsets(transaction.offsets), *effects)
    return state, effects


def _after_commit(state: RelayState, transaction: Transaction, *, clean: bool) -> Step:
    if not clean:
        # The answer may belong to a request that was sent twice; the copy still under way
        # could end a later transaction of this producer epoch. A new epoch makes it harmless.
        why = "transport error inside a transaction that committed"
        return _replace(state, ev.Failed(ev.Failure.UNKNOWN, why))
    if state.stopping and state.most_bytes is not None:
        # At this speed the rest may take minutes; the next process reads it again.
        return _exit(state, None)
    if must_poll(state):
        # It reads nothing as long as something is due: more would come than goes.
        state = replace(_due_again(state, transaction.then), stalled=frozenset(state.partitions))
        return state, (ef.Read(state.reading),)
    if transaction.then:
        return _begin(state, transaction.then, transaction.cut)
    if 0 < transaction.cut < MAX_CUT:
        # A poll may bring more than fits into one block: what is due of the rest goes first.
        state, effects = _begin_if_due(state, at_once=True, cut=transaction.cut)
        if effects:
            return state, effects
    return _exit(state, None) if state.stopping else (state, ())


# ---- what goes wrong ------------------------------------------------------------------------


def _failed(state: RelayState, event: ev.Failed) -> Step:
    match event.kind:
        case ev.Failure.FENCED:
            size = size_if_too_slow(state, event)
            why = f"{event.why}; {_explain_slowness(state, event, size)}" if size else event.why
            return _exit(state, _fenced(state.fencing, why))
        case ev.Failure.REFUSED:
            next_step = (
                "grant the right, create the topic or correct the setting that the message names, "
                "then start again"
            )
            return _exit(state, Refused(event.why, next_step))
        case ev.Failure.CREDENTIALS:
            next_step = "correct user, password or certificate in kafka.client, then start again"
            return _exit(state, WrongCredentials(event.why, next_step))
        case ev.Failure.LEARNED:
            # Each time it is another table, or less that is taken: it comes to an end.
            return _replace(replace(state, failures=0), event)
        case ev.Failure.ABORT | ev.Failure.UNKNOWN:
            return _abort_or_replace(state, event)


def _abort_or_replace(state: RelayState, event: ev.Failed) -> Step:
    """Abort what the brokers say cannot commit; else leave its end to a new producer."""
    if size := size_if_too_slow(state, event):
        # The coordinator may be ending it by itself already.
        state = replace(state, most_bytes=lower_bound(state, size))
        why = f"{event.why}; {_explain_slowness(state, event, size)}"
        return _replace(state, replace(event, why=why), slow=True)
    if event.kind is ev.Failure.ABORT and state.phase in IN_TRANSACTION:
        return replace(state, phase=Phase.ABORTING, transaction=None), (ef.Abort(),)
    return _replace(state, event)


def _explain_slowness(state: RelayState, event: ev.Failed, size: int) -> str:
    seconds, timeout_ms = event.took_ms / 1000, state.limits.transaction_timeout_ms
    return (
        "the transaction was perhaps too large for the brokers' speed: "
        f"{size:,} bytes of rows in {seconds:.1f} s of {timeout_ms / 1000:g}"
    )


def _replace(state: RelayState, after: ev.Failed, *, slow: bool = False) -> Step:
    if state.failures >= MAX_FAILURES:
        return _exit(state, _gave_up(state.failures, after, slow=slow))
    state = replace(state, phase=Phase.REPLACING, transaction=None, failures=state.failures + 1)
    return state, (ef.Replace(after.why),)


def _recover(state: RelayState, _: ev.Event) -> Step:
    """Nothing of the ended transaction is trusted: drop all, read the committed truth again."""
    owned = frozenset(state.partitions) | state.pending
    read = _read_all(state)
    state = replace(
        state,
        phase=Phase.READY,
        partitions={},
        pending=owned,
        transaction=None,
        turns=None,
        stalled=frozenset(),
    )
    if state.stopping:
        return _exit(state, None)
    return (state, (ef.Drop(owned), *read, _ask_truth(state, owned))) if owned else (state, ())


def _exit(state: RelayState, error: RelayError | None) -> Step:
    return replace(state, phase=Phase.STOPPED, transaction=None), (ef.Exit(error),)


def _ignored(state: RelayState, _: ev.Event) -> Step:
    return state, ()


def _current(state: RelayState) -> Transaction:
    if state.transaction is None:
        raise AssertionError(f"no transaction in phase {state.phase.name}")
    return state.transaction


def _fenced(fencing: Fencing, why: str) -> Fenced:
    if fencing is Fencing.PARTITION:
        return Fenced(
            f"another relay took over a source partition of this one: {why}",
            "start again: the group assigned the partition to another relay while this one sent "
            "no heartbeat",
        )
    return Fenced(f"another process took over this relay's identity: {why}", ef.ONE_PROCESS)


def _gave_up(failures: int, last: ev.Failed, *, slow: bool) -> Unavailable:
    coordinators = (
        "check the brokers' transaction coordinators (their logs, and the state of topic "
        "__transaction_state), then start again"
    )
    speed = (
        "look at relay_kafka_broker_throttle_seconds (a quota) and at the link to the brokers; "
        "raise the quota, or relay.transaction_timeout_seconds (and relay.session_timeout_seconds "
        f"above it), then start again. Where neither is slow, {coordinators}"
    )
    copies = (
        "start the brokers that have copies of the partitions that take no records (kafka-topics "
        "--describe --under-min-isr-partitions), then start again"
    )
    return Unavailable(
        f"{failures} producers in a row could not commit one transaction; the last one: {last.why}",
        copies if last.dark else (speed if slow else coordinators),
    )


Handler = Callable[[RelayState, Any], Step]


IN_EVERY_PHASE: dict[type[Any], Handler] = {
    ev.Assigned: _assigned,
    ev.Revoked: _revoked,
    ev.StopRequested: _stop_requested,
    ev.Failed: _failed,
}

TRANSITIONS: dict[tuple[Phase, type[Any]], Handler] = {
    **{(phase, event): handler for phase in Phase for event, handler in IN_EVERY_PHASE.items()},
    **{(Phase.STOPPED, event): _ignored for event in (*IN_EVERY_PHASE, ev.Polled)},
    (Phase.READY, ev.PredecessorsFenced): _predecessors_fenced,
    (Phase.READY, ev.TruthRead): _truth_read,
    (Phase.READY, ev.Polled): _polled,
    (Phase.READY, ev.SchemaChanged): _schema_changed,
    (Phase.READY, ev.TablesDecided): _decided,
    (Phase.BEGINNING, ev.Begun): _begun,
    (Phase.BEGINNING, ev.SourceUnseen): _unseen,
    (Phase.BEGINNING, ev.TablesUndecided): _undecided,
    (Phase.PRODUCING, ev.Produced): _produced,
    (Phase.JOURNALLING, ev.JournalWritten): _journal_written,
    (Phase.SENDING_OFFSETS, ev.OffsetsSent): _offsets_sent,
    (Phase.COMMITTING, ev.Committed): _committed,
    (Phase.ABORTING, ev.Aborted): _recover,
    (Phase.REPLACING, ev.Replaced): _recover,
}
"""(phase, event) → handler; what is not in it cannot happen."""
