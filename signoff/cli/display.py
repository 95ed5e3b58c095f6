"""What a run shows: a live terminal, plain lines, only the end, or one JSON document."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from signoff.cli.cards import AMBER, Card, card, ending
from signoff.cli.dialogue import Dialogue
from signoff.cli.lines import Lines
from signoff.cli.live import LiveArea
from signoff.cli.report import Exit, Report, print_document
from signoff.cli.safe import one_line, plain, styled
from signoff.cli.settings import Settings
from signoff.cli.streamed import Streamed
from signoff.session.decisions import Question, Waiting
from signoff.session.events import CallFinished, CallStarted, Entered, Event, Stopping

if TYPE_CHECKING:
    # The package of the embedded model is slow to import.
    from signoff.models.local.weights import Progress


class Display:
    """Shows nothing at all while a thread runs, asks nobody, and prints the report as JSON."""

    def begin(self, thread_id: str, settings: Settings, note: str) -> None:
        """The run begins."""

    def loading(self) -> "AbstractContextManager[Progress]":
        """While the model loads; what it gives is told how far that is."""
        return nullcontext(lambda stage, done, total: None)

    def running(self, streamed: Streamed) -> AbstractContextManager[None]:
        """While the graph runs."""
        return nullcontext()

    def show(self, event: Event) -> None:
        """Something happened."""

    def note(self, text: str) -> None:
        """A remark of the program itself."""

    def output(self, data: bytes) -> None:
        """A command wrote this while it runs. Called in another thread."""

    def ask(self, waiting: Waiting) -> Any:
        """What `waiting.read` takes; None when nobody can be asked or nobody answers."""
        return None

    def end(self, report: Report) -> None:
        """How it ended."""
        print_document(report)


class Quiet(Display):
    """Prints the summary, or the question and how to answer it, and nothing else."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def end(self, report: Report) -> None:
        shown = ending(report)
        done = report.exit_code in (Exit.SUCCESS, Exit.HONEST)
        body = shown.body if done or report.waiting else f"{shown.title}. {shown.body}".strip()
        self.console.print(body if isinstance(body, Text) else Text(body), soft_wrap=True)
        _print_commands(self.console, shown)


class Plain(Display):
    """One line after the other, without control codes: for pipes, files and logs."""

    boxed = False

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lines = Lines(self.boxed)
        self.gapped = True

    def begin(self, thread_id: str, settings: Settings, note: str) -> None:
        parts = (thread_id, settings.workspace, settings.model)
        self.print(Text(" · ".join(one_line(part) for part in parts), style="dim"))
        if note:
            self.note(note)
        self.gap()

    @contextmanager
    def loading(self) -> "Iterator[Progress]":
        said: set[str] = set()

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in said:
                said.add(stage)
                sys.stderr.write(f"The embedded model: {stage}\n")

        yield progress

    def show(self, event: Event) -> None:
        if isinstance(event, Stopping):
            self.note("Another process asks for a pause; stopping after this step.")
        elif rendered := self.lines.render(event):
            self.print(rendered)

    def note(self, text: str) -> None:
        self.print(styled(text, AMBER))

    def end(self, report: Report) -> None:
        shown = ending(report)
        self.gap()
        self.print(card(shown, self.boxed))
        _print_commands(self.console, shown)

    def gap(self) -> None:
        """An empty line, but never two."""
        if not self.gapped:
            self.print(Text())
        self.gapped = True

    def print(self, content: RenderableType) -> None:
        self.gapped = False
        self.console.print(content, soft_wrap=not self.boxed)


class Terminal(Plain):
    """A live line below what has happened so far; questions are asked on the spot."""

    boxed = True

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = LiveArea()

    @contextmanager
    def loading(self) -> "Iterator[Progress]":
        with ExitStack() as stack:
            bars: list[Progress] = []

            def progress(stage: str, done: int, total: int) -> None:
                if not bars:
                    # Only the embedded model reports anything, and it is slow to import.
                    from signoff.cli.model import model_progress

                    bars.append(stack.enter_context(model_progress(Console(stderr=True))))
                bars[0](stage, done, total)

            yield progress

    @contextmanager
    def running(self, streamed: Streamed) -> Iterator[None]:
        self.live.streamed = streamed
        with Live(self.live, console=self.console, refresh_per_second=8, transient=True):
            yield

    def show(self, event: Event) -> None:
        if isinstance(event, Entered):
            self.live.tail.clear()
            self.live.entered, self.live.running = event, None
        elif isinstance(event, CallStarted):
            self.live.running = self.live.running or event
        elif isinstance(event, CallFinished):
            # Now it is above, with its result.
            self.live.running = None
        super().show(event)

    def output(self, data: bytes) -> None:
        self.live.tail.feed(data)

    def ask(self, waiting: Waiting) -> Any:
        if not sys.stdin.isatty():
            return None
        self.gap()
        self.lines.asked = waiting.text if isinstance(waiting, Question) else ""
        try:
            answer = Dialogue(lambda shown: self.print(card(shown, self.boxed)), self.note).answer(waiting)
        except EOFError:
            answer = None
        self.print(Text())
        return answer


def _print_commands(console: Console, shown: Card) -> None:
    for label, command in shown.commands:
        console.print(Text.assemble(f"{label}: ", (plain(command), "bold")), soft_wrap=True)


def stdout_console() -> Console:
    """A console that writes control codes to a terminal only, whatever the environment asks for."""
    live = sys.stdout.isatty()
    options: dict[str, Any] = {} if live else {"color_system": None, "width": 100}
    return Console(file=sys.stdout, force_terminal=live, highlight=False, **options)


def display_for(as_json: bool, quiet: bool) -> Display:
    """The display that fits the options and the terminal."""
    if as_json:
        return Display()
    console = stdout_console()
    if quiet:
        return Quiet(console)
    live = console.is_terminal and not console.is_dumb_terminal
    return Terminal(console) if live else Plain(console)
