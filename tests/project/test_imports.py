"""Imports run one way, and never in a circle."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import signoff

REPOSITORY = Path(__file__).parents[2]

# From the bottom up, each with its modules. A module belongs to the layer with the longest name that fits,
# and imports only from its own layer or one below.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "the machine and its types",
        (
            "signoff.graph.errors",
            "signoff.graph.foreign",
            "signoff.graph.foreign_files",
            "signoff.graph.values",
            "signoff.graph.inside.installing",
            "signoff.graph.inside.private",
            "signoff.graph.inside.speed",
            "signoff.graph.kinds",
            "signoff.graph.limits",
            "signoff.graph.machine",
            "signoff.graph.messages",
            "signoff.graph.schemas",
            "signoff.graph.state",
            "signoff.graph.texts",
        ),
    ),
    ("reading the history", ("signoff.graph.history",)),
    ("deciding, and what the model is shown", ("signoff.graph",)),
    ("tools", ("signoff.tools",)),
    ("nodes", ("signoff.nodes",)),
    ("build", ("signoff.graph.build", "signoff.graph.compiled", "signoff.graph.inside.nodes")),
    (
        "storage, session, models and guards",
        ("signoff", "signoff.storage", "signoff.session", "signoff.models", "signoff.guards"),
    ),
    (
        "workers, statistics, model checking",
        ("signoff.workers", "signoff.stats", "signoff.verify"),
    ),
    ("what the fronts share", ("signoff.front",)),
    (
        "fronts",
        (
            "signoff.cli",
            "signoff.page",
            "signoff.acp",
            "signoff.mcp",
            "signoff.web",
            "signoff.server",
            "signoff.graph.studio",
        ),
    ),
)
# They share what is in `signoff.front`, and do not import each other.
NEIGHBOURS = (
    "signoff.cli",
    "signoff.page",
    "signoff.acp",
    "signoff.mcp",
    "signoff.web",
    "signoff.server",
    "signoff.graph.studio",
)
# The one way from a neighbour to another, at the moment when a command is to write a page.
LATE = {("signoff.cli.threads", "signoff.page")}


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


def imported(source: str, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of ours that the source text imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in submodules]
        yield from (name for name in names if name.split(".")[0] == "signoff")


def layer(module: str) -> int:
    fits = [
        (len(prefix), height)
        for height, (_, prefixes) in enumerate(LAYERS)
        for prefix in prefixes
        if f"{module}.".startswith(f"{prefix}.")
    ]
    return max(fits)[1]


SOURCES = sources()
IMPORTS = {name: set(imported(path.read_text("utf-8"), SOURCES)) for name, path in SOURCES.items()}


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_module_imports_only_what_exists_at_its_height_or_below(module: str) -> None:
    assert IMPORTS[module] <= set(SOURCES)
    assert [name for name in sorted(IMPORTS[module]) if layer(name) > layer(module)] == []


def neighbour(module: str) -> str | None:
    return next((name for name in NEIGHBOURS if f"{module}.".startswith(f"{name}.")), None)


def test_the_command_line_the_application_and_the_page_do_not_know_each_other() -> None:
    across = {
        (module, neighbour(name))
        for module, names in IMPORTS.items()
        for name in names
        if neighbour(module) and neighbour(name) not in (None, neighbour(module))
    }
    assert across == LATE
    for module, _ in LATE:
        body = ast.parse(SOURCES[module].read_text("utf-8")).body
        at_once = "\n".join(ast.unparse(one) for one in body if isinstance(one, ast.Import | ast.ImportFrom))
        assert not {neighbour(name) for name in imported(at_once, SOURCES)} - {None, neighbour(module)}


def test_no_circle() -> None:
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as circle:
        pytest.fail(" imports ".join(reversed(circle.args[1])))


PACKAGES = sorted(name for name, path in SOURCES.items() if path.stem == "__init__" and name != "signoff")


def test_what_signoff_gives_is_imported_when_it_is_used() -> None:
    body = ast.parse(SOURCES["signoff"].read_text("utf-8")).body
    (block,) = (node for node in body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    for_checkers = {alias.name: node.module for node in imports for alias in node.names}
    assert for_checkers == signoff._MODULES
    assert sorted(for_checkers) == signoff.__all__ == dir(signoff)
    assert [name for name in signoff.__all__ if not hasattr(signoff, name)] == []
    assert not hasattr(signoff, "build_grahp")


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_file_only_re_exports(module: str) -> None:
    def allowed(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Expr):
            return isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Assign):
            return ast.unparse(statement.targets[0]) in ("__all__", "__version__")
        return isinstance(statement, ast.Import | ast.ImportFrom)

    statements = ast.parse(SOURCES[module].read_text("utf-8")).body
    assert [ast.unparse(statement) for statement in statements if not allowed(statement)] == []


def test_every_layer_holds_something_and_they_lie_in_this_order() -> None:
    assert {layer(name) for name in SOURCES} == set(range(len(LAYERS)))
    one_each = [
        "signoff.graph.machine",
        "signoff.graph.history.task",
        "signoff.graph.rules",
        "signoff.tools.files",
        "signoff.nodes.decide",
        "signoff.graph.build",
        "signoff.session.session",
        "signoff.stats.records",
        "signoff.front.cards",
        "signoff.graph.studio",
    ]
    assert [layer(name) for name in one_each] == list(range(len(LAYERS)))
