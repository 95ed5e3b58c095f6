"""The arguments and options that commands share, and the decorator that adds them."""

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, get_args

import typer

from signoff import SetupError
from signoff.front.database import database
from signoff.front.settings import NO_CONFIG, Given, Options, RunOptions, config_file, flag, option_extra
from signoff.text import valid_text

Task = Annotated[str, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.")]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's ID.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the summary, or the question.")]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Your settings; none for no file (default: SIGNOFF_CONFIG, else signoff.toml in your folder for "
        "settings).",
    ),
]

OwnGraph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="MODULE:GRAPH",
        help="A graph of your own, or a function that makes it: package.module:graph or "
        "path/to/file.py:graph (default: the command line's).",
    ),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")]

TO_BEGIN = tuple(RunOptions.model_fields)
"""The options of a command that begins a run."""
TO_GO_ON = ("workspace", "model", "base_url", "talk_turns", "model_seconds", "model_tries", "tools")
"""The options of a command that continues a thread."""

Command = Callable[..., None]


def takes(*options: str) -> Callable[[Command], Command]:
    """Turns a function into a command with these run options, as `given`, and a database, as `file`.

    In its help they come before `--json`, or at the end.
    """
    shared = {name: _typed(name) for name in (*options, "database")} | {"config": Config}

    def with_options(function: Command) -> Command:
        own = inspect.signature(function, eval_str=True).parameters

        @functools.wraps(function)
        def command(**values: Any) -> None:
            found = {name: values.pop(name) for name in shared}
            named = found.pop("config")
            config = config_file(named, os.environ)
            file = database(found.pop("database"), os.environ, config)
            if named is not None:
                file = replace(file, config=str(config or NO_CONFIG))
            given = {"given": Given(**found, config=config)} if options else {}
            function(file=file, **given, **values)

        names = [name for name in own if name not in ("given", "file")]
        at = names.index("as_json") if "as_json" in names else len(names)
        made = inspect.Parameter("made", inspect.Parameter.KEYWORD_ONLY, default=None)
        parameters = [
            own[name].replace(kind=made.kind)
            if name in names
            else made.replace(name=name, annotation=shared[name])
            for name in (*names[:at], *shared, *names[at:])
        ]
        # typer reads these.
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return with_options


def _typed(name: str) -> Any:
    """Returns the parameter for typer, made from the field with its help."""
    field, extra = Options.model_fields[name], option_extra(name)
    kind = extra["kind"] or next(one for one in get_args(field.annotation) if one is not type(None))
    full = [one for one in extra["names"] if one.startswith("--")] or [flag(name)]
    short = [one for one in extra["names"] if not one.startswith("--")]
    option = typer.Option(*full, *short, metavar=extra["metavar"], help=field.description)
    annotated: Any = Annotated
    return annotated[kind | None, option]


def check_own_graph(named: str | None, given: Given) -> None:
    """Raises SetupError for options beside a graph of the user's own, which has them inside."""
    if named is not None and given.options:
        options = ", ".join(map(flag, given.options))
        raise SetupError(f"The graph that --graph names has its own settings; leave out {options}.")


_SPAN = re.compile(r"(?P<count>\d{1,6})(?P<unit>min|[mhdw])")
_SECONDS = {"m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment(text: str, now: float, option: str) -> float:
    """Returns the time, in seconds since 1970, for an option's value: a span before `now`, or a date in ISO
    8601.

    Raises SetupError for anything else.
    """
    if span := _SPAN.fullmatch(text.strip()):
        return now - int(span["count"]) * _SECONDS[span["unit"]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise SetupError(
            f"{option} {text!r} is not a time; write a span like 7d, 24h or 30min, or a date like 2026-01-31."
        ) from error


def task_text(given: str) -> str:
    """Returns the text of a task from the argument `Task`; it may be empty."""
    return valid_text(sys.stdin.read() if given == "-" else given).strip()
