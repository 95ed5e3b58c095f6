"""Every type in a public signature has a public name, and nobody is shown any other."""

import ast
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore

from docs.hooks.reference import PUBLIC, load
from signoff import Outcome, Storage
from signoff.session import Condition
from signoff.session.decisions import AnyWaiting
from signoff.storage import PostgresEntries, PostgresThreads
from signoff.tools.pty.bash import WaitingFor
from tests import signatures
from tests.support.pages import ROOT, blocks, pages

# Imported for type checkers alone, where they stand.
LATE = {
    # Of LangChain, for whose type checker alone they are imported there.
    "BaseTool": BaseTool,
    "TransformerFactory": object,
    "BaseStore": BaseStore,
    "PostgresThreads": PostgresThreads,
    "PostgresEntries": PostgresEntries,
    "WaitingFor": WaitingFor,
    "Storage": Storage,
    "Condition": Condition,
    "Outcome": Outcome,
    "AnyWaiting": AnyWaiting,
}
# What a program is handed and never makes: how it is made is private.
HANDED_OUT = {"Task", "PostgresThreads", "PostgresEntries", "Walk"}
GIVEN = {id(getattr(load(name), each)) for name in PUBLIC for each in load(name).__all__}


def ours(annotation: Any) -> Iterator[type]:
    """The classes of ours that an annotation names."""
    if isinstance(annotation, list | tuple):
        parts = list(annotation)
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is not None:
        parts = [typing.get_origin(annotation), *typing.get_args(annotation)]
    else:
        parts = []
        if isinstance(annotation, type) and annotation.__module__.split(".")[0] == "signoff":
            yield annotation
    for part in parts:
        if part is not annotation:
            yield from ours(part)


def annotated(value: object) -> Iterator[tuple[str, object]]:
    """What of a public value has annotations: itself, and its public methods."""
    yield "", value
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        function = (
            member.fget
            if isinstance(member, property)
            else inspect.unwrap(getattr(member, "__func__", member))
        )
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            yield f".{name}", function


@pytest.mark.parametrize("name", PUBLIC)
def test_every_type_in_a_public_signature_is_public(name: str) -> None:
    private = {
        f"{each}{where}: {found.__qualname__}"
        for each in sorted({*load(name).__all__} - HANDED_OUT)
        for where, value in annotated(getattr(load(name), each))
        if inspect.isclass(value) or inspect.isfunction(value)
        for field, annotation in typing.get_type_hints(value, localns=LATE).items()
        if not field.startswith("_")
        for found in ours(annotation)
        if id(found) not in GIVEN
    }
    assert private == set()


def test_the_walk_finds_what_is_private() -> None:
    def asks(one: list[PostgresThreads | None], other: dict[str, "type"]) -> None: ...

    found = [each for hint in typing.get_type_hints(asks).values() for each in ours(hint)]
    assert found == [PostgresThreads]


def test_the_public_signatures_are_those_that_are_written_down() -> None:
    """Whoever changes one on purpose runs `python -m tests.signatures`, and says so in the changelog."""
    assert signatures.FILE.read_text("utf-8") == signatures.signatures()


def imported(source: str) -> Iterator[tuple[str, str]]:
    """What a program imports of ours: the module and the name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "signoff":
            yield from ((str(node.module), alias.name) for alias in node.names)


PROGRAMS = {
    **{
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in sorted((ROOT / "examples").rglob("*.py"))
    },
    **{one.place: one.text for page in pages() for one in blocks(page) if one.language == "python"},
}


def test_examples_and_pages_import_public_names_alone() -> None:
    offered = {(module, name) for module in PUBLIC for name in load(module).__all__}
    beyond = {place: [*set(imported(text)) - offered] for place, text in PROGRAMS.items()}
    assert {place: names for place, names in beyond.items() if names} == {}
    assert len(PROGRAMS) > 50
