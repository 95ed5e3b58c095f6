"""What the thread waits for, and the ways to answer: a card with buttons above the prompt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button

from signoff.front.cards import Card, approving, asking, card
from signoff.front.choices import Choice, answer_of, choices, decision_of
from signoff.session.decisions import Action, Approval, PendingCall, Waiting

_MARGIN = 4
"""Beside the buttons, with a scroll bar."""
_NARROWEST = 10
_BESIDE_LABEL = 4


class LaidOut(Widget):
    """A text of any length: it is laid out once for each width, and only the lines in sight are drawn."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._content: RenderableType = ""
        self._lines: list[list[Segment]] = []
        self._width = -1
        """Of the lines; -1 before they are laid out."""

    def update(self, content: RenderableType) -> None:
        self._content, self._width = content, -1
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._laid_out(width))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = self._laid_out(width)
        return Strip(lines[y], width).apply_style(self.rich_style) if y < len(lines) else Strip.blank(width)

    def _laid_out(self, width: int) -> list[list[Segment]]:
        if width != self._width:
            options = self.app.console_options.update(width=width, height=None, highlight=False)
            self._lines, self._width = self.app.console.render_lines(self._content, options), width
        return self._lines


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
        self._width = 0
        """That of the screen when the buttons were placed."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="asked"):
            yield LaidOut(id="card")
        yield VerticalScroll(id="choices", can_focus=False)

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
        place = self.query_one("#choices", VerticalScroll)
        place.remove_children()
        if self.waiting is None:
            return
        self.query_one("#card", LaidOut).update(card(self._card(self.waiting), boxed=True))
        self._width = self.app.size.width
        for row in _rows(self.choices(), self._width - _MARGIN):
            buttons = (Button(Content(_label(one)), variant=_variant(one), name=one.key) for one in row)
            place.mount(Horizontal(*buttons))

    def on_resize(self) -> None:
        if self.waiting is not None and self._width != self.app.size.width:
            self._show()

    def _card(self, waiting: Waiting) -> Card:
        if isinstance(waiting, Approval) and self.call and len(waiting.calls) > 1:
            title = f"Waiting for approval, {len(self.decided) + 1} of {len(waiting.calls)}"
            return Card(title, "magenta", approving(self.call))
        return asking(waiting)


def _label(choice: Choice) -> str:
    return f"{choice.label} ({choice.key})"


def _rows(every: Sequence[Choice], width: int) -> Iterator[list[Choice]]:
    """The choices in rows of buttons that are not wider than this."""
    row, left = list[Choice](), width
    for choice in every:
        needed = max(_NARROWEST, cell_len(_label(choice)) + _BESIDE_LABEL) + 1
        if row and needed > left:
            yield row
            row, left = [], width
        row.append(choice)
        left -= needed
    if row:
        yield row


def _variant(choice: Choice) -> Any:
    return choice.tone
