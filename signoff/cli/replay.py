"""`signoff replay`: decides a stored thread again, and reports what would be decided differently."""

import importlib.metadata
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from signoff import SetupError
from signoff.cli.console import stdout_console
from signoff.front.database import Database, OpenStorage, unknown
from signoff.front.options import Json, Thread, takes
from signoff.front.replaying import graph_again, load_function
from signoff.front.settings import Given
from signoff.front.text import one_line
from signoff.front.thread_ids import checked_thread_id
from signoff.graph.compiled.graph import runner
from signoff.session.replay import Replay
from signoff.session.replay import replay as decide_again
from signoff.text import count_noun

DIFFERS = 1
_MOST = 4_000
# Other settings, instead of those of the thread's last run.
SETTINGS = ("workspace", "turns", "tokens", "seconds", "cost", "talk_turns", "approve")

GraphName = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="MODULE:GRAPH",
        help="The graph of a thread that the command line did not begin: package.module:graph or "
        "path/to/file.py:graph.",
    ),
]


@takes(*SETTINGS)
def replay(
    thread: Thread,
    given: Given,
    file: Database,
    graph: GraphName = None,
    to_test: Annotated[
        Path | None,
        typer.Option(
            "--to-test", metavar="FILE", help="Write it as a test for pytest that stands alone; - prints it."
        ),
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(
            "--redact",
            metavar="MODULE:FUNCTION",
            help="What becomes of each text in that test (default: secrets of known forms are taken out).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide a stored thread again, without model and tools, and compare.

    Exit codes: 0 every decision is the same, 1 one differs, 2 wrong usage.

    Rule, event, path and outcome of every turn are compared with what is stored, also those of delegates.
    Settings count as they were in the thread's last run, unless they are given.
    """
    thread_id = checked_thread_id(thread)
    if redact is not None and to_test is None:
        raise SetupError("--redact is for the test that --to-test writes; add --to-test FILE.")
    if to_test is not None and as_json:
        raise SetupError("--to-test writes a test; leave out --json.")
    if not file.exists():
        raise unknown(thread_id, file)
    with file.open() as storage:
        if thread_id not in storage.checkpointer.threads():
            raise unknown(thread_id, file)
        if to_test is not None:
            _write_test(storage, thread_id, given, graph, to_test, redact)
            return
        # The thread is read while it is held: a concurrent run would look like a difference.
        with runner(storage.checkpointer, thread_id), graph_again(storage, thread_id, given, graph) as again:
            result = decide_again(again, thread_id)
    if as_json:
        sys.stdout.write(json.dumps(_document(result), indent=2, default=str) + "\n")
    else:
        _print(stdout_console(), result)
    if result.differences:
        raise typer.Exit(DIFFERS)


def _write_test(
    storage: OpenStorage,
    thread_id: str,
    given: Given,
    graph: str | None,
    file: Path,
    redact: str | None,
) -> None:
    # Imported only for this, since it reads and writes much that a comparison does not need.
    from signoff.session.as_test import as_test

    own = None if redact is None else load_function(redact)
    with graph_again(storage, thread_id, given, graph) as again:
        text = as_test(again, thread_id, own)
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SetupError(f"Cannot write to {file} ({error.strerror}); name another file.") from error
    told = f"Written to {file}; it passes. Look before you share it: it holds what was said and done."
    _line(stdout_console(), told)


def _document(result: Replay) -> dict[str, Any]:
    return {
        "thread_id": result.thread_id,
        "signoff": importlib.metadata.version("signoff"),
        "decided": len(result.again),
        "taken": len(result.taken),
        "differences": [asdict(difference) for difference in result.differences],
    }


def _print(console: Console, result: Replay) -> None:
    version = f"Signoff {importlib.metadata.version('signoff')}"
    if not result.differences:
        decided, taken = count_noun(len(result.again), "step"), count_noun(len(result.taken), "step")
        others = f"{taken} of model, tools and people lead where the table says."
        _line(console, f"The same: {version} decided {decided} as they are stored; {others}", "green")
        return
    first, left = result.differences[0], len(result.differences) - 1
    where = "".join(f"{name} / " for name in first.path)
    _line(console, f"{version} decides otherwise at {where}turn {first.turn}, {first.state}:", "bold red")
    _line(console, f"  stored: {first.what} {_value_text(first.stored)}")
    _line(console, f"  now: {first.what} {_value_text(first.now)}")
    if left:
        _line(console, f"{count_noun(left, 'more difference')} after it; --json shows all.", "dim")


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text):,} characters; --json shows all)"


def _line(console: Console, text: str, style: str = "") -> None:
    indent = len(text) - len(text.lstrip())
    console.print(Text(" " * indent + one_line(text.lstrip()), style=style), soft_wrap=True)
