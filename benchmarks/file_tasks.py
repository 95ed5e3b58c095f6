"""Five small file tasks for the embedded model, each with a check of the result.

They were written once and never adapted to the model's results.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from langchain_core.language_models import BaseChatModel

from benchmarks.loops import LOOPS, Run
from signoff.tools.files import workspace_tools

KIND = "files"
TURNS = 12


@dataclass(frozen=True)
class FileTask:
    """words: the user's message. files: the folder's files. right: checks the folder afterwards."""

    words: str
    files: Mapping[str, str]
    right: Callable[[Path], bool]


def _holds(name: str, *parts: str, without: str = "\0") -> Callable[[Path], bool]:
    def look(folder: Path) -> bool:
        file = folder / name
        text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
        return all(part in text for part in parts) and without not in text

    return look


TASKS: tuple[FileTask, ...] = (
    FileTask(
        "Set the retries in settings.ini to 5.",
        {"settings.ini": "[http]\ntimeout = 30\nretries = 2\n"},
        _holds("settings.ini", "timeout = 30", "retries = 5", without="retries = 2"),
    ),
    FileTask(
        "Create a file notes.txt that holds the line: buy milk",
        {"README.md": "# My notes\n"},
        _holds("notes.txt", "buy milk"),
    ),
    FileTask(
        "Correct the spelling mistake in letter.txt.",
        {"letter.txt": "Dear Ann,\nI did not recieve your parcel.\nBob\n"},
        _holds("letter.txt", "Dear Ann,", "receive", without="recieve"),
    ),
    FileTask(
        "Rename the function total in cart.py to total_price, everywhere it is used.",
        {
            "cart.py": "def total(prices):\n    return sum(prices)\n",
            "shop.py": "from cart import total\n\nprint(total([1, 2]))\n",
        },
        lambda folder: (
            _holds("cart.py", "def total_price(", without="def total(")(folder)
            and _holds("shop.py", "import total_price", "total_price([1, 2])")(folder)
        ),
    ),
    FileTask(
        "Add a function subtract(a, b) to maths.py. Keep what is there.",
        {"maths.py": "def add(a, b):\n    return a + b\n"},
        _holds("maths.py", "def add(a, b):", "def subtract(a, b):", "return a - b"),
    ),
)


def run_task(loop: str, model: BaseChatModel, task: FileTask, folder: Path) -> Run:
    """Runs one task with one loop in the empty `folder`, and checks the files afterwards."""
    for name, text in task.files.items():
        (folder / name).write_text(text, "utf-8")
    found = LOOPS[loop](model, workspace_tools(folder), task.words, KIND, TURNS)
    return Run(**{**found.__dict__, "right": task.right(folder)})
