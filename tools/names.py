"""The names that models give to tools: what a slightly wrong one means, and which tool is nearest to it."""

import re
from collections.abc import Collection
from difflib import get_close_matches

_LONGEST = 200
_AROUND = re.compile(r"^(?:functions?|tools?|default_api)[.:/]|<\|.*|:\d+$", re.DOTALL)


def meant_name(name: str, known: Collection[str]) -> str | None:
    """The tool of `known` that a call to `name` means; None when that is not plain.

    Read past are spaces around it, what models and servers put before it (`functions.`) or after it
    (`<|channel|>…`, `:0`), capitals, and a name that a server repeated with every piece of a stream.
    """
    if name in known:
        return name
    if len(name) > _LONGEST:
        return None
    bare = _AROUND.sub("", name.strip()).strip()
    if bare in known:
        return bare
    alike = [tool for tool in known if tool and _is_repeated(tool.casefold(), bare.casefold())]
    return alike[0] if len(alike) == 1 else None


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """The tool whose name looks most like `name`; None when none does."""
    by_look = {tool.casefold(): tool for tool in known}
    found = get_close_matches(_AROUND.sub("", name[:_LONGEST].strip()).casefold(), by_look, n=1)
    return by_look[found[0]] if found else None


def _is_repeated(word: str, text: str) -> bool:
    return bool(text) and len(text) % len(word) == 0 and text == word * (len(text) // len(word))
