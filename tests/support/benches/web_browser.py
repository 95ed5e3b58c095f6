"""The web application in a real browser: the pages that look at a server, and all that goes wrong in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.support.benches.served import SECONDS
from tests.support.benches.served import Served as Served
from tests.support.chromium import browser as connected

AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
_AXE_RUN = """async () => (await axe.run(document)).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 160))])"""


class Seen:
    """A page of the application, and all that went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(SECONDS * 1000)
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._said)
        page.on("dialog", self._asked)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "409" not in message.text:
            self.problems.append(message.text)

    def _asked(self, dialog: Any) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()

    def opens(self, served: Served, thread: str) -> None:
        """Opens a thread that has not begun."""
        self.page.goto(f"{served.origin}/#token={served.token}&thread={thread}")
        self.page.locator('[data-word="new"]').wait_for()

    def shows(self, *words: str) -> None:
        """Waits until all of `words` can be seen."""
        for word in words:
            self.page.get_by_text(word).locator("visible=true").first.wait_for()

    def has(self, selector: str, words: str | None = None) -> Any:
        """Waits until there is such an element, with these words in it."""
        found = self.page.locator(selector, has_text=words).first
        found.wait_for()
        return found

    def asks(self, question: str) -> None:
        """Waits until an answer to `question` can be given: its words are seen before that, in the call."""
        self.has(".ask", question)

    def stands(self, word: str) -> None:
        """Waits until the thread stands like this."""
        self.page.locator(f'[data-word="{word}"]').wait_for()

    def told(self, words: str) -> None:
        """Waits until the page tells this of what was pressed or sent."""
        self.page.locator("#told", has_text=words).wait_for()

    def send(self, text: str) -> None:
        self.page.locator("#prompt").fill(text)
        self.page.locator("#prompt").press("Enter")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name).first.click()

    def types(self, line: str, shown: str) -> None:
        """Types a line in the terminal, and waits until it shows these words."""
        self.page.locator("#terminal textarea").focus()
        self.page.keyboard.type(line)
        self.page.keyboard.press("Enter")
        self.has(".xterm-rows", shown)

    def focus(self) -> str:
        """The id of the element that has the focus."""
        return str(self.page.evaluate("document.activeElement.id"))

    def serious(self) -> list[Any]:
        """What axe-core finds serious or critical."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found: list[Any] = self.page.evaluate(_AXE_RUN)
        return found


@contextmanager
def opened(
    chromium: Any, width: int = 1400, height: int = 900, colours: Any = "light", **more: Any
) -> Iterator[Seen]:
    """An empty page in this browser."""
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=colours, **more)
    try:
        yield Seen(context.new_page())
    finally:
        context.close()


@contextmanager
def browser(width: int = 1400, height: int = 900) -> Iterator[Seen]:
    """Headless Chromium of its own, with an empty page."""
    with connected() as chromium, opened(chromium, width, height) as seen:
        yield seen
