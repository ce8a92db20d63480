"""A real Chromium for tests of the page; they are skipped where none is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from .available import not_available

#: Without a sandbox, for tests may run as root; and with nothing that asks other machines.
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """A browser of its own, with an empty profile in the folder."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        not_available("Chromium is missing: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    for argument in (*_ARGUMENTS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = Chrome(options, Service(driver))
    try:
        yield opened
    finally:
        opened.quit()


def resize(browser: Chrome, width: int, height: int, scheme: str) -> None:
    """Show what a window of that size shows, in a "light" or "dark" scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme_of = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme_of})
