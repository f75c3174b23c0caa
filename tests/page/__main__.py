"""`python -m tests.page DIRECTORY`: the page as pictures, light and dark, to be looked at."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.page import browser
from tests.page.built import ANOMALY, built


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def main(directory: Path) -> None:
    """Write light.png, dark.png, narrow.png and story-*.png into DIRECTORY."""
    directory.mkdir(parents=True, exist_ok=True)
    made = built(time.time_ns() // 1_000_000)
    made.standing.anomaly(ANOMALY, made.now_ms)
    made.audit.acknowledged.append(
        "partition 0, n=7: accepted retention: the source log starts at 40"
    )
    with (
        tempfile.TemporaryDirectory() as profile,
        made.served() as address,
        browser.opened(Path(profile)) as chrome,
    ):
        chrome.get(f"http://{address}/")
        wait = WebDriverWait(chrome, 60)
        wait.until(lambda at: at.find_elements(By.CSS_SELECTOR, "#blocks button"))
        for scheme in ("light", "dark"):
            browser.scheme(chrome, scheme)
            chrome.save_screenshot(str(directory / f"{scheme}.png"))
            chrome.find_element(By.CSS_SELECTOR, "#blocks button").click()
            wait.until(lambda at: at.find_elements(By.CSS_SELECTOR, "#story-body dl"))
            chrome.save_screenshot(str(directory / f"story-{scheme}.png"))
            chrome.find_element(By.ID, "story-close").click()
        chrome.set_window_size(420, 1_400)
        chrome.save_screenshot(str(directory / "narrow.png"))


if __name__ == "__main__":
    main()
