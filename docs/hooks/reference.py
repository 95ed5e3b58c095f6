"""A hook of MkDocs: it makes the pages of the reference that say what the program itself knows.

From the docstrings: the list of public names, and the pages that mkdocstrings fills with each of them. From
the commands: their options. From the vocabulary: the words for how a task ended. From the events: their
fields and schema, the second half of docs/reference/events.md.
"""

import ast
import importlib
import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

from signoff.cli.app import app
from signoff.graph.vocabulary import STATUSES, TABLES, VERIFIED, Word
from signoff.session.decisions import Decision
from signoff.session.events import Called, SessionEvent, events_schema

_ROOT = Path(__file__).parents[2]
_EVENTS = "reference/events.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages that stand in no file."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adds the second half of the page of events."""
    return markdown + events() if page.file.src_uri == _EVENTS else markdown


def generated_pages() -> dict[str, str]:
    """The text of each page, by its path below docs/."""
    return {
        "reference/api.md": public_names(),
        **{f"reference/python/{name}.md": python_page(name) for name in PAGES},
        "reference/command-line.md": commands(),
        "reference/words.md": words(),
    }


# The public names, and what each of them is.

PUBLIC = {
    "signoff": "the graph, its outcome, the session, storage, errors",
    "signoff.outcome": "what an outcome is made of",
    "signoff.session": "what is beside the session itself",
    "signoff.events": "what `Session.events()` yields",
    "signoff.models": "the scripted model, for tests and demos, and the text protocol",
    "signoff.tools": "what a user gives to a model",
    "signoff.guards": "the rules as one middleware, for agents of LangChain",
    "signoff.storage": "the storages, as types",
    "signoff.machine": "the machine and its drawing",
    "signoff.records": "the analytics",
    "signoff.text": "text that is safe to store and to show, and the words for people",
    "signoff.load": "a graph that a command line names",
    "signoff.workers": "threads on many machines",
    "signoff.verify": "a graph, model-checked",
    "signoff.otel": "spans for OpenTelemetry",
    "signoff.studio": "a graph for LangGraph's server",
}
"""The documented modules. Everything else is private: it moves between versions without notice."""

PAGES = {
    "graph": ("The graph", ("signoff",)),
    "outcome": ("Outcomes, and going on", ("signoff", "signoff.outcome")),
    "session": ("The session", ("signoff", "signoff.session")),
    "events": ("Events", ("signoff.events",)),
    "storage": ("Storage and errors", ("signoff", "signoff.storage")),
    "tools": ("Tools", ("signoff.tools",)),
    "models": ("Models", ("signoff.models",)),
    "guards": ("Guards", ("signoff.guards",)),
    "workers": ("Workers", ("signoff.workers",)),
    "tracing": ("Tracing", ("signoff.otel",)),
    "analytics": ("Statistics", ("signoff.records",)),
    "studio": ("Studio", ("signoff.studio",)),
    "machine": (
        "The machine, model checking, texts",
        ("signoff.machine", "signoff.verify", "signoff.text", "signoff.load"),
    ),
}
"""The pages below reference/python: a title, and the modules whose names stand there."""

_NAMES_OF_SIGNOFF = {
    "graph": """build_graph delegate Graph LoopPolicy Limits Prices ModelRetries Check Texts Kind ControlTool
        standard_controls Storage""",
    "outcome": """Outcome outcome_of go_on undo stop""",
    "session": """Session Decision Message Action Question Approval PendingCall Ended Paused Answer Waiting
        ThreadStatus Turn""",
    "storage": """sqlite_storage postgres_storage SignoffError SetupError StorageError ThreadError ThreadBusy
        ThreadLost ThreadUnknown BadAnswer TooLate""",
}
"""The page on which each name of `signoff` stands, in this order."""


def public_names() -> str:
    """The page that lists every public name, with the first sentence of its docstring."""
    parts = [
        "# Public names\n",
        "Everything here keeps its name and its module. Other modules are private: they may move in any\n"
        "version.\n",
    ]
    for module_name in PUBLIC:
        rows = [
            [f"[`{name}`]({_link(_anchor(name, module_name))})", _cell(_summary(name, module_name))]
            for name in sorted(load(module_name).__all__)
        ]
        parts.append(f"## `{module_name}`\n\n{_purpose(module_name)}\n\n{_table(['name', 'meaning'], rows)}")
    return "\n".join(parts)


def python_page(page: str) -> str:
    """A page with the names of some modules, each with all that mkdocstrings shows of it."""
    title, module_names = PAGES[page]
    parts = [f"# {title}\n"]
    for module_name in module_names:
        names = (
            _NAMES_OF_SIGNOFF[page].split() if module_name == "signoff" else sorted(load(module_name).__all__)
        )
        anchors = [
            anchor for name in names if (anchor := f"{module_name}.{name}") == _anchor(name, module_name)
        ]
        if anchors:
            parts.append(f"## `{module_name}` {{ #module-{module_name.replace('.', '-')} }}\n")
            parts.append(f"{_purpose(module_name)}\n")
            parts += [f"::: {anchor}\n" for anchor in anchors]
    return "\n".join(parts)


def load(module_name: str) -> ModuleType:
    return importlib.import_module(module_name)


def _purpose(module_name: str) -> str:
    purpose = PUBLIC[module_name]
    return f"{purpose[0].upper()}{purpose[1:]}."


def _anchor(name: str, module_name: str) -> str:
    """A name of `signoff` that another module has, too, is described once."""
    in_signoff = name in vars(load("signoff"))["__all__"]
    return f"signoff.{name}" if in_signoff else f"{module_name}.{name}"


def _link(anchor: str) -> str:
    """The link from the list of public names to the description."""
    module_name, _, name = anchor.rpartition(".")
    page = next(
        page
        for page, (_, module_names) in PAGES.items()
        if module_name in module_names
        and (module_name != "signoff" or name in _NAMES_OF_SIGNOFF[page].split())
    )
    return f"python/{page}.md#{anchor}"


def _summary(name: str, module_name: str) -> str:
    """The first sentence of what is said of a name; empty for a dataclass without a docstring of its own."""
    value = getattr(load(module_name), name)
    has_docstring = inspect.isclass(value) or inspect.isfunction(value)
    text = (inspect.getdoc(value) or "") if has_docstring else _text_below(name, module_name)
    sentence = _one_line(text.split("\n\n")[0]).partition(". ")[0].rstrip(".")
    return f"{sentence}." if sentence and not sentence.startswith(f"{name}(") else ""


def _text_below(name: str, module_name: str) -> str:
    """The string below the assignment of a name, in the module that makes the value."""
    tree = ast.parse(Path(inspect.getfile(load(module_name))).read_text("utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any(alias.name == name for alias in node.names)
        ):
            return _text_below(name, node.module)
    for statement, following in pairwise(tree.body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return str(ast.literal_eval(following.value)) if isinstance(following, ast.Expr) else ""
    return ""


# The commands and their options.

_HEAD_OF_COMMANDS = """\
# Options of the commands

