"""Which metrics a relay has of its own: name, unit, and the question that each answers.

RECORDED are counted as things happen (relay.operate.metrics.recorder), CURRENT are what stands when
Prometheus asks (relay.operate.metrics.gauges).
"""

from __future__ import annotations

from relay.program.metric import counter, gauge, seconds, sizes

_INTAKE = (
    counter("relay_polls_total", "polls", "How often did the relay poll the source topic?"),
    counter("relay_polls_empty_total", "polls", "How many polls returned no message?"),
    seconds("relay_poll_seconds", "How long does a poll of the source topic take?"),
    sizes("relay_poll_messages", "messages", "How many messages does a poll return?"),
    sizes("relay_poll_bytes", "bytes", "How many bytes does a poll return?"),
    seconds(
        "relay_turn_seconds",
        "How long is the time between two polls, transactions included?",
    ),
    counter(
        "relay_messages_polled_total",
        "messages",
        "How many messages of each table and source partition were polled?",
        *("table", "partition"),
    ),
    counter(
        "relay_bytes_polled_total",
        "bytes",
        "How many bytes of each table and source partition were polled?",
        *("table", "partition"),
    ),
    counter(
        "relay_source_errors_total",
        "errors",
        "Which errors did a poll return instead of messages, for instance for a record that "
        "cannot be decompressed, or (partition -1) from the consumer group?",
        *("partition", "error"),
    ),
    counter(
        "relay_messages_passed_over_total",
        "messages",
        "How many messages were read again after a restart although they are already in blocks?",
        *("table", "partition"),
    ),
)

_COMMITTED = (
    counter(
        "relay_messages_committed_total",
        "messages",
        "How many messages of each table and partition are in committed blocks?",
        *("table", "partition"),
    ),
    counter(
        "relay_rows_committed_total",
        "rows",
        "How many rows of each table and partition are in committed blocks?",
        *("table", "partition"),
    ),
    counter(
        "relay_row_bytes_committed_total",
        "bytes",
        "How many bytes of rows, as producers sent them, are in committed blocks?",
        *("table", "partition"),
    ),
    counter(
        "relay_blocks_committed_total",
        "blocks",
        "How many blocks of each table were committed, and why were they sealed?",
        *("table", "reason"),
    ),
    counter(
        "relay_chunks_committed_total",
        "records",
        "How many records (chunks) hold the committed blocks?",
        "table",
    ),
    sizes("relay_block_rows", "rows", "Are blocks large enough for ClickHouse?", "reason"),
    sizes("relay_block_bytes", "bytes", "How many bytes of rows does a block hold?", "reason"),
    sizes("relay_block_messages", "messages", "How many messages does a block hold?", "reason"),
    seconds("relay_block_age_seconds", "How old is a buffer when it is sealed?", "reason"),
    seconds(
        "relay_commit_lag_seconds",
        "How much time passes from the timestamp of a block's oldest source record, if it has one, "
        "to the commit of the block?",
    ),
    seconds("relay_form_seconds", "How long does it take to turn a buffer into a block?"),
    counter(
        "relay_dead_letters_total",
        "messages",
        "How many messages of each table became dead letters, and for what kind of reason?",
        *("table", "reason"),
    ),
    counter(
        "relay_unknown_field_messages_total",
        "messages",
        "How many messages contain fields that their table never had?",
        "table",
    ),
)

_TRANSACTIONS = (
    counter(
        "relay_transactions_total",
        "transactions",
        "How did transactions end: committed, aborted, abandoned (before the commit, with the "
        "producer), unknown (no answer to the commit), fenced, refused?",
        "outcome",
    ),
    seconds("relay_transaction_seconds", "How long are transactions open?", "outcome"),
    seconds(
        "relay_transaction_phase_seconds",
        "How long does each phase of a transaction take?",
        "phase",
    ),
    sizes("relay_transaction_blocks", "blocks", "How many blocks does a transaction hold?"),
    sizes(
        "relay_transaction_partitions",
        "partitions",
        "How many source partitions does a transaction concern?",
    ),
    sizes("relay_transaction_rows", "rows", "How many rows does a transaction hold?"),
    counter(
        "relay_commits_in_doubt_total",
        "transactions",
        "After how many successful commits was the producer replaced, because connections had "
        "been lost meanwhile?",
    ),
    counter(
        "relay_failed_calls_total",
        "calls",
        "How many transactional calls failed, in which phase, and what kind of error was it?",
        *("phase", "kind"),
    ),
    counter(
        "relay_producer_replacements_total",
        "producers",
        "How often was the producer replaced, and in which phase?",
        "phase",
    ),
    counter(
        "relay_fenced_total",
        "times",
        "How often did another process take over this relay's identity?",
    ),
    counter("relay_journal_records_total", "records", "How many journal records were committed?"),
    counter(
        "relay_flush_points_total",
        "flush points",
        "How many flush points, at which the verifier can compare counts, were committed?",
        "partition",
    ),
)

