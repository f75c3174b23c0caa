"""Cases of the group `block-relay.trouble`: what goes wrong again and again."""

from __future__ import annotations

from tests.metrics.alerts.case import (
    ALIVE,
    GONE,
    A,
    Series,
    after,
    beside,
    fires,
    passes,
    relay,
    scraped,
    silent,
)

TWICE = beside(relay("shop", "a", "h1:9464", ALIVE), relay("shop", "a", "h2:9464", ALIVE))


def started(values: str, info: str) -> Series:
    """A process by the times at which it began, of the program that shows `info`."""
    return beside(scraped("process_start_time_seconds", values), scraped(info, ALIVE))


AGAIN, ONCE = "100x20 400x4 460x8 580x40", "100x20 400x60"


def ended(outcome: str, values: str) -> dict[str, str]:
    return scraped("relay_transactions_total", values, outcome=outcome)


def rebalances(relays: int, scrapes: int, most: int = 80) -> Series:
    """A group that is rebalanced every so many scrapes; each of its relays counts all of them."""
    values = " ".join(f"{count}x{scrapes - 1}" for count in range(most + 1))
    of = (f'app="shop",instance="h:{9464 + n}"' for n in range(relays))
    return beside(*(scraped("relay_rebalances_total", values, one, kind="assigned") for one in of))


def held_back(committed: str, all_messages: str, lag: str = "0x160") -> Series:
    """What a partition's readers may read, what is in it, and what the relay has yet to read."""
    name, labels = "relay_kafka_partition", {"client": "consumer", "partition": "3"}
    return beside(
        scraped(f"{name}_last_stable_offset", committed, **labels),
        scraped(f"{name}_high_watermark", all_messages, **labels),
        scraped("relay_partition_lag_offsets", lag, partition="3"),
    )


def small(blocks: int, rows: int) -> Series:
    """So many blocks between two scrapes, with so many rows each."""
    return beside(
        scraped("relay_block_rows_count", f"0+{blocks}x330", reason="age"),
        scraped("relay_block_rows_sum", f"0+{blocks * rows}x330", reason="age"),
    )


def inserts(sent: int, failed: int) -> Series:
    """So many between two scrapes."""
    return beside(
        scraped("loader_inserts_total", f"0+{sent}x80"),
        scraped("loader_insert_failures_total", f"0+{failed}x80"),
    )


CASES = {
    # ---- a relay that was fenced ends 50 ms later; Prometheus comes by every 15 s
    "two under one name": after(TWICE, 'RelayTwice{app="shop",member="a"}', 6),
    "a pod that is made anew, with another address": silent(
        beside(relay("shop", "a", "h1:9464", GONE), relay("shop", "a", "h2:9464", "_x22 1x60")),
        "RelayTwice",
        11,
    ),
    "one name in two apps": silent(
        beside(relay("shop", "a", "h1:9464", ALIVE), relay("bank", "a", "h2:9464", ALIVE)),
        "RelayTwice",
        12,
    ),
    "fenced, and started again, and again": fires(
        started(AGAIN, "relay_info"), 'RelayRestarts{app="shop"}', 10
    ),
    "a relay that is started again once": silent(started(ONCE, "relay_info"), "RelayRestarts", 10),
    "a loader that is started again, and again": fires(
        started(AGAIN, "loader_info"), 'LoaderRestarts{app="shop"}', 10
    ),
    "a loader that is started again once": silent(
        started(ONCE, "loader_info"), "LoaderRestarts", 10
    ),
    "not a loader, a relay beside one": silent(
        beside(
            started(AGAIN, "relay_info"), scraped("loader_info", ALIVE, 'app="shop",instance="x"')
        ),
        "LoaderRestarts",
        10,
    ),
    # ---- Kafka
    "transactions are aborted": fires(
        beside(ended("aborted", "0x20 11x60"), ended("committed", "0+9x80")),
        'TransactionsNotCommitted{app="shop"}',
        5.25,
    ),
    "some transactions are aborted": silent(
        beside(
            ended("aborted", "0x20 4x60"),
            ended("unknown", "0x20 4x60"),
            ended("committed", "0+9x80"),
        ),
        "TransactionsNotCommitted",
        10,
    ),
    "a member comes and goes": fires(rebalances(2, 5), 'RebalancesGoOn{app="shop"}', 16),
    "the only relay does not come to rest": fires(
        rebalances(1, 5), 'RebalancesGoOn{app="shop"}', 16
    ),
    "eight relays are joined by nine, one after another": silent(
        rebalances(8, 4, most=9), "RebalancesGoOn", 8, 10, 15
    ),
    "long transactions hold many messages back": after(
        held_back("0+10x80", "0+10010x80"),
        'SourceHeldBack{app="shop",partition="3"}',
        12.75,  # more than 100 000 after 2.75
    ),
    "transactions are open, and end": silent(
        held_back("0+5000x80", "100000+5000x80"), "SourceHeldBack", 15
    ),
    "a producer hangs, and few messages come": after(
        held_back("0+10x20 200x140", "0+10x160"),
        'SourceHeldBack{app="shop",partition="3"}',
        25,  # what can be read moved last after 5, and at 15 that was ten minutes ago
    ),
    "a producer hangs, and no more messages come": fires(
        held_back("200x160", "201x160"), "SourceHeldBack", 21
    ),
    "a transaction ends after less than twenty minutes": passes(
        held_back("0+10x20 200x74 960x60", "0+10x95 960x60"), "SourceHeldBack", 24
    ),
    "a partition that is behind is not fetched now": silent(
        held_back("200x160", "201x160", lag="50x160"), "SourceHeldBack", 12, 21
    ),
    # ---- ClickHouse
    "many small blocks": after(
        small(900, 99),
        'BlocksTooSmall{app="shop"}',
        80.25,  # 20 in a second of the last hour after 20.25
    ),
    "many blocks that are large enough": silent(small(900, 101), "BlocksTooSmall", 62),
    "few small blocks": silent(small(270, 50), "BlocksTooSmall", 62),
    "INSERTs fail": after(inserts(50, 6), 'InsertsFail{app="shop"}', 10.25),
    "some INSERTs fail": silent(inserts(50, 4), "InsertsFail", 12),
    "the tables cannot be read": fires(
        scraped("relay_schema_refresh_failures_total", "0x20 6x60"),
        f"TablesUnreadable{{{A}}}",
        5.25,
    ),
    "the tables cannot be read for a moment": silent(
        scraped("relay_schema_refresh_failures_total", "0x20 1x2 2x2 3x2 4x60"),
        "TablesUnreadable",
        10,
    ),
}
