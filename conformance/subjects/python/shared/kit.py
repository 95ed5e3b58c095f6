"""The tools of a run, as plain Python functions with types and docstrings. Standard library only.

What a tool does takes place at the suite: each function here sends its arguments there.
"""

import importlib.util
import json
import keyword
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from wire import Setup

PATIENCE = 120
"""Seconds for one call of a tool."""
_NUMBERS = count()
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict[str, Any]"}


class Kit:
    """The tools of the setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.reads = frozenset(one["name"] for one in setup.tools if one["reads"])
        """The names of those that change nothing; all others may."""

    def functions(self) -> list[Callable[..., str]]:
        """The tools, each a function in a module with a source, which some frameworks read."""
        file = self.setup.folder / f"tools_{next(_NUMBERS)}.py"
        file.write_text(_HEAD + "".join(map(_source, self.setup.tools)))
        spec = importlib.util.spec_from_file_location(f"loopcheck_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        vars(module)["call"] = self.call
        spec.loader.exec_module(module)
        return [getattr(module, one["name"]) for one in self.setup.tools]

    def call(self, name: str, args: Mapping[str, Any]) -> str:
        """Calls the tool at the suite. Raises OSError with its words when it fails there."""
        given = {key: value for key, value in args.items() if value is not None}
        return str(self._post(f"/call/{name}", given)["result"])

    def gate(self) -> str | None:
        """The completion check: None when the work is done, else what is missing. For `setup.gate`."""
        found: str | None = self._post("/gate", {})["missing"]
        return found

    def loose(self, name: str) -> bool:
        """Whether an argument of this tool is an object of any keys, which a strict schema cannot say."""
        tool = next(one for one in self.setup.tools if one["name"] == name)
        return "dict[" in _source(tool)

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self.setup.tools_url + path, json.dumps(body, default=_plain).encode(), head
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as failed:
            raise OSError(json.load(failed)["error"]) from None


_HEAD = '"""The tools of one run."""\n\nfrom typing import Any\n'


def _source(tool: Mapping[str, Any]) -> str:
    """The tool as a function in Python."""
    schema = tool["parameters"]
    needed, found = set(schema.get("required", ())), dict(schema.get("properties", {}))
    names = sorted(found, key=lambda name: name not in needed)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in [tool["name"], *names])
    parts = [f"{name}: {_type(found[name])}" + ("" if name in needed else " | None = None") for name in names]
    lines = [f"        {name}: {_words(found[name].get('description') or name)}" for name in names]
    told = _words(tool["description"])
    docs = "\n".join([told, "", "    Args:", *lines, "    "]) if names else told
    given = ", ".join(f'"{name}": {name}' for name in names)
    return (
        f"\n\ndef {tool['name']}({', '.join(parts)}) -> str:\n"
        f'    """{docs}"""\n    return call("{tool["name"]}", {{{given}}})\n'
    )


def _type(schema: Mapping[str, Any]) -> str:
    """The type of an argument in Python."""
    kinds = [_type(one) for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if kinds:
        return next((one for one in kinds if "dict[" in one), kinds[0])
    if "$ref" in schema or "properties" in schema:
        return _TYPES["object"]
    kind = schema.get("type", "string")
    kind = next((one for one in kind if one != "null"), "string") if isinstance(kind, list) else kind
    if kind == "array":
        return f"list[{_type(schema.get('items') or {})}]"
    return _TYPES.get(kind, "str")


def _words(text: str) -> str:
    """Words that can stand in a docstring, in one line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace('"', "'")


def _plain(value: Any) -> Any:
    """What a framework made of an argument, as JSON has it."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
