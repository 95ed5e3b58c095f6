"""The modules of the product."""

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
