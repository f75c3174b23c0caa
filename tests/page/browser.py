"""Debian's Chromium without a window, driven by its own driver.

Receives nothing; gives a browser that keeps its profile in a temporary directory.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

LACKING = "" if shutil.which("chromium") and shutil.which("chromedriver") else (
    "needs Debian's packages chromium and chromium-driver"
)  # fmt: skip
"""Why there is no browser here; empty where there is one."""


@contextlib.contextmanager
def opened(directory: Path, width: int = 1_280, height: int = 1_400) -> Iterator[Chrome]:
    """One browser; `directory` holds its profile."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",  # tests may run as root, in a container
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-proxy-server",
        "--disable-background-networking",
        f"--user-data-dir={directory}",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options, Service(shutil.which("chromedriver")))
    browser.set_page_load_timeout(60)
    browser.set_script_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()


def scheme(browser: Chrome, name: str) -> None:
    """Light or dark, as the user's desktop would ask for it."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
