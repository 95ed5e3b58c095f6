"""The web application in Chromium: a whole task on a desktop and a phone, light and dark, and no way in."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff.graph.inside.installing import install_hint
from signoff.session.status import look, reading_graph
from tests.support.benches.cli import PROGRAM
from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Seen, Served, browser, listening
from tests.support.process_table import gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TASK = """[
    call("think", thought="First I look."),
    reply("I look at the **port**.", call("read_file", path="config.py")),
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("edit_file", path="config.py", old="3000", new="8080"),
    call("run_shell", command="cat config.py"),
    call("list_files"),
    call(
        "finish_task", summary="The port is 8080.", pending_issues=["Nobody has tried it."],
        requires_user_confirmation=True,
    ),
]"""
SLOW = """[call("write_file", path=f"{at}.txt", content="x") for at in range(8)] + [
    call("finish_task", summary="Written."),
]"""
VIEWS: dict[str, dict[str, Any]] = {
    "desktop, light": {"width": 1400, "height": 900, "colours": "light"},
    "desktop, dark": {"width": 1400, "height": 900, "colours": "dark"},
    "phone, light": {"width": 360, "height": 740, "colours": "light", "is_mobile": True, "has_touch": True},
    "phone, dark": {
        "width": 360,
        "height": 740,
        "colours": "dark",
        "is_mobile": True,
        "has_touch": True,
        "reduced_motion": "reduce",
    },
}


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


@pytest.fixture
def served(bench: WebBench) -> Iterator[Served]:
    found = serving(bench, TASK)
    yield found
    found.end()


def serving(bench: WebBench, steps: str, delay: float = 0.0, *more: str) -> Served:
    options = ["--workspace", str(bench.workspace), "--model", bench.model(steps, delay)]
    where = ["--database", str(bench.database), "--thread", "web"]
    return Served(*where, *options, "--tools", "files,shell", "--approve", "terminal", *more)


def fits(seen: Seen, width: int) -> None:
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.serious() == []


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.sample(2)
def test_a_whole_task(chromium: str, bench: WebBench, view: str, tmp_path: Path) -> None:
    served, given = serving(bench, TASK, 0.0, "--turns", "6"), VIEWS[view]
    try:
        with browser(**given, address=chromium) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below.")
            assert seen.page.url == f"{served.origin}/?thread=web"
            fits(seen, given["width"])
            seen.send("Change the port")
            seen.asks("Which port?")
            fits(seen, given["width"])
            seen.press("8080")
            seen.stands("Waiting for approval")
            seen.shows("$ cat config.py")
            fits(seen, given["width"])
            seen.page.screenshot(path=str(tmp_path / "approval.png"))
            seen.page.locator('[data-opens="edit"]').click()
            seen.page.locator('[data-form="edit"] textarea').fill('{"command": "cat config.py; echo edited"}')
            seen.press("Run it as edited")
            seen.stands("Turn limit reached")
            fits(seen, given["width"])
            seen.press("More turns")
            seen.shows("Please confirm")
            fits(seen, given["width"])
            seen.page.screenshot(path=str(tmp_path / "confirm.png"))
            seen.press("Approve")
            seen.stands("Asserted: done")
            seen.page.locator("pre.diff .add", has_text="8080").first.wait_for()
            seen.page.locator("summary", has_text="read_file").click()
            seen.page.locator("pre.result", has_text="PORT = 3000").wait_for()
            if seen.page.locator("#terminal-box").is_hidden():
                seen.press("Terminal")
            seen.page.locator(".xterm-rows", has_text="edited").wait_for()
            fits(seen, given["width"])
            seen.page.locator("#terminal textarea").focus()
            seen.page.keyboard.type("echo $((6*7))tytwo")
            seen.page.keyboard.press("Enter")
            seen.page.locator(".xterm-rows", has_text="42tytwo").wait_for()
            seen.page.keyboard.press("Control+]")
            assert seen.page.evaluate("document.activeElement.id") == "prompt"
            seen.page.screenshot(path=str(tmp_path / "end.png"))
            assert [url for url in seen.requests if not url.startswith((served.origin, "data:"))] == []
            assert seen.page.context.cookies() == []
            assert seen.problems == []
    finally:
        assert served.end() == 0
    assert bench.config.read_text() == "PORT = 8080\n"
    assert outcome(bench) == "success"


def test_two_pages_see_the_same_and_the_second_answer_is_too_late(chromium: str, served: Served) -> None:
    with browser(address=chromium) as ada:
        bob = Seen(ada.page.context.new_page())
        for seen in (ada, bob):
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
        ada.send("Change the port")
        for seen in (ada, bob):
            seen.asks("Which port?")
        # Both press before either page has heard of the other.
        for seen, port in ((ada, "8080"), (bob, "9090")):
            seen.page.evaluate(
                f"setTimeout(() => document.querySelector('[data-text=\"{port}\"]').click(), 300)"
            )
        for seen in (ada, bob):
            seen.stands("Waiting for approval")
        told = [seen.page.locator("#told").inner_text() for seen in (ada, bob)]
        assert sorted("too late" in words for words in told) == [False, True]


def test_a_server_that_is_killed_in_the_middle_goes_on_after_its_restart(
    chromium: str, bench: WebBench
) -> None:
    served = serving(bench, SLOW, 0.4)
    with browser(address=chromium) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.send("Write")
        seen.page.locator("#turn-1-2").wait_for()
        served.end(signal.SIGKILL)
        seen.shows("not connected; trying again")
        again = serving(bench, SLOW)
        try:
            seen.page.goto(again.address)
            seen.stands("Stopped")
            seen.press("Go on")
            seen.stands("Asserted: done")
            assert seen.page.locator("article.turn").count() == 9
        finally:
            again.end()
    assert outcome(bench) == "success"


def test_closing_every_browser_ends_nothing(chromium: str, bench: WebBench) -> None:
    served = serving(bench, SLOW, 0.3)
    try:
        with browser(address=chromium) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            seen.send("Write")
            seen.page.locator("#turn-1-1").wait_for()
        with browser(address=chromium) as seen:
            seen.page.goto(served.address)
            seen.stands("Asserted: done")
            assert seen.page.locator("article.turn").count() == 9
    finally:
        served.end()


def test_the_keyboard_does_all(chromium: str, served: Served) -> None:
    with browser(address=chromium) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.textContent") == "To the prompt"
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("document.activeElement.id") == "prompt"
        seen.page.keyboard.type("Change")
        seen.page.keyboard.press("Shift+Enter")
        seen.page.keyboard.type("the port")
        seen.page.keyboard.press("Enter")
        seen.asks("Which port?")
        seen.page.locator("#heard", has_text="Which port?").wait_for(state="attached")
        seen.page.keyboard.type("1")
        seen.page.keyboard.press("Enter")
        seen.stands("Waiting for approval")
        while seen.page.evaluate("document.activeElement.dataset.kind ?? ''") != "approve":
            seen.page.keyboard.press("Shift+Tab")
        seen.page.keyboard.press("Enter")
        seen.shows("Please confirm")


TWO = """[
    reply(
        "Both.",
        call("run_shell", command="echo one > one.txt"),
        call("run_shell", command="echo two > two.txt"),
    ),
    call("ask_user", question="Is it well?"),
    call("finish_task", summary="Done."),
]"""


def test_a_decision_stands_for_the_words_that_are_sent(chromium: str, bench: WebBench) -> None:
    served = serving(bench, TWO)
    try:
        with browser(address=chromium) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            seen.send("Both")
            seen.stands("Waiting for approval")
            all_at_once = seen.page.locator("[data-send]")
            seen.page.locator('[data-opens="edit"]').first.click()
            assert seen.page.locator('[data-kind="approve"]').first.is_disabled()
            edit = seen.page.locator('[data-form="edit"] textarea').first
            edit.fill('{"command": "echo first > one.txt"}')
            seen.page.locator('[data-kind="edit"]').first.click()
            seen.page.locator('[data-kind="approve"]').nth(1).click()
            assert seen.serious() == []
            assert all_at_once.is_enabled()
            # The words have changed since: they are not decided on.
            edit.fill('{"command": "echo second > one.txt"}')
            assert all_at_once.is_disabled()
            seen.page.locator('[data-kind="edit"]').first.click()
            all_at_once.click()
            seen.asks("Is it well?")
    finally:
        served.end()
    assert [(bench.workspace / f"{name}.txt").read_text() for name in ("one", "two")] == ["second\n", "two\n"]


def test_words_go_to_what_they_were_meant_for(chromium: str, bench: WebBench) -> None:
    steps = """[
        call("ask_user", question="First?"),
        call("ask_user", question="Second?"),
        call("finish_task", summary="Done."),
    ]"""
    served = serving(bench, steps)
    try:
        with browser(address=chromium) as ada:
            bob = Seen(ada.page.context.new_page())
            for seen in (ada, bob):
                seen.page.goto(served.address)
                seen.shows("Describe the task below")
            ada.send("Ask")
            for seen in (ada, bob):
                seen.asks("First?")
            bob.page.locator("#prompt").fill("to the first")
            ada.send("mine")
            bob.asks("Second?")
            bob.page.locator("#prompt").press("Enter")
            bob.shows("since you began to type")
            assert bob.page.locator(".ask", has_text="Second?").is_visible()
            bob.page.locator("#prompt").press("Enter")
            bob.stands("Asserted: done")
    finally:
        served.end()


def test_an_address_that_is_none_is_told(chromium: str, served: Served) -> None:
    with browser(address=chromium) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.page.goto(f"{served.origin}/?thread={'x' * 501}")
        seen.shows("has at most 500 characters")
        assert seen.page.locator("#link").inner_text() == "not connected"


def test_a_tab_that_nobody_sees_has_its_state_in_its_title(chromium: str, served: Served) -> None:
    hidden = (
        "Object.defineProperty(document, 'hidden', {get: () => window.covered ?? false, configurable: true})"
    )
    change = "covered => { window.covered = covered; document.dispatchEvent(new Event('visibilitychange')); }"
    with browser(address=chromium) as ada:
        bob = Seen(ada.page.context.new_page())
        bob.page.add_init_script(hidden)
        for seen in (ada, bob):
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
        bob.page.evaluate(change, True)
        ada.send("Change the port")
        ada.asks("Which port?")
        # The stream ends after some seconds, and a glance is taken now and then.
        for _ in range(300):
            bob.page.wait_for_timeout(200)
            if bob.page.title().startswith("Waiting for an answer"):
                break
        assert bob.page.title().startswith("Waiting for an answer")
        bob.page.evaluate(change, False)
        bob.asks("Which port?")
        ada.press("8080")
        bob.stands("Waiting for approval")


def test_no_other_server_of_this_machine_gets_the_token_or_in(chromium: str, served: Served) -> None:
    tries = f"""<!doctype html><title>other</title><script>
      const told = (text) => fetch("/told?" + text);
      fetch("{served.origin}/api/new", {{headers: {{Authorization: "Bearer {served.token}"}}}})
        .then(() => told("let-in"), () => told("kept-out"));
    </script>"""
    with browser(address=chromium) as seen, listening(tries) as other:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        with seen.page.context.expect_page() as opened:
            seen.page.evaluate("window.open('/', '_blank', 'noopener')")
        opened.value.get_by_text("Open the address that signoff serve printed").wait_for()
        seen.page.goto(other.address)
        seen.page.wait_for_timeout(500)
        told = [request for request in other.requests if "/told?" in request]
        assert ["kept-out" in request for request in told] == [True]
        assert not [request for request in other.requests if served.token in request.partition("\n")[2]]
        seen.page.goto(f"{served.origin}/?thread=web")
        # The tab goes on with the token that it kept.
        seen.shows("Describe the task below")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.sample(1)
@pytest.mark.thorough
def test_nothing_outlives_the_server(chromium: str, bench: WebBench, number: signal.Signals) -> None:
    served = serving(bench, '[call("run_shell", command="sleep 600", timeout=900)]')
    with browser(address=chromium) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.send("Go")
        seen.stands("Waiting for approval")
        seen.press("Approve")
        seen.page.locator(".xterm-rows", has_text="sleep 600").wait_for()
        seen.page.wait_for_timeout(500)
        started = served.children()
        assert started
        served.end(number)
        assert gone(*started, seconds=15)


@pytest.mark.thorough
def test_a_port_that_is_taken_is_told(bench: WebBench, served: Served) -> None:
    port = served.origin.rpartition(":")[2]
    words = [*PROGRAM, "serve", "--port", port, "--database", str(bench.database)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Port {port} of 127.0.0.1 cannot be used (Address already in use); try --port 0.\n"


def outcome(bench: WebBench) -> str:
    with bench.database.open() as storage:
        outcome = look(reading_graph(storage), "web").outcome
        return str(outcome and outcome.status)


def test_without_its_packages_it_names_the_command_that_adds_them() -> None:
    code = (
        "import sys; sys.modules['starlette'] = None; sys.argv[1:] = ['serve']; "
        "from signoff.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert install_hint("web") in done.stderr