_OWNERSHIP = (
    counter(
        "relay_rebalances_total",
        "rebalances",
        "How often did the consumer group assign or revoke partitions?",
        "kind",
    ),
    counter(
        "relay_takeovers_total",
        "partitions",
        "How many source partitions did this relay take over?",
    ),
    seconds("relay_truth_seconds", "How long does a take-over need to read what was committed?"),
    counter(
        "relay_offsets_rewound_total",
        "offsets",
        "How many offsets did positions go back to the floor, to be read again?",
        "partition",
    ),
    counter(
        "relay_server_waits_total",
        "tries",
        "How often did a server not answer when the relay needed it?",
    ),
    counter(
        "relay_schema_changes_total", "changes", "How often did the row message of a table change?"
    ),
    seconds("relay_schema_refresh_seconds", "How long does ClickHouse take to list the columns?"),
    counter(
        "relay_schema_refresh_failures_total",
        "tries",
        "How often did ClickHouse not answer when asked for the columns?",
    ),
)

RECORDED = (*_INTAKE, *_COMMITTED, *_TRANSACTIONS, *_OWNERSHIP)
"""Counted as things happen."""

_PARTITIONS = (
    gauge("relay_partition_position", "offset", "Which offset of each partition is polled next?"),
    gauge(
        "relay_partition_floor",
        "offset",
        "Below which offset is every message in a block or a dead letter?",
    ),
    gauge(
        "relay_partition_end",
        "offset",
        "Where does the readable part of the partition end (last stable offset)?",
    ),
    gauge(
        "relay_partition_lag_offsets",
        "offsets",
        "How many offsets are left to poll (0 if only transaction markers are left)?",
    ),
    gauge(
        "relay_partition_uncommitted_offsets",
        "offsets",
        "How many offsets would be read again after a crash?",
    ),
    gauge(
        "relay_partition_oldest_seconds",
        "seconds",
        "How long has the relay held the oldest message that is not in a block yet?",
    ),
    gauge(
        "relay_partition_idle_seconds",
        "seconds",
        "How long ago was the partition's last message polled or its last commit made?",
    ),
    gauge("relay_partition_epoch", "epoch", "Which epoch do the partition's new block ids carry?"),
    gauge(
        "relay_partition_n",
        "transactions",
        "What is the number of the partition's last transaction?",
    ),
    gauge(
        "relay_partition_marks",
        "tables",
        "How many tables have committed blocks beyond the partition's floor?",
    ),
    gauge(
        "relay_partition_buffers",
        "buffers",
        "How many tables of the partition have a buffer that is not sealed yet?",
    ),
)

CURRENT = (
    gauge(
        "relay_info",
        "1",
        "Which version, app and member does this relay have?",
        *("version", "app", "member", "librdkafka"),
    ),
    gauge("relay_phase", "1", "In which phase of a transaction is the relay?", "phase"),
    gauge(
        "relay_partitions_owned", "partitions", "How many source partitions does the relay have?"
    ),
    gauge(
        "relay_partitions_pending",
        "partitions",
        "How many of its partitions is the relay still taking over?",
    ),
    gauge(
        "relay_partitions_waiting",
        "partitions",
        "How many of its partitions are not polled now, because a relay that is behind polls only "
        "a few at a time, or because of what they hold of tables that are held back?",
    ),
    gauge(
        "relay_tables_held",
        "tables",
        "Messages of how many tables wait until ClickHouse says whether it has the table, or until "
        "brokers take records where its blocks go?",
    ),
    gauge(
        "relay_transaction_open_seconds",
        "seconds",
        "For how long has the current transaction been open (0 if there is none)?",
    ),
    gauge("relay_last_poll_seconds", "seconds", "How long ago was the last poll?"),
    gauge("relay_last_commit_seconds", "seconds", "How long ago was the last commit?"),
    gauge(
        "relay_failures_in_a_row",
        "producers",
        "How many producers were replaced since the last commit?",
    ),
    gauge(
        "relay_seal_tokens",
        "inserts",
        "How many more blocks may be sealed by age now (at 0 block.max_per_second delays blocks)?",
    ),
    gauge("relay_buffers", "buffers", "How many buffers does the relay hold?"),
    gauge(
        "relay_buffer_bytes",
        "bytes",
        "How many bytes of rows, keys and headers are held in buffers for each table?",
        "table",
    ),
    gauge(
        "relay_buffer_messages",
        "messages",
        "How many messages are held in buffers for each table?",
        "table",
    ),
    gauge(
        "relay_buffer_rows",
        "rows",
        "About how many rows are held in buffers for each table?",
        "table",
    ),
    gauge(
        "relay_buffer_limit_bytes",
        "bytes",
        "How many bytes may all buffers hold together (relay.max_buffer_bytes)?",
    ),
    gauge("relay_server_away", "1 or 0", "Is the relay waiting for a server that does not answer?"),
    gauge("relay_check", "1 or 0", "Which checks of /healthz and /readyz fail?", "check"),
    *(metric.labelled("partition") for metric in _PARTITIONS),
)
"""As things stand when Prometheus asks."""
