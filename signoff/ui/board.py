"""The view of one thread, and how each event changes it."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import DescendantBlur
from textual.widgets import Static

from signoff.front.cards import AMBER, COLOURS
from signoff.front.choices import hint
from signoff.front.database import Database
from signoff.front.settings import Settings
from signoff.front.text import cut, one_line
from signoff.front.work import Edge, Loading, News, Ready, Story
from signoff.front.working import shell_path
from signoff.graph.drawing.layout import MAIN_PATH, PAUSES
from signoff.graph.foreign import count_noun
from signoff.graph.machine import FIRST, State, edges
from signoff.graph.vocabulary import WAITS, heading
from signoff.models.local.weights import STAGE_WORDS
from signoff.session.decisions import Waiting
from signoff.session.events import CallStarted, Decided, Entered, Resumed, Stopping, Token
from signoff.session.status import Condition
from signoff.ui.asking import Asking
from signoff.ui.conversation import Conversation
from signoff.ui.pane import TerminalPane
from signoff.ui.prompt import Prompt

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_NAME = 40
_EXAMPLE = "Find out why the tests fail, and correct it."
_EDGES: Mapping[State, Mapping[State, str]] = edges()
_ARROW, _TARGET = 7, 12
_NUMBERS = 4


@dataclass
class Facts:
    """The contents of the status line.

    word: the activity, in one or two words. seconds: of work in the current task, until the run began.
    """

    word: str = "ready"
    style: str = "dim"
    turn: int = 0
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    thread: str = ""
    begun: float | None = None


class Status(Static):
    """Renders the facts, four times a second while the thread runs."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts()

    def on_mount(self) -> None:
        self.set_interval(0.25, self._tick)

    def begin(self, seconds: float) -> None:
        """Starts the clock of a run, after so many seconds of work."""
        self.facts.seconds, self.facts.begun = seconds, time.monotonic()
        self.tell("starting", "bold cyan")

    def worked(self, seconds: float) -> None:
        """Shows the saved seconds of work in the current task; nothing runs until the next event."""
        self.facts.seconds, self.facts.begun = seconds, None

    def end(self, word: str, style: str) -> None:
        if self.facts.begun is not None:
            self.facts.seconds += time.monotonic() - self.facts.begun
        self.facts.begun = None
        self.tell(word, style)

    def tell(self, word: str, style: str) -> None:
        self.facts.word, self.facts.style = word, style
        self.refresh()

    def entered(self, event: Entered) -> None:
        thinking = 1 if event.state == "call_llm" else 0
        self.facts.turn, self.facts.turns = min(event.turn + thinking, event.turns), event.turns
        self.facts.tokens = event.tokens
        self.tell(str(event.state), "bold cyan")

    def streamed(self) -> None:
        """Counts a chunk of a reply, about one token."""
        self.facts.tokens += 1

    def render(self) -> Text:
        facts, now = self.facts, time.monotonic()
        spinner = _SPINNER[int(now * 8) % len(_SPINNER)] if facts.begun is not None else "●"
        minutes, seconds = divmod(int(facts.seconds + (now - facts.begun if facts.begun else 0)), 60)
        parts = [f"turn {facts.turn} of {facts.turns}"] if facts.turns else []
        parts += [count_noun(facts.tokens, "token")] if facts.tokens else []
        parts += [f"{minutes}:{seconds:02} active"]
        parts += [cut(one_line(part), _NAME) for part in (facts.model, facts.thread) if part]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {spinner} {facts.word}  ", style=facts.style)
        return text.append(" · ".join(parts), style="dim")

    def _tick(self) -> None:
        if self.facts.begun is not None:
            self.refresh()


class _Row(NamedTuple):
    """One line of the picture, and the count at its end."""

    text: Text
    number: Text
    lit: bool = False


