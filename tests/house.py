"""`python -m tests.house`: how large the house is, and how far a reader walks in it.

The figures: lines of code (without comments, docstrings and blank lines) and files of the product; the files
that stand at the front of `graph/` and `nodes/`; the class names that stand for more than one thing; and the
files of ours that one turn with a tool and a finish passes through, as a trace of its calls sees them.
"""

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
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


def product_files() -> list[Path]:
    """The Python files of the product, each once: `signoff/` holds links to the other folders."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if path.resolve() == path and "__pycache__" not in path.parts)


def code_lines(source: str) -> int:
    """The lines of code in `source`: neither blank, nor comments alone, nor docstrings."""
    described = set[int]()
    for node in ast.walk(ast.parse(source)):
        for one in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            if (
                isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            ):
                described.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - described)


def front(folder: str) -> list[str]:
    """The files that stand in the folder itself, not in a room below it."""
    return sorted(path.name for path in (ROOT / folder).glob("*.py"))


def classes() -> Iterator[tuple[str, Path]]:
    """Every class of the product that other code can name, with the file that defines it."""
    for path in product_files():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def shared_names() -> dict[str, list[Path]]:
    """The names of classes that more than one file defines."""
    where = defaultdict[str, list[Path]](list)
    for name, path in classes():
        where[name].append(path)
    return {name: paths for name, paths in where.items() if len(paths) > 1}


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


def main() -> None:
    files = product_files()
    lines = sum(code_lines(path.read_text("utf-8")) for path in files)
    walk, shared = walk_of_a_turn(), shared_names()
    print(f"{lines:,} lines of code in {len(files)} files")
    print(f"{len(front('nodes'))} files at the front of nodes/, {len(front('graph'))} at the front of graph/")
    print(f"{len(shared)} class names stand for more than one thing: {', '.join(sorted(shared))}")
    print(f"one turn with a tool and a finish: {len(walk.visits)} files, {walk.changes} changes of file")
    for name, count in walk.visits.most_common():
        print(f"  {count:5} {name}")


if __name__ == "__main__":
    main()
