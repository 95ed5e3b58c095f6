"""The arguments and options that commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from signoff.tools.output import valid_text

Task = Annotated[str, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.")]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="FOLDER",
        help="Folder to work in (default: the thread's own, else the current one).",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="Model of an OpenAI-compatible server (key: OPENAI_API_KEY), `local` for the embedded one, or "
        "`scripted:FILE.py` for tests (default: the thread's own, else SIGNOFF_MODEL, else `local`).",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="Address of that server (default: OPENAI_BASE_URL, else OpenAI)."
    ),
]
Turns = Annotated[
    int | None,
    typer.Option("--turns", min=1, metavar="N", help="At most this many turns of the model (default: 30)."),
]
Tokens = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        min=1,
        metavar="N",
        help="At most this many tokens, read and written (default: the thread's own, else no limit).",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        min=0.001,
        metavar="S",
        help="At most this many seconds of work; waiting for you does not count (default: the thread's own, "
        "else no limit).",
    ),
]
ModelSeconds = Annotated[
    float | None,
    typer.Option(
        "--model-seconds",
        min=0.001,
        metavar="S",
        help="The model may be silent for at most this many seconds, before its reply and within it "
        "(default: the thread's own, else 300).",
    ),
]
TalkTurns = Annotated[
    int | None,
    typer.Option(
        "--talk-turns",
        min=1,
        metavar="N",
        help="At most this many replies in a row without a call (default: 5).",
    ),
]
Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="LIST",
        help="What it works with, out of files, shell, python, or none (default: the thread's own, else "
        "files,shell; files for the embedded model).",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="How the model works: tools, or tagged, for models without tool calling: by text, with "
        "plans and Python code, python and files, 10 turns (default: the thread's own, else tools).",
    ),
]
Constitution = Annotated[
    Path | None,
    typer.Option(
        "--constitution",
        metavar="FILE",
        help="A text file with the principles of the work, for --protocol tagged (default: the thread's own, "
        "else a few short ones).",
    ),
]
Rounds = Annotated[
    bool | None,
    typer.Option(
        "--rounds/--no-rounds",
        help="Plan, execute, think: after each batch of calls it thinks before the next (default: the "
        "thread's own, else not).",
    ),
]
Approve = Annotated[
    str | None,
    typer.Option(
        "--approve",
        metavar="LIST",
        help="Ask you before calls of these tools or kinds (read, write, terminal); none for never "
        "(default: the thread's own, else never).",
    ),
]
Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="COMMAND",
        help="Run this in the workspace before a “done” is believed; what fails goes back to the model. May "
        "be given several times; none for no check (default: the thread's own, else no check).",
    ),
]
SystemPrompt = Annotated[
    str | None,
    typer.Option("--system-prompt", metavar="TEXT|@FILE", help="What stands before the rules of the loop."),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        "-d",
        metavar="FILE|URL",
        help="Where threads are kept: a SQLite file, or postgresql://… (default: SIGNOFF_DATABASE, else a "
        "file in your data folder).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the summary, or the question.")]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's ID.", show_default=False)]


def task_text(given: str) -> str:
    """The text of a task that was given as `Task`; it may be empty."""
    return valid_text(sys.stdin.read() if given == "-" else given).strip()
