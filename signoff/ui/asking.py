"""What the thread waits for, and the ways to answer: a card with buttons above the prompt."""

from collections.abc import Mapping
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Static

from signoff.front.cards import Card, approving, asking, card
from signoff.front.choices import Choice, answer_of, choices, decision_of
from signoff.session.decisions import Action, Approval, PendingCall, Waiting


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
        if call := self.call:
            self.take(decision_of(text, call))
        elif self.waiting is not None:
            self.take(answer_of([text], self.waiting))

    @property
    def call(self) -> PendingCall | None:
        """Returns the call to decide on now."""
        waiting = self.waiting
        return waiting.calls[len(self.decided)] if isinstance(waiting, Approval) else None

    def choices(self) -> list[Choice]:
        return list(choices(self.waiting, self.call)) if self.waiting else []

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


def _variant(choice: Choice) -> Any:
    return choice.tone
