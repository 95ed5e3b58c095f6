"""The conversation: every event of a thread as an item or a card."""

from collections.abc import Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from signoff.front.calls import in_short, recorded
from signoff.front.cards import AMBER, WHY, Card, Lines, card, ending
from signoff.front.database import Database
from signoff.front.report import of_outcome
from signoff.front.text import cut, one_line, plain
from signoff.session.events import CallFinished, Ended, Nudged, Retrying, Said, SessionEvent, Wrote

_SHOWN = 300
_LONG = 1_200
_MOST = 40_000
_COMING = 2_000
_WHY = 60
_REMINDER = 400


class Item(Static):
    """One event. words: the text that a search looks at."""

    def __init__(self, content: RenderableType, words: str) -> None:
        super().__init__(_as_rich(content), classes="item")
        self.words = words[:_MOST].lower()


def _as_rich(content: RenderableType) -> RenderableType:
    """Textual converts a bare Text, and supports fewer colours."""
    return Group(content) if isinstance(content, Text) else content


class Foldable(Item):
    """An item that Enter or a click opens to its full form, and closes again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "fold", "open / close")]
    can_focus = True

    def __init__(self, short: RenderableType, full: RenderableType, words: str) -> None:
        super().__init__(short, words)
        self.short, self.full, self.open = short, full, False

    def action_fold(self) -> None:
        self.open = not self.open
        self.update(_as_rich(self.full if self.open else self.short))

    def on_click(self) -> None:
        self.action_fold()


class Conversation(VerticalScroll):
    """Shows events as they come; follows the end while it is scrolled there.

    Of a long thread the newest items are shown; `earlier` is the number of those left out.
    """

    BORDER_TITLE = "conversation"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database, self.thread_id = database, ""
        self.lines = Lines(boxed=True)
        self.found = -1
        self.coming = ""

    def begin(
        self, thread_id: str, events: Sequence[SessionEvent], welcome: RenderableType | None = None
    ) -> None:
        """Shows another thread. welcome: what an empty thread shows until its first event."""
        self.thread_id = thread_id
        self.query(Item).remove()
        self.query("#welcome").remove()
        if welcome is not None and not events:
            self.mount(Static(welcome, id="welcome"))
        self.lines, self.coming, self.found = Lines(boxed=True), "", -1
        hidden = max(0, len(events) - _SHOWN)
        items = [item for event in events[hidden:] if (item := self._item(event))]
        if hidden:
            note = f"{hidden:,} earlier entries; `signoff show` prints all of them."
            items.insert(0, Item(Text(note, style="dim"), note))
        self.mount_all(items)
        self.anchor()

    def add(self, event: SessionEvent) -> None:
        if isinstance(event, Said | Retrying):
            self.coming = ""
            self.query("#coming").remove()
        if item := self._item(event):
            self._mount(item)

    def say(self, content: Card | Text) -> None:
        """Shows a card or a remark of the application itself."""
        shown = card(content, boxed=True) if isinstance(content, Card) else content
        words = f"{content.title} {content.body}" if isinstance(content, Card) else content.plain
        self._mount(Item(shown, words))

    def token(self, text: str) -> None:
        """Adds a chunk of the arriving reply."""
        self.coming = (self.coming + text)[-_COMING:]
        shown = Text(plain(self.coming), style="italic dim")
        if known := self.query("#coming"):
            known.only_one(Static).update(Group(shown))
        else:
            self.mount(Static(Group(shown), id="coming"))

    def find(self, words: str) -> bool:
        """Goes to the next older item that contains `words`; returns False if there is none."""
        items, wanted = list(self.query(Item)), words.lower()
        order = [*range(self.found - 1, -1, -1), *range(len(items) - 1, self.found - 1, -1)]
        at = next((at for at in order if wanted in items[at].words), None) if wanted else None
        for item in items:
            item.remove_class("found")
        if at is None:
            self.found = -1
            return False
        self.found = at
        items[at].add_class("found")
        items[at].scroll_visible(animate=False)
        return True

    def _mount(self, item: Item) -> None:
        self.query("#welcome").remove()
        self.mount(item)
        items = self.query(Item)
        if len(items) > 2 * _SHOWN:
            items.first().remove()

    def _item(self, event: SessionEvent) -> Item | None:
        before = self.lines.turn
        item = self._item_of(event)
        if item and (isinstance(event, Wrote | Ended) or self.lines.turn != before):
            # A little space before each turn.
            item.add_class("-opens")
        return item

    def _item_of(self, event: SessionEvent) -> Item | None:
        match event:
            case CallFinished():
                words = f"{event.name} {event.args} {event.result[:_MOST]}"
                short = self.lines.render(event)
                return Foldable(short or "", _call(event), words)
            case Nudged(why=why, text=text) if why != "resumed":
                return Item(_reminder(why, text), text)
            case Ended(outcome=outcome):
                end = ending(of_outcome(outcome, self.thread_id, self.database))
                return Item(card(end, boxed=True), f"{end.title} {end.body}")
            case Said(text=text) if len(text) > _LONG:
                short = self.lines.render(event)
                return Foldable(short or "", _whole(text), text)
        shown = self.lines.render(event)
        return None if shown is None else Item(shown, _texts(event))


def _texts(event: SessionEvent) -> str:
    return " ".join(value for value in vars(event).values() if isinstance(value, str) and value)


def _call(call: CallFinished) -> RenderableType:
    """Returns a call with its arguments and its result, up to a readable length."""
    head = in_short(call)[0]
    style = "" if call.ok else "red"
    result = Text(_cut(call.result), style=style)
    facts = f"{call.seconds:.2f} s · call {one_line(call.call_id)}"
    return Group(head, recorded(call), Text("── result ──", style="dim"), result,
                 Text(facts, style="dim"))  # fmt: skip


def _whole(text: str) -> RenderableType:
    return Text(_cut(text))


def _cut(text: str) -> str:
    """Truncates the text; the person must know that there is more."""
    left = len(text) - _MOST
    shown = plain(text[:_MOST])
    return shown if left <= 0 else f"{shown}\n… {left:,} more characters not shown"


def _reminder(why: str, text: str) -> RenderableType:
    title = f"reminder: {WHY.get(why, cut(one_line(why), _WHY))}"
    return Padding(card(Card(title, AMBER, cut(plain(text), _REMINDER)), boxed=True), (0, 0, 0, 4))
