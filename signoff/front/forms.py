"""Presents what a thread waits for as a form for a protocol's client, and reads the filled-in form.

The form is a flat JSON schema of strings, as elicitation in MCP and ACP requires. Its values are read like
typed text, by `signoff.front.answering`.
"""

from collections.abc import Mapping
from typing import Any

from signoff import Approval, PendingCall, Question, ThreadError, Waiting
from signoff.front.choices import arguments_text
from signoff.front.text import escape_invisible, one_line

Schema = dict[str, Any]

_DECISIONS = {
    "approve": "run it as it is",
    "edit": "run it with the arguments below",
    "reject": "do not run it; the message says why",
    "respond": "do not run it; the message is its result",
}


def make_form(waiting: Waiting, call: PendingCall | None = None) -> Schema:
    """Returns the fields of the form; for an approval, those for one of its calls."""
    if isinstance(waiting, Approval) and call is not None:
        return _make_decision_form(call)
    if isinstance(waiting, Question) and waiting.options:
        return _make_schema(
            answer=_make_text_field("Answer", enum=[escape_invisible(option) for option in waiting.options]),
            words=_make_text_field("Another answer", "It replaces the choice above."),
        )
    return {**_make_schema(words=_make_text_field("Answer")), "required": ["words"]}


def make_arguments_form(call: PendingCall) -> Schema:
    """Returns the field for a call's arguments, for editing."""
    return {**_make_schema(arguments=_make_arguments_field(call)), "required": ["arguments"]}


def read_form(waiting: Waiting, content: Mapping[str, Any] | None, call: PendingCall | None = None) -> str:
    """Returns the answer in a filled-in form; empty if nothing was filled in. Raises ThreadError if its
    fields contradict each other."""
    found = {name: str(value).strip() for name, value in (content or {}).items() if value is not None}
    if not (isinstance(waiting, Approval) and call is not None):
        words = found.get("words") or found.get("answer", "")
        options = waiting.options if isinstance(waiting, Question) else ()
        # The exact option; the form shows only its printable form.
        return next((option for option in options if escape_invisible(option) == words), words)
    decision, message = found.get("decision", ""), found.get("message", "")
    arguments = found.get("arguments", "")
    if decision == "edit":
        return f"edit: {arguments}"
    if decision == "approve" and arguments not in ("", arguments_text(call).strip()):
        raise ThreadError("The arguments were changed, but the decision is approve; choose edit to run them.")
    return f"{decision}: {message}" if message and decision in ("reject", "respond") else decision


def _make_decision_form(call: PendingCall) -> Schema:
    ways = [kind for kind in _DECISIONS if kind in call.allowed]
    told = "; ".join(f"{kind}: {_DECISIONS[kind]}" for kind in ways)
    fields = {"decision": _make_text_field(f"{one_line(call.name)}: run it?", told, enum=ways)}
    if "edit" in ways:
        fields["arguments"] = _make_arguments_field(call)
    if {"reject", "respond"} & set(ways):
        fields["message"] = _make_text_field("Message")
    return {**_make_schema(**fields), "required": ["decision"]}


def _make_arguments_field(call: PendingCall) -> Schema:
    return _make_text_field("Arguments", "As JSON.", default=arguments_text(call))


def _make_schema(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields}


def _make_text_field(title: str, description: str = "", **more: Any) -> Schema:
    return {"type": "string", "title": title, **({"description": description} if description else {}), **more}
