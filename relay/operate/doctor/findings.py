"""What a finding of the doctor is: every kind with its severity and why it matters; pure."""

# pure

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from relay.errors import NotExactlyOnce, Refused, Unavailable

EXIT_WARNINGS = 8
"""Exit status where there are warnings and no error."""


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    """Rows would be lost, doubled or held up, or a program would not start: fix it first."""
    WARNING = "warning"
    """It works until something else fails."""
    NOTE = "note"
    """Worth knowing, or it could not be asked."""


class FindingKind(NamedTuple):
    """What all findings of one code have in common."""

    severity: Severity
    why: str


_ERRORS: Mapping[str, str] = {
    # Kafka's brokers
    "kafka-away": "nothing in Kafka could be checked",
    "kafka-refused": "nothing in Kafka could be checked, and the relay would be refused in the "
    "same way",
    "kafka-old": "without these requests, the group's generation does not fence offsets in "
    "transactions, and a topic that was deleted and created again cannot be told from the "
    "old one",
    "replication-impossible": "the relay could not create its topics",
    "transaction-timeout": "the brokers would refuse the relay's transactional producer",
    "session-timeout": "the brokers would refuse the relay as a member of its group",
    "offsets-retention": "after a longer outage the brokers have deleted the group's offsets, "
    "and the relay stops with status 6 rather than guess where to continue",
    "offset-metadata": "the brokers would refuse the metadata of the relay's offsets, and so "
    "every transaction",
    "broker-clock-refuses": "the brokers would refuse the relay's records because of their "
    "timestamps",
    # topics
    "source-missing": "the relay would not start, or would end at the next message that it reads",
    "partitions-more": "the topic belongs to another source; the relay would not start",
    "topic-unwritable": "the brokers refuse writes to this topic: every transaction would wait "
    "and fail",
    "unclean-election": "a replica that lags may become leader, and acknowledged records would "
    "be lost",
    "topic-retention": "records that are deleted before they were read are lost; the relay or "
    "loader then stops and names the gap",
    "journal-keepalive": "retention would delete an idle partition's last journal record while "
    "the relay runs, and its next start would end with status 6",
    "topic-compacted": "compaction would delete records that the relay or loader still needs",
    "registry-deleted": "field numbers and replay marks must be kept for ever: if retention "
    "deletes them, rows are decoded with wrong field numbers, or nobody knows which dead letters "
    "were replayed",
    "registry-lost": "a relay would number columns in their order of today, and put values of "
    "messages with other numbers into wrong columns: it ends with status 6",
    "topic-message-bytes": "chunks do not fit into the topic: some or all rows of the table "
    "would become dead letters",
    "journal-passed": "the journal record that the committed offset names was deleted: the next "
    "start ends with status 6",
    "ledger-hidden": "blocks that are loaded would look as if they were not, so the loader ends",
    "ledger-lost": "the loader ends with status 6: without its ledger it does not know which "
    "blocks are loaded",
    "ledger-expires": "positions and entries of blocks expire, and with them what keeps a block "
    "from being loaded twice",
    "ledger-merges": "entries of a block are merged away, and with them what keeps it from being "
    "loaded twice: the loader refuses to start",
    "ledger-unfit": "what is read from it need not be all that was written, so that blocks which "
    "are loaded would look as if they were not: the loader refuses to start",
    "ledger-unmade": "the loader makes no ledger on several replicas: it ends with status 2 until "
    "somebody has made it",
    "source-passed": "messages were deleted before they were read: the next start ends with "
    "status 6 and names the gap",
    "offset-foreign": "a tool moved the group's offsets: the next start ends with status 6",
    "sample-all-dead": "all these messages would become dead letters; at an app's first start "
    'the relay stops instead, unless source.all_dead = "continue"',
    # rights in Kafka
    "right-topic": "the program that needs this right ends with status 5",
    "right-group": "the relay ends with status 5",
    "right-transactional-id": "the relay ends with status 5",
    "right-create": "the relay ends with status 5 when its first message of a table arrives",
    "creation-refused": "the relay could not create its topics",
    "transactions-refused": "the relay's transactional producer would be refused the same way",
    # ClickHouse
    "clickhouse-away": "nothing in ClickHouse could be checked",
    "clickhouse-refused": "nothing in ClickHouse could be checked, and relay and loader would be "
    "refused in the same way",
    "clickhouse-old": "the loader's INSERT cannot be deduplicated on this server",
    "setting-fixed": "the loader's INSERT needs another value for this setting, and would be "
    "refused",
    "table-missing": "messages for this table become dead letters, and its blocks are set aside "
    "until the table exists",
    "columns-unsupported": "rows cannot carry it: every message for the table is a dead letter",
    "engine-unfit": "the engine remembers no deduplication tokens: a repeated INSERT doubles rows",
    "window-zero": "the table remembers no deduplication tokens: a block whose INSERT was "
    "interrupted cannot be repeated, and is parked",
    "block-column-type": "the loader cannot write block ids into it, or not the longest: blocks "
    "are set aside until it can",
    "replica-readonly": "this replica accepts no INSERT",
    "several-servers": "one server may not have yet what another confirmed: without a quorum the "
    "loader refuses to start, because it could double or lose rows",
    "quorum-unreachable": "every INSERT would wait for replicas that are not active",
    "window-zero-stamped": "the table remembers no deduplication tokens: an interrupted INSERT "
    "cannot be completed, the tables behind its views cannot be repaired, and if its rows "
    "cannot be counted the block is parked",
    "deduplication-ignored": "deduplication does not work on this server for this user: every "
    "repeated INSERT doubles its rows",
    "deduplication-ignored-views": "deduplication does not work behind views on this server: a "
    "repeated INSERT doubles the rows that views write",
    "view-window": "when a block's INSERT is repeated, the rows that a materialized view writes "
    "are doubled",
    "right-table": "the loader ends with status 5, or the relay does not see the table",
}

