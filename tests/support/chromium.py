"""One headless Chromium for each file of tests that needs one; each test has a context of its own in it.

A Playwright that is kept open leaves its event loop running in the thread of the tests, where async tests
begin their own: a file with async tests has none.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium is installed (on Debian: apt-get install chromium)"
# The last three are Playwright's own: a page behind another is as quick as the one before it.
_OPTIONS = (
    "--no-sandbox",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)


@contextmanager
def browser() -> Iterator[Any]:
    """A Playwright browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=PROGRAM, args=[*_OPTIONS])
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of a file."""
    pytest.importorskip("playwright.sync_api")
    if PROGRAM is None:
        pytest.skip(MISSING)
    with browser() as found:
        yield found
