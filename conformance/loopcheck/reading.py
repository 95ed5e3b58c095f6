"""Reads data files. Each value knows its place, so that an error names the file and the field."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BadFile(ValueError):
    """An invalid file; the message names the file and the field."""


@dataclass(frozen=True)
class Node:
    """A value in a file, and its place."""

    value: Any
    at: str

    def bad(self, why: str) -> BadFile:
        return BadFile(f"{self.at}: {why}")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.bad(f"a text is required, not {_shown(self.value)}")
        return self.value

    def words(self) -> str:
        """Reads a text that is not empty."""
        if not self.text().strip():
            raise self.bad("it is empty")
        return self.text()

    def number(self) -> int:
        """Reads a whole number, 0 or more."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            raise self.bad(f"a number is required, not {_shown(self.value)}")
        return self.value

    def positive(self) -> int:
        if self.number() == 0:
            raise self.bad("it is 0; a number from 1 on is required")
        return self.number()

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.bad(f"true or false is required, not {_shown(self.value)}")
        return self.value

    def anything(self) -> Any:
        return self.value

    def one_of(self, known: Collection[str], what: str) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            raise self.bad(f"there is no {what} {_shown(self.value)}; there are: {', '.join(known)}")
        return self.value

    def items(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self.bad(f"a list is required, not {_shown(self.value)}")
        return [Node(value, f"{self.at}[{at}]") for at, value in enumerate(self.value)]

    def fields(self) -> dict[str, "Node"]:
        if not isinstance(self.value, dict):
            raise self.bad(f"an object is required, not {_shown(self.value)}")
        dot = "" if self.at.endswith(": ") else "."
        return {name: Node(value, f"{self.at}{dot}{name}") for name, value in self.value.items()}

    def mapping(self) -> Mapping[str, Any]:
        """Reads an object with any fields."""
        self.fields()
        return dict(self.value)

    def object(self, known: Mapping[str, "Read"], required: Collection[str] = ()) -> dict[str, Any]:
        """Reads the fields of an object, each with its reader in `known`."""
        given = self.fields()
        for name, node in given.items():
            if name not in known:
                raise node.bad(f"there is no such field; the fields are: {', '.join(known)}")
        for name in required:
            if name not in given:
                raise self.bad(f"the field {name!r} is missing")
        return {name: known[name](node) for name, node in given.items()}


Read = Callable[[Node], Any]


def many(read: Read) -> Read:
    """Reads a list with this reader for its items."""
    return lambda node: tuple(read(item) for item in node.items())


def optional(read: Read) -> Read:
    """Also accepts null."""
    return lambda node: None if node.value is None else read(node)


def choice(known: Collection[str], what: str) -> Read:
    """Reads one of these names."""
    return lambda node: node.one_of(known, what)


def read_file(file: Path) -> Node:
    """Parses a JSON file. Raises BadFile if it is not valid, or if an object has a field twice."""
    at = f"{file.parent.name}/{file.name}"

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise BadFile(f"{at}: the field {twice[0]!r} appears twice in one object")
        return dict(pairs)

    try:
        return Node(json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=once), f"{at}: ")
    except (OSError, UnicodeError, json.JSONDecodeError) as error:
        raise BadFile(f"{at}: it is not valid JSON: {error}") from error


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
