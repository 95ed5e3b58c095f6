"""The page in Chromium: where the focus goes, what is sent again or cannot be loaded, and a small screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route

from signoff.session.status import look, reading_graph
from tests.support.benches.web import WebBench
from tests.support.benches.web_browser import Seen, Served, browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PHONE: dict[str, Any] = {"width": 360, "height": 740, "is_mobile": True, "has_touch": True}
DONE = '[call("finish_task", summary="Done.") for _ in range(4)]'
LOOKS = '[call("list_files") for _ in range(60)]'
TWO_COMMANDS = """[
    call("run_shell", command="echo one"),
    call("run_shell", command="echo two"),
    call("finish_task", summary="Done."),
]"""
AT_ONCE = """[
    call("ask_user", question="Which of the ports of this machine?", options=["8080", "9090"]),
    reply(
        "Two.",
        call("run_shell", command="\\n".join(f"echo {at}" for at in range(90))),
        call("run_shell", command="echo b"),
    ),
    call("run_shell", command="\\n".join(f"echo {at}" for at in range(90))),
    call("finish_task", summary="Done."),
]"""
_IN_SIGHT = """(one) => {
    const box = one.getBoundingClientRect(), at = [box.left + box.width / 2, box.top + box.height / 2];
    return box.bottom <= innerHeight && one.contains(document.elementFromPoint(...at));
}"""


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


@contextmanager
def opened(
    chromium: str, bench: WebBench, steps: str, *more: str, delay: float = 0.0, **view: Any
) -> Iterator[Seen]:
    """A page on a new thread of a server of its own."""
    options = ["--workspace", str(bench.workspace), "--model", bench.model(steps, delay), *more]
    served = Served("--database", str(bench.database), "--thread", "web", "--tools", "files,shell", *options)
    try:
        with browser(address=chromium, **view) as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            yield seen
    finally:
        served.end()


def focused(seen: Seen) -> str:
    return str(seen.page.evaluate("document.activeElement.id"))


def is_in_sight(seen: Seen, selector: str) -> bool:
    return bool(seen.page.locator(selector).first.evaluate(_IN_SIGHT))


def tasks(bench: WebBench) -> list[str]:
    with bench.database.open() as storage:
        messages = look(reading_graph(storage), "web").values["messages"]
    return [str(message.content) for message in messages if message.type == "human"]


def test_enter_on_a_move_presses_no_other_one_in_its_place(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, LOOKS, "--turns", "2", delay=0.3) as seen:
        seen.send("Go")
        seen.stands("Turn limit reached")
        for move, next_move in (("go_on", "stop"), ("pause", "go_on"), ("go_on", "pause")):
            seen.page.locator(f'[data-move="{move}"]').focus()
            seen.page.keyboard.press("Enter")
            seen.page.locator(f'[data-move="{next_move}"]').wait_for()
            seen.page.locator("#prompt:focus").wait_for()
            seen.page.keyboard.press("Enter")
        seen.page.locator("#prompt").fill("words that are not to be sent yet")
        seen.page.locator('[data-move="pause"]').focus()
        seen.page.keyboard.press("Enter")
        seen.stands("Stopped")
        assert focused(seen) == "main"
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_timeout(300)
        assert seen.page.locator('[data-word="Stopped"]').count() == 1


def test_the_focus_on_an_answer_goes_to_no_other_question(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, TWO_COMMANDS, "--approve", "terminal") as ada:
        bob = Seen(ada.page.context.new_page())
        token = ada.page.evaluate("sessionStorage.getItem('token')")
        bob.page.goto(f"{ada.page.url.partition('/?')[0]}/#token={token}&thread=web")
        bob.shows("Describe the task below")
        ada.send("Go")
        for seen in (ada, bob):
            seen.asks("echo one")
        bob.page.locator('[data-kind="approve"]').focus()
        ada.page.locator('[data-kind="approve"]').click()
        bob.asks("echo two")
        assert focused(bob) == "prompt"
        bob.page.keyboard.press("Enter")
        bob.page.wait_for_timeout(300)
        bob.asks("echo two")


def lose_first_answer(seen: Seen) -> None:
    """The first task is carried out, but nobody hears of it."""
    lost: list[str] = []

    def handle(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route.request.url)
            route.fetch()
            route.abort("connectionreset")

    seen.page.route("**/api/write", handle)


def test_a_task_whose_answer_was_lost_begins_once(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, DONE) as seen:
        lose_first_answer(seen)
        seen.send("Send the mail")
        seen.stands("Asserted: done")
        seen.page.locator("#told", has_text="cannot be reached").wait_for()
        assert seen.page.locator("#prompt").input_value() == "Send the mail"
        seen.page.locator("#prompt").press("Enter")
        seen.page.wait_for_function("document.getElementById('prompt').value === ''")
        assert tasks(bench) == ["Send the mail"]
        # Typed anew it is meant anew.
        seen.send("Send the mail")
        seen.page.locator("h2", has_text="Task 2").wait_for()
        seen.stands("Asserted: done")
        assert tasks(bench) == ["Send the mail", "Send the mail"]


def test_words_that_were_taken_out_are_meant_anew(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, DONE) as seen:
        lose_first_answer(seen)
        seen.send("Send the mail")
        seen.stands("Asserted: done")
        seen.page.locator("#told", has_text="cannot be reached").wait_for()
        seen.page.locator("#prompt").fill("")
        seen.send("Send the mail")
        seen.page.locator("h2", has_text="Task 2").wait_for()


def test_turns_that_are_no_number_are_told_and_begin_nothing(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, LOOKS, "--turns", "2") as seen:
        seen.page.locator("#own-turns").fill("two")
        seen.send("Go")
        seen.page.locator("#told", has_text="'two' is not a valid number of turns").wait_for()
        assert seen.page.locator("#prompt").input_value() == "Go"
        seen.page.locator("#own-turns").fill("3")
        seen.page.locator("#prompt").press("Enter")
        seen.stands("Turn limit reached")
        seen.page.locator("#turn-1-3").wait_for()
        for typed in ("0", ""):
            seen.page.locator("#turns").fill(typed)
            seen.press("More turns")
            seen.page.locator("#told", has_text=f"'{typed}' is not a valid number of turns").wait_for()
        assert seen.page.locator("#turn-1-4").count() == 0
        seen.page.locator("#turns").fill("1")
        seen.press("More turns")
        seen.page.locator("#turn-1-4").wait_for()


@pytest.mark.parametrize("name", ["terminal.js", "xterm.mjs"])
def test_a_terminal_that_could_not_be_loaded_is_told_and_can_be_opened_again(
    chromium: str, bench: WebBench, name: str
) -> None:
    with opened(chromium, bench, DONE) as seen:
        seen.page.route(f"**/static/{name}*", lambda route: route.abort())
        seen.press("Terminal")
        seen.page.locator("#told", has_text="could not be loaded").wait_for()
        assert seen.page.locator("#terminal-box").is_hidden()
        seen.page.unroute(f"**/static/{name}*")
        seen.press("Terminal")
        seen.page.locator("#terminal textarea").focus()
        seen.page.keyboard.type("echo $((6*7))tytwo")
        seen.page.keyboard.press("Enter")
        seen.page.locator(".xterm-rows", has_text="42tytwo").wait_for()


def test_on_a_phone_what_is_needed_is_in_sight(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, AT_ONCE, "--approve", "terminal", **PHONE) as seen:
        seen.send("Go")
        seen.asks("Which of the ports")
        assert is_in_sight(seen, "#prompt")
        assert is_in_sight(seen, '[data-text="8080"]')
        seen.press("8080")
        seen.page.locator("[data-send]").wait_for()
        assert is_in_sight(seen, "#prompt")
        # That there is more is shown at both edges behind which it is.
        assert seen.page.locator("#needs.more .asked.more").count() == 1
        for number in (0, 1):
            seen.page.locator('[data-kind="approve"]').nth(number).click()
        assert is_in_sight(seen, "[data-send]:enabled")
        seen.page.locator(".asked").evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
        seen.page.locator(".asked:not(.more)").wait_for()
        seen.press("Send the decisions")
        seen.page.locator('.ask[data-calls="1"]').wait_for()
        assert is_in_sight(seen, '[data-kind="approve"]')
        assert seen.serious() == []


def test_a_decision_is_in_sight_also_above_a_terminal(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, AT_ONCE, "--approve", "terminal") as seen:
        seen.send("Go")
        seen.asks("Which of the ports")
        seen.press("Terminal")
        seen.page.locator(".xterm-rows", has_text="project").wait_for()
        seen.press("8080")
        seen.page.locator("[data-send]").wait_for()
        for selector in ("#prompt", '[data-kind="approve"]', "[data-send]"):
            assert is_in_sight(seen, selector)


def test_on_a_phone_the_way_out_of_the_terminal_is_told(chromium: str, bench: WebBench) -> None:
    with opened(chromium, bench, DONE, **PHONE) as seen:
        seen.press("Terminal")
        field = seen.page.locator("#terminal textarea")
        field.wait_for(state="attached")
        assert seen.page.locator("#terminal-help").inner_text() == "Ctrl+] leaves the terminal."
        assert field.get_attribute("aria-describedby") == "terminal-help"
        assert seen.serious() == []
