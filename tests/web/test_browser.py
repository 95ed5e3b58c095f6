"""The web application in Chromium: on a desktop and a phone, by keyboard alone, beside other people."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.support.benches.served import ASK, DONE, New, Thread
from tests.support.benches.web_browser import Seen, opened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CONFIRM = """call(
    "finish_task", summary="Done.", pending_issues=["Nobody has tried it."], requires_user_confirmation=True
)"""
LONG = 'call("run_shell", command="\\n".join(f"echo {at}" for at in range(90)))'
PHONE: dict[str, Any] = {"width": 360, "height": 740, "is_mobile": True, "has_touch": True, "colours": "dark"}
_IN_SIGHT = """(one) => {
    const box = one.getBoundingClientRect(), at = [box.left + box.width / 2, box.top + box.height / 2];
    return box.bottom <= innerHeight && one.contains(document.elementFromPoint(...at));
}"""


@pytest.fixture
def seen(chromium: Any) -> Iterator[Seen]:
    with opened(chromium) as seen:
        yield seen


def another(seen: Seen, thread: Thread) -> Seen:
    """A second page on the same thread."""
    other = Seen(seen.page.context.new_page())
    other.opens(thread.served, thread.name)
    return other


def fits(seen: Seen) -> None:
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.serious() == []


def in_sight(seen: Seen, *selectors: str) -> None:
    for selector in selectors:
        assert seen.has(selector).evaluate(_IN_SIGHT), selector


def reach(seen: Seen, selector: str, key: str = "Shift+Tab") -> None:
    """Goes to an element by this key alone."""
    seen.has(selector)
    for _ in range(150):
        if seen.page.evaluate(f"document.activeElement.matches({selector!r} + ':enabled')"):
            return
        seen.page.keyboard.press(key)
    raise AssertionError(f"{selector} is not reached by {key}")


def press(seen: Seen, selector: str, key: str = "Shift+Tab") -> None:
    reach(seen, selector, key)
    seen.page.keyboard.press("Enter")


def test_a_whole_task_by_keyboard_alone(seen: Seen, new: New) -> None:
    no, first = (f"call('run_shell', command='echo {word} > {word}.txt')" for word in ("no", "first"))
    thread = new(f"[held({ASK}), {no}, {first}, call('list_files'), {CONFIRM}]")
    keys = seen.page.keyboard
    seen.opens(thread.served, thread.name)
    assert seen.page.url == f"{thread.served.origin}/?thread={thread.name}"
    keys.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent") == "To the prompt"
    keys.press("Enter")
    assert seen.focus() == "prompt"
    for name, value in (("workspace", str(thread.folder)), ("tools", "files,shell"), ("turns", "4")):
        reach(seen, f"#own-{name}", "Tab")
        keys.type(value)
    reach(seen, "#prompt")
    keys.type("Set the port,")
    keys.press("Shift+Enter")
    keys.type(thread.task)
    keys.press("Enter")
    press(seen, '[data-move="pause"]')
    thread.release()
    seen.stands("Stopped")
    press(seen, '[data-move="go_on"]')
    seen.asks("Which port?")
    seen.page.locator("#heard", has_text="Which port?").wait_for(state="attached")
    press(seen, '[data-text="8080"]')
    seen.stands("Waiting for approval")
    fits(seen)
    press(seen, '[data-opens="reject"]')
    keys.type("not this one")
    press(seen, '[data-kind="reject"]', "Tab")
    seen.asks("echo first")
    press(seen, '[data-opens="edit"]')
    keys.press("Control+a")
    keys.type('{"command": "echo edited > ran.txt"}')
    press(seen, '[data-kind="edit"]', "Tab")
    seen.stands("Turn limit reached")
    reach(seen, "#turns")
    keys.press("Control+a")
    keys.type("5")
    press(seen, '[data-move="go_on"]', "Tab")
    seen.shows("Please confirm")
    fits(seen)
    press(seen, '[data-kind="approve"]')
    seen.stands("Asserted: done")
    fits(seen)
    press(seen, '[data-name="p-turn-1-3"] [data-fork]')
    seen.page.wait_for_url(lambda url: url.endswith("-fork-1"))
    seen.page.locator("#prompt:focus").wait_for()
    press(seen, '[data-move="stop"]')
    seen.stands("Cancelled")
    press(seen, "[data-delete]")
    press(seen, "#sure-yes", "Tab")
    seen.page.wait_for_url(lambda url: "fork" not in url)
    seen.page.locator("#prompt:focus").wait_for()
    press(seen, "#view-terminal")
    reach(seen, "#terminal textarea", "Tab")
    seen.types("echo $((6*7))tytwo", shown="42tytwo")
    keys.press("Control+]")
    assert seen.focus() == "prompt"
    press(seen, "#new")
    seen.page.locator("#prompt:focus").wait_for()
    assert (thread.ran(), thread.ran("no.txt")) == ("edited\n", "")
    assert [url for url in seen.requests if not url.startswith((thread.served.origin, "data:"))] == []
    assert (seen.page.context.cookies(), seen.problems) == ([], [])


def test_a_decision_stands_for_the_words_that_are_sent(seen: Seen, new: New) -> None:
    run = "call('run_shell', command='echo {0} > {0}.txt')"
    thread = new(f"[reply('Both.', {run.format('one')}, {run.format('two')}), {ASK}, {DONE}]")
    thread.begin()
    seen.page.goto(f"{thread.served.origin}/#token={thread.served.token}&thread={thread.name}")
    all_at_once = seen.has("[data-send]")
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
    seen.asks("Which port?")
    assert (thread.ran("one.txt"), thread.ran("two.txt")) == ("second\n", "two\n")


def test_of_two_pages_no_word_and_no_key_goes_to_what_it_was_not_meant_for(seen: Seen, new: New) -> None:
    run = "call('run_shell', command='echo {}')"
    thread = new(
        f"[{ASK}, call('ask_user', question='Second?'), {run.format('a')}, {run.format('b')}, {DONE}]"
    )
    ada, bob = seen, another(seen, thread)
    ada.opens(thread.served, thread.name)
    ada.send(thread.task)
    for page in (ada, bob):
        page.asks("Which port?")
    bob.page.locator("#prompt").fill("to the first")
    ada.send("mine")
    bob.asks("Second?")
    bob.page.locator("#prompt").press("Enter")
    bob.told("")
    assert bob.page.locator("#prompt").input_value() == "to the first"
    bob.asks("Second?")
    bob.page.locator("#prompt").press("Enter")
    for page in (ada, bob):
        page.asks("echo a")
    bob.page.locator('[data-kind="approve"]').focus()
    ada.press("Approve")
    bob.asks("echo b")
    assert bob.focus() == "prompt"
    bob.page.keyboard.press("Enter")
    bob.asks("echo b")
    assert thread.look().state["condition"] == "waiting"


def test_enter_on_a_move_presses_no_other_one_in_its_place(seen: Seen, new: New) -> None:
    thread = new("[call('read_file', path='config.py')] * 3 + [held(call('list_files'))] * 9", turns=2)
    thread.begin()
    seen.page.goto(f"{thread.served.origin}/#token={thread.served.token}&thread={thread.name}")
    seen.stands("Turn limit reached")
    seen.has('[data-move="go_on"]').focus()
    seen.page.keyboard.press("Enter")
    seen.has('[data-move="stop"]')
    seen.page.locator("#prompt:focus").wait_for()
    seen.page.keyboard.press("Enter")
    seen.page.locator("#prompt").fill("words that are not to be sent yet")
    seen.has('[data-move="pause"]').focus()
    seen.page.keyboard.press("Enter")
    thread.release()
    seen.stands("Stopped")
    assert seen.focus() == "main"
    seen.page.keyboard.press("Enter")
    assert thread.look().state["condition"] == "paused"


def test_a_task_whose_answer_was_lost_begins_once_and_typed_anew_it_is_meant_anew(
    seen: Seen, new: New
) -> None:
    thread = new(f"[{DONE}] * 4")
    lost: list[str] = []

    def lose_first(route: Route) -> None:
        """The first task is carried out, but nobody hears of it."""
        if len(lost) in (0, 2):
            route.fetch()
            route.abort("connectionreset")
        else:
            route.continue_()
        lost.append(route.request.url)

    seen.page.route("**/api/write", lose_first)
    seen.opens(thread.served, thread.name)
    seen.send(thread.task)
    seen.stands("Asserted: done")
    seen.told("")
    assert seen.page.locator("#prompt").input_value() == thread.task
    seen.page.locator("#prompt").press("Enter")
    expect(seen.page.locator("#prompt")).to_have_value("", timeout=60_000)
    assert "Task 2" not in "".join(thread.parts().values())
    seen.send(thread.task)
    seen.has("h2", "Task 2")
    seen.page.locator("#prompt").fill("")
    seen.send(thread.task)
    seen.has("h2", "Task 3")


def test_on_a_phone_what_is_needed_is_in_sight(chromium: Any, new: New) -> None:
    thread = new(f"[{ASK}, reply('Two.', {LONG}, {LONG}), {LONG}, {DONE}]")
    with opened(chromium, **PHONE) as seen:
        seen.opens(thread.served, thread.name)
        seen.press("Terminal")
        field = seen.page.locator("#terminal textarea")
        field.wait_for(state="attached")
        assert field.get_attribute("aria-describedby") == "terminal-help"
        assert "Ctrl+]" in seen.page.locator("#terminal-help").inner_text()
        fits(seen)
        seen.press("Terminal")
        seen.send(thread.task)
        seen.asks("Which port?")
        in_sight(seen, "#prompt", '[data-text="8080"]')
        seen.press("8080")
        seen.has("[data-send]")
        in_sight(seen, "#prompt", '[data-kind="approve"]')
        # That there is more is shown at both edges behind which it is.
        seen.has("#needs.more .asked.more")
        for number in (0, 1):
            seen.page.locator('[data-kind="approve"]').nth(number).click()
        in_sight(seen, "[data-send]:enabled")
        seen.page.locator(".asked").evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
        seen.has(".asked:not(.more)")
        seen.press("Send the decisions")
        seen.has('.ask[data-calls="1"]')
        in_sight(seen, '[data-kind="approve"]')


def test_no_other_server_of_this_machine_gets_the_token_or_in(seen: Seen, new: New) -> None:
    thread = new("[]")
    served, other, headers = thread.served, "http://127.0.0.1:1/", list[str]()
    tries = f"""<!doctype html><title>other</title><script>
      const told = (text) => fetch("/told?" + text);
      fetch("{served.origin}/api/new", {{headers: {{Authorization: "Bearer {served.token}"}}}})
        .then(() => told("let-in"), () => told("kept-out"));
    </script>"""

    def answer(route: Route) -> None:
        headers.append(str(route.request.all_headers()))
        route.fulfill(content_type="text/html", body=tries)

    seen.opens(served, thread.name)
    with seen.page.context.expect_page() as opened_page:
        seen.page.evaluate("window.open('/', '_blank', 'noopener')")
    opened_page.value.locator("#enter-why", has_text="token").wait_for()
    seen.page.route(f"{other}**", answer)
    with seen.page.expect_request("**/told?*") as told:
        seen.page.goto(other)
    assert told.value.url.endswith("kept-out")
    assert headers
    assert [sent for sent in headers if served.token in sent] == []
    # The tab goes on with the token that it kept.
    seen.page.goto(f"{served.origin}/?thread={thread.name}")
    seen.stands("new")