class MachineView(Static):
    """Shows the machine's state in the current task and its path.

    If there is no room for all edges, those that were never taken are left out, except the ones that leave
    the current state; if there is still no room, only the part around that state is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.border_title = "machine"
        self.at: State | None = None
        self.taken: Counter[Edge] = Counter()
        self.last: Edge | None = None

    def reset(self, at: State | None = None, taken: Counter[Edge] | None = None) -> None:
        """Clears the path for another task."""
        self.at, self.taken, self.last = at, Counter(taken or ()), None
        self.refresh(layout=True)

    def enter(self, state: State, source: State) -> None:
        """The machine went from `source` to `state`."""
        self.at, self.last = state, (source, state)
        self.taken[source, state] += 1
        self.refresh(layout=True)

    def render(self) -> RenderableType:
        height = max(1, self.size.height)
        rows = [row for state in _EDGES for row in self._rows(state, every=True)]
        if len(rows) > height:
            rows = [row for state in _EDGES for row in self._rows(state, every=False)]
        lit = next((place for place, row in enumerate(rows) if row.lit), 0)
        first = max(0, min(lit - height // 2, len(rows) - height))
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1, no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        for row in rows[first : first + height]:
            grid.add_row(row.text, row.number)
        return grid

    def _rows(self, state: State, every: bool) -> Iterator[_Row]:
        lit, visits = state is self.at, self._visits(state)
        style = f"bold {_colour(state)}" if visits or lit else "dim"
        name = Text(f" {state} ", style=f"{style} reverse" if lit else style)
        yield _Row(Text.assemble("● " if lit else "  ", name), Text(str(visits or ""), style="bold"), lit)
        shown = [to for to in _EDGES[state] if every or lit or self.taken[state, to]]
        for to in shown:
            yield from self._edge(state, to, to is shown[-1])

    def _edge(self, state: State, to: State, is_last: bool) -> Iterator[_Row]:
        """Returns the events of an edge, in as many lines as they need."""
        count, now = self.taken[state, to], (state, to) == self.last
        style = "bold yellow" if now else "" if count else "dim"
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"   {'└' if is_last else '├'}{'━' if now else '─'}▶ ", style="yellow" if now else "dim")
        text.append(f"{to:<{_TARGET}}", style=style)
        room = max(_TARGET, self.size.width - _ARROW - _TARGET - _NUMBERS)
        first, *more = wrap(_EDGES[state][to], room, break_long_words=False)
        text.append(first, style="yellow" if now else "dim")
        yield _Row(text, Text(str(count or ""), style=style))
        for line in more:
            below = f"   {' ' if is_last else '│'}".ljust(_ARROW + _TARGET)
            yield _Row(Text.assemble((below, "dim"), (line, "yellow" if now else "dim")), Text())

    def _visits(self, state: State) -> int:
        left = sum(count for (source, _), count in self.taken.items() if source is state)
        entered = sum(count for (_, to), count in self.taken.items() if to is state)
        return max(left, entered)


def _colour(state: State) -> str:
    if state is State.FINISH:
        # The card says how it ended.
        return "white"
    return "magenta" if state in PAUSES else "blue" if state in MAIN_PATH else "cyan"


class Board(Vertical):
    """The conversation and the machine side by side, the terminal, the question, the prompt, the status."""

    def __init__(self, database: Database) -> None:
        super().__init__(id="body")
        self.conversation = Conversation(database)
        self.machine = MachineView()
        self.asking = Asking()
        self.prompt = Prompt()
        self.status = Status()
        self.pane: TerminalPane | None = None
        self.folder = ""

    def compose(self) -> ComposeResult:
        with Horizontal(id="main"):
            yield self.conversation
            yield self.machine
        yield self.asking
        yield self.prompt
        yield self.status

    async def show(self, story: Story, settings: Settings, thread_id: str) -> None:
        """Shows a thread as it is saved."""
        status = story.status
        self.conversation.begin(thread_id, story.events, _welcome(settings))
        self.machine.reset(story.at, story.edges)
        facts = self.status.facts
        facts.turn, facts.turns = status.task.turns, status.task.most_turns(settings.turns)
        facts.tokens, facts.seconds = status.task.total.total_tokens, status.task.total.seconds
        facts.model, facts.thread = settings.model, thread_id
        self.set_class("shell" not in settings.tools, "-no-terminal")
        await self._terminal_in(settings.workspace)
        self.ask(None)
        self.status.end(*status_word(story))

    async def _terminal_in(self, folder: str) -> None:
        """Returns a terminal in this folder; the current one if its folder is the same."""
        if self.pane and self.folder == folder:
            return
        if self.pane:
            await self.pane.remove()
        path = shell_path(os.environ, Path(sys.executable), Path(sys.argv[0]))
        self.pane, self.folder = TerminalPane(folder, env={"PATH": path}), folder
        await self.mount(self.pane, after="#main")

    def catch_up(self, story: Story, seen: int) -> None:
        """Shows what another process has done since `seen` events."""
        for event in story.events[seen:]:
            self.conversation.add(event)
        self.machine.reset(story.at, story.edges)
        self.status.facts.turn = story.status.task.turns
        self.status.facts.tokens = story.status.task.total.total_tokens
        self.status.worked(story.status.task.total.seconds)
        self.status.tell(*status_word(story))

    def ask(self, waiting: Waiting | None) -> None:
        """Shows what waits for the person; None hides it."""
        self.asking.ask(waiting)
        self.hint()
        if waiting:
            self.status.end(WAITS[waiting.waits_for].to_you, "bold magenta")

    def hint(self) -> None:
        """Sets the hint of the prompt."""
        self.prompt.placeholder = hint(self.asking.waiting)

    def to_terminal(self) -> None:
        """Moves the focus to the terminal."""
        if self.pane and not self.has_class("-no-terminal"):
            self.add_class("-terminal")
            # A widget that is not shown yet cannot take the focus.
            self.call_after_refresh(self.pane.focus)

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        if event.widget is self.pane:
            self.remove_class("-terminal")

    def close_terminal(self) -> None:
        if self.pane:
            self.pane.close()

    def remark(self, text: str) -> None:
        """Shows a line of the application itself."""
        self.conversation.say(Text(f"    {text}", style=AMBER))

    def happened(self, news: News) -> None:
        """Shows an event of the running thread."""
        match news:
            case Loading():
                of = f" {news.done * 100 // news.total} %" if news.total else ""
                self.status.tell(f"{STAGE_WORDS[news.stage].lower()}{of}", "bold cyan")
            case Ready(settings=settings):
                self.status.facts.model = settings.model
            case Entered():
                if news.turn == 0 and news.source is FIRST:
                    # A new task starts a new picture.
                    self.machine.reset()
                self.machine.enter(news.state, news.source)
                self.status.entered(news)
            case Token(text=text):
                self.status.streamed()
                self.conversation.token(text)
            case CallStarted(name=name):
                self.status.tell(f"execute {one_line(name)}", "bold cyan")
            case Stopping():
                self.remark("Another process asks for a pause; stopping after this step.")
            case Resumed() | Decided():
                pass
            case _:
                self.conversation.add(news)


def _welcome(settings: Settings) -> RenderableType:
    """Returns the text of an empty thread: what to type, the settings, and the first keys to know."""
    tools = ", ".join(settings.tools) or "no tools"
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    for key, does in (
        ("Enter", "send the task"),
        ("Ctrl-J", "begin a new line in it"),
        ("F2", "open another thread"),
        ("F1", "all keys"),
    ):
        rows.add_row(key, does)
    return Group(
        Text("What is to be done?", style="bold"),
        Text("Type a task below, such as:"),
        Text(f"  {_EXAMPLE}", style="italic"),
        Text(),
        rows,
        Text(),
        Text(
            one_line(f"It works in {settings.workspace} with {tools}; the model is {settings.model}."),
            style="dim",
        ),
        Text(
            "It works until it signs off. Everything is saved as it happens; leave whenever you like.",
            style="dim",
        ),
    )


def status_word(story: Story) -> tuple[str, str]:
    """Returns a word for the thread's status, and its style."""
    status = story.status
    if story.running:
        return "watching: another process runs this thread", "bold yellow"
    if status.outcome is not None:
        found = heading(status.outcome)
        return one_line(found.title), f"bold {COLOURS[found.tone]}"
    if status.condition is Condition.UNKNOWN:
        return "ready", "dim"
    if status.waiting:
        return WAITS[status.waiting.waits_for].to_you, "bold magenta"
    return "stopped", f"bold {AMBER}"
