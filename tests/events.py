"""`python -m tests.events` writes the second half of docs/reference/events.md: the program that streams
events to a web page, every event with its fields, and their JSON schema."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

from signoff.session.decisions import Decision
from signoff.session.events import Called, SessionEvent, events_schema

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "events.md"
_MARK = "<!-- What follows is written by `python -m tests.events`. -->\n"
_COMMON = ("seq", "at", "path")
_WRITTEN = """
```python
{code}```

## The events

Every event has `seq`, `at` and `path` beside these fields.

| event | `type` | fields | meaning |
| --- | --- | --- | --- |
{events}
`Decided.decision` is one of these, with its own `type`; `Said.calls` holds values of `Called`.

| value | fields | meaning |
| --- | --- | --- |
{values}
## The schema

JSON Schema of what `to_dict` gives: one of the events in `$defs`. `events_schema()` gives it to a program.

```json
{schema}
```
"""


def page() -> str:
    """docs/reference/events.md, its second half written anew."""
    said = PAGE.read_text("utf-8").partition(_MARK)[0]
    events = [_row(kind, f"| `{kind.__name__}` | `{kind.type}`") for kind in get_args(SessionEvent)]
    values = [_row(kind, f"| `{kind.__name__}`") for kind in (*_decisions(), Called)]
    code = (ROOT / "examples" / "web.py").read_text("utf-8").split("\n\n", 2)[2]
    schema = "\n".join(_lines(events_schema()))
    return (
        said
        + _MARK
        + _WRITTEN.format(code=code, events="".join(events), values="".join(values), schema=schema)
    )


def _decisions() -> list[Any]:
    return [get_origin(kind) or kind for kind in get_args(Decision)]


def _row(kind: Any, begin: str) -> str:
    text = inspect.getdoc(kind) or ""
    told = " ".join(text.split()).replace("|", "\\|")
    names = ", ".join(f"`{one.name}`" for one in fields(kind) if one.name not in _COMMON)
    return f"{begin} | {names} | {told} |\n"


def _lines(schema: dict[str, Any]) -> Iterator[str]:
    """The schema, one definition a line."""
    yield '{"$schema": ' + json.dumps(schema["$schema"]) + ","
    yield '"anyOf": ' + json.dumps(schema["anyOf"]) + ","
    yield '"$defs": {'
    found = [f"{json.dumps(name)}: {json.dumps(known)}" for name, known in schema["$defs"].items()]
    yield ",\n".join(found)
    yield "}}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
