"""Why each kind of finding matters, by code and severity; texts for people, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

_CANNOT_START = "the relay would not start, or would end at the next message"
_UNREAD = "what is deleted before it was read is lost; the relay or loader stops and names the gap"

ERRORS: Mapping[str, str] = {
    # Kafka's brokers
    "kafka-away": "nothing of Kafka could be looked at",
    "kafka-refused": "nothing of Kafka could be looked at, and the relay would be refused too",
    "kafka-old": "without these requests, offsets in transactions are not fenced by the group's "
    "generation, and a topic made anew is not told from the old one",
    "replication-impossible": "the relay could not create its topics",
    "transaction-timeout": "the brokers would refuse the relay's transactional producer",
    "session-timeout": "the brokers would refuse the relay as a member of its group",
    "offsets-retention": "after a longer outage the group's floors are gone, and the relay stops "
    "with status 6 rather than guess where to go on",
    "offset-metadata": "the floors' metadata would be refused, and with it every transaction",
    "broker-clock-refuses": "the brokers would refuse the relay's records for their timestamps",
    # topics
    "source-missing": _CANNOT_START,
    "partitions-more": "the topic belongs to another source; the relay would not start",
    "topic-unwritable": "the brokers refuse writes to it: every transaction would wait and fail",
    "unclean-election": "a replica that is behind may become leader, and what was acknowledged "
    "is lost",
    "topic-retention": _UNREAD,
    "journal-keepalive": "retention would delete an idle partition's last journal record while "
    "the relay runs, and its next start would end with status 6",
    "topic-compacted": "compaction deletes records of which each is needed",
    "registry-deleted": "field numbers and marks must be kept for ever: retention would delete "
    "them, and rows would be read under other numbers, or replayed twice",
    "topic-message-bytes": "chunks do not fit: rows, or all of the table's, become dead letters",
    "journal-passed": "the record that the committed floor names is gone: the next start ends "
    "with status 6",
    "ledger-hidden": "a block that is loaded would look as if it were not: the loader ends",
    "source-passed": "messages were deleted before they were read: the next start ends with "
    "status 6 and names the gap",
    "offset-foreign": "a tool moved the group's offsets: the next start ends with status 6",
    "sample-all-dead": "the relay would make dead letters of all; at an app's first start it stops "
    "instead, unless source.all_dead says otherwise",
    # rights in Kafka
    "right-topic": "the program that needs it ends with status 5",
    "right-group": "the relay ends with status 5",
    "right-transactional-id": "the relay ends with status 5",
    "right-create": "the relay ends with status 5 when its first message of a table arrives",
    "creation-refused": "the relay could not create its topics",
    "transactions-refused": "the relay's transactional producer would be refused the same way",
    # ClickHouse
    "clickhouse-away": "nothing of ClickHouse could be looked at",
    "clickhouse-refused": "nothing of ClickHouse could be looked at, and relay and loader would be "
    "refused too",
    "clickhouse-old": "the loader's INSERT cannot be deduplicated on this server",
    "setting-fixed": "the loader's INSERT must set it otherwise, and would be refused",
    "table-missing": "its messages become dead letters, its blocks stand aside until it is there",
    "engine-unfit": "the engine remembers no deduplication tokens: a repeated INSERT doubles rows",
    "window-zero": "the table remembers no deduplication tokens: a block whose INSERT was "
    "interrupted cannot be repeated, and is parked",
    "block-column-type": "the loader cannot write block ids into it: every block would be parked",
    "replica-readonly": "it takes no INSERT",
    "several-servers": "one may not know yet what another was told: the loader refuses to start "
    "without a quorum, for it would double rows or lose them",
    "quorum-unreachable": "every INSERT would wait for replicas that are not there",
    "window-zero-stamped": "the table remembers no deduplication tokens: an INSERT that was "
    "interrupted cannot be completed nor what is behind a view repaired, and where its rows cannot "
    "be counted the block is parked",
    "deduplication-ignored": "deduplication does not work on this server for this user: every "
    "INSERT that is repeated doubles its rows",
    "deduplication-ignored-views": "deduplication does not work behind views on this server: an "
    "INSERT that is repeated doubles what they write",
    "view-window": "what a materialized view writes is doubled when a block's INSERT is repeated",
    "right-table": "the loader ends with status 5, or the relay sees no such table",
}

WARNINGS: Mapping[str, str] = {
    "replication-low": "a broker that is lost takes acknowledged records with it",
    "state-replication": "floors and transactions are as safe as the brokers' own topics",
    "auto-create": "a mistyped name becomes a topic, with the brokers' defaults",
    "broker-clock": "retention counts by the relay's timestamps and the brokers' clock",
    "topic-replication": "a broker that is lost takes acknowledged records with it",
    "topic-in-sync": "a record is acknowledged while only one replica has it",
    "topic-bytes": "a burst deletes by size what was not read yet, whatever the time says",
    "dead-message-bytes": "a large source message's dead letter would not hold the message, which "
    "is in the source topic alone, until retention deletes it",
    "row-message-bytes": "a row that is larger than its block topic takes becomes a dead letter",
    "partitions-fewer": "the source was grown: a relay grows the topic when it takes the new "
    "partitions, and ends with status 5 if it may not",
    "sample-dead": "they become dead letters, to be replayed once it is mended",
    "dead-retention": "dead letters are deleted before a person looks at them",
    "clickhouse-clock": "ages of blocks and lags are shown wrongly",
    "engine-merges": "rows once inserted are merged away, so counting a block's rows proves "
    "nothing: as without a block column, the window alone decides",
    "window-short": "a block whose INSERT was interrupted longer ago than half the window cannot "
    "be repeated: it is decided by the server's logs or a count, or parked",
    "ttl": "rows that have expired cannot be counted: what became of a block is decided without a "
    "count, or it is parked",
    "row-policy": "rows that are hidden look like rows that are missing: a count proves nothing",
    "version-untested": "nobody has tried whether this version drops what is repeated",
    "partitions-per-block": "an INSERT into more partitions is refused, and its block is parked",
    "quorum-one": "an INSERT is acknowledged by one replica; if it is lost, so are rows that the "
    "ledger calls loaded",
    "quorum-serial": "of two INSERTs at once one fails (code 286), and is tried again and again",
    "ledger-local": "with the one server that holds the ledger goes what is loaded, and another "
    "replica would load it again",
    "view-varies": "a repeated INSERT gives other rows than the first, and what the view's table "
    "keeps after an interruption is of both",
}

NOTES: Mapping[str, str] = {
    "sample-empty": "what the producers write could not be looked at",
    "unasked": "what cannot be asked may be wrong",
    "journal-retention": "a relay that was stopped for longer finds no journal record, and its "
    "start ends with status 6",
    "no-targets": "tables are known when their first message arrived",
    "block-column-missing": "with it every interrupted block can be decided for ever, whatever "
    "the window",
    "decided-by": "where an INSERT got no answer, these are asked one after the other; a block "
    "that none of them decides is parked",
    "untried": "whether a repeated INSERT is dropped is known by trying only",
    "async-insert": "the loader's own INSERTs turn it off; those of others are acknowledged "
    "before they can be read, and may share its blocks",
}
