"""One thread of the server: its run, which no request owns, its readers, and its terminal."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from signoff import Action, Decision, SignoffError, ThreadBusy, ThreadError, ThreadStatus, stop
from signoff.events import CallFinished, CallProgress, CallStarted, Entered, Retrying, Said, Stopping, Token
from signoff.front.answering import Known, begin_task, give_answer, go_further, make_too_late_error
from signoff.front.calls import arguments
from signoff.front.choices import SHELL, still_waiting
from signoff.front.database import OpenStorage
from signoff.front.record.reading import read_run
from signoff.front.settings import Given, Settings, options_of, recall
from signoff.front.text import cut, one_line, plain
from signoff.front.work import Loading, Models, News, Ready, Work
from signoff.graph.compiled.holds import busy
from signoff.session import Condition, ThreadCommand, request_pause
from signoff.session.drive import was_handed_out
from signoff.session.status import look, reading_graph
from signoff.text import quote_id
from signoff.tools import ShellResult
from signoff.web.beside import Beside
from signoff.web.log import Log, changes, event
from signoff.web.render import RenderedThread, Stand, damaged
from signoff.web.terminal import SharedTerminal
from signoff.web.terminals import Terminals

_MOST_LIVE = 20_000
_MOST_LINE = 300
_FLUSH_SECONDS = 0.05
_BEGIN_SECONDS = 10.0
_REST_SECONDS = 1.0
_SHORTEST_SECONDS = 0.15

Goes = Callable[[Work], Decision]


@dataclass
class LiveReply:
    """What is happening now and not saved yet, bounded; any thread may add to it."""

    text: str = ""
    calls: dict[str, str] = field(default_factory=dict)
    state: str = ""
    line: str = ""
    note: str = ""
    version: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, news: News) -> None:
        with self._lock:
            self.version += 1
            match news:
                case Token(text=text, path=()):
                    self.text = (self.text + text)[-_MOST_LIVE:]
                case Said(path=()):
                    self.text = self.note = ""
                case CallStarted(path=()):
                    shown = f"{news.name} {arguments(dict(news.args))}"
                    self.calls[news.call_id] = cut(one_line(shown), _MOST_LINE)
                case CallProgress(path=()):
                    self.note = cut(one_line(f"{news.name}: {news.data}"), _MOST_LINE)
                case CallFinished(path=()):
                    self.calls.pop(news.call_id, None)
                case Entered(path=()):
                    self.state, self.note = str(news.state), ""
                    self.line = f"turn {max(news.turn, 1)} of {news.turns} · {news.tokens:,} tokens"
                case Retrying():
                    self.note = cut(one_line(f"{news.why}: retrying in {news.seconds:.0f} s"), _MOST_LINE)
                case Stopping():
                    self.note = "Stops after this step."
                case Loading(stage=stage, done=done, total=total):
                    part = f" {100 * done // total} %" if total else ""
                    self.note = cut(one_line(f"{stage}{part}"), _MOST_LINE)
                case Ready():
                    self.note = ""

    def clear(self) -> None:
        with self._lock:
            self.version += 1
            self.text = self.state = self.line = self.note = ""
            self.calls.clear()

    def document(self) -> dict[str, Any]:
        with self._lock:
            text, calls = plain(self.text), list(self.calls.values())
            return {
                "text": text,
                "calls": calls,
                "state": self.state,
                "line": self.line,
                "note": self.note,
            }


class Room:
    """A thread that is open in a page or runs here. Runs in the event loop, except where noted.

    given: the options of the server; a new thread may have its own. terminals: those of the server. moved:
    called when a run here begins or ends.
    """

    def __init__(
        self,
        storage: OpenStorage,
        thread_id: str,
        given: Given,
        models: Models,
        slots: threading.Semaphore,
        beside: Beside,
        terminals: Terminals,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.storage, self.thread_id, self.given, self.models = storage, thread_id, given, models
        self.log, self.live, self.drawn = Log(), LiveReply(), RenderedThread()
        self.events = Log()
        """The events of a run, for clients of a protocol; the last is `rests`, with the run's number."""
        self.runs = 0
        self.error: BaseException | None = None
        """Why the last run here failed."""
        self.parts: dict[str, str] = {}
        self.here = False
        self.problem = ""
        self.terminal: SharedTerminal | None = None
        self.used = time.monotonic()
        self.gone = False
        self.changed = asyncio.Event()
        self.closed = False
        self.elsewhere = False
        """Whether another process ran it at the last check."""
        self.requests = 0
        """How many requests are being carried out."""
        self._slots, self._terminals, self._moved = slots, terminals, moved
        self._opening = threading.Lock()
        self._exists = False
        """Whether the thread exists, as far as is known here."""
        self.beside = beside
        self._loop = asyncio.get_running_loop()
        self._beginning, self._coming, self._reading = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._is_fresh = False
        self._whole: tuple[Any, bytes] | None = None
        self._work: Work | None = None
        self._told = 0
        self._flushing = self._typing = self._sure = self._awaited = False
        self.unknown = ""
        """The interrupt of an action that, as the last run here learned, may already have been done."""
        self._written = "", ""
        """The id and the text of the task that began here last: they may not be saved yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None

    # --- reading ---

    async def fresh(self) -> None:
        """Reads the thread for a new reader, unless there are others, for whom it is kept up to date."""
        async with self._coming:
            if not self._is_fresh:
                self.changed.clear()
                await self.refresh()
                self._is_fresh = True

    def leave(self) -> None:
        """Removes a reader; after the last one, the parts are no longer kept up to date."""
        self.log.readers -= 1
        self.used = time.monotonic()
        if not self.log.readers:
            self._is_fresh, self._whole = False, None
            self.changed.set()
            # Later readers get the whole state.
            self.log.clear()

    @property
    def idle(self) -> bool:
        """Whether it has no reader, no request and no run."""
        return not (self.here or self.log.readers or self.events.readers or self.requests)

    @property
    def keeps(self) -> bool:
        """Whether it holds anything that a new room would not have."""
        return self._exists or bool(self.problem) or self.terminal is not None

    async def refresh(self) -> None:
        """Reads the thread again and sends the readers the changes."""
        # One after the other: an older state must not be shown after a newer one.
        async with self._reading:
            parts = await self.beside.do(self._read)
            change = changes(self.parts, parts)
            self.parts = parts
            if change and self.log.readers:
                await self.log.add("parts", json.dumps(change.document()))

    def _read(self) -> dict[str, str]:
        try:
            run = read_run(self.storage, self.thread_id)
        except SignoffError as error:
            return dict(damaged(error))
        self._exists = run.status.condition is not Condition.UNKNOWN
        if run.settings is None:
            run = replace(run, settings=self._settings())
        waiting = run.status.wait()
        if isinstance(waiting, Action) and self.is_unknown(run.status, waiting):
            waits = (replace(waiting, unknown=True), *run.status.waits[1:])
            run = replace(run, status=replace(run.status, waits=waits))
        return self.drawn.parts(run, Stand(self.here, self.problem))

    def is_unknown(self, status: ThreadStatus, action: Action) -> bool:
        """Whether the action may already have been done.

        Either a run here learned so, or a server that runs each command as soon as it is handed out ended
        before it saved the result.
        """
        if action.interrupt_id == self.unknown:
            return True
        return action.tool == SHELL and was_handed_out(self.storage.store, status, action)

    def _settings(self) -> Settings | None:
        try:
            return self.new_work().settings()
        except SignoffError:
            # Reported when someone wants to begin.
            return None

    def keep_fresh(self) -> None:
        """Reads again whenever something has changed, as long as there is a reader."""
        if self._keeping is None or self._keeping.done():
            self._keeping = self._loop.create_task(self._keep_fresh())

    def stop_reading(self) -> None:
        if self._keeping:
            self._keeping.cancel()

    async def _keep_fresh(self) -> None:
        while self.log.readers:
            await self.changed.wait()
            self.changed.clear()
            if not self.log.readers:
                return
            began = time.monotonic()
            await self.refresh()
            # A long thread takes longer to read.
            await asyncio.sleep(max(_SHORTEST_SECONDS, 3 * (time.monotonic() - began)))

    def whole(self, listed: str) -> bytes:
        """Returns the whole state for a new reader, made once for all readers that come at the same time.

        listed: the list of threads.
        """
        typed = self.terminal and (self.terminal, self.terminal.typed, self.terminal.size)
        now = (self.log.last, self.live.version, typed, listed, self.parts)
        if self._whole is None or self._whole[0] != now:
            found = {
                "put": self.parts,
                "order": list(self.parts),
                "live": self.live.document(),
                "terminal": self._terminal_document() if self.terminal else None,
                "list": listed,
                "thread": self.thread_id,
            }
            self._whole = now, event("all", json.dumps(found), self.log.last)
        return self._whole[1]

    def _terminal_document(self) -> dict[str, Any]:
        assert self.terminal is not None
        rows, cols = self.terminal.size
        return {"data": self.terminal.recent_output, "rows": rows, "cols": cols, "used": self.terminal.used}

    # --- commands ---

    async def write(self, text: str, message_id: str, own: Mapping[str, Any] | None = None) -> None:
        """Begins a task. message_id: of the message; a message that the thread already has does not begin a
        task again, whichever server began the first.

        Raises ThreadError while the thread runs or waits for something: the message was not meant as an
        answer. Also raises it for a different message with this id.
        """
        try:
            async with self._beginning:
                if not (message_id and await self._has_message(message_id, text)):
                    await self._begin_held(_go(begin_task(text, message_id)), own, (message_id, text))
        except Known:
            # Another server was quicker.
            await self._has_message(message_id, text)

    async def _has_message(self, message_id: str, text: str) -> bool:
        """Whether the thread has this message. Raises ThreadError if it has a different one with this id."""
        found: Any = text
        if self._written != (message_id, text):
            status = await self.beside.do(lambda: look(reading_graph(self.storage), self.thread_id))
            messages = status.values.get("messages", ())
            found = next((message.content for message in messages if message.id == message_id), None)
        if found not in (None, text):
            raise ThreadError("The thread has a different message with this ID. Nothing was changed.")
        return found is not None

    async def _settle(self, own: Mapping[str, Any]) -> None:
        """Sets the settings of a thread that has not begun. Raises SetupError if they are not valid."""
        if await self.beside.do(recall, self.storage.store, self.thread_id) is not None:
            raise ThreadError("The thread has already begun; its settings cannot be changed.")
        before, self.given = self.given, Given(**{**self.given.model_dump(), **own})
        try:
            workspace = (await self.beside.do(self.new_work().settings)).workspace
        except SignoffError:
            self.given = before
            raise
        if self.terminal is not None:
            await self.beside.do(self.opened_terminal, workspace)

    async def answer(self, interrupt_id: str, shown: str, texts: list[str], by: str) -> None:
        """Answers what was shown. texts: the answer, or one for each waiting call.

        Raises TooLate if someone else has answered, ThreadError for an answer that is not valid.
        """

        await self._in_time(_go(give_answer(interrupt_id, shown, texts, by)))

    async def run(self, command: ThreadCommand) -> None:
        """Begins a run with any command. Raises the reason for a refusal; ThreadBusy while it runs."""
        await self._begin(_go(command))

    async def again(self, interrupt_id: str) -> None:
        """Runs an action with an unknown outcome once more."""
        run = await self.beside.do(read_run, self.storage, self.thread_id)
        waiting = still_waiting(run.status, interrupt_id)
        if not isinstance(waiting, Action) or not await self.beside.do(self.is_unknown, run.status, waiting):
            raise ThreadError("Only an action with an unknown outcome can be run again.")
        await self._in_time(lambda work: work.again(waiting))

    async def _in_time(self, goes: Goes) -> None:
        # A wait is saved and shown a moment before its run comes to rest. An answer in between is not too
        # late.
        end = time.monotonic() + _REST_SECONDS
        while self.here and time.monotonic() < end:
            await asyncio.sleep(_FLUSH_SECONDS)
        try:
            await self._begin(goes)
        except ThreadBusy as error:
            raise make_too_late_error() from error

    async def move(self, name: str, turns: int | None) -> None:
        """Pauses, stops or goes on; turns: how many more after a limit. Raises ThreadError if that is
        not possible now."""
        if name in ("pause", "stop") and self.here:
            assert self._work is not None, "it runs here"
            self._work.ask(name)
            if name == "stop" and self.terminal and self.terminal.running:
                self.terminal.interrupt()
        elif name == "pause":
            await self.beside.do(self._request_pause)
        else:
            commands: Mapping[str, ThreadCommand] = {"stop": stop(), "go_on": go_further(turns)}
            if name not in commands:
                raise ThreadError(f"{name!r} is not a valid command.")
            await self._begin(_go(commands[name]))

    def _request_pause(self) -> None:
        """Asks the process that runs the thread. Raises ThreadError if there is no such thread: the request
        would stay for ever."""
        if not self.storage.checkpointer.is_running(self.thread_id):
            status = look(reading_graph(self.storage), self.thread_id)
            if status.condition is Condition.UNKNOWN:
                raise ThreadError(f"There is no thread {quote_id(status.thread_id)}; start it with a task.")
        request_pause(self.storage.store, self.thread_id)

    async def _begin(self, goes: Goes, own: Mapping[str, Any] | None = None) -> None:
        """Begins a run in its own thread. Returns when it has begun; raises the reason for a refusal.

        own: the settings of a new thread; of two concurrent requests, those of the first count.
        """
        async with self._beginning:
            await self._begin_held(goes, own)

    async def _begin_held(
        self, goes: Goes, own: Mapping[str, Any] | None, written: tuple[str, str] = ("", "")
    ) -> None:
        """Like `_begin`, for a caller that holds `_beginning`. written: the id and the text of the task."""
        if self.here:
            raise busy(self.thread_id)
        if self.gone:
            raise ThreadError("The thread was deleted.")
        if own:
            await self._settle(own)
        work = await self.beside.do(self.new_work)
        if not self._slots.acquire(blocking=False):
            raise ThreadError("Too many threads run on this server; pause one, and try again.")
        # Made before anyone can ask it to pause.
        self._work = work
        self._written = written
        self.here, self.problem, self.error, self._sure = True, "", None, False
        self.runs += 1
        begun: asyncio.Future[None] = self._loop.create_future()
        # Also if the client that began it has disconnected by then.
        begun.add_done_callback(_retrieve_error)
        self._begun = begun
        runner = threading.Thread(target=self._run, args=(goes, work), name="signoff-run", daemon=True)
        runner.start()
        self.changed.set()
        # Loading the model may take minutes; a refusal is then shown to every reader.
        self._awaited = True
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(begun), _BEGIN_SECONDS)
        finally:
            self._awaited = False

    async def delete(self) -> None:
        """Deletes the thread with all its data; nothing can begin in this room afterwards. Raises ThreadBusy
        while it runs."""
        async with self._beginning:
            if self.here:
                raise busy(self.thread_id)
            if self.thread_id not in await self.beside.do(self.storage.checkpointer.threads):
                raise ThreadError("There is no such thread; it may already have been deleted.")
            await self.beside.do(self.storage.checkpointer.delete_thread, self.thread_id)
            self.gone = True
        await self.log.add("gone", "{}")
        await self.beside.do(self.close_terminal)

    def new_work(self) -> Work:
        given = options_of(self.given, recall(self.storage.store, self.thread_id))
        return Work(self.storage, self.thread_id, given, self.models, self._tell, self._run_command)

    def _run(self, goes: Goes, work: Work) -> None:
        """Executes the whole run, in its own thread."""
        error: BaseException | None = None
        try:
            decision = goes(work)
            # The saved thread does not say so: only its driver learns that an action was handed out before.
            self.unknown = decision.interrupt_id if isinstance(decision, Action) and decision.unknown else ""
        except BaseException as found:  # noqa: BLE001  it is told to whoever began the run
            error = found
        finally:
            self._slots.release()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._rested, error)

    def _rested(self, error: BaseException | None) -> None:
        self.here, self.used = False, time.monotonic()
        self._moved()
        self.error = error
        self._do(self.events.add("rests", str(self.runs)))
        self.live.clear()
        if error is not None:
            # It may have failed before anything was saved.
            self._written = "", ""
            message = str(error) if isinstance(error, SignoffError) else f"{type(error).__name__}: {error}"
            if self._begun.done() or not self._awaited:
                self.problem = message
            if not self._begun.done():
                self._begun.set_exception(error)
        elif not self._begun.done():
            self._begun.set_result(None)
        self._flush_soon()
        self.changed.set()

    # --- callbacks of the run, in its thread ---

    def _tell(self, news: News) -> None:
        self.live.see(news)
        if self.events.readers and not self._loop.is_closed() and not isinstance(news, Ready):
            told = vars(news) if isinstance(news, Loading) else news.to_dict()
            kind = "loading" if isinstance(news, Loading) else news.type
            self._loop.call_soon_threadsafe(self._happened, kind, json.dumps(told))
        if not self._sure and not isinstance(news, Loading | Ready):
            # From here on it holds the thread, and the request was accepted.
            self._sure = True
            self._loop.call_soon_threadsafe(self._has_begun)
        if not self._flushing and not self._loop.is_closed():
            self._flushing = True
            self._loop.call_soon_threadsafe(self._on_change)

    def _run_command(self, settings: Settings, command: str, timeout: float) -> ShellResult:
        return self.opened_terminal(settings.workspace).run(command, timeout)

    def opened_terminal(self, workspace: str) -> SharedTerminal:
        """Returns a terminal in this folder; one in another folder ends. For any thread; blocks meanwhile."""
        with self._opening:
            before = self.terminal
            if before is not None and before.workspace == workspace:
                return before
            watched = lambda: self.here or self.log.readers > 0  # noqa: E731  no name says more
            made = self.terminal = SharedTerminal(workspace, self._output, watched, self._terminals)
            if before is not None:
                before.close()
                made.follow(before)
            return made

    def _output(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._type_soon)

    # --- in the event loop again ---

    def _happened(self, kind: str, data: str) -> None:
        self._do(self.events.add(kind, data))

    def _has_begun(self) -> None:
        self._exists = True
        self._moved()
        if not self._begun.done():
            self._begun.set_result(None)

    def _on_change(self) -> None:
        self._loop.call_later(_FLUSH_SECONDS, self._flush_soon)

    def _flush_soon(self) -> None:
        self._flushing = False
        self.changed.set()
        self._do(self._flush())

    async def _flush(self) -> None:
        if self.live.version != self._told and self.log.readers:
            self._told = self.live.version
            await self.log.add("live", json.dumps(self.live.document()))

    def _type_soon(self) -> None:
        if not self._typing:
            self._typing = True
            self._do(self._type())

    async def _type(self) -> None:
        """Sends the terminal's output, at a bounded rate, until there is no more."""
        assert self.terminal is not None
        try:
            await asyncio.sleep(_FLUSH_SECONDS)
            while data := self.terminal.take():
                if self.log.readers:
                    await self.log.add("terminal", json.dumps({"data": data}))
                await asyncio.sleep(_FLUSH_SECONDS)
        finally:
            self._typing = False

    async def sized(self) -> None:
        """Sends the readers the size of the terminal."""
        assert self.terminal is not None
        rows, cols = self.terminal.size
        await self.log.add("size", json.dumps({"rows": rows, "cols": cols}))

    def _do(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Asks the run to pause and ends the terminal."""
        self.closed = True
        if self.here and self._work:
            self._work.ask("pause")

    def close_terminal(self) -> None:
        if self.terminal:
            self.terminal.close()


def _go(command: ThreadCommand) -> Goes:
    return lambda work: work.go(command)


def _retrieve_error(begun: "asyncio.Future[None]") -> None:
    if not begun.cancelled():
        begun.exception()
