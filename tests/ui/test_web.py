"""The application in the browser: driven by a real one, closed to everybody else, gone with its server."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.session.status import look, reading_graph
from tests.support.benches.ui import UiBench
from tests.support.benches.ui_web import Served, alive, browser, listening
from tests.ui.test_app import ALL, LOOKS
from tests.ui.test_threads import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
AMBER = (210, 153, 34)


@pytest.fixture
def bench(tmp_path: Path) -> UiBench:
    return UiBench(tmp_path)


@pytest.fixture
def served(bench: UiBench) -> Iterator[Served]:
    found = serving(bench, ALL)
    yield found
    found.end()


def serving(bench: UiBench, steps: str, delay: float = 0.0) -> Served:
    options = ["--workspace", str(bench.workspace), "--model", bench.model(steps, delay)]
    where = ["--database", str(bench.database), "--thread", "web"]
    return Served(*where, *options, "--tools", "files,shell", "--approve", "terminal")


def test_a_run_from_the_first_key_to_the_last_card(
    chromium: str, bench: UiBench, served: Served, tmp_path: Path
) -> None:
    with browser(address=chromium) as page:
        page.page.goto(served.address)
        page.shows("what is to be done")
        assert page.page.url == f"{served.origin}/"
        page.send("Change the port")
        page.shows("The model asks", "Which port?")
        page.send("8080")
        page.shows("Waiting for approval", "echo the port is")
        page.press("a")
        page.shows("the port is PORT = 8080", "Finished? Please confirm")
        page.press("y")
        page.shows("Asserted: done", "The port is 8080.")
        assert page.colour_of("Asserted: done") == AMBER
        picture = page.page.screenshot(path=str(tmp_path / "web.png"))
        assert len(picture) > 20_000
        assert {request for request in page.requests if not request.startswith(served.origin)} == set()
        assert page.problems == []
    assert bench.config.read_text() == "PORT = 8080\n"
    assert outcome(bench) == "success"


@pytest.mark.thorough
def test_a_page_that_is_opened_again_shows_the_thread_where_it_stands(chromium: str, served: Served) -> None:
    with browser(address=chromium) as page:
        page.page.goto(served.address)
        page.shows("what is to be done")
        page.send("Change the port")
        page.shows("Which port?")
        page.page.reload()
        page.shows("Which port?", "your answer, or the number of one")


REFUSED: dict[str, tuple[str, dict[str, str]]] = {
    "no token": ("/", {}),
    "a wrong one": ("/?token=wrong", {}),
    "the socket without the token": ("/ws", {}),
    "the socket with a wrong one": ("/wrong/ws", {}),
    "the socket with the token elsewhere": ("/ws?token={token}", {"Cookie": "token={token}"}),
    "a file without the token": ("/static/js/textual.js", {}),
    "the token of another page": ("/?token={token}", {"Origin": "http://evil.example"}),
    "the socket from another port": ("/{token}/ws", {"Origin": "http://127.0.0.1:1"}),
    "another name of this address": ("/?token={token}", {"Host": "evil.example"}),
    "another name of the page": ("/{token}/", {"Host": "localhost"}),
}


def test_what_is_refused(served: Served) -> None:
    for name, (path, headers) in REFUSED.items():
        given = {key: value.format(token=served.token) for key, value in headers.items()}
        request = urllib.request.Request(served.origin + path.format(token=served.token), headers=given)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        with refused.value:
            assert refused.value.code == 403, name
        assert served.children() == [], name


@pytest.mark.thorough
def test_no_other_server_of_this_machine_gets_the_token_or_in(chromium: str, served: Served) -> None:
    socket = served.origin.replace("http", "ws")
    tries = f"""<!doctype html><title>other</title><script>
      const told = (text) => fetch("/told?" + text);
      const socket = new WebSocket("{socket}/{served.token}/ws?width=80&height=24");
      socket.onopen = () => told("let-in");
      socket.onerror = () => told("kept-out");
    </script>"""
    with browser(address=chromium) as page, listening(tries) as other:
        page.page.goto(served.address)
        page.shows("what is to be done")
        started = served.children()
        assert page.page.context.cookies() == []
        with page.page.context.expect_page() as opened:
            page.page.evaluate("window.open('/', '_blank', 'noopener')")
        assert "Open the address that signoff serve printed" in opened.value.inner_text("body")
        assert served.children() == started, "another tab without the token is kept out"
        page.page.evaluate("url => { window.open(url); location.href = url; }", other.address)
        page.until(lambda: sum("kept-out" in request for request in other.requests) == 2)
        assert not [request for request in other.requests if served.token in request or "let-in" in request]
        page.page.goto(f"{served.origin}/")
        page.shows("what is to be done")
        # The tab goes on with the token that it kept.
        page.until(lambda: bool(set(served.children()) - set(started)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.sample(1)
@pytest.mark.thorough
def test_nothing_outlives_the_server(chromium: str, bench: UiBench, number: signal.Signals) -> None:
    steps = '[call("run_shell", command="sleep 600")]'
    served = serving(bench, steps)
    with browser(address=chromium) as page:
        page.page.goto(served.address)
        page.shows("what is to be done")
        page.send("Go")
        page.shows("Waiting for approval")
        page.press("a")
        page.shows("$ sleep 600")
        page.until(lambda: len(served.children()) >= 2)
        started = served.children()
        served.end(number)
        end = time.monotonic() + 15
        while alive(started) and time.monotonic() < end:
            page.page.wait_for_timeout(100)
        assert alive(started) == []


@pytest.mark.thorough
def test_a_page_that_is_closed_loses_nothing(chromium: str, bench: UiBench) -> None:
    served = serving(bench, LOOKS, delay=0.3)
    with browser(address=chromium) as page:
        page.page.goto(served.address)
        page.shows("what is to be done")
        page.send("Look")
        page.shows("turn 3 of 30")
    end = time.monotonic() + 15
    while served.children() and time.monotonic() < end:
        time.sleep(0.1)
    assert served.children() == []
    with browser(address=chromium) as page:
        page.page.goto(served.address)
        page.shows("It was stopped in the middle")
        page.press("p")
        page.shows("Asserted: done")
    served.end()
    assert outcome(bench) == "success"


@pytest.mark.thorough
def test_a_port_that_is_taken_is_told(bench: UiBench, served: Served) -> None:
    port = served.origin.rpartition(":")[2]
    done = subprocess.run(
        command(bench, "serve", "--port", port), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Port {port} cannot be used (Address already in use); try --port 0.\n"


def outcome(bench: UiBench) -> str:
    with bench.database.open() as storage:
        return str((look(reading_graph(storage), "web").outcome or {}).get("status"))
