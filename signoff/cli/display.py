"""The output and questions of a run: in a live terminal, as plain lines, only its end, or as JSON."""

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from signoff import Approval, PendingCall, Question, ThreadError, Waiting
from signoff.cli.console import stdout_console
from signoff.events import CallFinished, CallStarted, Entered, Retrying, SessionEvent, Stopping
from signoff.front.cards import AMBER, Card, Lines, approving, asking, card, ending
from signoff.front.report import CommandReport, Exit, print_document
from signoff.front.settings import Settings
from signoff.front.text import escape_invisible, one_line, plain, styled
from signoff.nodes.model.providers import READING
from signoff.nodes.model.trying import RETRYING
from signoff.text import count_noun, harmless, valid_text

if TYPE_CHECKING:
    # The package of the embedded model is slow to import.
    from signoff.models.local.weights import Progress
_KEPT = 16_384
_BEFORE = "    ▸ "
_LIVE_LINES = 8
# More characters than a wide terminal shows of an arriving reply.
_NEWEST = 400
_DECISIONS = {
    "approve": ("a", "y", "yes", "ok", "accept"),
    "reject": ("r", "n", "no"),
    "edit": ("e",),
    "respond": ("s", "response"),
}


class Streamed(BaseCallbackHandler):
    """The arriving reply: how many chunks, about one per token, and the newest words.

    read: how much of its prompt the model has processed, from 0 to 1; only the embedded model reports it.
    tell: called with every wait for a provider, when it begins.
    """

    def __init__(self, tell: Callable[[SessionEvent], None] = lambda event: None) -> None:
        self.pieces = 0
        self.words = ""
        self.read: float | None = None
        self.tell = tell

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        if name == RETRYING:
            self._anew()
            self.tell(Retrying(**data))
        elif name == READING:
            self.read = data["done"] / data["total"] if data["done"] < data["total"] else None

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.pieces += 1
        self.words = (self.words + _words(token, kwargs.get("chunk")))[-_NEWEST:]

    def note_event(self, event: SessionEvent) -> None:
        """From the next state on, the reply counts among the complete ones."""
        if isinstance(event, Entered):
            self._anew()

    def _anew(self) -> None:
        self.pieces, self.words, self.read = 0, "", None


def _words(token: Any, chunk: Any) -> str:
    """Returns the words in a chunk: its text, and the names and arguments of calls as written."""
    text = token if isinstance(token, str) else ""
    calls = getattr(getattr(chunk, "message", None), "tool_call_chunks", ())
    return text + "".join(f" {call['name']} " * bool(call["name"]) + (call["args"] or "") for call in calls)


class Tail:
    """Stores the last bytes; renders only what is displayed. Fed from the thread in which a tool runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> None:
        with self._lock:
            self._data += data[-_KEPT:]
            if len(self._data) > _KEPT:
                del self._data[:-_KEPT]
                self._cut = True

    def clear(self) -> None:
        with self._lock:
            self._data.clear()
            self._cut = False

    def lines(self, most: int) -> list[str]:
        """Returns the last lines that are not empty, sanitised."""
        with self._lock:
            data, cut = bytes(self._data), self._cut
        if cut:
            # The first line may begin in the middle of a character or of an escape sequence.
            data = data.partition(b"\n")[2] or data
        return [line for line in plain(harmless(data)).split("\n") if line.strip()][-most:]


class LiveArea:
    """The output of the running command, and a line with state, turn n of N, tokens and time."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.entered: Entered | None = None
        self.running: dict[str, CallStarted] = {}
        self.streamed: Streamed | None = None
        self.spinner = Spinner("dots", style="cyan")
        self.tail = Tail()

    def __rich__(self) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        row.add_row(self.spinner, _fitted(self._text()))
        call = self._first
        if call is None and self.streamed and (words := one_line(self.streamed.words)):
            return Group(_Newest(words), row)
        if call is None or call.name != "run_shell":
            return row
        head = Text.assemble(("    $ ", "dim"), (one_line(str(call.args.get("command", ""))), "bold"))
        lines = [Text(f"      {line}", style="dim") for line in self.tail.lines(_LIVE_LINES)]
        return Group(*map(_fitted, [head, *lines]), row)

    @property
    def _first(self) -> CallStarted | None:
        """Returns the first of the running calls."""
        return next(iter(self.running.values()), None)

    def _text(self) -> Text:
        now, coming = self.entered, self.streamed.pieces if self.streamed else 0
        if now is None:
            return Text("starting", style="bold")
        thinking = 1 if now.state == "call_llm" else 0
        parts = [f"turn {min(now.turn + thinking, now.turns)} of {now.turns}"]
        if now.tokens or coming:
            parts.append(count_noun(now.tokens + coming, "token"))
        if self.streamed and self.streamed.read is not None:
            parts.append(f"reads the prompt: {100 * self.streamed.read:.0f} %")
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        parts.append(f"{minutes}:{seconds:02}")
        state = f"{now.state} {one_line(self._first.name) if self._first else ''}".strip()
        return Text.assemble((state, "bold"), ("  " + " · ".join(parts), "dim"))


