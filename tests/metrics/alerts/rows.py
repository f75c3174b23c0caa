"""Cases of the group `block-relay.rows`: whether rows are right, and who watches that."""

from __future__ import annotations

from tests.metrics.alerts.case import (
    ALIVE,
    GONE,
    A,
    B,
    after,
    beside,
    fires,
    passes,
    programs,
    relay,
    scraped,
    silent,
)


def letters(values: str, of: str = A, reason: str = "no") -> dict[str, str]:
    return scraped("relay_dead_letters_total", values, of, table="d.t", reason=reason)


def loaders_letters(values: str, of: str = A) -> dict[str, str]:
    return scraped("loader_dead_letters_total", values, of, table="d.t")


def blocks(values: str, state: str) -> dict[str, str]:
    return scraped("loader_ledger_blocks", values, table="d.t", state=state)


ONLY_OF_BANK = beside(
    programs(ALIVE), programs(ALIVE, B), scraped("verifier_rounds_total", GONE, B)
)

CASES = {
    "an anomaly": fires(
        scraped("verifier_anomalies_open", "0x20 1x60", kind="gap"),
        'RowsNotExactlyOnce{app="shop",kind="gap"}',
        5.25,
    ),
    "an anomaly that relay accept has settled": silent(
        beside(
            scraped("verifier_anomalies_total", "0x20 4x180", kind="backward"),
            scraped("verifier_anomalies_open", "0x20 4x20 0x160", kind="backward"),
        ),
        "RowsNotExactlyOnce",
        20,
    ),
    "the verifier's rounds do not end": after(
        scraped("verifier_round_timestamp_seconds", "0+15x20 300x80"),
        'VerifierBehind{app="shop"}',
        20.25,
    ),
    "a round that takes almost ten minutes": silent(
        scraped("verifier_round_timestamp_seconds", "0+15x20 300x39 900+15x40"),
        "VerifierBehind",
        15,
    ),
    "a first round takes almost ten minutes": silent(
        scraped("verifier_round_timestamp_seconds", "_x20 300x39 900+15x40"),
        "VerifierBehind",
        10.25,
        14.75,
        15,
    ),
    "the verifier cannot read the app's state": after(
        scraped("verifier_screen_timestamp_seconds", "0+15x20 300x80"),
        'VerifierCannotLook{app="shop"}',
        20.25,
    ),
    "it never could": fires(
        scraped("verifier_screen_timestamp_seconds", "0x80"),
        'VerifierCannotLook{app="shop"}',
        15.25,
    ),
    "its look takes almost five minutes": silent(
        scraped("verifier_screen_timestamp_seconds", "0+15x20 300x19 600+15x60"),
        "VerifierCannotLook",
        9.75,
        12,
    ),
    "the verifier is gone": after(
        beside(programs(ALIVE), scraped("verifier_rounds_total", GONE)),
        'VerifierDown{app="shop"}',
        15.25,
    ),
    "a verifier that is back within ten minutes": passes(
        beside(programs(ALIVE), scraped("verifier_rounds_total", "1x20 stale _x38 1x40")),
        "VerifierDown",
        15,
    ),
    "the second app's verifier is gone": fires(ONLY_OF_BANK, 'VerifierDown{app="bank"}', 16),
    "the first app's is there all the same": silent(ONLY_OF_BANK, 'VerifierDown{app="shop"}', 16),
    "no verifier ever was": fires(relay("shop", "a", "h:1", ALIVE), 'VerifierDown{app="shop"}', 16),
    # ---- blocks that cannot be loaded
    "blocks are parked": fires(
        blocks("0x20 2x60", "parked"), 'BlocksParked{app="shop",table="d.t"}', 5.25
    ),
    "those that were parked are settled": silent(
        beside(blocks("2x20 0x60", "parked"), blocks("7x80", "loaded"), blocks("1x80", "aside")),
        "BlocksParked",
        6,
    ),
    "blocks are set aside": after(
        blocks("0x20 2x60", "aside"),
        'BlocksSetAside{app="shop",table="d.t"}',
        15.25,
    ),
    "blocks are set aside, and loaded within ten minutes": passes(
        beside(blocks("0x20 2x38 0x40", "aside"), blocks("1x80", "parked")),
        "BlocksSetAside",
        15,
    ),
    # ---- messages that cannot become rows
    "a series is born with 500": fires(
        letters("_x40 500x40"), 'DeadLetters{app="shop",table="d.t"}', 11
    ),
    "another reason of the same table is born": fires(
        beside(letters("7x100"), letters("_x80 3x20", reason="b")),
        'DeadLetters{app="shop",table="d.t"}',
        21,
    ),
    "a table of the second app is born": fires(
        beside(letters("7x100"), letters("_x80 3x20", B)), 'DeadLetters{app="bank"}', 21
    ),
    "it grows": fires(letters("7x80 8x20"), "DeadLetters", 21),
    "it grows after a restart, from fewer": fires(letters("500x80 _x3 20x20"), "DeadLetters", 22),
    "a loader's are born": fires(
        beside(letters("7x100"), loaders_letters("_x80 1x20")),
        'DeadLetters{app="shop",table="d.t"}',
        21,
    ),
    "a loader's grow": fires(loaders_letters("7x80 8x20"), "DeadLetters", 21),
    "they stay": silent(beside(letters("7x100"), loaders_letters("3x100")), "DeadLetters", 20),
}
