"""Chromium without a window, driven by Playwright: pages as a person sees them, and real clicks."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser")

FLAGS = (
    "--no-sandbox",
    "--use-angle=swiftshader",  # WebGL on the processor
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def open_page(url: str, *, width: int = 1280, height: int = 800) -> Iterator["Page"]:
    """Opens a page, or skips the test where there is no browser.

    Args:
        url: Address of the page.
        width: Width of the page, pixels.
        height: Height of the page, pixels.
    """
    pytest.importorskip("playwright", reason="needs the library playwright")
    if EXECUTABLE is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")

    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=EXECUTABLE, args=list(FLAGS))
        try:
            context = browser.new_context(viewport={"width": width, "height": height})
            page = context.new_page()  # beside which there is room for others
            page.goto(url, wait_until="domcontentloaded")
            yield page
        finally:
            browser.close()