@dataclass(frozen=True)
class _Newest:
    """One line of arriving words: where it is too narrow, it shows their end, which is new."""

    words: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        room = options.max_width - len(_BEFORE)
        text = Text(self.words)
        shown = text if text.cell_len <= room else Text(f"…{set_cell_size(self.words[::-1], room - 1)[::-1]}")
        yield _fitted(Text.assemble(_BEFORE, shown, style="dim"))


def _fitted(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


PYTHON_WRITES = "Python may change this workspace, except .git, environments and .signoff at its top."
"""Shown at the beginning of a run whose Python is not read-only."""


def read_line(prompt: str) -> str:
    """Reads the next line, without its newline.

    Raises EOFError at the end of the input, and what a signal handler raises. `input()` would miss a signal
    that comes between its prompt and its read: the handler then waits for the line.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    if sys.platform != "win32":
        with _wakeup() as woken:
            select.select([sys.stdin, woken], [], [])
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


@contextmanager
def _wakeup() -> Iterator[int]:
    """Yields a file descriptor that becomes readable when a signal comes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wake)


@dataclass(frozen=True)
class Dialogue:
    """Asks a person. show: prints a card. say: prints a remark. Raises EOFError when the person leaves."""

    show: Callable[[Card], None]
    say: Callable[[str], None]

    def answer(self, waiting: Waiting) -> Any:
        """Returns an answer for `waiting.read`."""
        if isinstance(waiting, Approval):
            return self._decisions(waiting)
        self.show(asking(waiting))
        hint = (
            "number or your own words" if isinstance(waiting, Question) and waiting.options else "your answer"
        )
        while True:
            answer = self._line(hint, "Type an answer, or press Ctrl-C to answer later.")
            try:
                return waiting.read(answer)
            except ThreadError as error:
                self.say(str(error))

    def _decisions(self, approval: Approval) -> list[Mapping[str, Any]]:
        if len(approval.calls) == 1:
            self.show(asking(approval))
            return [self._decided(approval.calls[0])]
        found = []
        for at, call in enumerate(approval.calls):
            title = f"Waiting for approval, {at + 1} of {len(approval.calls)}"
            self.show(Card(title, "magenta", approving(call)))
            found.append(self._decided(call))
        return found

    def _decided(self, call: PendingCall) -> Mapping[str, Any]:
        while True:
            hint = " / ".join(call.allowed)
            typed = self._line(hint, "Decide, or press Ctrl-C to decide later.")
            word, _, rest = typed.partition(" ")
            kind = _kind(word.rstrip(":,;."))
            if kind not in call.allowed:
                self.say(f"Type one of: {', '.join(call.allowed)}; a reason may follow a rejection.")
                continue
            try:
                (decision,) = Approval("", (call,)).read(f"{kind}: {rest.strip() or self._rest(kind, call)}")
            except ThreadError as error:
                self.say(f"That does not fit: {error}")
            else:
                return dict(decision)

    def _rest(self, kind: str, call: PendingCall) -> str:
        """Asks for what a decision needs beside its word."""
        match kind:
            case "reject":
                return self._line("reason (may be empty)")
            case "respond":
                return self._line("answer for the model", "Type the answer.")
            case "edit":
                now = escape_invisible(json.dumps(dict(call.args), ensure_ascii=False, default=str))
                self.say(f"The current arguments: {now}")
                return self._line("new arguments as JSON", "Type all arguments as a JSON object.")
        return ""

    def _line(self, hint: str, when_empty: str = "") -> str:
        while not (typed := valid_text(read_line(f"{hint} > ")).strip()) and when_empty:
            self.say(when_empty)
        return typed


