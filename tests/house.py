"""`python -m tests.house`: how large the house is, and how far a reader walks in it.

The figures: lines of code (without comments, docstrings and blank lines), statements and files of the product
and of the tests; the pages of the docs; the width of the door; the files of ours that a turn with a tool and
a finish passes through, as a trace of its calls sees them.
"""

import ast
import inspect
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDERS = ("graph", "nodes", "tools", "signoff")
_SILENT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def python_files(*folders: str) -> list[Path]:
    """The Python files of the folders, each once: `signoff/` holds links to other folders."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if path.resolve() == path and "__pycache__" not in path.parts)


def product_files() -> list[Path]:
    """The Python files of the product."""
    return python_files(*FOLDERS)


def _docstrings(tree: ast.Module) -> list[ast.Expr]:
    """The strings that stand alone in a body: docstrings of modules, classes, functions and attributes."""
    return [
        statement
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]


def code_lines(source: str) -> int:
    """The lines of code in `source`: neither blank, nor comments alone, nor docstrings."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for docstring in _docstrings(ast.parse(source)):
        lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def statements(source: str) -> int:
    """The statements in `source`, docstrings aside: a figure that neither packing nor wrapping changes."""
    tree = ast.parse(source)
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - len(_docstrings(tree))


def size(files: list[Path]) -> str:
    """The lines of code, the statements and the number of these files."""
    sources = [path.read_text("utf-8") for path in files]
    lines, count = sum(map(code_lines, sources)), sum(map(statements, sources))
    return f"{lines:,} lines of code, {count:,} statements in {len(files)} files"


class Walk:
    """The files of ours that calls pass through, in order."""

    def __init__(self) -> None:
        self.visits = Counter[str]()
        self.changes = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_absolute() or "<" in path.name:
            return
        parts = path.resolve().relative_to(ROOT).parts if path.resolve().is_relative_to(ROOT) else ()
        if parts and parts[0] in FOLDERS:
            name = "/".join(parts)
            self.visits[name] += 1
            self.changes += name != self._last
            self._last = name


def walk_of_a_turn() -> Walk:
    """What a message passes through that brings one call of a tool and a finish."""
    import threading

    from signoff import build_graph
    from signoff.models import ScriptedModel, call

    def look(name: str) -> str:
        """Look."""
        return f"{name} is there"

    script = [call("look", name="it"), call("finish_task", summary="Looked.")]
    # Another graph first: what is imported, compiled or derived once is no part of a turn.
    for steps in (script, script):
        with ScriptedModel(list(steps)) as model:
            graph = build_graph(model, [look])
            walk = Walk()
            threading.setprofile(walk)
            sys.setprofile(walk)
            try:
                outcome = graph.invoke({"messages": [("user", "Look.")]})["outcome"]
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            assert outcome["status"] == "success", outcome
    return walk


def door() -> str:
    """How much a user has to learn: parameters, names, submodules, commands."""
    from docs.hooks.reference import PUBLIC, load
    from signoff import LoopPolicy, build_graph
    from signoff.cli.app import COMMANDS

    names = {module: len(load(module).__all__) for module in PUBLIC}
    return (
        f"{len(inspect.signature(build_graph).parameters)} parameters of build_graph, "
        f"{len(LoopPolicy.model_fields)} of its policy; {names.pop('signoff')} names in signoff, "
        f"{sum(names.values())} in {len(names)} submodules; {len(COMMANDS)} commands"
    )


def main() -> None:
    walk = walk_of_a_turn()
    print(f"product: {size(product_files())}")
    print(f"tests: {size(python_files('tests'))}")
    print(f"docs: {len(list((ROOT / 'docs').rglob('*.md')))} pages")
    print(f"the door: {door()}")
    print(f"one turn with a tool and a finish: {len(walk.visits)} files, {walk.changes} changes of file")
    for name, count in walk.visits.most_common():
        print(f"  {count:5} {name}")


if __name__ == "__main__":
    main()
