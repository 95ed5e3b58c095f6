"""The agent's side of the Agent Client Protocol: sessions are threads, prompts run them."""

import asyncio
import importlib.metadata
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp import helpers as made
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandInput,
    ClientCapabilities,
    Implementation,
    PromptCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    UnstructuredCommandInput,
)
from pydantic import ValidationError

from signoff import (
    Decision,
    Ended,
    Graph,
    Paused,
    SignoffError,
    ThreadError,
    ThreadLost,
    ThreadStatus,
    TooLate,
    Waiting,
    stop,
)
from signoff.acp.dialogs import Dialogs, Gone
from signoff.acp.given import INVALID, read_prompt, start_servers
from signoff.acp.terminal import EditorTerminals
from signoff.acp.updates import Update, Updates, saved_events
from signoff.front.answering import begin_task, get_short_id, give_answer, go_further, make_too_late_error
from signoff.front.cards import asking, ending, in_text
from signoff.front.choices import still_waiting
from signoff.front.database import Database, OpenStorage
from signoff.front.driving import Driver
from signoff.front.record.reading import read_run
from signoff.front.report import of_outcome
from signoff.front.settings import Given, recall, settle
from signoff.front.text import one_line
from signoff.front.thread_ids import checked_thread_id, new_thread_id
from signoff.front.threads import row
from signoff.front.work import Models, News
from signoff.graph.compiled.holds import busy
from signoff.models.choose import check_model
from signoff.session import Choose, Condition, ThreadCommand
from signoff.text import quote_id

FAILED = -32000
_PAGE = 50
_MOST_TITLE = 120
_COMMAND = re.compile(r"/(?P<name>stop|continue)(?:\s+(?P<turns>\d{1,6}))?\s*")
_COMMANDS = (
    AvailableCommand(
        name="continue",
        description="Continue a task that was stopped, reached a limit or failed",
        input=AvailableCommandInput(
            UnstructuredCommandInput(hint="more turns after a limit (default: as many as the limit)")
        ),
    ),
    AvailableCommand(name="stop", description="End the open task as cancelled"),
)
_NOT_DELIVERED = "Your message was not delivered, because you wrote it before you saw this."
_ELSEWHERE = "Another process runs it. When it has ended, load the session again to see its status."
_NEXT = "Your next message is the answer."

_NOTHING = ("", "")
_MOST_TRIES = 3


@dataclass
class OpenSession:
    """A session that the client has opened. shown: the two ids of the last wait that it was shown."""

    driver: Driver
    updates: Updates
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    shown: tuple[str, str] = _NOTHING
    busy: bool = False


