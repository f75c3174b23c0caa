"""Which metrics a loader has: name, unit, and the question that each answers.

RECORDED are counted as things happen (loader.metrics.recorder), CURRENT are what stands when
Prometheus asks (loader.metrics.gauges).
"""

from __future__ import annotations

from relay.program.metric import counter, gauge, seconds, sizes

_BLOCKS = (
    counter("loader_blocks_loaded_total", "blocks", "How many blocks were loaded?", "table"),
    counter("loader_rows_loaded_total", "rows", "How many rows were loaded?", "table"),
    counter(
        "loader_row_bytes_loaded_total",
        "bytes",
        "How many bytes of rows, as producers sent them, were loaded?",
        "table",
    ),
    counter("loader_blocks_parked_total", "blocks", "How many wait for a person?", "table"),
    counter(
        "loader_blocks_aside_total",
        "blocks",
        "How many were set aside, for their table or their size, to be tried again?",
        "table",
    ),
    counter("loader_blocks_discarded_total", "blocks", "How many were found given up?", "table"),
    counter(
        "loader_blocks_dead_total",
        "blocks",
        "Of how many blocks of left out messages were all made dead letters?",
        "table",
    ),
    counter(
        "loader_blocks_known_total",
        "blocks",
        "How many were settled already when they were read (after a restart)?",
    ),
    counter(
        "loader_blocks_found_total",
        "blocks",
        "Of how many were all rows found in the table, so that nothing was inserted?",
    ),
    seconds(
        "loader_queryable_seconds",
        "How long from the source record's timestamp (the oldest of a block) to a row that can "
        "be queried?",
        "table",
    ),
    seconds(
        "loader_sealed_to_queryable_seconds",
        "How much of that is the loader's part, from the sealing of the block on?",
        "table",
    ),
)

_INSERTS = (
    counter("loader_inserts_total", "statements", "How many INSERTs were sent?"),
    counter("loader_insert_failures_total", "statements", "How many of them failed?"),
    counter(
        "loader_inserts_repeated_total",
        "statements",
        "How many went out under a token that may have been used before, so that ClickHouse drops "
        "what it has?",
    ),
    seconds("loader_insert_seconds", "How long does an INSERT take, of one block or of several?"),
    seconds("loader_fetch_seconds", "How long does it take to read a block's chunks from Kafka?"),
    counter("loader_attempts_total", "attempts", "How many attempts at blocks were made?"),
    counter("loader_retries_total", "attempts", "How many have to be made again, and why?", "why"),
)

_BATCHES = (
    counter("loader_batches_total", "micro-batches", "Does the loader go on?"),
    seconds("loader_batch_seconds", "How long is a micro-batch, waiting included?"),
    sizes("loader_batch_blocks", "blocks", "How many blocks has a micro-batch?"),
    sizes("loader_batch_rows", "rows", "How many rows does it load?"),
    seconds("loader_round_seconds", "How long is one round of attempts in the workers?"),
    seconds("loader_ledger_seconds", "How long does the driver wait for the ledger?"),
    counter("loader_server_waits_total", "tries", "How often was a server away when needed?"),
    counter("loader_query_restarts_total", "starts", "How often was Spark's query begun anew?"),
    counter("loader_refusals_total", "times", "Did ClickHouse deny the loader its work?"),
)

_SPARK = (
    counter("loader_spark_triggers_total", "triggers", "How many triggers had data?"),
    counter("loader_spark_idle_total", "events", "How often did Spark say that there is none?"),
    counter("loader_spark_records_total", "rows", "How many rows of the journal were read?"),
    seconds(
        "loader_spark_step_seconds",
        "Which step of a trigger takes the time, as Spark names them?",
        "step",
    ),
    gauge("loader_spark_batch_id", "batch", "Which micro-batch was the last?"),
    gauge("loader_spark_input_rate", "rows/s", "How fast do blocks come, as Spark sees it?"),
    gauge("loader_spark_processed_rate", "rows/s", "How fast could they be settled?"),
)

RECORDED = (*_BLOCKS, *_INSERTS, *_BATCHES, *_SPARK)
"""Counted as things happen."""

CURRENT = (
    gauge("loader_info", "1", "Which version and app is this?", "version", "app", "spark"),
    gauge("loader_batch_open_seconds", "seconds", "How long is a micro-batch open (0: none is)?"),
    gauge("loader_batch_open_blocks", "blocks", "How many of its blocks are not settled?"),
    gauge("loader_last_heard_seconds", "seconds", "When did the query last show life?"),
    gauge("loader_server_away", "1 or 0", "Does it wait for a server that is away?"),
    gauge("loader_check", "1 or 0", "Which check of /healthz and /readyz says no?", "check"),
    gauge("loader_look_seconds", "seconds", "How old is what follows, from ledger and journal?"),
    gauge("loader_ledger_blocks", "blocks", "In which state are the blocks?", "table", "state"),
    gauge("loader_ledger_rows", "rows", "And their rows?", "table", "state"),
    gauge("loader_position", "offset", "Before what is every journal record settled?", "partition"),
    gauge("loader_journal_end", "offset", "Where does the journal end (LSO)?", "partition"),
    gauge(
        "loader_waiting_blocks",
        "blocks",
        "How many sealed blocks wait, as far as one micro-batch reads ahead?",
        "partition",
    ),
    gauge(
        "loader_waiting_seconds",
        "seconds",
        "How long ago was the one sealed that waits longest (0: none does)?",
        "partition",
    ),
)
"""As things stand when Prometheus asks."""
