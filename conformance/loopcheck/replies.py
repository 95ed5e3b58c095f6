"""The replies of a scripted model, as data independent of any framework, and their wire format.

A `Finish`, an `Ask` and a `Delegate` are rendered in the form of the framework under test, which its adapter
declares.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Template = Mapping[str, Any]
"""`{"text": "$text"}` or `{"name": "finish", "args": {"summary": "$text"}}`; `$text` is the text, `$value`
the structured answer, `$json` the same as JSON, `$default` and `$seconds` belong to a question, `$name`
is the name of the sub-agent."""


@dataclass(frozen=True)
class Call:
    """A tool call. id: the provider's ID, None for a fresh one. raw: the exact argument text."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None


@dataclass(frozen=True)
class Finish:
    """The end of the work, with `text`. cut: the argument text is truncated."""

    text: str
    value: Mapping[str, Any] | None = None
    cut: bool = False


@dataclass(frozen=True)
class Ask:
    """A question to the user; `default` applies if nobody answers within `seconds`."""

    question: str
    default: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Delegate:
    """A task for the sub-agent `name`."""

    name: str
    task: str


Part = str | Call | Finish | Ask | Delegate


@dataclass(frozen=True)
class Reply:
    """One reply. reason: the provider's finish reason, None for the usual one. error: an HTTP status
    instead of a reply; 0 for a connection that drops in the middle of one."""

    parts: tuple[Part, ...] = ()
    reason: str | None = None
    error: int | None = None


@dataclass(frozen=True)
class Manner:
    """How a framework's model ends, asks and delegates: one template for each way of ending, one for a
    question, one for a call to a sub-agent."""

    finish: Mapping[str, Template]
    ask: Template | None = None
    delegate: Template | None = None

    def ending(self, way: str) -> Template:
        return self.finish[way if way in self.finish else "any"]


@dataclass(frozen=True)
class Wire:
    """A reply in OpenAI's chat format, before any streaming. shown: characters of the request."""

    text: str
    calls: tuple[dict[str, Any], ...]
    reason: str
    shown: int = 0


def render(said: Reply, manner: Manner, way: str, ids: Iterator[str]) -> Wire:
    """Renders `said` in this framework's form. way: `any`, `call` or `structured`."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in said.parts:
        match part:
            case str():
                texts.append(part)
            case Call():
                calls.append(_call(part.name, _arguments(part), part.id, ids))
            case Finish():
                template = manner.ending(way)
                values = {"text": part.text, "value": part.value, "json": _json(part.value)}
                _add(template, values, part.cut, texts, calls, ids)
            case Ask():
                assert manner.ask is not None, "a case with a question needs the feature `ask`"
                asked: dict[str, Any] = {
                    "text": part.question,
                    "default": part.default,
                    "seconds": part.seconds,
                }
                _add(manner.ask, asked, False, texts, calls, ids)
            case Delegate():
                assert manner.delegate is not None, "a case with sub-agents needs the feature `children`"
                given = {"name": part.name, "text": part.task}
                _add(manner.delegate, given, False, texts, calls, ids)
    natural = "tool_calls" if calls else "stop"
    return Wire("\n".join(texts), tuple(calls), said.reason or natural)


def _add(
    template: Template,
    values: Mapping[str, Any],
    cut: bool,
    texts: list[str],
    calls: list[dict[str, Any]],
    ids: Iterator[str],
) -> None:
    if "name" not in template:
        text = str(_filled(template["text"], values))
        texts.append(text[: len(text) * 2 // 3] if cut else text)
        return
    name = str(_filled(template["name"], values))
    arguments = json.dumps(_filled(template["args"], values))
    calls.append(_call(name, arguments[: len(arguments) * 2 // 3] if cut else arguments, None, ids))


def _arguments(part: Call) -> str:
    return json.dumps(dict(part.args)) if part.raw is None else part.raw


def _call(name: str, arguments: str, id: str | None, ids: Iterator[str]) -> dict[str, Any]:
    given = next(ids) if id is None else id
    return {"id": given, "type": "function", "function": {"name": name, "arguments": arguments}}


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Fills the template with its values; omits an argument without a value."""
    if isinstance(template, str) and template.startswith("$"):
        return values[template[1:]]
    if isinstance(template, Mapping):
        found = {key: _filled(value, values) for key, value in template.items()}
        return {key: value for key, value in found.items() if value is not None}
    return template


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(dict(value))