class SignoffAgent:
    """Handles a client's requests. own: the user's own graph instead of the one from the settings."""

    def __init__(self, database: Database, storage: OpenStorage, given: Given, own: Graph | None) -> None:
        self._database, self._storage, self._given, self._own = database, storage, given, own
        self.models = Models()
        self.sessions: dict[str, OpenSession] = {}
        self.drivers: list[Driver] = []
        """The drivers of all sessions, including closed ones, whose run may still be ending."""
        self._client: Any = None
        self._can = ClientCapabilities()
        self._version: int | None = None
        self._later: set[asyncio.Task[None]] = set()

    def on_connect(self, client: Any) -> None:
        self._client = client
        self._terminals = EditorTerminals(client)

    # --- requests of the client ---

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> acp.InitializeResponse:
        self._version = protocol_version
        self._can = client_capabilities or ClientCapabilities()
        return acp.InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True, image=False, audio=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            agent_info=Implementation(
                name="signoff", title="Signoff", version=importlib.metadata.version("signoff")
            ),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> acp.NewSessionResponse:
        given = self._check_client(cwd)
        taken = await asyncio.to_thread(self._storage.checkpointer.threads)
        thread_id = new_thread_id({*taken, *self.sessions})
        await self._open(thread_id, given, mcp_servers)
        return acp.NewSessionResponse(session_id=thread_id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> acp.LoadSessionResponse:
        elsewhere, status = await self._open_saved(cwd, session_id, mcp_servers)
        opened = self.sessions[session_id]
        run = await asyncio.to_thread(read_run, self._storage, session_id)
        again = Updates(opened.updates.workspace, again=True)
        for event in saved_events(run):
            for update in again.convert(event):
                await self._send(session_id, update)
        await self._say_how_it_stands(opened, status, elsewhere)
        return acp.LoadSessionResponse()

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> Any:
        elsewhere, status = await self._open_saved(cwd, session_id, mcp_servers)
        await self._say_how_it_stands(self.sessions[session_id], status, elsewhere)
        return acp.schema.ResumeSessionResponse()

    async def close_session(self, session_id: str, **_: Any) -> Any:
        opened = self._session(session_id)
        opened.cancelled.set()
        opened.driver.pause()
        del self.sessions[session_id]
        return acp.schema.CloseSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> acp.schema.ListSessionsResponse:
        if cursor is not None and not re.fullmatch(r"\d{1,9}", cursor):
            raise acp.RequestError(INVALID, "The cursor is not from this list.")
        return await asyncio.to_thread(self._list_page, cwd, int(cursor or 0))

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> acp.PromptResponse:
        opened = self._session(session_id)
        text = read_prompt(prompt)
        if opened.busy or opened.driver.running:
            raise acp.RequestError(
                FAILED, "The session still works on the previous prompt; cancel that first."
            )
        opened.busy = True
        opened.cancelled.clear()
        try:
            return await self._run_prompt(opened, text)
        except Gone:
            return acp.PromptResponse(stop_reason="cancelled")
        except SignoffError as error:
            raise acp.RequestError(FAILED, str(error), {"thread": session_id}) from error
        finally:
            opened.busy = False

    async def cancel(self, session_id: str, **_: Any) -> None:
        if opened := self.sessions.get(session_id):
            opened.cancelled.set()
            opened.driver.pause()

    def close(self) -> None:
        """Ends everything that was started for the client."""
        self._terminals.close()
        for driver in self.drivers:
            driver.close()

    # --- sessions ---

    def _check_client(self, cwd: str) -> Given:
        """Returns the options of a session in this folder. Raises RequestError if they are not valid."""
        if self._version is None:
            raise acp.RequestError(FAILED, "Send initialize first.")
        if self._version < acp.PROTOCOL_VERSION:
            raise acp.RequestError(
                FAILED,
                f"This agent speaks version {acp.PROTOCOL_VERSION} of the protocol, and the client asked for "
                f"version {self._version}; update the client.",
            )
        if not Path(cwd).is_absolute():
            raise acp.RequestError(INVALID, f"cwd is {quote_id(cwd)}; send the absolute path of a folder.")
        folder = {} if self._given.workspace else {"workspace": Path(cwd)}
        return self._given.model_copy(update=folder)

    async def _open(self, thread_id: str, given: Given, servers: Sequence[Any] | None) -> None:
        workspace: str | None = None
        try:
            if self._own is None:
                settings = await asyncio.to_thread(self._settings, thread_id, given)
                workspace = settings.workspace
            tools = await start_servers(servers or ()) if self._own is None else []
        except SignoffError as error:
            raise acp.RequestError(INVALID, str(error)) from error
        driver = Driver(self._storage, thread_id, given, self.models, self._own, tools)
        for other in self.drivers:
            if not (other.running or (self._is_open(other) and other.thread_id != thread_id)):
                await asyncio.to_thread(other.close)
        kept = [other for other in self.drivers if other.running or self._is_open(other)]
        self.drivers = [*kept, driver]
        self.sessions[thread_id] = OpenSession(driver, Updates(workspace or str(given.workspace)))
        if servers and self._own is not None:
            told = "The editor's MCP servers are not used: the agent has its own tools."
            self._schedule(self._say(self.sessions[thread_id], told))
        commands = made.update_available_commands(_COMMANDS)
        # After the response: before it, the client does not know the session.
        self._schedule(self._send(thread_id, commands))

    def _is_open(self, driver: Driver) -> bool:
        return any(opened.driver is driver for opened in self.sessions.values())

    def _settings(self, thread_id: str, given: Given) -> Any:
        settings = settle(given, recall(self._storage.store, thread_id), os.environ)
        check_model(settings.model, settings.base_url, os.environ)
        return settings

    async def _open_saved(
        self, cwd: str, session_id: str, servers: Sequence[Any] | None
    ) -> tuple[bool, ThreadStatus]:
        """Opens a session of a saved thread; returns whether another process runs it, and its status."""
        given = self._check_client(cwd)
        opened = self.sessions.get(session_id)
        if any(other.thread_id == session_id and other.running for other in self.drivers) or (
            opened and opened.busy
        ):
            raise acp.RequestError(FAILED, "The session works on a prompt here; cancel that first.")
        try:
            checked_thread_id(session_id)
            driver = Driver(self._storage, session_id, given, self.models)
            elsewhere, status = await driver.stand()
        except SignoffError as error:
            raise acp.RequestError(INVALID, str(error)) from error
        if status.condition is Condition.UNKNOWN and opened is None:
            raise acp.RequestError(
                INVALID, f"There is no session {quote_id(session_id)}; session/list shows all of them."
            )
        await self._open(session_id, given, servers)
        return elsewhere, status

    def _session(self, session_id: str) -> OpenSession:
        if session_id not in self.sessions:
            raise acp.RequestError(
                INVALID,
                f"The session {quote_id(session_id)} is not open here; load it with session/load first.",
            )
        return self.sessions[session_id]

    def _list_page(self, cwd: str | None, first: int) -> acp.schema.ListSessionsResponse:
        found: list[SessionInfo] = []
        names = self._storage.checkpointer.threads()
        for at, name in enumerate(names[first:], first):
            if len(found) == _PAGE:
                return acp.schema.ListSessionsResponse(sessions=found, next_cursor=str(at))
            settings = recall(self._storage.store, name)
            place = settings.workspace if settings else (cwd or str(Path.cwd()))
            if cwd is None or _is_same_folder(place, cwd):
                told = row(self._storage, name)
                title = one_line(told.task)[:_MOST_TITLE] or None
                changed = told.changed or None
                found.append(SessionInfo(session_id=name, cwd=place, title=title, updated_at=changed))
        return acp.schema.ListSessionsResponse(sessions=found)

    # --- a prompt ---

    async def _run_prompt(self, opened: OpenSession, text: str) -> acp.PromptResponse:
        elsewhere, status = await opened.driver.stand()
        if elsewhere:
            raise busy(opened.driver.thread_id) if opened.shown == _NOTHING else make_too_late_error()
        command, waiting = self._choose_command(opened, text, status), status.wait()
        answers = waiting is not None and (command is None or _COMMAND.fullmatch(text) is None)
        typed = waiting if answers and command is not None else None
        if command is None:
            assert waiting is not None, "else there is a command"
            if text:
                await self._say(opened, _NOT_DELIVERED)
            command = await self._ask_for_answer(opened, waiting)
        while command is not None:
            if opened.cancelled.is_set():
                raise Gone
            decision = await self._run(opened, command, answers, typed)
            if isinstance(decision, Ended):
                return await self._report_end(opened, decision)
            if isinstance(decision, Paused):
                await self._say(opened, "Paused; everything is saved. An empty message continues.")
                raise Gone
            assert isinstance(decision, Waiting), "a run that is driven to its end stops nowhere else"
            answers, typed = True, None
            command = await self._ask_for_answer(opened, decision)
        return acp.PromptResponse(stop_reason="end_turn")

    async def _run(
        self, opened: OpenSession, command: ThreadCommand, answers: bool, typed: Waiting | None
    ) -> Decision | Waiting:
        """Runs until a person is needed. typed: the wait that the prompt answers; if the prompt is not a
        valid answer, the person is told so and the thread still waits."""
        try:
            decision = await opened.driver.run(
                command, self._make_listener(opened), answers=answers, at_once=opened.updates.keep_before
            )
        except ThreadError as error:
            if typed is None or isinstance(error, TooLate | ThreadLost):
                raise
            await self._say(opened, str(error))
            return typed
        opened.shown = _NOTHING
        return decision

    def _choose_command(self, opened: OpenSession, text: str, status: ThreadStatus) -> ThreadCommand:
        """Returns the prompt's command; None if the client must first be shown what the thread waits for."""
        if asked := _COMMAND.fullmatch(text):
            turns = int(asked["turns"]) if asked["turns"] else None
            if asked["name"] == "stop":
                return stop()
            if status.wait() is None:
                return go_further(turns)
            text = ""
        if text and opened.shown != _NOTHING:
            was, opened.shown = opened.shown, _NOTHING
            # It was written as an answer: it is not a task, and not the answer to anything else.
            opened.shown = _waiting_ids(still_waiting(status, was[0]))
        waiting = status.wait()
        if waiting is None:
            if not text and status.condition is Condition.UNKNOWN:
                raise ThreadError("The prompt is empty; say what to do.")
            return begin_task(text) if text else go_further()
        seen = _waiting_ids(waiting)
        if not text or opened.shown != seen:
            return None
        return give_answer(*seen, [text])

    def _make_listener(self, opened: OpenSession) -> Callable[[News], Awaitable[None]]:
        thread_id = opened.driver.thread_id

        async def hear(news: News) -> None:
            if self._can.terminal:
                await self._terminals.feed(thread_id, news, opened.updates)
            for update in opened.updates.convert(news):
                await self._send(thread_id, update)
            if self._can.terminal:
                await self._terminals.open(thread_id, news, opened.updates)

        return hear

    async def _report_end(self, opened: OpenSession, decision: "Ended[Any]") -> acp.PromptResponse:
        outcome = decision.outcome.model_dump()
        if outcome["status"] == "error" and outcome["reason"] != "cancelled":
            told = {"thread": opened.driver.thread_id, "reason": outcome["reason"]}
            raise acp.RequestError(FAILED, f"{outcome['error']} /continue tries again.", told)
        card = ending(of_outcome(outcome, opened.driver.thread_id, self._database))
        await self._say(opened, in_text(card))
        if outcome["status"] != "limit":
            return acp.PromptResponse(stop_reason="end_turn")
        await self._say(opened, "/continue continues with more turns.")
        by_tokens = outcome["reason"] == "tokens"
        return acp.PromptResponse(stop_reason="max_tokens" if by_tokens else "max_turn_requests")

    # --- a person's decisions ---

    async def _ask_for_answer(self, opened: OpenSession, waiting: Waiting) -> Choose | None:
        """Returns the command with the person's answer; None if the next prompt will be the answer."""
        seen = opened.shown = _waiting_ids(waiting)
        dialogs = Dialogs(
            self._client, opened.driver.thread_id, opened.updates, opened.cancelled, self._has_forms
        )
        for _ in range(_MOST_TRIES):
            try:
                texts = await dialogs.ask(waiting)
                if not texts:
                    break
                command = give_answer(*seen, texts)
                # Validated here as the thread will do it, so that an invalid answer is asked for again.
                command.command(await opened.driver.status())
                return command
            except TooLate:
                raise
            except ThreadError as error:
                await self._say(opened, str(error))
            except (acp.RequestError, ValidationError):
                # The client cannot show it after all, or its answer is not valid.
                break
        await self._say(opened, f"{in_text(asking(waiting))}\n\n{_NEXT}")
        return None

    @property
    def _has_forms(self) -> bool:
        return bool(self._can.elicitation and self._can.elicitation.form is not None)

    # --- notifications ---

    async def _say_how_it_stands(self, opened: OpenSession, status: ThreadStatus, elsewhere: bool) -> None:
        if elsewhere:
            await self._say(opened, _ELSEWHERE)
        elif waiting := status.wait():
            opened.shown = _waiting_ids(waiting)
            await self._say(opened, f"{in_text(asking(waiting))}\n\n{_NEXT}")
        elif status.condition.has_work_left:
            await self._say(opened, "The task was stopped in the middle. An empty message continues it.")

    async def _say(self, opened: OpenSession, text: str) -> None:
        await self._send(opened.driver.thread_id, made.update_agent_message_text(f"\n\n{text}"))

    async def _send(self, session_id: str, update: Update) -> None:
        await self._client.session_update(session_id=session_id, update=update)

    def _schedule(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: "asyncio.Task[None]") -> None:
        self._later.discard(task)
        if not task.cancelled():
            # The client may have disconnected.
            task.exception()


def _waiting_ids(waiting: Waiting) -> tuple[str, str]:
    return waiting.interrupt_id, get_short_id(waiting)


def _is_same_folder(one: str, other: str) -> bool:
    try:
        return Path(one).resolve() == Path(other).resolve()
    except (OSError, RuntimeError, ValueError):
        # A loop of links, or not a valid path.
        return one == other
