"""`python -m tests.api` prints docs/api.md: every public name, and the module to import it from."""

import ast
import importlib
import inspect
from itertools import pairwise
from pathlib import Path
from types import ModuleType

PUBLIC = {
    "signoff": "the graph, its outcome, the session, storage, errors",
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
    "signoff.stats": "the analytics",
    "signoff.lint": "faults of loops in message histories",
    "signoff.graph.studio": "a graph for LangGraph's server",
}
"""The documented modules. Everything else is private: it moves between versions without notice."""

_HEAD = """# Public names

Everything here keeps its name and its module. Other modules are private: they may move in any version.
`python -m tests.api` prints this page.
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
    """docs/api.md."""
    parts = [_HEAD]
    for name, purpose in PUBLIC.items():
        found = module(name)
        rows = [
            f"| `{each}` | {summary(each, name).replace('|', chr(92) + '|')} |"
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


if __name__ == "__main__":
    print(page(), end="")
