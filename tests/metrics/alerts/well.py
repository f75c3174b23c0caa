"""All is well with two apps for two hours, with the series of every rule."""

from __future__ import annotations

from tests.metrics.alerts.case import A, B, Series, beside, histogram, programs, scraped, silent

SCRAPES = 480
STEADY, NONE, BUSY = f"1x{SCRAPES}", f"0x{SCRAPES}", f"0+15x{SCRAPES}"


def rows(of: str) -> Series:
    """What the rules of `block-relay.rows` ask for."""
    return beside(
        scraped("verifier_anomalies_open", NONE, of, kind="gap"),
        *(scraped(f"verifier_{one}_timestamp_seconds", BUSY, of) for one in ("round", "screen")),
        *(
            scraped("loader_ledger_blocks", values, of, table="d.t", state=state)
            for state, values in (("parked", NONE), ("aside", NONE), ("loaded", BUSY))
        ),
        scraped("relay_dead_letters_total", NONE, of, table="d.t", reason="no"),
        scraped("loader_dead_letters_total", NONE, of, table="d.t"),
    )


def flow(of: str) -> Series:
    """What the rules of `block-relay.flow` ask for."""
    checks = ("poll", "transaction", "assignment", "partitions", "fenced")
    return beside(
        programs(STEADY, of),
        scraped("verifier_partitions_unowned", NONE, of),
        *(scraped("relay_check", STEADY, of, check=check) for check in checks),
        *(
            scraped("loader_check", STEADY, of, check=check)
            for check in ("query", "batch", "partitions", "ledger")
        ),
        scraped("loader_look_seconds", f"30x{SCRAPES}", of),
        scraped("relay_server_away", NONE, of),
        scraped("loader_server_away", NONE, of),
        scraped("relay_source_errors_total", STEADY, of, partition="0", error="_BAD_MSG"),
        scraped("relay_partition_lag_offsets", f"90x{SCRAPES}", of, partition="0"),
        scraped("relay_partition_oldest_seconds", f"3x{SCRAPES}", of, partition="0"),
        histogram("loader_sealed_to_queryable_seconds", {4: 10}, SCRAPES, of, table="d.t"),
        scraped("loader_waiting_seconds", f"2x{SCRAPES}", of, partition="0"),
    )


def trouble(of: str) -> Series:
    """What the rules of `block-relay.trouble` ask for."""
    return beside(
        scraped("process_start_time_seconds", f"100x{SCRAPES}", of),
        scraped("relay_transactions_total", BUSY, of, outcome="committed"),
        scraped("relay_transactions_total", NONE, of, outcome="aborted"),
        scraped("relay_rebalances_total", STEADY, of, kind="assigned"),
        scraped("relay_block_rows_count", BUSY, of, reason="age"),
        scraped("relay_block_rows_sum", f"0+15000x{SCRAPES}", of, reason="age"),
        scraped("loader_inserts_total", BUSY, of),
        scraped("loader_insert_failures_total", NONE, of),
        scraped("relay_schema_refresh_failures_total", STEADY, of),
        *(
            scraped(f"relay_kafka_partition_{name}", BUSY, of, client="c", partition="0")
            for name in ("high_watermark", "last_stable_offset")
        ),
    )


SERIES = beside(*(one for of in (A, B) for one in (rows(of), flow(of), trouble(of))))
CASE = silent(SERIES, ".+", 1, 6, 30, 119)
