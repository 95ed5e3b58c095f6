"""Input from a subject: JSON that can be stored, compared and printed, and text for tables and errors."""

import json
from typing import Any

DEEPEST = 100
"""Maximum nesting of lists and objects; deeper values can be read but not printed."""
LONGEST = 300
"""Most characters of a subject's text in a table or an error."""


def load(data: bytes) -> Any:
    """Parses JSON. Raises ValueError if it is not valid, or nested too deep."""
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
    """Returns the text on one line, without unprintable characters, truncated if it is long."""
    text = given if isinstance(given, str) else str(given)
    # Far more than is kept, so that a flood of text is not split into words.
    words = " ".join(text[: 10 * most].split()).encode(errors="replace").decode()
    plain = "".join(one if one.isprintable() else "?" for one in words)
    return plain if len(plain) <= most and len(text) <= 10 * most else f"{plain[:most]}…"
