"""The prompt for a task, an answer, a decision or a search, of any number of lines."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea


class Prompt(TextArea):
    """Enter sends the text; Ctrl-J begins a new line, and pasted text keeps its lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send", show=False, priority=True),
        Binding("ctrl+j,shift+enter,alt+enter", "new_line", "new line", show=False, priority=True),
        # A text area binds these keys itself.
        Binding("f6", "app.terminal", "terminal", key_display="F6"),
        Binding("f7", "app.machine", "machine", show=False),
    ]

    class Submitted(Message):
        """A person has sent `value`."""

        def __init__(self, prompt: "Prompt", value: str) -> None:
            super().__init__()
            self.prompt, self.value = prompt, value

    def __init__(self) -> None:
        super().__init__(id="prompt", highlight_cursor_line=False, tab_behavior="focus")

    @property
    def value(self) -> str:
        return self.text

    @value.setter
    def value(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        self.post_message(self.Submitted(self, self.text))

    def action_new_line(self) -> None:
        self.insert("\n")