`signoff --help` and `signoff COMMAND --help` print what stands here. [How to use
it](../how-to/command-line.md) has a page of its own; [Settings](settings.md) says what decides: an option, a
variable, or the file.
"""


def commands() -> str:
    """The page with every command, its arguments and its options."""
    return "\n".join([_HEAD_OF_COMMANDS, *_commands_below("signoff", get_command(app))])


def _commands_below(name: str, command: Any) -> Iterator[str]:
    """The sections of a command, or of each command in a group."""
    group = getattr(command, "commands", None)
    if group is None:
        yield _command(name, command)
        return
    for word, subcommand in group.items():
        if not subcommand.hidden:
            yield from _commands_below(f"{name} {word}", subcommand)


def _command(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    usage = " ".join([name, *(_argument(param) for param in arguments)])
    rows = [
        *([f"`{_argument(param)}`", _cell(param.help)] for param in arguments if param.help),
        *([_option(param), _cell(param.help)] for param in options),
    ]
    table = _table(["option", "meaning"], rows) if rows else ""
    return f"## `{usage}`\n\n{_one_line(command.help)}\n\n{table}"


def _argument(param: Any) -> str:
    name = (param.metavar or param.name.upper()).strip("[]")
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    value = "" if param.is_flag or param.count else f" {param.metavar or param.name.upper()}"
    names = [*param.opts, *param.secondary_opts]
    return ", ".join(f"`{name}{value if name == names[0] else ''}`" for name in names)


# The words for how a task ended.

_HEAD_OF_WORDS = """\
# The words for how a task ended

