"""What the thread waits for, and the ways to answer: a card with buttons above the prompt."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Static

from signoff.front.cards import Card, approving, asking, card
from signoff.front.text import cut, named, one_line
from signoff.graph.errors import ThreadError
from signoff.session.decisions import (
    Action,
    Approval,
    Confirmation,
    PendingCall,
    Question,
    Waiting,
    read_json,
)
from signoff.ui.work import SHELL

_OPTION = 40
_UNKNOWN = "It is not known whether this was done. Check before you do it again."
_MOST_OPTIONS = 9


@dataclass(frozen=True)
class Choice:
    """A button. key: the letter that presses it. answer: its answer; None when more must be typed."""

    key: str
    label: str
    variant: str
    answer: Any = None


class Asking(Vertical):
    """Shows one waiting question, action or approval.

    Several calls are decided one by one and delivered together.
    """

    class Answered(Message):
        """A person has answered `waiting` with `value`."""

        def __init__(self, waiting: Waiting, value: Any) -> None:
            super().__init__()
            self.waiting, self.value = waiting, value

    class Wanted(Message):
        """The choice `key` needs typed text: a reason, new arguments, an answer for the model."""

        def __init__(self, key: str, call: PendingCall) -> None:
            super().__init__()
            self.key, self.call = key, call

    class Again(Message):
        """The person wants to run an action with unknown outcome again."""

        def __init__(self, action: Action) -> None:
            super().__init__()
            self.action = action

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Waiting | None = None
        self.decided: list[Mapping[str, Any]] = []

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="asked"):
            yield Static(id="card")
        yield Horizontal(id="choices")

    def ask(self, waiting: Waiting | None) -> None:
        """Shows `waiting`; None hides everything."""
        self.waiting, self.decided = waiting, []
        self._show()

    def press(self, key: str) -> bool:
        """Takes the choice with this key; returns False when there is none."""
        found = next((choice for choice in self.choices() if choice.key == key), None)
        if found is None or self.waiting is None:
            return False
        if found.answer is not None:
            self.take(found.answer)
        elif self.call:
            self.post_message(self.Wanted(key, self.call))
        elif isinstance(self.waiting, Action):
            self.post_message(self.Again(self.waiting))
        return True

    def take(self, value: Any) -> None:
        """Takes an answer, or a decision on the shown call. Raises ThreadError when it is not valid."""
        waiting = self.waiting
        if not isinstance(waiting, Approval):
            if waiting is not None:
                waiting.read(value)
                self.post_message(self.Answered(waiting, value))
            return
        call = waiting.calls[len(self.decided)]
        Approval("", (call,)).read([value])
        self.decided.append(value)
        if len(self.decided) == len(waiting.calls):
            self.post_message(self.Answered(waiting, self.decided))
        else:
            self._show()

    def typed(self, text: str) -> None:
        """Takes what was typed into the prompt. Raises ThreadError when it is not valid."""
        waiting = self.waiting
        if isinstance(waiting, Question) and text.isdecimal() and 0 < int(text) <= len(waiting.options):
            self.take(waiting.options[int(text) - 1])
        elif call := self.call:
            self.take(_decision(text, call))
        else:
            self.take(text)

    @property
    def call(self) -> PendingCall | None:
        """Returns the call to decide on now."""
        waiting = self.waiting
        return waiting.calls[len(self.decided)] if isinstance(waiting, Approval) else None

    def choices(self) -> list[Choice]:
        return list(_choices(self.waiting, self.call)) if self.waiting else []

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.press((event.button.name or "")[:1])

    def _show(self) -> None:
        self.set_class(self.waiting is not None, "-asked")
        row = self.query_one("#choices", Horizontal)
        row.remove_children()
        if self.waiting is None:
            return
        self.query_one("#card", Static).update(card(self._card(self.waiting), boxed=True))
        row.mount_all(
            Button(Content(f"{choice.label} ({choice.key})"), variant=_variant(choice), name=choice.key)
            for choice in self.choices()
        )

    def _card(self, waiting: Waiting) -> Card:
        if isinstance(waiting, Approval) and self.call and len(waiting.calls) > 1:
            title = f"Waiting for approval, {len(self.decided) + 1} of {len(waiting.calls)}"
            return Card(title, "magenta", approving(self.call))
        return asking(waiting)


def _choices(waiting: Waiting, call: PendingCall | None) -> Iterator[Choice]:
    if isinstance(waiting, Question):
        for number, option in enumerate(waiting.options[:_MOST_OPTIONS], start=1):
            yield Choice(str(number), cut(one_line(option), _OPTION), "primary", option)
    elif isinstance(waiting, Confirmation):
        yield Choice("y", "Confirm", "success", "yes")
    elif isinstance(waiting, Action):
        if waiting.unknown and waiting.tool == SHELL:
            yield Choice("g", "Run it again", "warning")
        yield Choice("u", "Report that it is not known", "primary", {"output": _UNKNOWN, "status": "error"})
    elif call:
        known = {
            "approve": Choice("a", "Approve", "success", {"type": "approve"}),
            "edit": Choice("e", "Edit", "primary"),
            "reject": Choice("r", "Reject", "error"),
            "respond": Choice("w", "Answer in its place", "default"),
        }
        yield from (known[kind] for kind in known if kind in call.allowed)


def _decision(text: str, call: PendingCall) -> Mapping[str, Any]:
    """Returns the decision typed for a call: its word, `reject: why`, or JSON of one decision."""
    word, _, rest = text.partition(":")
    kind = word.strip().lower()
    if kind == "edit":
        try:
            return {"type": kind, "edited_action": {"name": call.name, "args": read_json(rest)}}
        except ValueError as error:
            raise ThreadError(f"The arguments are not valid JSON ({error}).") from error
    if kind in ("reject", "respond"):
        return {"type": kind, "message": rest.strip()}
    if kind == "approve":
        return {"type": kind}
    ways = ", ".join(call.allowed)
    raise ThreadError(f"Press a button, or type one of: {ways}; `reject: why` gives a reason.")


def arguments_text(call: PendingCall) -> str:
    """Returns the arguments of a call as text to edit."""
    return named(json.dumps(dict(call.args), indent=2, ensure_ascii=False, default=str))


def hint(waiting: Waiting | None) -> str:
    """Returns the hint of the prompt."""
    if isinstance(waiting, Question):
        return "your answer, or the number of one"
    if isinstance(waiting, Confirmation):
        return "yes, or what is wrong"
    if isinstance(waiting, Action):
        return "its result"
    return "approve, or reject: why" if waiting else "what is to be done; Enter sends it"


def _variant(choice: Choice) -> Any:
    return choice.variant
