"""The public signatures, as text: `python -m tests.signatures` writes them to tests/project/signatures.txt.

One line for each public name, parameter list, field and method, read from the source without running it.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

from docs.hooks.reference import PUBLIC

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "project" / "signatures.txt"
_STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


@cache
def package() -> griffe.Object | griffe.Alias:
    """The package, read from its source."""
    return griffe.load("signoff", search_paths=[ROOT], resolve_aliases=True, resolve_implicit=True)


def signatures() -> str:
    """All public signatures of this checkout."""
    lines: list[str] = []
    for module in PUBLIC:
        found = package() if module == "signoff" else package()[module.removeprefix("signoff.")]
        lines.append(f"\n# {module}")
        names = found.exports or ()
        for name in sorted(str(each) for each in names):
            lines += _lines(name, found[name])
    return "\n".join(lines).strip() + "\n"


def _lines(name: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    target = found.final_target if isinstance(found, griffe.Alias) else found
    if isinstance(target, griffe.Function):
        yield f"{name}{_parameters(target)} -> {target.returns}"
    elif isinstance(target, griffe.Class):
        yield f"class {name}({', '.join(map(str, target.bases))})"
        yield from _members(target)
    else:
        assert isinstance(target, griffe.Attribute), f"{name} is a {type(target)}"
        yield f"{name}: {target.annotation or target.value}"


def _members(found: griffe.Class) -> Iterator[str]:
    for name, member in sorted(found.members.items()):
        made_from_fields = "dataclass" in found.labels and name == "__init__"
        if made_from_fields or (name.startswith("_") and name != "__init__"):
            continue
        if isinstance(member, griffe.Function):
            yield f"    {name}{_parameters(member)} -> {member.returns}"
        elif isinstance(member, griffe.Attribute):
            required = "" if member.value is None else " = …"
            yield f"    {name}: {member.annotation}{required}"


def _parameters(function: griffe.Function) -> str:
    """The parameters as they are written, without the values of their defaults: these may change."""
    words, marked = [], False
    for each in function.parameters:
        kind = each.kind
        if kind is griffe.ParameterKind.keyword_only and not marked:
            words.append("*")
            marked = True
        star = _STARS.get(kind, "")
        marked = marked or star == "*"
        default = " = …" if each.default is not None and not star else ""
        words.append(f"{star}{each.name}: {each.annotation}{default}" if each.annotation else each.name)
    return f"({', '.join(words)})"


if __name__ == "__main__":
    FILE.write_text(signatures(), encoding="utf-8")
    print(FILE)
