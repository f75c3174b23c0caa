"""Which metrics a relay has of its own: name, unit, and the question that each answers.

RECORDED are counted as things happen (relay.operate.metrics.recorder), CURRENT are what stands when
Prometheus asks (relay.operate.metrics.gauges).
"""

from __future__ import annotations

from relay.program.metric import counter, gauge, seconds, sizes

_INTAKE = (
    counter("relay_polls_total", "polls", "Does the loop go round?"),
    counter("relay_polls_empty_total", "polls", "How often is there nothing to do?"),
    seconds("relay_poll_seconds", "How long does a poll of the source topic take?"),
    sizes("relay_poll_messages", "messages", "How many messages does a poll bring?"),
    sizes("relay_poll_bytes", "bytes", "How many bytes does a poll bring?"),
    seconds(
        "relay_turn_seconds",
        "How long is the loop away from polling, transactions included?",
    ),
    counter(
        "relay_messages_polled_total",
        "messages",
        "How many messages of each table and source partition come in?",
        *("table", "partition"),
    ),
    counter(
        "relay_bytes_polled_total",
        "bytes",
        "How many bytes of each table and source partition come in?",
        *("table", "partition"),
    ),
    counter(
        "relay_source_errors_total",
        "errors",
        "Which errors come in the place of messages, as of one that cannot be uncompressed?",
        *("partition", "error"),
    ),
    counter(
        "relay_messages_passed_over_total",
        "messages",
        "How many were read again after a restart though they are in blocks already?",
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
    counter("relay_chunks_committed_total", "records", "In how many records?", "table"),
    sizes("relay_block_rows", "rows", "Are blocks large enough for ClickHouse?", "reason"),
    sizes("relay_block_bytes", "bytes", "How many bytes of rows has a block?", "reason"),
    sizes("relay_block_messages", "messages", "How many messages make a block?", "reason"),
    seconds("relay_block_age_seconds", "How old is a buffer when it is sealed?", "reason"),
    seconds(
        "relay_commit_lag_seconds",
        "How long from the source record's timestamp to the commit of its block (the oldest of "
        "each block)?",
    ),
    seconds("relay_form_seconds", "How long does it take to turn a buffer into a block?"),
    counter(
        "relay_dead_letters_total",
        "messages",
        "How many messages could not become rows, of which table, for what kind of reason?",
        *("table", "reason"),
    ),
    counter(
        "relay_unknown_field_messages_total",
        "messages",
        "How many messages hold fields that their table never had?",
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
    seconds("relay_transaction_phase_seconds", "Which phase takes the time?", "phase"),
    sizes("relay_transaction_blocks", "blocks", "How many blocks does a transaction hold?"),
    sizes("relay_transaction_partitions", "partitions", "How many partitions does it touch?"),
    sizes("relay_transaction_rows", "rows", "How many rows does it hold?"),
    counter(
        "relay_commits_in_doubt_total",
        "transactions",
        "How many commits succeeded amid lost connections, so that the producer was replaced?",
    ),
    counter(
        "relay_failed_calls_total",
        "calls",
        "Which transactional call failed, and what did the error ask for?",
        *("phase", "kind"),
    ),
    counter(
        "relay_producer_replacements_total",
        "producers",
        "How often was the producer replaced, and in which phase?",
        "phase",
    ),
    counter("relay_fenced_total", "times", "Did another process take over the identity?"),
    counter("relay_journal_records_total", "records", "How many journal records were committed?"),
    counter(
        "relay_flush_points_total",
        "flush points",
        "How many points are there at which the verifier can count?",
        "partition",
    ),
)

_OWNERSHIP = (
    counter(
        "relay_rebalances_total",
        "rebalances",
        "How often did the group give (assigned) or take away (revoked) partitions?",
        "kind",
    ),
    counter("relay_takeovers_total", "partitions", "How often was a partition taken over?"),
    seconds("relay_truth_seconds", "How long does it take to read what was committed?"),
    counter(
        "relay_offsets_rewound_total",
        "offsets",
        "How far did positions go back to floors, to be read again?",
        "partition",
    ),
    counter("relay_server_waits_total", "tries", "How often was a server away when needed?"),
    counter("relay_schema_changes_total", "changes", "How often did row messages change?"),
    seconds("relay_schema_refresh_seconds", "How long does ClickHouse take to list the columns?"),
    counter(
        "relay_schema_refresh_failures_total", "tries", "How often was ClickHouse away for that?"
    ),
)

RECORDED = (*_INTAKE, *_COMMITTED, *_TRANSACTIONS, *_OWNERSHIP)
"""Counted as things happen."""

_PARTITIONS = (
    gauge(
        "relay_partition_position", "offset", "What is polled next in each partition?", "partition"
    ),
    gauge("relay_partition_floor", "offset", "What is not yet wholly in blocks?", "partition"),
    gauge("relay_partition_end", "offset", "Where does the readable part (LSO) end?", "partition"),
    gauge(
        "relay_partition_lag_offsets",
        "offsets",
        "How much is there to poll (0 where only transaction markers are left)?",
        "partition",
    ),
    gauge(
        "relay_partition_uncommitted_offsets",
        "offsets",
        "How much would a crash read again?",
        "partition",
    ),
    gauge(
        "relay_partition_oldest_seconds",
        "seconds",
        "How old is the oldest message that is in no block yet, by its record's timestamp?",
        "partition",
    ),
    gauge(
        "relay_partition_idle_seconds",
        "seconds",
        "How long ago did a message come or a commit go?",
        "partition",
    ),
    gauge("relay_partition_epoch", "epoch", "Which epoch is in its block ids?", "partition"),
    gauge("relay_partition_n", "transactions", "Which transaction was the last?", "partition"),
    gauge("relay_partition_marks", "tables", "How many tables are ahead of it?", "partition"),
    gauge("relay_partition_buffers", "buffers", "How many tables wait in it?", "partition"),
)

CURRENT = (
    gauge(
        "relay_info",
        "1",
        "Which version, app and member is this?",
        *("version", "app", "member", "librdkafka"),
    ),
    gauge("relay_phase", "1", "Where does the process stand with its transaction?", "phase"),
    gauge("relay_partitions_owned", "partitions", "How many partitions does it have?"),
    gauge("relay_partitions_pending", "partitions", "How many of which the truth is being read?"),
    gauge(
        "relay_partitions_waiting",
        "partitions",
        "How many are not polled now, because a relay that is behind reads a few at a time?",
    ),
    gauge("relay_transaction_open_seconds", "seconds", "How long is one open now (0: none is)?"),
    gauge("relay_last_poll_seconds", "seconds", "How long ago did the loop poll?"),
    gauge("relay_last_commit_seconds", "seconds", "How long ago was the last commit?"),
    gauge("relay_failures_in_a_row", "producers", "How many replaced since the last commit?"),
    gauge("relay_seal_tokens", "inserts", "Does block.max_per_second hold blocks back (at 0)?"),
    gauge("relay_buffers", "buffers", "How many buffers are held?"),
    gauge("relay_buffer_bytes", "bytes", "How much is held of each table?", "table"),
    gauge("relay_buffer_messages", "messages", "How many messages are held?", "table"),
    gauge("relay_buffer_rows", "rows", "How many rows are held, estimated?", "table"),
    gauge("relay_buffer_limit_bytes", "bytes", "How much may be held (relay.max_buffer_bytes)?"),
    gauge("relay_server_away", "1 or 0", "Does it wait for a server that is away?"),
    gauge("relay_check", "1 or 0", "Which check of /healthz and /readyz says no?", "check"),
    *_PARTITIONS,
)
"""As things stand when Prometheus asks."""

PROCESS = (
    counter("process_cpu_seconds_total", "seconds", "How much processor time was used?"),
    gauge("process_resident_memory_bytes", "bytes", "How much memory is resident?"),
    gauge("process_virtual_memory_bytes", "bytes", "How much is reserved?"),
    gauge("process_open_fds", "descriptors", "How many files and connections are open?"),
    gauge("process_max_fds", "descriptors", "How many may be?"),
    gauge("process_start_time_seconds", "Unix time", "When did it start?"),
)
"""Of each program; from prometheus-client itself."""
