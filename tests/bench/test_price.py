"""The price of exactly once, and pictures: what is measured is what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.errors import ConfigError
from tests.bench import plot, price
from tests.bench.figures import Curve, Figure, quantile
from tests.bench.measure import Result, Run


@pytest.mark.parametrize("interval", [0.1, 1.0, 5.0])
def test_messages_are_as_old_as_their_commit_is_late(interval: float) -> None:
    """100 messages a second, all committed every `interval`: between none and all of it."""
    samples = [
        (n / 50, n * 2, int(n / 50 / interval + 1e-9) * round(interval * 100)) for n in range(501)
    ]
    delays = price.ages(samples)
    assert len(delays) == samples[-1][2] - samples[0][1]
    assert quantile(delays, 0.5) == pytest.approx(interval / 2, abs=0.03)
    assert quantile(delays, 1.0) == pytest.approx(interval, abs=0.03)
    # Control: a commit that comes half a second later makes all of them so much older.
    late = [(at, written, price_before(samples, at - 0.5)) for at, written, _ in samples]
    assert quantile(price.ages(late), 0.5) == pytest.approx(interval / 2 + 0.5, abs=0.03)


def price_before(samples: list[tuple[float, int, int]], time: float) -> int:
    """What was committed then."""
    return max((done for at, _, done in samples if at <= time), default=0)


def test_what_was_written_before_the_first_look_has_no_age() -> None:
    """The backlog of a warm-up is committed later, and nobody saw when it was written."""
    assert price.ages([(0.0, 100, 0), (1.0, 200, 150)]) == [
        (pytest.approx(1.0 - n / 100), 1) for n in range(50)
    ]


def test_the_price_is_of_one_round() -> None:
    """A machine that became twice as slow between rounds does not change what all rounds show."""
    measured = {
        (price.TWICE, 1.0): [100.0, 50.0, 100.0],
        (price.ONCE, 1.0): [90.0, 45.0, 90.0],
        (price.PRODUCT, 1.0): [80.0, 40.0, 80.0],
    }
    found = {curve.name: curve.points for curve in price.rate_curves(measured, [1.0])}
    assert found["price of exactly once, of the rate"] == ((1.0, pytest.approx(10.0)),)
    assert found["block-relay, rate"] == ((1.0, 80.0),)


def test_a_rate_needs_a_backlog_that_outlasts_its_commits() -> None:
    """36 million rows may be gone in 5 s: they say nothing about commits every 3 s."""
    assert price.measurable(price.INTERVALS, 36_000_000) == [0.05, 0.1, 0.25, 1.0]
    assert price.measurable(price.INTERVALS, 6_000_000) == [0.05, 0.1]


def test_bars_are_as_long_as_the_medians(tmp_path: Path) -> None:
    """Twice the rate, twice the bar; every contender is named."""

    def result(name: str, rate: float) -> Result:
        return Result(name, 1, (Run(rate, 5.0, 9.0),), "product")

    file = tmp_path / "it.svg"
    plot.results([result("one", 1e6), result("two", 2e6)], "the title", file)
    shown = file.read_text()
    assert all(text in shown for text in ("the title", ">one<", ">two<", "1 row per message"))
    lengths = bar_lengths(shown)
    assert len(lengths) == 2
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=0.001)


@pytest.mark.parametrize("least", [-20.0, 5.0])
def test_every_point_of_a_curve_is_seen(least: float, tmp_path: Path) -> None:
    """Also below 0, where a price is that noise outweighs."""
    file = tmp_path / "it.svg"
    plot.curves([Curve("price", "%", ((0.1, least), (1.0, 23.0)))], "the title", file)
    shown = file.read_text()
    (bottom,) = re.findall(
        r'<g id="axes_1">\s*<g id="patch_2">\s*<path d="M [\d.]+ ([\d.]+)', shown
    )
    (marks,) = re.findall(r'<g clip-path="[^"]+">(\s*<use .*?)</g>', shown, re.DOTALL)
    heights = [float(height) for height in re.findall(r' y="([\d.]+)"', marks)]
    assert len(heights) == 2
    assert max(heights) <= float(bottom)


def bar_lengths(svg: str) -> list[float]:
    """Of the bars: filled, translucent, drawn as `M x0 y0 L x1 y0 ...`."""
    bars = re.findall(r'<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) [^"]*z\n"[^>]*opacity: 0.6', svg)
    return [float(end) - float(begin) for begin, end in bars]


@pytest.mark.parametrize("kind", plot.KINDS)
def test_every_kind_of_picture_is_written_the_same_each_time(kind: str, tmp_path: Path) -> None:
    """Figures with and without a limit, and curves of two units."""
    figures = [Figure("p50", 1.5, "s", "lower", 1.0), Figure("cores", 0.5, "cores")]
    curves = [Curve("a", "s", ((0.1, 1.0), (1.0, 2.0))), Curve("b", "%", ((0.1, 5.0),))]
    files = [tmp_path / f"{n}{kind}" for n in range(4)]
    for file in files[:2]:
        plot.figures(figures, "figures", file)
    for file in files[2:]:
        plot.curves(curves, "curves", file)
    first, again, other, twin = (file.read_bytes() for file in files)
    assert first == again
    assert other == twin
    assert first != other


@pytest.mark.parametrize("name", ["it.jpeg", "it", "nowhere/it.svg"])
def test_a_picture_that_cannot_be_drawn_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """Before the first server starts, with what was given and what to do."""
    with pytest.raises(ConfigError, match="--plot"):
        plot.check(tmp_path / name)
    plot.check(tmp_path / "it.svg")
