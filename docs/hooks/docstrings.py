"""What the reference shows of docstrings: lines such as `model: a chat model …` become a table."""

import re
from typing import Any

import griffe

_NAMED = re.compile(r"(\w+): \S")


class Parameters(griffe.Extension):
    """Puts what explains a parameter, or a field, below the heading that griffe reads."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        _rewrite(func, {one.name for one in func.parameters}, "Args:")

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        fields = {name for name, member in cls.members.items() if member.is_attribute}
        _rewrite(cls, fields, "Attributes:")


def _rewrite(found: griffe.Object, names: set[str], heading: str) -> None:
    if found.docstring is None:
        return
    plain: list[str] = []
    named: list[str] = []
    into = plain
    for line in found.docstring.value.splitlines():
        match = _NAMED.match(line)
        if match and match[1] in names:
            into = named
        elif into is named and not line.startswith(" "):
            into = plain
        if line or into is plain:
            into.append(line)
    if named:
        found.docstring.value = "\n".join([*plain, "", heading, *(f"    {line}" for line in named)])
