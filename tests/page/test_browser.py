"""A page in a real browser: it asks for nothing, runs nothing, and can be read on any screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.test_safe import HOSTILE, everywhere
from tests.support.benches.cli import Bench, steps
from tests.support.chromium import browser as connected

pytestmark = pytest.mark.slow

WORK = steps(
    'reply("I look.", call("think", thought="It is in config.py."), call("read_file", path="config.py"))',
    '"I will change it now."',
    'call("ask_user", question="Which port?", options=["8080", "9090"])',
    'call("edit_file", path="config.py", old="PORT = 3000\\n", new="PORT = 8080\\n")',
    'call("read_file", path="missing.py")',
    'call("finish_task", summary="Half.", completion_percentage=50, next_phase="The rest")',
    'call("finish_task", summary="")',
    'call("finish_task", summary="The port is 8080.", pending_issues=["No test covers it"])',
)
VIEWS = {
    # width, height, colours
    "wide": (1400, 900, "light"),
    "narrow": (320, 640, "dark"),
}
# Of each text that can be seen: the contrast to what lies behind it, and its size in pixels.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((part, at) => at < 3 ? part : part / 255);
  };
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, part, at) => {
    const v = c[at] / 255;
    return sum + part * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const colour = rgba(getComputedStyle(up).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return rgba("white");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("svg, .hear, .skip")) continue;
    if (!node.checkVisibility() || node.getBoundingClientRect().width === 0) continue;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, node.className + ": " + walker.currentNode.data.slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    with connected(chromium) as found:
        yield found


class Opened:
    """A page as a browser shows it, with all that it asked for and complained of."""

    def __init__(
        self, browser: Any, file: Path, width: int = 1400, height: int = 900, colours: str = "light"
    ):
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
        self.view = self.context.new_page()
        self.told: list[str] = []
        self.asked: list[str] = []
        self.view.on("console", lambda message: self.told.append(message.text))
        self.view.on("pageerror", lambda error: self.told.append(str(error)))
        self.view.on("dialog", self._asked)
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.view.goto(file.as_uri())
        self.own = file.as_uri()

    def _asked(self, dialog: Any) -> None:
        self.told.append(dialog.message)
        dialog.dismiss()

    def quiet(self) -> None:
        """Checks that nothing was loaded but the page itself, and nothing was complained of."""
        self.view.wait_for_timeout(100)
        assert (self.told, [url for url in self.asked if url not in (self.own, "data:,")]) == ([], [])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    bench = Bench(tmp_path)
    bench.model(WORK)
    bench.run("Change the port of the server, and make sure that everything agrees.")
    bench("resume", "t1", "8080")
    bench("resume", "t1", "yes")
    made = tmp_path / "run.html"
    assert bench("show", "t1", "--html", str(made)).exit_code == 0
    return made


@pytest.mark.parametrize("view", VIEWS)
def test_it_loads_nothing_fits_the_screen_and_can_be_read(browser: Any, file: Path, view: str) -> None:
    width, height, colours = VIEWS[view]
    opened = Opened(browser, file, width, height, colours)
    assert opened.view.title() == "t1 · Asserted: done · Signoff"
    assert opened.view.evaluate("document.documentElement.scrollWidth") <= width
    texts = opened.view.evaluate(CONTRAST)
    assert len(texts) > 60
    assert [told for ratio, told in texts if ratio < 4.5] == []
    opened.view.screenshot(path=file.with_name(f"{view}.png"), full_page=True)
    assert file.with_name(f"{view}.png").stat().st_size > 20_000
    main, aside = (opened.view.locator(name).bounding_box() for name in ("main", "aside"))
    beside = aside["x"] >= main["x"] + main["width"]
    assert beside == (width > 1080)
    assert beside or aside["y"] >= main["y"] + main["height"]
    opened.quiet()


def test_the_words_of_the_picture_fit_into_their_boxes(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    outside = opened.view.evaluate(
        """() => [...document.querySelectorAll(".box, .door, .pill, .flag")].flatMap((group) => {
          const box = group.querySelector("rect").getBBox();
          return [...group.querySelectorAll("text")].filter((text) => {
            const own = text.getBBox();
            return own.x < box.x || own.x + own.width > box.x + box.width;
          }).map((text) => text.textContent);
        })"""
    )
    assert outside == []


def test_calls_fold_without_a_script(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    call = opened.view.locator("details.call").first
    assert call.get_attribute("open") is None
    call.locator("summary").click()
    assert call.get_attribute("open") is not None
    assert "PORT = 3000" in call.inner_text()
    opened.view.locator("nav.overview a").nth(3).click()
    assert opened.view.evaluate("document.querySelector(':target').id") == "turn-1-4"
    opened.quiet()


def test_it_prints_with_everything_unfolded(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    opened.view.emulate_media(media="print")
    closed = opened.view.locator("details.call:not([open]) pre").first
    assert closed.evaluate("node => node.getBoundingClientRect().height") > 0
    assert opened.view.pdf().startswith(b"%PDF")
    opened.quiet()


@pytest.mark.parametrize("texts", [HOSTILE, ["W" * 300, "Z" + "\u0301" * 300]], ids=["hostile", "wide"])
def test_whatever_was_written_does_nothing_and_stays_in_its_place(
    browser: Any, tmp_path: Path, texts: list[str]
) -> None:
    file = tmp_path / "run.html"
    file.write_text(everywhere(Bench(tmp_path), texts), "utf-8")
    opened = Opened(browser, file, 320)
    assert opened.view.locator("h1").count() == 1
    assert opened.view.evaluate("document.documentElement.scrollWidth") <= 320
    opened.quiet()
    opened.context.close()
