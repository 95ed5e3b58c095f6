"""The public signatures are those that are written down, and name public types alone, as programs do."""

import ast
from collections.abc import Iterator

import griffe

from docs.hooks.reference import PUBLIC, load
from tests import signatures
from tests.support.pages import ROOT, blocks, pages

# What a program is handed and never makes: how it is made is private.
HANDED_OUT = {"Task", "PostgresCheckpointer", "PostgresEntryStore"}


def target(path: str) -> griffe.Object | griffe.Alias:
    found = signatures.package()[path.removeprefix("signoff.")]
    return found.final_target if isinstance(found, griffe.Alias) else found


NAMES = {f"{module}.{name}" for module in PUBLIC for name in load(module).__all__}


def annotations(item: griffe.Object | griffe.Alias) -> Iterator[str | griffe.Expr | None]:
    """The types that a public value names: its own, and those of its public methods and fields."""
    if isinstance(item, griffe.Function):
        yield from (item.returns, *(parameter.annotation for parameter in item.parameters))
    elif isinstance(item, griffe.Attribute):
        yield item.annotation
    elif isinstance(item, griffe.Class):
        for name, member in item.members.items():
            if name == "__init__" or not name.startswith("_"):
                yield from annotations(member)


def classes_of_ours(annotation: str | griffe.Expr | None) -> Iterator[str]:
    """The classes that an annotation names, also by the name of a union or of a literal."""
    for part in annotation.iterate(flat=True) if isinstance(annotation, griffe.Expr) else ():
        if isinstance(part, griffe.ExprName) and part.canonical_path.startswith("signoff."):
            yield from classes_of(target(part.canonical_path))


def classes_of(item: griffe.Object | griffe.Alias) -> Iterator[str]:
    """The class that it is, or those of which it is another name."""
    if isinstance(item, griffe.Class):
        yield item.path
    elif isinstance(item, griffe.Attribute) and not item.name.isupper():
        yield from classes_of_ours(item.value)


def test_every_type_in_a_public_signature_is_public() -> None:
    offered = {where for name in NAMES for where in classes_of(target(name))}
    private = {
        (name, where)
        for name in NAMES
        if name.rpartition(".")[2] not in HANDED_OUT and not target(name).is_attribute
        for annotation in annotations(target(name))
        for where in classes_of_ours(annotation)
        if where not in offered
    }
    assert private == set()


def test_the_class_behind_a_name_is_found() -> None:
    named = {where for one in annotations(target("signoff.build_graph")) for where in classes_of_ours(one)}
    assert {*classes_of(target("signoff.Graph"))} < named


def test_the_public_signatures_are_those_that_are_written_down() -> None:
    """Whoever changes one on purpose runs `python -m tests.signatures`, and says so in the changelog."""
    assert signatures.FILE.read_text("utf-8") == signatures.signatures()


def imported(source: str) -> Iterator[str]:
    """The names of ours that a program imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "signoff":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_examples_and_pages_import_public_names_alone() -> None:
    programs = {str(path): path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")}
    programs |= {one.place: one.text for page in pages() for one in blocks(page) if one.language == "python"}
    assert len(programs) > 50
    beyond = {place: set(imported(text)) - NAMES for place, text in programs.items()}
    assert {place: names for place, names in beyond.items() if names} == {}
