"""One headless Chromium for each process that runs tests; each test has a context of its own in it.

`chromium` is a fixture: the address at which Playwright connects to it. The browser ends with the process
that started it. Two processes do not share one: each Playwright takes hold of every page of the browser that
it connects to, also of those that another has opened. A Playwright that is kept open for longer than a test
would leave its event loop running in the thread of the tests, where async tests begin their own.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.servers.postgres import WITH_US

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium is installed (on Debian: apt-get install chromium)"
# The three about the background are Playwright's own: a page behind another is as quick as the one before it.
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "about:blank",
)
_LISTENING = "DevTools listening on "


@contextmanager
def running() -> Iterator[str]:
    """Chromium, as long as this lasts: the address of its debugger."""
    assert PROGRAM is not None, MISSING
    folder = tempfile.mkdtemp(prefix="signoff-chromium-")
    command = [PROGRAM, f"--user-data-dir={folder}", *_OPTIONS]
    process = subprocess.Popen(
        ["/bin/sh", "-c", WITH_US, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None, "it is a pipe"
    assert process.stdin is not None, "it is a pipe"
    try:
        lines = iter(process.stderr.readline, "")
        address = next((line.partition(_LISTENING)[2] for line in lines if _LISTENING in line), "").strip()
        assert address, "Chromium did not start"
        yield address
    finally:
        process.stdin.close()
        process.stderr.close()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def browser(address: str | None = None) -> Iterator[Any]:
    """A Playwright browser: the one at `address`, or one of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        if address is None:
            found = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        else:
            found = playwright.chromium.connect_over_cdp(address)
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """The address of the browser that all tests of this process share."""
    pytest.importorskip("playwright.sync_api")
    if PROGRAM is None:
        pytest.skip(MISSING)
    with running() as address:
        yield address
