"""One headless Chromium for all tests of a session; each test has a context of its own in it.

`chromium` is a fixture: the address at which Playwright connects to it. It is started before the tests are
shared out to processes, and ends with the process that started it. A Playwright that is kept open for longer
than a test would leave its event loop running in the thread of the tests, where async tests begin their own.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.servers.postgres import WITH_US

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium is installed (on Debian: apt-get install chromium)"
ADDRESS = pytest.StashKey[str]()
_OPTIONS = ("--headless", "--no-sandbox", "--remote-debugging-port=0", "--no-first-run", "about:blank")
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


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    wanted = any("chromium" in getattr(item, "fixturenames", ()) for item in session.items)
    if PROGRAM is None or not wanted or session.config.option.collectonly:
        return (yield)
    with running() as address:
        session.stash[ADDRESS] = address
        return (yield)


@pytest.fixture(scope="session")
def chromium(request: pytest.FixtureRequest) -> str:
    """The address of the browser that all tests share."""
    pytest.importorskip("playwright.sync_api")
    if ADDRESS not in request.session.stash:
        pytest.skip(MISSING)
    return request.session.stash[ADDRESS]
