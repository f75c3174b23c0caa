"""The page in a real browser: what it shows, the keyboard, light and dark, nothing executed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.pipeline import wait_until
from tests.page.built import ANOMALY, HOSTILE, LATEST, Built, built
from tests.view.records import block, commit

selenium = pytest.importorskip("selenium", reason="needs the package selenium")
browser = pytest.importorskip("tests.page.browser")

pytestmark = pytest.mark.skipif(bool(browser.LACKING), reason=browser.LACKING)

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture
def made() -> Built:
    return built(time.time_ns() // 1_000_000)


@pytest.fixture
def page(chrome: Chrome, made: Built) -> Iterator[Chrome]:
    """The page, once it shows its data; nothing went wrong on it afterwards."""
    with made.served() as address:
        chrome.get_log("browser")
        chrome.get(f"http://{address}/?every=200")
        wait_until(lambda: texts(chrome, "#blocks button") != [], "the latest blocks")
        yield chrome
        # That an answer is 404, or that a server has gone, is for the page to say.
        wrong = [line for line in chrome.get_log("browser") if line["source"] != "network"]
        chrome.get("about:blank")
        assert wrong == []


def texts(page: Chrome, selector: str) -> list[str]:
    """Of all that match, at one moment, shown or not."""
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
    found: list[str] = page.execute_script(script, selector)
    return found


def focused(page: Chrome) -> str:
    found: str = page.execute_script("return document.activeElement.textContent")
    return found


def press(page: Chrome, *keys: str) -> None:
    """As a person does, wherever the focus is."""
    for key in keys:
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": CODES[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        page.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", **fields, **text})
        page.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyUp", **fields})


CODES = {"Tab": 9, "Enter": 13, "Escape": 27}


def test_it_shows_status_plots_and_blocks(page: Chrome) -> None:
    assert texts(page, "#verdict") == ["no anomaly in 200 journal records"]
    assert texts(page, "#app") == ["shop"]
    assert texts(page, "#blocks button")[0] == LATEST
    assert len(texts(page, "#partitions tr")) == 2
    assert "shop.orders" in texts(page, "#tables tr td:first-child")
    assert texts(page, "#lag-now") == ["120"]
    for plot in ("rate", "lag", "queryable"):
        script = f"return document.querySelectorAll('#{plot} polyline').length"
        assert page.execute_script(script) >= 1, plot
    lines = page.execute_script("return document.querySelectorAll('#lag polyline').length")
    assert lines == 2, "half a minute without an answer is a gap"
    assert page.execute_script("return document.querySelectorAll('#sizes rect').length") == 60


def test_what_others_wrote_is_text(page: Chrome, made: Built) -> None:
    """A table name, a reason, an anomaly and a ledger entry with HTML in them."""
    assert HOSTILE in texts(page, "#tables td")
    assert f"first reason: {HOSTILE}" in texts(page, "#dead td")
    assert HOSTILE in texts(page, "#parked td")
    anomaly: Any = type(ANOMALY)(ANOMALY.kind, 0, 1, 1, HOSTILE)
    made.standing.anomaly(anomaly, made.now_ms)
    wait_until(lambda: HOSTILE in texts(page, "#anomalies td"), "the anomaly")
    page.find_element("css selector", "#blocks button").click()
    wait_until(lambda: any(HOSTILE in text for text in texts(page, "#story dd")), "the story")
    assert page.title == "shop · block-relay"
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.execute_script("return document.querySelectorAll('script').length") == 1


def test_the_policy_stops_what_would_be_executed(page: Chrome) -> None:
    """Negative control of the test above: put in as HTML, it is there, and still does nothing."""
    page.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE)
    said = ""

    def refused() -> bool:
        nonlocal said
        said += "".join(line["message"] for line in page.get_log("browser"))
        return "img-src" in said and "script-src" in said

    wait_until(refused, "the image and its handler are refused")
    assert page.title == "shop · block-relay"


def test_a_new_anomaly_is_announced_and_shown(page: Chrome, made: Built) -> None:
    assert page.find_element("id", "anomalies-none").is_displayed()
    assert texts(page, "#news") == [""]
    made.standing.anomaly(ANOMALY, made.now_ms)
    wait_until(lambda: texts(page, "#verdict")[0].startswith("1 anomaly in"), "the verdict")
    assert texts(page, "#news") == ["1 more: gap, partition 1: n=48 after n=46"]
    assert page.find_element("id", "news").get_attribute("aria-live") == "polite"
    assert not page.find_element("id", "anomalies-none").is_displayed()


def test_what_people_took_note_of_stays_visible(page: Chrome, made: Built) -> None:
    assert not page.find_element("id", "acknowledged-section").is_displayed()
    made.audit.acknowledged += [HOSTILE, "partition 0, n=7: accepted retention"]
    wait_until(lambda: texts(page, "#acknowledged li") != [], "what was acknowledged")
    assert texts(page, "#acknowledged li") == made.audit.acknowledged[::-1]
    assert page.find_element("id", "acknowledged-section").is_displayed()
    assert texts(page, "#acknowledged-title") == ["Acknowledged by a person: 2"]
    assert texts(page, "#verdict") == ["no anomaly in 200 journal records"]


def test_a_block_is_told_of_by_keyboard_alone(page: Chrome, made: Built) -> None:
    """Tab to a block, Enter, Escape: the focus comes back to where it was."""
    page.execute_script("document.activeElement.blur()")
    for _ in range(60):
        press(page, "Tab")
        if focused(page) == LATEST:
            break
    assert focused(page) == LATEST
    ring = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(ring) == "solid"
    newer = block(1_000, "shop.orders", sealed_at_ms=made.now_ms)
    made.trail.add(0, 400, commit(201, newer, at_ms=made.now_ms))
    wait_until(lambda: texts(page, "#blocks button")[0] == newer.id, "a newer block")
    assert focused(page) == LATEST, "what is new does not take the focus away"
    press(page, "Enter")
    wait_until(lambda: "Ledger" in texts(page, "#story h3"), "the story")
    assert texts(page, "#story-title") == [f"{LATEST} · loaded"]
    assert texts(page, "#story h3") == ["Source", "Sealed", "Chunks as read now", "Ledger", "Table"]
    press(page, "Escape")
    wait_until(lambda: not page.find_element("id", "story").is_displayed(), "the end of the story")
    assert focused(page) == LATEST


def test_what_is_not_known_of_a_block_is_said(page: Chrome, made: Built) -> None:
    gone = block(404, "shop.orders", sealed_at_ms=made.now_ms)
    made.trail.add(0, 400, commit(201, gone, at_ms=made.now_ms))
    wait_until(lambda: texts(page, "#blocks button")[0] == gone.id, "the block")
    page.find_element("css selector", "#blocks button").click()
    wait_until(
        lambda: texts(page, "#story-body") == [f"nobody knows block {gone.id}"], "the problem"
    )


def test_servers_that_are_away_are_said(page: Chrome, made: Built) -> None:
    made.samples.fail(made.now_ms, "the brokers did not answer")
    wait_until(lambda: texts(page, "#problem") == ["the brokers did not answer"], "the problem")
    assert page.find_element("id", "problem").get_attribute("role") == "status"
    assert texts(page, "#lag-now") == ["?"]


def contrast(one: str, other: str) -> float:
    """By WCAG 2; colours as the browser computes them."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_light_and_dark(page: Chrome, made: Built, scheme: str) -> None:
    made.standing.anomaly(ANOMALY, made.now_ms)
    wait_until(lambda: ANOMALY.text in texts(page, "#anomalies td"), "the anomaly")
    browser.scheme(page, scheme)
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    card = page.execute_script(script, "section", "backgroundColor")
    dark = contrast(card, "rgb(0, 0, 0)") < contrast(card, "rgb(255, 255, 255)")
    assert dark == (scheme == "dark")
    for selector in ("td", "th", ".bad", ".soft", ".warn", "td button", "figcaption", "footer"):
        colour = page.execute_script(script, selector, "color")
        assert contrast(colour, card) >= 4.5, (selector, colour, card)


