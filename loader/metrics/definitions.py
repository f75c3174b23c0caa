"""Which metrics a loader has: name, unit, and the question that each answers.

RECORDED are counted as things happen (loader.metrics.recorder), CURRENT are what stands when
Prometheus asks (loader.metrics.gauges).
"""

from __future__ import annotations

from relay.program.metric import counter, gauge, seconds, sizes

RECORDED = (
    # blocks
    counter("loader_blocks_loaded_total", "blocks", "How many blocks were loaded?", "table"),
    counter("loader_rows_loaded_total", "rows", "How many rows were loaded?", "table"),
    counter(
        "loader_row_bytes_loaded_total",
        "bytes",
        "How many bytes of rows, as producers sent them, were loaded?",
        "table",
    ),
    counter(
        "loader_blocks_parked_total",
        "blocks",
        "How many blocks were parked, to wait for a person?",
        "table",
    ),
    counter(
        "loader_blocks_aside_total",
        "blocks",
        "How many blocks were set aside to be tried again, because of their table or their size?",
        "table",
    ),
    counter(
        "loader_blocks_discarded_total",
        "blocks",
        "How many blocks were skipped because a person had discarded them?",
        "table",
    ),
    counter(
        "loader_blocks_dead_total",
        "blocks",
        "Of how many blocks of left out messages were all made dead letters?",
        "table",
    ),
    counter(
        "loader_dead_letters_total",
        "messages",
        "How many messages of each table became dead letters because the table refuses their rows?",
        "table",
    ),
    counter(
        "loader_blocks_known_total",
        "blocks",
        "How many blocks were already settled when they were read (after a restart)?",
    ),
    counter(
        "loader_blocks_found_total",
        "blocks",
        "For how many blocks did the table already hold every row, so that nothing was inserted?",
    ),
    seconds(
        "loader_queryable_seconds",
        "How much time passes from the timestamp of a block's oldest source record, if it has one, "
        "until its rows can be queried?",
        "table",
    ),
    seconds(
        "loader_sealed_to_queryable_seconds",
        "How much time passes from the sealing of a block until its rows can be queried?",
        "table",
    ),
    # INSERTs, and attempts at them
    counter("loader_inserts_total", "statements", "How many INSERTs were sent?"),
    counter("loader_insert_failures_total", "statements", "How many INSERTs failed?"),
    counter(
        "loader_inserts_repeated_total",
        "statements",
        "How many INSERTs repeated a deduplication token, so that ClickHouse drops the rows that "
        "it already has?",
    ),
    seconds("loader_insert_seconds", "How long does an INSERT take, of one block or of several?"),
    seconds("loader_fetch_seconds", "How long does it take to read a block's chunks from Kafka?"),
    counter("loader_attempts_total", "attempts", "How many attempts at blocks were made?"),
    counter(
        "loader_retries_total",
        "attempts",
        "How many attempts have to be made again, and why?",
        "why",
    ),
    # micro-batches and the servers that they need
    counter("loader_batches_total", "micro-batches", "How many micro-batches were finished?"),
    seconds("loader_batch_seconds", "How long does a micro-batch take, waiting included?"),
    sizes("loader_batch_blocks", "blocks", "How many blocks does a micro-batch hold?"),
    sizes("loader_batch_rows", "rows", "How many rows does a micro-batch load?"),
    seconds("loader_round_seconds", "How long is one round of attempts in the workers?"),
    seconds("loader_ledger_seconds", "How long does the driver wait for the ledger?"),
    counter(
        "loader_server_waits_total",
        "tries",
        "How often did a server not answer when the loader needed it?",
    ),
    counter("loader_query_restarts_total", "starts", "How often was Spark's query started again?"),
    counter(
        "loader_refusals_total",
        "times",
        "How often did ClickHouse refuse the loader (rights, user, settings)?",
    ),
    # Spark's query
    counter("loader_spark_triggers_total", "triggers", "How many of Spark's triggers had data?"),
    counter(
        "loader_spark_idle_total", "events", "How often did Spark report a trigger without data?"
    ),
    counter("loader_spark_records_total", "rows", "How many rows of the journal were read?"),
    seconds(
        "loader_spark_step_seconds",
        "How long does each step of a trigger take (the names are Spark's)?",
        "step",
    ),
    gauge("loader_spark_batch_id", "batch", "What is the number of the last micro-batch?"),
    gauge(
        "loader_spark_input_rate",
        "rows/s",
        "How many blocks arrive per second, as Spark reports it?",
    ),
    gauge(
        "loader_spark_processed_rate",
        "rows/s",
        "How many blocks could be settled per second, as Spark reports it?",
    ),
)
"""Counted as things happen."""

CURRENT = (
    gauge(
        "loader_info",
        "1",
        "Which version and app does this loader have?",
        "version",
        "app",
        "spark",
    ),
    gauge(
        "loader_batch_open_seconds",
        "seconds",
        "For how long has the current micro-batch been open (0 if there is none)?",
    ),
    gauge(
        "loader_batch_open_blocks",
        "blocks",
        "How many blocks of the current micro-batch are not settled yet?",
    ),
    gauge(
        "loader_last_heard_seconds",
        "seconds",
        "How long ago did Spark's query last report progress?",
    ),
    gauge(
        "loader_server_away", "1 or 0", "Is the loader waiting for a server that does not answer?"
    ),
    gauge("loader_check", "1 or 0", "Which checks of /healthz and /readyz fail?", "check"),
    gauge(
        "loader_look_seconds",
        "seconds",
        "How old are the figures from ledger and journal (the metrics that follow)?",
    ),
    gauge(
        "loader_ledger_blocks",
        "blocks",
        "How many blocks of each table are in which state?",
        "table",
        "state",
    ),
    gauge(
        "loader_ledger_rows",
        "rows",
        "How many rows have the blocks of each table and state?",
        "table",
        "state",
    ),
    gauge(
        "loader_position",
        "offset",
        "Below which journal offset are all blocks settled?",
        "partition",
    ),
    gauge(
        "loader_journal_end",
        "offset",
        "Where does the journal partition end (last stable offset)?",
        "partition",
    ),
    gauge(
        "loader_waiting_blocks",
        "blocks",
        "How many sealed blocks wait to be loaded (at most as many as one micro-batch reads "
        "ahead)?",
        "partition",
    ),
    gauge(
        "loader_waiting_seconds",
        "seconds",
        "How long ago was the block sealed that has waited longest (0 if none waits)?",
        "partition",
    ),
)
"""As things stand when Prometheus asks."""
