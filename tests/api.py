"""`python -m tests.api` writes docs/reference/api.md, every public name and the module to import it from, and
the pages in docs/reference/python/, which tell all of each name."""

import ast
import importlib
import inspect
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

PUBLIC = {
    "signoff": "the graph, its outcome, the session, storage, errors",
    "signoff.guards": "the rules as one middleware, for agents of LangChain",
    "signoff.models": "the scripted model, for tests and demos",
    "signoff.models.tagged": "the text protocol, for models without tool calling",
    "signoff.session.events": "what `Session.events()` yields",
    "signoff.storage.sqlite": "one SQLite file",
    "signoff.storage.postgres": "one PostgreSQL database",
    "signoff.storage.postgres_tables": "its checkpointer and its store",
    "signoff.tools.control": "control tools and their arguments",
    "signoff.tools.files": "tools for the files of a folder",
    "signoff.tools.mcp": "tools of MCP servers",
    "signoff.tools.protected": "what nothing may change in a workspace",
    "signoff.tools.sandbox": "`run_python` and its sandboxes",
    "signoff.tools.terminal": "`run_shell` and its shells",
    "signoff.tools.workspace": "the folder that tools work in",
    "signoff.workers": "threads on many machines",
    "signoff.otel": "spans for OpenTelemetry",
    "signoff.stats": "the analytics",
    "signoff.lint": "faults of loops in message histories",
    "signoff.graph.studio": "a graph for LangGraph's server",
}
"""The documented modules. Everything else is private: it moves between versions without notice."""

PAGES = {
    "graph": ("The graph", ("signoff",)),
    "outcome": ("Outcomes, and going on", ("signoff",)),
    "session": ("The session", ("signoff",)),
    "events": ("Events", ("signoff.session.events",)),
    "storage": (
        "Storage and errors",
        ("signoff", "signoff.storage.sqlite", "signoff.storage.postgres", "signoff.storage.postgres_tables"),
    ),
    "tools": ("Tools", tuple(name for name in PUBLIC if name.startswith("signoff.tools."))),
    "models": ("Models", ("signoff.models", "signoff.models.tagged")),
    "guards": ("Guards", ("signoff.guards",)),
    "workers": ("Workers", ("signoff.workers",)),
    "tracing": ("Tracing", ("signoff.otel",)),
    "analytics": ("Statistics and lint", ("signoff.stats", "signoff.lint")),
    "studio": ("Studio", ("signoff.graph.studio",)),
}
"""The pages of the reference: a title, and the modules whose names stand there."""

_FRONT = {
    "graph": """build_graph delegate Graph RunResult Limits Prices ModelRetries Policy Check ResponseFormat
        Texts Kind ControlTool Effect standard_controls State Storage""",
    "outcome": """Outcome outcome_of current_outcome CheckRun Change UndoReport UndoneCall StandingCall
        Usage TreeUse TokenCounts extend retry undo go_on expire Expired request_pause""",
    "session": """Session Decision Message Action Question Approval PendingCall Confirmation Finished Failed
        Paused Answer Extend Retry Undo Stop ThreadCommand Choose Waiting ThreadStatus Condition Task Turn
        Step pause_on_signals""",
    "storage": """sqlite_storage SqliteStorage postgres_storage PostgresStorage SignoffError SetupError
        StorageError ThreadError ThreadBusy ThreadLost""",
}
"""Where each name of `signoff` stands, in this order."""

_FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_HEAD = """# Public names

Everything here keeps its name and its module. Other modules are private: they may move in any version.
`python -m tests.api` writes this page, and those that the names lead to.
"""


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def said_below(name: str, where: str) -> str:
    """What stands below the assignment of this name, in the module that makes the value."""
    body = ast.parse(Path(inspect.getfile(module(where))).read_text("utf-8")).body
    for one in ast.walk(ast.Module(body, [])):
        if isinstance(one, ast.ImportFrom) and one.module and any(each.name == name for each in one.names):
            return said_below(name, one.module)
    for one, following in pairwise(body):
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name:
            return str(ast.literal_eval(following.value)) if isinstance(following, ast.Expr) else ""
    return ""


def summary(name: str, where: str) -> str:
    """The first sentence of what is said of this name."""
    value = getattr(module(where), name)
    described = inspect.isclass(value) or inspect.isfunction(value)
    text = (inspect.getdoc(value) or "") if described else said_below(name, where)
    sentence = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return f"{sentence}." if sentence and not sentence.startswith(f"{name}(") else ""


def page() -> str:
    """docs/reference/api.md."""
    parts = [_HEAD]
    for name, purpose in PUBLIC.items():
        found = module(name)
        rows = [
            f"| [`{each}`]({_place(_anchor(each, name))}) | {_plain(summary(each, name))} |"
            for each in sorted(found.__all__)
        ]
        parts.append(
            "\n".join(
                [
                    f"## `{name}`",
                    "",
                    f"{purpose[0].upper()}{purpose[1:]}.",
                    "",
                    "| name | meaning |",
                    "| --- | --- |",
                    *rows,
                    "",
                ]
            )
        )
    return "\n".join(parts)


def _anchor(each: str, where: str) -> str:
    """Where it is told: a name of `signoff` that another module has, too, stands once."""
    front = vars(module("signoff"))["__all__"]
    return f"signoff.{each}" if each in front else f"{where}.{each}"


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def _place(anchor: str) -> str:
    """The page on which it is told, from docs/reference."""
    where, _, each = anchor.rpartition(".")
    page = next(
        name
        for name, (_, modules) in PAGES.items()
        if where in modules and (where != "signoff" or each in _FRONT[name].split())
    )
    return f"python/{page}.md#{anchor}"


def pages() -> dict[str, str]:
    """The pages of docs/reference/python, by the name of the file."""
    return {f"{name}.md": _told(name, *told) for name, told in PAGES.items()}


def _told(page: str, title: str, modules: Sequence[str]) -> str:
    parts = [f"# {title}\n"]
    for where in modules:
        names = _FRONT[page].split() if where == "signoff" else sorted(module(where).__all__)
        own = [each for each in names if _anchor(each, where).rpartition(".")[0] == where]
        if own:
            parts.append(f"## `{where}` {{ #module-{where.replace('.', '-')} }}\n")
            parts.append(f"{PUBLIC[where][0].upper()}{PUBLIC[where][1:]}.\n")
            parts += [f"::: {where}.{each}\n" for each in own]
    return "\n".join(parts)


def main() -> None:
    (_FOLDER / "api.md").write_text(page(), "utf-8")
    for name, text in pages().items():
        (_FOLDER / "python" / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
