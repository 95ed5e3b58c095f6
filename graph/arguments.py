"""Checks of arguments: each mistake raises one sentence that names the argument and says what to write."""

import inspect
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from langchain_core.tools import BaseTool

from signoff.graph.errors import SetupError

_Number = TypeVar("_Number", bound=float | None)
_Word = TypeVar("_Word", bound=str)


def describe(given: object) -> str:
    """A short description of a value: the name of a class or a function, else its repr."""
    if inspect.isclass(given):
        return f"the class {given.__name__}"
    if inspect.isroutine(given) and hasattr(given, "__name__"):
        return f"the function {given.__name__}"
    return reprlib.repr(given)


def listed(name: str, given: Any, example: str) -> list[Any]:
    """The members of a list argument; None counts as empty. example: how to write it."""
    if given is None:
        return []
    single = isinstance(given, str | bytes | Mapping | BaseTool) or inspect.isclass(given)
    if single or not isinstance(given, Iterable):
        raise SetupError(f"{name}= is {describe(given)}, not a list; write {name}={example}.")
    return list(given)


def positive(name: str, value: _Number, *, whole: bool = False, none: bool = True) -> _Number:
    """A number above 0. whole: an integer. none: None is allowed, for no limit."""
    if value is None and none:
        return value
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or value is None or not 0 < value < inf:
        kind = "a whole number" if whole else "a number"
        raise SetupError(f"{name} is {describe(value)}; pass {kind} above 0{', or None' if none else ''}.")
    return value


def flag(name: str, value: object) -> bool:
    """True or False, and nothing else: a string such as "false" would count as true."""
    if not isinstance(value, bool):
        raise SetupError(f"{name} is {describe(value)}; pass True or False.")
    return value


def one_of(name: str, value: object, words: Sequence[_Word]) -> _Word:
    """One of the allowed words."""
    for word in words:
        if isinstance(value, str) and word == value:
            return word
    raise SetupError(f"{name} is {describe(value)}; use one of: {', '.join(words)}.")