def _kind(word: str) -> str:
    return next((kind for kind, short in _DECISIONS.items() if word.lower() in (kind, *short)), "")


class Display:
    """Shows nothing while a thread runs, asks nothing, and prints the report as JSON."""

    def begin(self, thread_id: str, settings: Settings | None, note: str) -> None:
        """Called when the run begins. settings: None for a graph of the user's own."""

    def loading(self) -> "AbstractContextManager[Progress]":
        """Wraps the loading of the model; yields a callback for its progress."""
        return nullcontext(lambda stage, done, total: None)

    def running(self, streamed: Streamed) -> AbstractContextManager[None]:
        """Wraps the run of the graph."""
        return nullcontext()

    def show(self, event: SessionEvent) -> None:
        """Called for each event."""

    def note(self, text: str) -> None:
        """Shows a remark of the program itself."""

    def output(self, data: bytes) -> None:
        """Called, in another thread, with output of a running command."""

    def ask(self, waiting: Waiting) -> Any:
        """Returns an answer for `waiting.read`; None when nobody can be asked or nobody answers."""
        return None

    def end(self, report: CommandReport) -> None:
        """Called with the report at the end."""
        print_document(report)


class Quiet(Display):
    """Prints only the summary, or the question and how to answer it."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def end(self, report: CommandReport) -> None:
        shown = ending(report)
        done = report.exit_code in (Exit.SUCCESS, Exit.HONEST)
        body = shown.body if done or report.waiting else f"{shown.title}. {shown.body}".strip()
        self.console.print(body if isinstance(body, Text) else Text(body), soft_wrap=True)
        _print_commands(self.console, shown)


class Plain(Display):
    """Prints plain lines without control codes: for pipes, files and logs."""

    boxed = False

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lines = Lines(self.boxed)
        self.gapped = True

    def begin(self, thread_id: str, settings: Settings | None, note: str) -> None:
        parts = (thread_id, settings.workspace, settings.model) if settings else (thread_id,)
        self.print(Text(" · ".join(one_line(part) for part in parts), style="dim"))
        if settings and settings.python_writes:
            self.print(Text(PYTHON_WRITES, style="dim"))
        if note:
            self.note(note)
        self.gap()

    @contextmanager
    def loading(self) -> "Iterator[Progress]":
        from signoff.models.local.weights import STAGE_WORDS

        said: set[str] = set()

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in said:
                said.add(stage)
                sys.stderr.write(f"{STAGE_WORDS[stage]}\n")

        yield progress

    def show(self, event: SessionEvent) -> None:
        if isinstance(event, Stopping):
            self.note("Another process asks for a pause; stopping after this step.")
        elif rendered := self.lines.render(event):
            self.print(rendered)

    def note(self, text: str) -> None:
        self.print(styled(text, AMBER))

    def end(self, report: CommandReport) -> None:
        shown = ending(report)
        self.gap()
        self.print(card(shown, self.boxed))
        _print_commands(self.console, shown)

    def gap(self) -> None:
        """Prints an empty line, but never two in a row."""
        if not self.gapped:
            self.print(Text())
        self.gapped = True

    def print(self, content: RenderableType) -> None:
        self.gapped = False
        self.console.print(content, soft_wrap=not self.boxed)


class Terminal(Plain):
    """Shows a live line below the events so far; asks questions at once."""

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
                    # Only the embedded model reports progress, and it is slow to import.
                    from signoff.cli.model import model_progress

                    bars.append(stack.enter_context(model_progress(Console(stderr=True))))
                bars[0](stage, done, total)

            yield progress

    @contextmanager
    def running(self, streamed: Streamed) -> Iterator[None]:
        self.live.streamed = streamed
        with Live(self.live, console=self.console, refresh_per_second=8, transient=True):
            yield

    def show(self, event: SessionEvent) -> None:
        if isinstance(event, Entered):
            self.live.tail.clear()
            self.live.entered = event
            self.live.running.clear()
        elif isinstance(event, CallStarted):
            self.live.running[event.call_id] = event
        elif isinstance(event, CallFinished):
            # Now it is printed above, with its result.
            self.live.running.pop(event.call_id, None)
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


def display_for(as_json: bool, quiet: bool) -> Display:
    """Returns the display for these options and this terminal."""
    if as_json:
        return Display()
    console = stdout_console()
    if quiet:
        return Quiet(console)
    live = console.is_terminal and not console.is_dumb_terminal
    return Terminal(console) if live else Plain(console)
