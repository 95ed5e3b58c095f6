"""Imports run one way, never in a circle; the faces and the tests come in through the door."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from docs.hooks.reference import PUBLIC
from tests.support.sources import REPOSITORY, sources, trees

# From the bottom up, each with its modules. A module belongs to the layer with the longest name that fits,
# and imports only from its own layer or one below.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "the machine and its types",
        (
            "signoff.graph.arguments",
            "signoff.graph.clock",
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
            "signoff.public",
        ),
    ),
    ("reading the history, deciding, and what the model is shown", ("signoff.graph",)),
    ("tools", ("signoff.tools",)),
    ("nodes", ("signoff.nodes",)),
    (
        "build",
        (
            "signoff.graph.build",
            "signoff.graph.compiled",
            "signoff.graph.inside.nodes",
            "signoff.graph.policy",
        ),
    ),
    (
        "storage, session, models and guards",
        ("signoff", "signoff.storage", "signoff.session", "signoff.models", "signoff.guards"),
    ),
    (
        "workers, statistics, model checking",
        ("signoff.workers", "signoff.stats", "signoff.records", "signoff.verify"),
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
            "signoff.studio",
            # Programs of their own: they open what the command line shows.
            "signoff.models.local.__main__",
            "signoff.tools.sandbox.__main__",
        ),
    ),
)
# The one way upwards, when a graph is built: it is given a storage, or opens the one at an address.
OPENS = {
    "signoff.graph.build": {"signoff.storage.threads"},
    "signoff.graph.compiled.settings": {"signoff.storage.postgres", "signoff.storage.sqlite"},
}


SOURCES = sources()
OFFERED = {f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__}


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a module imports, wherever the statement stands."""
    # What a module runs as a program of its own is no import of the module.
    body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "__main__" in ast.dump(node.test))
    ]
    for name in names_imported(ast.Module(body, [])):
        yield name if name in SOURCES else name.rpartition(".")[0]


def names_imported(tree: ast.AST) -> Iterator[str]:
    """The modules and the names of modules of ours that a program imports."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] == "signoff")


IMPORTS = {name: set(imported(tree)) - OPENS.get(name, set()) for name, tree in trees().items()}


def layer(module: str) -> int:
    fits = [
        (len(prefix), height)
        for height, (_, prefixes) in enumerate(LAYERS)
        for prefix in prefixes
        if is_in(module, prefix)
    ]
    return max(fits)[1]


def is_in(module: str, *packages: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def test_a_module_imports_only_what_exists_at_its_height_or_below() -> None:
    upwards = [
        (module, name)
        for module, names in IMPORTS.items()
        for name in names
        if name not in SOURCES or layer(name) > layer(module)
    ]
    assert upwards == []


def test_no_circle() -> None:
    TopologicalSorter(IMPORTS).prepare()


LAZY = ("signoff", "signoff.tools", "signoff.models", "signoff.session", "signoff.storage", "signoff.verify")


def test_what_a_package_offers_is_imported_when_it_is_used() -> None:
    for package in LAZY:
        body = trees()[package].body
        (for_checkers,) = (node for node in body if isinstance(node, ast.If))
        (late,) = (node.value for node in body if ast.unparse(node).startswith("__getattr__"))  # type: ignore[attr-defined]
        table = {f"{module}.{name}" for module, few in ast.literal_eval(late.args[1]).items() for name in few}
        assert set(names_imported(for_checkers)) == table
        loaded = import_module(package)
        assert {name.rpartition(".")[2] for name in table} == set(loaded.__all__)
        assert all(hasattr(loaded, name) for name in loaded.__all__)
        assert not hasattr(loaded, "no_such_name")


FRONTS = ("cli", "page", "acp", "mcp", "web", "server", "graph.studio")


def test_no_front_imports_another_but_the_command_that_writes_a_page() -> None:
    across = {
        (module, front)
        for module, names in IMPORTS.items()
        for front in FRONTS
        if any(is_in(name, f"signoff.{front}") for name in names)
        and any(is_in(module, f"signoff.{other}") for other in FRONTS if other != front)
    }
    assert across == {("signoff.cli.threads", "page")}


# Nothing but public names is imported by what stands upon them.
FACES = [f"signoff.{name}" for name in ("workers", "stats", "otel", "front", *FRONTS)]
# How many names they import beyond that from the rooms below. This list only shrinks: with the threads that a
# session and a storage show, the tables and drawing of the machine, the errors of a face, the records of a
# thread, and tools and storages that are written anew.
BEYOND: Mapping[str, int] = {
    "signoff.graph": 53,
    "signoff.models": 12,
    "signoff.nodes": 6,
    "signoff.session": 20,
    "signoff.storage": 7,
    "signoff.tools": 11,
}


def beyond_the_door(tree: ast.AST) -> set[str]:
    """The names of ours that a program imports and that are not public."""
    return {*names_imported(tree)} - OFFERED - {*PUBLIC}


def patched(tree: ast.AST) -> set[str]:
    """The inner names of ours that a program gives to `setattr`, `import_module` and the like as text."""
    texts = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    }
    names = {str(text) for text in texts if re.fullmatch(r"signoff(\.\w+)+", str(text))}
    inner = {name for name in names if name in SOURCES or name.rpartition(".")[0] in SOURCES}
    return inner - OFFERED - {*PUBLIC}


def test_an_import_from_the_inside_is_found_and_a_patch() -> None:
    tree = ast.parse("""
from signoff import Session
from signoff.graph.rules import decide
import signoff.nodes.decide
patch("signoff.graph.rules.RULES", ())
""")
    assert beyond_the_door(tree) == {"signoff.graph.rules.decide", "signoff.nodes.decide"}
    assert patched(tree) == {"signoff.graph.rules.RULES"}


def test_what_stands_upon_the_door_imports_public_names_alone_but_for_a_list_that_shrinks() -> None:
    names = {
        name
        for module, tree in trees().items()
        if is_in(module, *FACES)
        for name in beyond_the_door(tree)
        if not is_in(name, *FACES)
    }
    assert Counter(".".join(name.split(".")[:2]) for name in names) == BEYOND


# The folders whose tests may import what is inside: pure functions worth a table of their own, and the proof.
INSIDE = ("tests/graph", "tests/proof")
# How many names the tests of a folder import, or patch, beyond that all the same. This list only shrinks.
LEFT: Mapping[str, int] = {
    "tests": 2,
    "tests/benchmarks": 2,
    "tests/delegates": 1,
    "tests/models": 14,
    "tests/project": 3,
    "tests/protocols": 1,
    "tests/session": 1,
    "tests/simulate": 1,
    "tests/storage": 17,
    "tests/support": 8,
    "tests/support/benches": 4,
    "tests/tools": 2,
}


def test_the_tests_come_in_through_the_door_but_for_folders_that_are_named_and_a_list_that_shrinks() -> None:
    names: dict[str, set[tuple[Path, str]]] = {}
    for path in (REPOSITORY / "tests").rglob("*.py"):
        folder = path.parent.relative_to(REPOSITORY).as_posix()
        if not folder.startswith(INSIDE):
            tree = ast.parse(path.read_text("utf-8"))
            beyond = {(path, name) for name in beyond_the_door(tree) | patched(tree)}
            names.setdefault(folder, set()).update(beyond)
    assert {folder: few for folder, few in names.items() if len(few) > LEFT.get(folder, 0)} == {}
