"""Cases of the group `block-relay.flow`: whether rows move, and who should move them."""

from __future__ import annotations

from tests.metrics.alerts.case import (
    ALIVE,
    BACK,
    GONE,
    LOADER,
    B,
    after,
    beside,
    fires,
    histogram,
    passes,
    programs,
    relay,
    scraped,
    silent,
)

SEVEN = beside(*(relay("shop", f"p-{n}", f"h:{9464 + n}", ALIVE) for n in range(7)))
OF_EIGHT = beside(SEVEN, relay("shop", "p-7", "h:9471", GONE), scraped("loader_info", ALIVE))
TWO_APPS = beside(programs(ALIVE), programs(ALIVE, B))


def errors(values: str) -> dict[str, str]:
    return scraped("relay_source_errors_total", values, partition="3", error="_BAD_MSG")


CASES = {
    # ---- programs that are not there
    "one of eight relays is gone": fires(OF_EIGHT, 'RelayMissing{app="shop",member="p-7"}', 12),
    "the others are not": silent(OF_EIGHT, 'RelayMissing{member!="p-7"}', 12),
    "seven of eight go on": silent(OF_EIGHT, "RelayDown", 12),
    "of two relays one is gone": after(
        beside(relay("shop", "a", "h:1", ALIVE), relay("shop", "b", "h:2", GONE)),
        'RelayMissing{app="shop",member="b"}',
        10.25,
    ),
    "of two relays one is back within five minutes": passes(
        beside(relay("shop", "a", "h:1", ALIVE), relay("shop", "b", "h:2", BACK)),
        "RelayMissing",
        10,
    ),
    "the only relay is gone": after(
        beside(programs(ALIVE), scraped("relay_info", GONE, member="a")),
        'RelayDown{app="shop"}',
        10.25,
    ),
    "the only relay is back within five minutes": passes(
        beside(programs(ALIVE), scraped("relay_info", BACK, member="a")), "RelayDown", 10
    ),
    "the second app's only relay is gone": fires(
        beside(TWO_APPS, scraped("relay_info", GONE, B, member="a")), 'RelayDown{app="bank"}', 12
    ),
    "it never was, its loader is": fires(
        beside(programs(ALIVE), scraped("loader_info", ALIVE, B)), 'RelayDown{app="bank"}', 12
    ),
    "nothing at all, of relays": fires({"up": ALIVE}, "RelayDown", 12),
    "nothing at all, of loaders": fires({"up": ALIVE}, "LoaderDown", 12),
    "the second app's loader is gone": after(
        beside(TWO_APPS, scraped("loader_info", GONE, B)),
        'LoaderDown{app="bank"}',
        10.25,
    ),
    "the second app's loader is back within five minutes": passes(
        beside(TWO_APPS, scraped("loader_info", BACK, B)), "LoaderDown", 10
    ),
    "nobody has a partition": after(
        scraped("verifier_partitions_unowned", "0x20 3x60"),
        'PartitionsWithoutRelay{app="shop"}',
        10.25,
    ),
    "partitions change hands": passes(
        scraped("verifier_partitions_unowned", "0x20 3x18 0x40"), "PartitionsWithoutRelay", 10
    ),
    # ---- programs that stand still
    "outside Kubernetes, where there is no pod": after(
        scraped("relay_check", "1x20 0x60", check="poll"),
        'RelayNotAlive{instance="10.0.0.1:9464"}',
        7.25,
    ),
    "a take-over that does not end": fires(
        scraped("relay_check", "1x20 0x60", check="assignment"), "RelayNotAlive", 8
    ),
    "a relay that stands still for less than two minutes, and is not ready": passes(
        beside(
            scraped("relay_check", "1x20 0x6 1x60", check="transaction"),
            scraped("relay_check", "0x80", check="assigned"),
        ),
        "RelayNotAlive",
        7,
    ),
    "a partition of the journal stands still": after(
        scraped("loader_check", "1x20 0x60", check="partitions"),
        'LoaderNotAlive{app="shop",check="partitions"}',
        7.25,
    ),
    "a loader that stands still for less than two minutes, and is not ready": passes(
        beside(
            scraped("loader_check", "1x20 0x6 1x60", check="batch"),
            scraped("loader_check", "0x80", check="servers"),
        ),
        "LoaderNotAlive",
        7,
    ),
    "a relay waits for a server": after(
        beside(
            scraped("relay_server_away", "0x20 1x60"), scraped("loader_server_away", "0x80", LOADER)
        ),
        'ServerAway{instance="10.0.0.1:9464"}',
        10.25,
    ),
    "a loader waits for a server": fires(
        beside(
            scraped("relay_server_away", "0x80"), scraped("loader_server_away", "0x20 1x60", LOADER)
        ),
        'ServerAway{instance="10.0.0.1:9465"}',
        11,
    ),
    "a server restarts within five minutes": passes(
        beside(
            scraped("relay_server_away", "0x20 1x18 0x60"),
            scraped("loader_server_away", "0x20 1x18 0x60", LOADER),
        ),
        "ServerAway",
        10,
    ),
    "a loader cannot read the ledger": after(
        beside(
            scraped("loader_check", "1x20 0x60", LOADER, check="ledger"),
            scraped("loader_look_seconds", "0x80", LOADER),
        ),
        'LoaderCannotLook{instance="10.0.0.1:9465"}',
        15.25,
    ),
    "a loader's look does not end": after(
        beside(
            scraped("loader_check", "1x120", LOADER, check="ledger"),
            scraped("loader_look_seconds", "0+15x120", LOADER),
        ),
        'LoaderCannotLook{instance="10.0.0.1:9465"}',
        15.25,  # older than five minutes after 5.25
    ),
    "a loader reads the ledger again within ten minutes": passes(
        beside(
            scraped("loader_check", "1x20 0x38 1x60", LOADER, check="ledger"),
            scraped("loader_look_seconds", "0x20 0+15x19 0x80", LOADER),
        ),
        "LoaderCannotLook",
        15,
    ),
    # ---- what waits
    "a message that cannot be decompressed": after(
        errors("0x20 6+6x80"),  # more than ten with the second scrape, at 5.5
        'SourcePartitionStuck{app="shop",partition="3",error="_BAD_MSG"}',
        10.5,
    ),
    "some errors at once": silent(errors("0x20 9x60"), "SourcePartitionStuck", 5.25, 8),
    "many at once, and no more": passes(errors("0x20 12x80"), "SourcePartitionStuck", 10.25),
    "lag grows": after(
        scraped("relay_partition_lag_offsets", "0+10000x80", partition="3"),
        'LagGrows{app="shop"}',
        12.75,  # more than 100 000 after 2.75
    ),
    "lag is large, and shrinks": silent(
        scraped("relay_partition_lag_offsets", "900000-5000x80", partition="3"), "LagGrows", 18
    ),
    "lag grows, and is small": silent(
        scraped("relay_partition_lag_offsets", "90000+100x80", partition="3"), "LagGrows", 18
    ),
    "a message is in no block for minutes": after(
        scraped("relay_partition_oldest_seconds", "0x20 301x60", partition="3"),
        'OldestMessageWaits{app="shop",partition="3"}',
        10.25,
    ),
    "messages are in no block for five minutes, each time": silent(
        scraped("relay_partition_oldest_seconds", "0+15x20 0+15x20 0+15x20 0+15x20", partition="3"),
        "OldestMessageWaits",
        15,
    ),
    "eleven of a thousand blocks take minutes": after(
        histogram("loader_sealed_to_queryable_seconds", {4: 989, 100: 11}, 80, table="d.t"),
        'SlowToQueryable{app="shop"}',
        10.25,
    ),
    "nine of a thousand blocks take minutes": silent(
        histogram("loader_sealed_to_queryable_seconds", {4: 991, 100: 9}, 80, table="d.t"),
        "SlowToQueryable",
        12,
    ),
    "all take almost a minute": silent(
        histogram("loader_sealed_to_queryable_seconds", {50: 10}, 80, table="d.t"),
        "SlowToQueryable",
        12,
    ),
    "records say that they are hours old": silent(
        beside(
            histogram("loader_queryable_seconds", {10_000: 10}, 80, table="d.t"),
            histogram("loader_sealed_to_queryable_seconds", {4: 10}, 80, table="d.t"),
        ),
        "SlowToQueryable",
        12,
    ),
    "a sealed block waits": after(
        scraped("loader_waiting_seconds", "0x20 301x60", partition="3"),
        'BlockWaits{app="shop",partition="3"}',
        10.25,
    ),
    "a sealed block waits for five minutes": silent(
        scraped("loader_waiting_seconds", "0+15x20 0x60", partition="3"), "BlockWaits", 5
    ),
}