_WARNINGS: Mapping[str, str] = {
    "replication-low": "a broker that is lost takes acknowledged records with it",
    "state-replication": "the relay's offsets and transactions are only as safe as these topics "
    "of the brokers",
    "auto-create": "a mistyped topic name creates a topic with the brokers' defaults",
    "broker-clock": "ages and lags are shown wrongly; and in topics whose records have the relay's "
    "time (`topic-clock`) retention deletes them too early or too late",
    "topic-clock": "its records have the time of the machine that wrote them: with a clock that is "
    "behind, retention deletes them before they are used; with one that is far ahead, the brokers "
    "refuse them",
    "topic-replication": "a broker that is lost takes acknowledged records with it",
    "topic-in-sync": "a record is acknowledged when only one replica has it",
    "topic-bytes": "in a burst, retention by size deletes records that were not read yet, "
    "however young they are",
    "dead-message-bytes": "the dead letter of a large source message would not contain the "
    "message, which would then only be in the source topic, until retention deletes it",
    "row-message-bytes": "a row that is larger than its block topic accepts becomes a dead letter",
    "partitions-fewer": "the source topic has grown: a relay grows this topic when it takes the "
    "new partitions, and ends with status 5 if it may not",
    "sample-dead": "these messages become dead letters; replay them when the cause is corrected",
    "dead-retention": "dead letters are deleted before a person looks at them",
    "clickhouse-clock": "ages and lags of blocks are shown wrongly",
    "engine-merges": "the engine merges inserted rows away, so a count of a block's rows proves "
    "nothing: as for a table without a block column, only the deduplication window decides",
    "window-short": "a block whose INSERT was interrupted longer ago than half the window cannot "
    "be repeated: it is decided by the server's logs or a count, or parked",
    "ttl": "expired rows cannot be counted: whether a block was inserted is decided without a "
    "count, or the block is parked",
    "block-column-computed": "the loader writes no ids into it: rows do not carry the id of their "
    "block, and a count of a block's rows proves nothing",
    "block-column-expires": "rows lose the id of their block, so a count of a block's rows proves "
    "nothing",
    "row-policy": "hidden rows look like missing rows, so a count proves nothing",
    "version-untested": "nobody has tried whether this version drops repeated INSERTs",
    "partitions-per-block": "an INSERT into more partitions is refused, and its block is parked",
    "quorum-one": "one replica acknowledges an INSERT; if that replica is lost, so are rows that "
    "the ledger lists as loaded",
    "replicas-unmet": "a block whose INSERT gets no answer waits until every replica has said that "
    "it does not run it, and some of them are never reached",
    "quorum-serial": "of two INSERTs at the same time one fails (code 286) and has to be tried "
    "again",
    "ledger-missing": "blocks wait in Kafka until a loader runs; and if a ledger was lost, a "
    "loader without its checkpoint takes this for a first start, and may insert again what "
    "neither a block-id column nor the server's logs show",
    "ledger-local": "fewer servers hold the ledger than hold the rows: if they are lost, another "
    "replica would load all blocks again",
    "view-varies": "a repeated INSERT makes the view write other rows than the first time, and "
    "after an interruption the view's table may hold rows of both",
}

_NOTES: Mapping[str, str] = {
    "sample-empty": "there was no message of the producers to check",
    "unasked": "this could not be checked, so it may be wrong",
    "right-evidence": "the loader works without this right, but knows less of what became of a "
    "block whose INSERT got no answer, and may have to park it",
    "journal-retention": "a relay that was stopped for longer than this finds no journal record, "
    "and its start ends with status 6",
    "no-targets": "the doctor learns of a table only when its first message has arrived",
    "block-column-missing": "with this column, whether a block was inserted can always be "
    "decided, however old the block is",
    "decided-by": "if an INSERT got no answer, the loader asks these one after the other whether "
    "the rows are there; a block that none of them decides is parked",
    "untried": "only a trial shows whether a repeated INSERT is dropped",
    "async-insert": "the loader's own INSERTs turn this setting off; INSERTs of others are "
    "acknowledged before their rows can be read, and may end up in one part with the loader's",
}

KINDS: Mapping[str, FindingKind] = {
    code: FindingKind(severity, why)
    for severity, whys in zip(Severity, (_ERRORS, _WARNINGS, _NOTES), strict=True)
    for code, why in whys.items()
}
"""Every kind of finding, by code; codes never change, so that scripts may rely on them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know.

    Attributes:
        code: of KINDS.
        what: was found, with the offending value.
        why: it matters.
        mend: the command or setting that fixes it; empty where there is nothing to do.
    """

    severity: Severity
    code: str
    what: str
    why: str
    mend: str

    def as_json(self) -> dict[str, str]:
        """Return the finding as JSON has it."""
        return {name: str(value) for name, value in asdict(self).items()}


def report(code: str, what: str, mend: str = "") -> Finding:
    """Return a finding of this kind."""
    kind = KINDS[code]
    return Finding(kind.severity, code, what, kind.why, mend)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort errors before warnings before notes, else as given; drop repetitions."""
    order = list(Severity)
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity))


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0: nothing or notes; 8: warnings; 1: errors; 4, 5: a server was away, or refused."""
    codes = {finding.code for finding in findings}
    severities = {KINDS[code].severity for code in codes}
    if codes & {"kafka-away", "clickhouse-away"}:
        return Unavailable.exit_code
    if codes & {"kafka-refused", "clickhouse-refused"}:
        return Refused.exit_code
    if Severity.ERROR in severities:
        return NotExactlyOnce.exit_code
    return EXIT_WARNINGS if Severity.WARNING in severities else 0
