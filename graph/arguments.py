"""The arguments of a call, read from their raw text by a strict parser."""

import json
import math
from typing import Any

_DEPTH = 64


def read_arguments(raw: str) -> dict[str, Any]:
    """The arguments of a call from their raw text: one whole JSON object.

    No text, or null, means no arguments; an object written into a JSON string is read, and so are line ends
    inside of strings. Raises ValueError, saying what is wrong, for everything else: it is cut, no JSON (NaN),
    no object, or nothing that a database takes.
    """
    value = _parsed(raw) if raw.strip() else {}
    if isinstance(value, str):
        value = _parsed(value) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    if not storable(value):
        raise ValueError("nested too deep, or a number too large")
    return value


def complete_json(raw: str) -> bool:
    """Whether `raw` is the whole text of a call's arguments, as `read_arguments` reads them."""
    try:
        read_arguments(raw)
    except ValueError:
        return False
    return True


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_json)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def storable(value: Any, depth: int = _DEPTH) -> bool:
    """Whether this is a JSON value that a database takes: not nested too deep, no integer beyond 64 bits, no
    infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, str):
        return True
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        named = not isinstance(value, dict) or all(isinstance(key, str) for key in value)
        return depth > 0 and named and all(storable(part, depth - 1) for part in parts)
    return value is None
