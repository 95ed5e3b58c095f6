"""The modules of the product."""

import ast
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def sources() -> dict[str, Path]:
    """The file of every module, by the module's name."""
    found = {}
    for folder in ("signoff", "graph", "nodes", "tools"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            if path.resolve() == path.absolute() and "__pycache__" not in parts:
                inside = parts if folder == "signoff" else ("signoff", *parts)
                found[".".join(inside).removesuffix(".__init__")] = path
    return found


@cache
def trees() -> dict[str, ast.Module]:
    """What each module says, parsed once."""
    return {name: ast.parse(path.read_text("utf-8")) for name, path in sources().items()}
