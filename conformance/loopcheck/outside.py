"""What comes from a subject: JSON that can be kept, compared and printed; and words for tables and errors."""

import json
from typing import Any

DEEPEST = 100
"""Levels of lists and objects inside each other; what is deeper could be read, and then not be printed."""
LONGEST = 300
"""Characters of a subject's words in a table or an error."""


def load(data: bytes) -> Any:
    """The value that the JSON holds. Raises ValueError for what is no JSON, or is nested too deep."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [below for one in level for below in _inside(one)]
        if not level:
            return found
    raise ValueError("it is nested too deep")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [one for one in value if isinstance(one, dict | list)] if isinstance(value, list) else []


def line(given: Any, most: int = LONGEST) -> str:
    """In one line, without a character that cannot be printed, and cut where it is long."""
    text = given if isinstance(given, str) else str(given)
    # Much more than is kept, so that a flood is not split into words.
    words = " ".join(text[: 10 * most].split()).encode(errors="replace").decode()
    plain = "".join(one if one.isprintable() else "?" for one in words)
    return plain if len(plain) <= most and len(text) <= 10 * most else f"{plain[:most]}…"
