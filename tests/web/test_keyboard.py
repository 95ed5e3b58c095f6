"""The application in Chromium without a mouse, and the buttons that other tests press by requests only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Seen, Served, browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STEPS = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("run_shell", command="echo no > no.txt"),
    call("run_shell", command="echo first > ran.txt"),
    call("list_files"),
    call(
        "finish_task", summary="Done.", pending_issues=["Nobody has tried it."],
        requires_user_confirmation=True,
    ),
]"""
SLOW = """[call("write_file", path=f"{at}.txt", content="x") for at in range(40)]"""
FAILS = """[ValueError("the model is down")]"""
_FOCUSED = """() => {
    const one = document.activeElement;
    return one.matches(%r) && !one.disabled;
}"""


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


@pytest.fixture
def served(bench: WebBench) -> Iterator[Served]:
    found = serving(bench, STEPS, 0.0, "--turns", "4")
    yield found
    found.end()


def serving(bench: WebBench, steps: str, delay: float = 0.0, *more: str) -> Served:
    options = ["--workspace", str(bench.workspace), "--model", bench.model(steps, delay)]
    where = ["--database", str(bench.database), "--thread", "web"]
    return Served(*where, *options, "--tools", "files,shell", "--approve", "terminal", *more)


def reach(seen: Seen, selector: str, key: str = "Tab") -> None:
    """Goes to an element by this key alone."""
    seen.page.locator(selector).first.wait_for()
    for _ in range(150):
        if seen.page.evaluate(_FOCUSED % selector):
            return
        seen.page.keyboard.press(key)
    raise AssertionError(f"{selector} is not reached by {key}")


def press(seen: Seen, selector: str, key: str = "Tab") -> None:
    reach(seen, selector, key)
    seen.page.keyboard.press("Enter")


def test_every_action_by_keyboard_alone(chromium: str, bench: WebBench, served: Served) -> None:
    with browser(address=chromium) as seen:
        keys = seen.page.keyboard
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        press(seen, "#new")
        seen.page.wait_for_url(lambda url: not url.endswith("=web"))
        seen.page.locator("#prompt:focus").wait_for()
        seen.page.locator("#own-approve").wait_for()
        keys.type("Set the port")
        keys.press("Enter")
        seen.asks("Which port?")
        press(seen, '[data-text="8080"]', "Shift+Tab")
        seen.stands("Waiting for approval")
        press(seen, '[data-opens="reject"]', "Shift+Tab")
        keys.type("not this one")
        press(seen, '[data-kind="reject"]')
        seen.page.locator(".ask", has_text="echo first").wait_for()
        press(seen, '[data-opens="edit"]', "Shift+Tab")
        keys.press("Control+a")
        keys.type('{"command": "echo edited > ran.txt"}')
        press(seen, '[data-kind="edit"]')
        seen.stands("Turn limit reached")
        reach(seen, "#turns", "Shift+Tab")
        keys.press("Control+a")
        keys.type("5")
        press(seen, '[data-move="go_on"]')
        seen.shows("Please confirm")
        press(seen, '[data-kind="approve"]', "Shift+Tab")
        seen.stands("Asserted: done")
        press(seen, '[data-name="p-turn-1-3"] [data-fork]', "Shift+Tab")
        seen.page.wait_for_url(lambda url: url.endswith("-fork-1"))
        seen.page.locator("#prompt:focus").wait_for()
        press(seen, '[data-move="stop"]', "Shift+Tab")
        seen.stands("Cancelled")
        forked = seen.page.url
        press(seen, "[data-fork='']", "Shift+Tab")
        seen.page.wait_for_url(lambda url: url != forked)
        seen.stands("Cancelled")
        seen.page.locator("[data-delete]").wait_for()
        press(seen, "[data-delete]", "Shift+Tab")
        press(seen, "#sure-yes")
        seen.page.wait_for_url(lambda url: "fork" not in url)
        press(seen, "#view-terminal", "Shift+Tab")
        reach(seen, "#terminal textarea")
        keys.type("echo $((6*7))tytwo")
        keys.press("Enter")
        seen.page.locator(".xterm-rows", has_text="42tytwo").wait_for()
        keys.press("Control+]")
        assert seen.page.evaluate("document.activeElement.id") == "prompt"
        assert seen.problems == []
    assert (bench.workspace / "ran.txt").read_text() == "edited\n"
    assert not (bench.workspace / "no.txt").exists()


def test_pause_and_stop_by_keyboard_and_settings_that_are_typed(chromium: str, bench: WebBench) -> None:
    served, other = serving(bench, SLOW, 0.4), bench.folder / "other"
    other.mkdir()
    try:
        with browser(address=chromium) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            for name, value in (("workspace", str(other)), ("tools", "files"), ("turns", "30")):
                reach(seen, f"#own-{name}")
                seen.page.keyboard.type(value)
            reach(seen, "#prompt", "Shift+Tab")
            seen.page.keyboard.type("Write")
            seen.page.keyboard.press("Enter")
            seen.page.locator("#turn-1-1").wait_for()
            assert "30 turns" in seen.page.locator('[data-part="settings"]').inner_text()
            press(seen, '[data-move="pause"]', "Shift+Tab")
            seen.stands("Stopped")
            press(seen, '[data-move="go_on"]', "Shift+Tab")
            seen.page.locator('[data-move="pause"]').wait_for()
            press(seen, '[data-move="stop"]', "Shift+Tab")
            seen.stands("Cancelled")
    finally:
        served.end()
    assert (other / "0.txt").exists()
    assert not (bench.workspace / "0.txt").exists()


def test_settings_that_do_not_fit_are_told_and_may_be_typed_again(chromium: str, served: Served) -> None:
    with browser(address=chromium) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.page.locator("#own-tools").fill("hammer")
        seen.send("Set the port")
        seen.page.locator("#told", has_text="hammer").wait_for()
        assert seen.page.locator("#prompt").input_value() == "Set the port"
        seen.page.locator("#own-tools").fill("files")
        seen.page.locator("#prompt").press("Enter")
        seen.asks("Which port?")


def test_another_try_after_an_error(chromium: str, bench: WebBench) -> None:
    served = serving(bench, FAILS)
    try:
        with browser(address=chromium) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            seen.send("Go")
            press(seen, '[data-move="go_on"]', "Shift+Tab")
            tried_twice = "call_llm → finish → compress → decide → call_llm → finish"
            seen.page.locator("#timeline", has_text=tried_twice).wait_for(state="attached")
    finally:
        served.end()