One table (`graph/vocabulary.py`) holds them. `run --json`, `show --json`, `threads --json`,
`result["outcome"]`, cards, lists, pages, the web application, the figures and this page all take theirs
from it.

**The first word and the colour of a success say what it rests on**, whatever the model says of itself. After
it comes what the model claims: “Verified: done” is green, “Asserted: done” amber. Exit codes follow the
claim: 0 for a success that claims “done”, 5 for one that claims less.
"""
_TITLES = {
    "status": "How a thread stands",
    "waits_for": "What it waits for",
    "verified": "What a success rests on",
    "claim": "What the model claims",
    "reason": "Why it has ended",
}
_SHOWN_AT_THE_END = {
    "success": "what it rests on: what it claims",
    "limit": "the words of its reason",
    "error": "the words of its reason",
}


def words() -> str:
    """The page with every word of the vocabulary."""
    parts = [_HEAD_OF_WORDS]
    for field, vocabulary in TABLES.items():
        coloured = any(word.tone for word in vocabulary.values())
        head = [f"`{field}`", "shown as", *(["colour"] if coloured else []), "meaning"]
        rows = [_word(name, word, coloured=coloured) for name, word in vocabulary.items()]
        parts.append(f"## {_TITLES[field]}\n\n{_table(head, rows)}")
    return "\n".join(parts)


def _word(name: str, word: Word, *, coloured: bool) -> list[str]:
    if not coloured:
        return [f"`{name}`", word.shown, word.meaning]
    of_success = ", ".join(str(each.tone) for each in VERIFIED.values())
    tone = of_success if word is STATUSES["success"] else str(word.tone)
    return [f"`{name}`", _SHOWN_AT_THE_END.get(name, word.shown), tone, word.meaning]


# The events of a session.

_EVERY_EVENT_HAS = ("seq", "at", "path")


def events() -> str:
    """The second half of the page of events: a program, every event with its fields, and their schema."""
    program = (_ROOT / "examples" / "web.py").read_text("utf-8").split("\n\n", 2)[2]
    event_rows = [[f"`{kind.__name__}`", f"`{kind.type}`", *_fields(kind)] for kind in get_args(SessionEvent)]
    decisions = [get_origin(kind) or kind for kind in get_args(Decision)]
    value_rows = [[f"`{kind.__name__}`", *_fields(kind)] for kind in (*decisions, Called)]
    schema = "\n".join(_schema_lines(events_schema()))
    return f"""
```python
{program}```

## The events

Every event has `seq`, `at` and `path` beside these fields.

{_table(["event", "`type`", "fields", "meaning"], event_rows)}
`Decided.decision` is one of these, with its own `type`; `Said.calls` holds values of `Called`.

{_table(["value", "fields", "meaning"], value_rows)}
## The schema

JSON Schema of what `to_dict` gives: one of the events in `$defs`. `events_schema()` gives it to a program.

```json
{schema}
```
"""


def _fields(kind: Any) -> list[str]:
    """The names of the fields, and the docstring."""
    names = [f"`{field.name}`" for field in fields(kind) if field.name not in _EVERY_EVENT_HAS]
    return [", ".join(names), _cell(inspect.getdoc(kind))]


def _schema_lines(schema: dict[str, Any]) -> Iterator[str]:
    """The schema, one definition a line."""
    yield '{"$schema": ' + json.dumps(schema["$schema"]) + ","
    yield '"anyOf": ' + json.dumps(schema["anyOf"]) + ","
    yield '"$defs": {'
    yield ",\n".join(f"{json.dumps(name)}: {json.dumps(kind)}" for name, kind in schema["$defs"].items())
    yield "}}"


# Markdown.


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def _cell(text: str | None) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