def test_a_narrow_window_scrolls_tables_and_not_the_page(page: Chrome) -> None:
    size = page.get_window_size()
    try:
        page.set_window_size(500, 900)
        script = "return [document.documentElement.scrollWidth, innerWidth]"
        wide, window = page.execute_script(script)
        assert wide <= window
    finally:
        page.set_window_size(size["width"], size["height"])


def test_all_that_can_be_focused_or_is_a_picture_has_a_name(page: Chrome) -> None:
    """As the browser tells it to screen readers."""
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {"button", "region", "image", "dialog", "heading", "group", "table", "main"}
    roles = set()
    for node in tree:
        role = node.get("role", {}).get("value", "")
        roles.add(role)
        if role in named - {"table", "main"} and not node.get("ignored"):
            assert node["name"]["value"], node
    assert {"button", "region", "image", "heading", "table", "main"} <= roles


@pytest.fixture
def old() -> Built:
    """Data that ended two minutes ago: a fifth of it is older than the plots go back."""
    return built(time.time_ns() // 1_000_000 - 120_000)


def test_plots_stay_inside_of_their_cards(chrome: Chrome, old: Built) -> None:
    """After ten minutes the oldest points lie before the first."""
    outside = """return [...document.querySelectorAll('.plots figure')].flatMap((figure) => {
      const card = figure.getBoundingClientRect();
      return [...figure.querySelectorAll('polyline, polygon, rect')].filter((drawn) => {
        const box = drawn.getBoundingClientRect();
        return box.left < card.left - 1 || box.right > card.right + 1;
      }).map((drawn) => drawn.parentNode.id)})"""
    with old.served() as address:
        chrome.get(f"http://{address}/?every=200")
        wait_until(lambda: texts(chrome, "#blocks button") != [], "the latest blocks")
        assert chrome.execute_script("return document.querySelectorAll('polyline').length") >= 2
        assert chrome.execute_script(outside) == []
        hidden = "return getComputedStyle(document.querySelector('svg')).overflowX"
        assert chrome.execute_script(hidden) == "hidden"
        chrome.get("about:blank")


@pytest.mark.parametrize("selector", ["#tables td.text", "#blocks button", "#parked td.text"])
def test_names_break_behind_dots_and_colons_alone(page: Chrome, selector: str) -> None:
    """Lines of each cell, as the browser broke it in a narrow window."""
    script = """return [...document.querySelectorAll(arguments[0])].slice(0, 3).map((cell) => {
      const range = document.createRange(), lines = [];
      const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      for (let node; (node = walk.nextNode());)
        for (let at = 0; at < node.length; at++) {
          range.setStart(node, at); range.setEnd(node, at + 1);
          const top = Math.round(range.getBoundingClientRect().top);
          if (!lines.length || lines.at(-1)[0] !== top) lines.push([top, ""]);
          lines.at(-1)[1] += node.data[at];
        }
      return lines.map((line) => line[1]);
    })"""
    size = page.get_window_size()
    try:
        page.set_window_size(500, 900)
        cells = page.execute_script(script, selector)
        assert cells
        for lines in cells:
            for line in lines[:-1]:
                assert line.endswith((".", ":", " ")) or "<" in "".join(lines), lines
    finally:
        page.set_window_size(size["width"], size["height"])


def test_nobody_runs_and_it_is_red(page: Chrome, made: Built) -> None:
    screen = made.screen()
    screen["troubles"] = [{"kind": "no_relay", "text": "no relay is in the group"}]
    made.samples.add(screen)
    wait_until(lambda: texts(page, "#problem") == ["no relay is in the group"], "the trouble")
    assert page.find_element("id", "problem").get_attribute("class") == "bad"
    assert page.find_element("id", "verdict").get_attribute("class") != "good"


def test_what_is_settled_is_red_no_more(page: Chrome, made: Built) -> None:
    """An anomaly that `relay accept` took note of stays in the list."""
    made.standing.anomaly(ANOMALY, made.now_ms)
    wait_until(lambda: texts(page, "#anomalies td.bad") == ["gap"], "the anomaly")
    made.audit._passing.add(1, ANOMALY)
    made.audit._settle(1)
    wait_until(lambda: texts(page, "#verdict")[0].startswith("no open anomaly"), "the verdict")
    assert texts(page, "#anomalies td.bad") == []
    assert "gap, settled" in texts(page, "#anomalies td")


def test_parked_blocks_come_with_the_command(page: Chrome) -> None:
    section = page.find_element("id", "parked-section")
    assert section.is_displayed()
    assert "loader parked resolve CONFIG BLOCK --retry" in section.text
