"""A page in a real browser: it asks for nothing, runs nothing, and can be read on any screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.page.test_safe import HOSTILE, everywhere
from tests.support.benches.cli import Bench, steps
from tests.support.benches.web_browser import Seen
from tests.support.benches.web_browser import opened as empty

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


@contextmanager
def opened(chromium: Any, file: Path, width: int = 1400, colours: str = "light") -> Iterator[Seen]:
    """The page, which loads nothing but itself, and complains of nothing."""
    with empty(chromium, width, colours=colours) as seen:
        seen.page.goto(file.as_uri())
        yield seen
        assert seen.problems == []
        assert {*seen.requests} <= {file.as_uri(), "data:,"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    bench = Bench(folder)
    bench.model(WORK)
    bench.run("Change the port of the server, and make sure that everything agrees.")
    bench("resume", "t1", "8080")
    bench("resume", "t1", "yes")
    assert bench("show", "t1", "--html", str(folder / "run.html")).exit_code == 0
    return folder / "run.html"


@pytest.mark.parametrize(("width", "colours"), [(1400, "light"), (320, "dark")], ids=["wide", "narrow"])
def test_it_fits_the_screen_and_can_be_read(chromium: Any, file: Path, width: int, colours: str) -> None:
    with opened(chromium, file, width, colours) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.serious() == []
        boxes = [seen.page.locator(name).bounding_box() for name in ("main", "aside")]
        (main, aside) = (box for box in boxes if box is not None)
        beside = aside["x"] >= main["x"] + main["width"]
        assert beside == (width > 1080)
        assert beside or aside["y"] >= main["y"] + main["height"]


def test_calls_fold_without_a_script_and_are_printed_unfolded(chromium: Any, file: Path) -> None:
    with opened(chromium, file) as seen:
        call = seen.page.locator("details.call").first
        assert call.get_attribute("open") is None
        seen.page.emulate_media(media="print")
        assert call.locator("pre").first.evaluate("node => node.getBoundingClientRect().height") > 0
        seen.page.emulate_media(media="screen")
        call.locator("summary").click()
        assert "PORT = 3000" in call.inner_text()
        seen.page.locator("nav.overview a").nth(3).click()
        assert seen.page.evaluate("document.querySelector(':target').id") == "turn-1-4"


def test_whatever_was_written_does_nothing_and_stays_in_its_place(chromium: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text(everywhere(Bench(tmp_path), [*HOSTILE, "W" * 300, "Z" + "\u0301" * 300]), "utf-8")
    with opened(chromium, file, 320) as seen:
        assert seen.page.locator("h1").count() == 1
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 320
