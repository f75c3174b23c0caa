"""Each alert fires in the case that it is for, and none while all is well: asked of promtool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.metrics import promtool

pytestmark = pytest.mark.skipif(
    not promtool.program(), reason="needs promtool, of Debian's package prometheus"
)

Series = Mapping[str, str]
A, B = 'app="shop",instance="10.0.0.1:9464"', 'app="bank",instance="10.0.0.2:9464"'
ALIVE = "1x80"  # twenty minutes of scrapes
GONE = "1x20 stale"  # after five minutes: Prometheus notes it as soon as a scrape fails


def relay(app: str, member: str, instance: str, values: str) -> dict[str, str]:
    """One that runs, scraped at `instance`."""
    return {f'relay_info{{app="{app}",member="{member}",instance="{instance}"}}': values}


def program(values: str, of: str = A) -> dict[str, str]:
    """All three programs of one app, in the little that rules ask of each."""
    label = f"{{{of}}}"
    return {
        f'relay_info{{{of},member="a"}}': values,
        f"loader_info{label}": values,
        f"verifier_rounds_total{label}": values,
    }


def beside(*some: Series) -> dict[str, str]:
    return {name: values for one in some for name, values in one.items()}


EIGHT = beside(*(relay("shop", f"p-{n}", f"h:{9464 + n}", ALIVE) for n in range(7)))
SEVEN = beside(EIGHT, relay("shop", "p-7", "h:9471", GONE), {f"loader_info{{{A}}}": ALIVE})


def letters(of: str, values: str) -> dict[str, str]:
    return {f'relay_dead_letters_total{{{of},table="d.t"}}': values}


CASES: dict[str, tuple[Series, str, float]] = {
    # ---- messages that cannot become rows
    "a series is born with 500": (
        letters(f'{A},reason="no"', "_x40 500x40"),
        'DeadLetters{app="shop",table="d.t"}',
        11,
    ),
    "another reason of the same table is born": (
        beside(letters(f'{A},reason="no"', "7x200"), letters(f'{A},reason="b"', "_x160 3x40")),
        'DeadLetters{app="shop",table="d.t"}',
        41,
    ),
    "a table of the second app is born": (
        beside(letters(f'{A},reason="no"', "7x200"), letters(f'{B},reason="no"', "_x160 3x40")),
        'DeadLetters{app="bank"}',
        41,
    ),
    "it grows": (letters(f'{A},reason="no"', "7x160 8x40"), "DeadLetters", 41),
    "it grows after a restart, from fewer": (
        letters(f'{A},reason="no"', "500x160 _x3 20x40"),
        "DeadLetters",
        42,
    ),
    "it stays": (letters(f'{A},reason="no"', "7x200"), "!DeadLetters", 50),
    # ---- a relay that was fenced ends 50 ms later; Prometheus comes by every 15 s
    "two under one name": (
        beside(relay("shop", "a", "h1:9464", ALIVE), relay("shop", "a", "h2:9464", ALIVE)),
        'RelayTwice{app="shop",member="a"}',
        7,
    ),
    "a pod that is made anew, with another address": (
        beside(relay("shop", "a", "h1:9464", GONE), relay("shop", "a", "h2:9464", "_x22 1x60")),
        "!RelayTwice",
        11,
    ),
    "one name in two apps": (
        beside(relay("shop", "a", "h1:9464", ALIVE), relay("bank", "a", "h2:9464", ALIVE)),
        "!RelayTwice",
        12,
    ),
    "fenced, and started again, and again": (
        beside(
            {f"process_start_time_seconds{{{A}}}": "100x20 400x4 460x8 580x40"},
            {f"relay_info{{{A}}}": ALIVE},
        ),
        'RelayRestarts{app="shop"}',
        10,
    ),
    "a loader that is started again": (
        beside(
            {f"process_start_time_seconds{{{A}}}": "100x20 400x4 460x8 580x40"},
            {f"loader_info{{{A}}}": ALIVE},
        ),
        'LoaderRestarts{app="shop"}',
        10,
    ),
    "started again once": (
        beside(
            {f"process_start_time_seconds{{{A}}}": "100x20 400x60"},
            {f"relay_info{{{A}}}": ALIVE},
        ),
        "!RelayRestarts",
        10,
    ),
    # ---- what the verifier found
    "an anomaly": (
        {f'verifier_anomalies_open{{{A},kind="gap"}}': "0x20 1x60"},
        'RowsNotExactlyOnce{app="shop",kind="gap"}',
        10,
    ),
    "an anomaly that relay accept has settled": (
        beside(
            {f'verifier_anomalies_total{{{A},kind="backward"}}': "0x20 4x180"},
            {f'verifier_anomalies_open{{{A},kind="backward"}}': "0x20 4x20 0x160"},
        ),
        "!RowsNotExactlyOnce",
        20,
    ),
    # ---- a program that is not there
    "the verifier is gone": (
        beside(program(ALIVE), {f"verifier_rounds_total{{{A}}}": GONE}),
        'VerifierDown{app="shop"}',
        16,
    ),
    "the second app's verifier is gone": (
        beside(program(ALIVE), program(ALIVE, B), {f"verifier_rounds_total{{{B}}}": GONE}),
        'VerifierDown{app="bank"}',
        16,
    ),
    "the first app's is there all the same": (
        beside(program(ALIVE), program(ALIVE, B), {f"verifier_rounds_total{{{B}}}": GONE}),
        '!VerifierDown{app="shop"}',
        16,
    ),
    "no verifier ever was": (relay("shop", "a", "h:1", ALIVE), 'VerifierDown{app="shop"}', 16),
    "one of eight relays is gone": (SEVEN, 'RelayMissing{app="shop",member="p-7"}', 12),
    "the others are not": (SEVEN, '!RelayMissing{member!="p-7"}', 12),
    "seven of eight go on": (SEVEN, "!RelayDown", 12),
    "the second app's only relay is gone": (
        beside(program(ALIVE), program(ALIVE, B), {f'relay_info{{{B},member="a"}}': GONE}),
        'RelayDown{app="bank"}',
        12,
    ),
    "it never was, its loader is": (
        beside(program(ALIVE), {f"loader_info{{{B}}}": ALIVE}),
        'RelayDown{app="bank"}',
        12,
    ),
    "the second app's loader is gone": (
        beside(program(ALIVE), program(ALIVE, B), {f"loader_info{{{B}}}": GONE}),
        'LoaderDown{app="bank"}',
        12,
    ),
    "nothing at all": ({"up": "1x80"}, "RelayDown", 12),
    "nobody has a partition": (
        {f"verifier_partitions_unowned{{{A}}}": "0x20 3x60"},
        'PartitionsWithoutRelay{app="shop"}',
        12,
    ),
    # ---- what waits
    "a message is in no block for minutes": (
        {f'relay_partition_oldest_seconds{{{A},partition="3"}}': "0x8 300x4 400x60"},
        'OldestMessageWaits{app="shop",partition="3"}',
        12,
    ),
    "outside Kubernetes, where there is no pod": (
        {f'relay_check{{{A},check="poll"}}': "1x20 0x60"},
        'RelayNotAlive{instance="10.0.0.1:9464"}',
        12,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_alert_fires_when_it_should(case: str, tmp_path: Path) -> None:
    series, alert, minutes = CASES[case]
    assert promtool.firing(tmp_path, series, alert, minutes) == ""


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    """Two apps, two hours."""
    of = (A, B)
    series = beside(
        *(program("1x480", one) for one in of),
        *(letters(f'{one},reason="no"', "0x480") for one in of),
        *({f"process_start_time_seconds{{{one}}}": "100x480"} for one in of),
        *({f'verifier_anomalies_open{{{one},kind="gap"}}': "0x480"} for one in of),
        *({f"verifier_partitions_unowned{{{one}}}": "0x480"} for one in of),
        *({f"verifier_round_timestamp_seconds{{{one}}}": "0+15x480"} for one in of),
        *({f'relay_partition_oldest_seconds{{{one},partition="0"}}': "3x480"} for one in of),
    )
    for minutes in (1, 6, 30, 119):
        assert promtool.firing(tmp_path, series, "!.+", minutes) == ""


def test_a_case_that_should_fire_and_does_not_is_found(tmp_path: Path) -> None:
    """Negative control, both ways."""
    series, alert, minutes = CASES["it grows"]
    assert "FAILED" in promtool.firing(tmp_path, series, f"!{alert}", minutes)
    assert "FAILED" in promtool.firing(tmp_path, letters(A, "7x200"), alert, minutes)


def test_every_rule_says_which_app_it_is_about() -> None:
    """Two apps under one Prometheus are two; a sum over both would be about neither."""
    spec = yaml.safe_load(promtool.RULES.read_text(encoding="utf-8"))["spec"]
    for rule in (rule for group in spec["groups"] for rule in group["rules"]):
        groups = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        assert groups, rule["alert"]
        assert all("app" in group.split(", ") for group in groups), rule["alert"]
        assert "$labels.app" in rule["annotations"]["summary"], rule["alert"]
