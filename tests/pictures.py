"""Makes the pictures of the docs: `python -m tests.pictures`. Needs chromium.

A scripted model works on a small project: first in the application, in a browser, then its page is written.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.benches.cli import PROGRAM, Bench
from tests.support.benches.web_browser import Seen, Served, browser

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SCRIPT = """[
    call("think", thought="First I look at the project, then I run its tests.", approach="the cause first",
         status="Reading"),
    reply("I look at what is there.", call("list_files"), call("read_file", path="prices.py")),
    "The discount is computed wrongly.",
    reply("Let me see the tests fail.", call("run_shell", command="python test_prices.py")),
    call("ask_user", question="Shall a discount of 100 % be allowed?", options=["yes", "no"]),
    reply("Now I correct it.",
          call("edit_file", path="prices.py", old="price * discount", new="price * (100 - discount)")),
    reply("And once more.", call("run_shell", command="python test_prices.py && echo all tests pass")),
    call("finish_task", summary="`reduced` took the discount itself for what is left of the price. It is "
         "corrected in prices.py; the test in test_prices.py passes.",
         pending_issues=["Discounts above 100 % are not refused yet."]),
]"""
FILES = {
    "prices.py": "def reduced(price, discount):\n    return price * discount / 100\n",
    "test_prices.py": "from prices import reduced\n\nassert reduced(200, 25) == 150, reduced(200, 25)\n",
}


def main() -> None:
    # The name of the folder is seen in the pictures.
    folder = Path(tempfile.gettempdir()) / "shop"
    folder.mkdir()
    try:
        _taken(Bench(folder))
    finally:
        shutil.rmtree(folder)


def _taken(bench: Bench) -> None:
    bench.config.unlink()
    for file, text in FILES.items():
        (bench.workspace / file).write_text(text)
    where = ["--database", str(bench.database), "--thread", "calm-otter-47"]
    options = ["--workspace", str(bench.workspace), "--tools", "files,shell", "--approve", "terminal"]
    served = Served(*where, *options, "--model", bench.model(SCRIPT, 0.2))
    try:
        _application(served)
    finally:
        served.end()
    _page(bench)


def _application(served: Served) -> None:
    with browser(1500, 900) as seen:
        seen.page.goto(served.address)
        seen.shows("Describe the task below")
        seen.send("Find out why the tests fail, and correct it.")
        seen.stands("Waiting for approval")
        seen.press("Approve")
        seen.shows("Shall a discount")
        seen.press("yes")
        seen.stands("Waiting for approval")
        seen.page.locator('[data-opens="edit"]').click()
        _settled(seen, "app-approval")
        seen.press("Run it as edited")
        seen.stands("Asserted: done")
        _settled(seen, "app")


def _page(bench: Bench) -> None:
    file = bench.folder / "page.html"
    command = ["show", "calm-otter-47", "--html", str(file), "--database", str(bench.database)]
    subprocess.run([*PROGRAM, *command], check=True, stdout=subprocess.DEVNULL)
    with browser(1400, 1000) as seen:
        seen.page.goto(file.as_uri())
        seen.page.screenshot(path=str(PICTURES / "page.png"))


def _settled(seen: Seen, name: str) -> None:
    seen.page.wait_for_timeout(3000)
    seen.page.screenshot(path=str(PICTURES / f"{name}.png"))


if __name__ == "__main__":
    main()
