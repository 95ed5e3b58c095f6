"""Checks whether the cards of `make demo` are true: `python -m benchmarks.demo`, with the embedded model.

It runs the demo twenty times, each time with a different port, and three tasks as a reader might try them,
without a check. It compares what each card says with the files. The commands are those of the Makefile, but
the model stays loaded in between. `--record` saves the results in `demo.json`; the exit code is 1 if a card
is not true.
"""

import html
import json
import random
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from signoff.cli.app import app
from signoff.graph.vocabulary import heading

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).parent / "demo.json"
SAMPLE = ROOT / "examples" / "sample"
FOLDER = ".demo-sweep"
RUNS = 20
OWN = (
    "Set DEBUG to True in config.py",
    "Change the greeting in config.py to Good morning",
    "Add a GOODBYE constant to config.py",
)
"""Tasks that a reader might try. The last one is too hard for the model."""

CLAIMS_A_CHECK = re.compile(r"\b(checked|verified)\b", re.IGNORECASE)
_CARD = re.compile(r'<section class="card [^>]*>.*?</section>', re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """One run, and what its card shows. port: None for a reader's task.

    tone: the colour. card: the card of the command line and of the page, as text. right: whether the files
    are exactly what the task asks for; None if that is not defined.
    """

    task: str
    port: int | None
    exit_code: int
    seconds: float
    turns: int
    refusals: int
    title: str
    tone: str
    card: str
    right: bool | None
    changed: list[str]

    @property
    def true(self) -> bool:
        """Whether the card claims no more than is known: a green card means that the files are right; without
        a check the card is not green, does not begin as if one had passed, and names none."""
        if self.port is not None:
            return self.tone != "green" or self.right is True
        return (
            self.tone != "green"
            and self.title.startswith("Asserted")
            and not CLAIMS_A_CHECK.search(self.card)
        )


def ports(runs: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(10_000, 60_000), runs)


def show(task: str | None, port: int | None) -> Shown:
    """Runs the demo as `make demo` does, in this process, and reads its card."""
    given = [f"PORT={port}"] if task is None else [f"TASK={task}"]
    words, folder = command(given), ROOT / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAMPLE, folder / "project")
    begun = time.monotonic()
    ran = CliRunner().invoke(app, words)
    seconds = time.monotonic() - begun
    database = ["--database", str(folder / "threads.sqlite")]
    page = CliRunner().invoke(app, ["show", "demo", "--html", "-", *database]).stdout
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, ["show", "demo", "--json", *database]).stdout)
    outcome, head = found["outcome"], heading(found["outcome"])
    files = _files(folder / "project")
    return Shown(
        task=words[1],
        port=port,
        exit_code=ran.exit_code,
        seconds=round(seconds, 1),
        turns=outcome["turns"],
        refusals=outcome["refusals"],
        title=head.title,
        tone=head.tone,
        card=f"{_cli_card(ran.stdout, head.title)}\n\n{_page_card(page)}",
        right=None if port is None else files == _wanted(port),
        changed=sorted(name for name in files.keys() | _files(SAMPLE).keys() if _differs(name, files)),
    )


def command(given: Sequence[str]) -> list[str]:
    """Returns the arguments of `signoff run` in the Makefile's demo."""
    asked = ["make", "--no-print-directory", "-n", "demo", f"DEMO={FOLDER}", *given]
    shown = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in shown.splitlines() if " signoff run " in line)
    words = shlex.split(line.partition(" signoff ")[2].partition(";")[0])
    return [str(ROOT / word) if word.startswith(FOLDER) else word for word in words]


def _cli_card(printed: str, title: str) -> str:
    return title + printed.rpartition(f"\n{title}")[2].rstrip()


def _page_card(page: str) -> str:
    """Returns the last card of the page, as text."""
    text = re.sub(r"<[^>]+>", " ", _CARD.findall(page)[-1])
    return " ".join(html.unescape(text).split())


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".signoff" not in path.parts
    }


def _wanted(port: int) -> dict[str, bytes]:
    files = _files(SAMPLE)
    return {**files, "config.py": files["config.py"].replace(b"PORT = 3000", b"PORT = %d" % port)}


def _differs(name: str, files: dict[str, bytes]) -> bool:
    return files.get(name) != _files(SAMPLE).get(name)


def sweep(runs: int, own: Sequence[str], seed: int) -> Iterator[Shown]:
    """Executes all runs, with the model kept loaded."""
    # The package is an extra, and slow to import.
    from signoff.models.local import local_model

    try:
        with local_model() as model:
            model.start()
            for port in ports(runs, seed):
                yield show(None, port)
            for task in own:
                yield show(task, None)
    finally:
        shutil.rmtree(ROOT / FOLDER, ignore_errors=True)


def recorded() -> list[Shown]:
    """Returns the recorded runs."""
    return [Shown(**one) for one in json.loads(RECORD.read_text("utf-8"))]


def told(found: Sequence[Shown]) -> str:
    """Returns the figures, one sentence each."""
    demo, own = [one for one in found if one.port is not None], [one for one in found if one.port is None]
    green = [one for one in demo if one.tone == "green"]
    right, sent = sum(one.right is True for one in demo), sum(one.refusals for one in demo)
    by_files = f"{sum(one.true for one in green)} of them true by the files"
    amber = f"{sum(one.true for one in own)} cards say that none ran, in amber"
    return (
        f"The demo, {len(demo)} ports: {len(green)} green cards, {by_files}; {right} right, {sent} claims "
        f"sent back.\nTasks without a check: {len(own)}; {amber}."
    )


def main(
    runs: Annotated[int, typer.Option(min=0, help="Number of demo runs, each with a different port.")] = RUNS,
    own: Annotated[int, typer.Option(min=0, max=len(OWN), help="Number of tasks without a check.")] = len(
        OWN
    ),
    seed: Annotated[int | None, typer.Option(help="Seed for the ports (default: random).")] = None,
    record: Annotated[bool, typer.Option("--record", help="Save the results in demo.json.")] = False,
) -> None:
    """Run the demo repeatedly and compare its cards with the files."""
    found = []
    for one in sweep(runs, OWN[:own], random.randrange(2**32) if seed is None else seed):
        found.append(one)
        print(
            f"{'true ' if one.true else 'FALSE'} {one.seconds:5.0f} s  {one.title}  ({one.task})", flush=True
        )
    print(told(found))
    if record:
        RECORD.write_text(
            json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False) + "\n", "utf-8"
        )
    raise typer.Exit(not all(one.true for one in found))


if __name__ == "__main__":
    typer.run(main)
