"""The server's side of the Model Context Protocol: tools that run threads, and resources about them."""

import asyncio
import importlib.metadata
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from langchain_core.messages import message_to_dict
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.shared.exceptions import McpError
from mcp.types import (
    INVALID_PARAMS,
    CallToolResult,
    ErrorData,
    Resource,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationError

from signoff import (
    Approval,
    Decision,
    Ended,
    Graph,
    Paused,
    PendingCall,
    Question,
    SetupError,
    SignoffError,
    ThreadError,
    ThreadStatus,
    TooLate,
    Waiting,
    go_on,
)
from signoff.events import CallStarted, Entered
from signoff.front.answering import begin_task, get_short_id, give_answer, go_further
from signoff.front.cards import approving, asking, ending, in_text
from signoff.front.choices import waits_for
from signoff.front.database import Database, OpenStorage
from signoff.front.driving import Driver
from signoff.front.forms import make_form, read_form
from signoff.front.report import documents, of_outcome
from signoff.front.settings import Given
from signoff.front.text import cut, one_line
from signoff.front.thread_ids import checked_thread_id, new_thread_id
from signoff.front.work import Models, News
from signoff.session import Choose, Condition, ThreadCommand
from signoff.text import explain, quote_id

MOST_CHARACTERS = 1_000_000
"""Most characters of a task or an answer."""
_LISTED = 50
_MOST_TRIES = 3
_MOST_MESSAGE = 200
_INSTRUCTIONS = (
    "run_task gives a task to an agent that works until it signs off, which may take minutes. Every result "
    "names its thread. One that waits says for what: answer it with resume, with its thread and its "
    "waiting_id. A task that was interrupted goes on with resume and its thread alone."
)
_Thread = Field(description="The ID of the thread, as a result or a progress message names it.")


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunTask(_Arguments):
    """Give a task to the agent; returns when it has ended, or waits for an answer."""

    task: str = Field(description="What is to be done, with all that the agent needs to know.")
    thread: str | None = Field(
        default=None, description="The thread whose next task it is; leave it out for a new one."
    )


class Resume(_Arguments):
    """Answer what a thread waits for, or go on with one that was interrupted."""

    thread: str = _Thread
    answer: str | list[str] | None = Field(
        default=None,
        description="For a question its answer, or the number of an option; for calls that wait for approval "
        "approve, reject: why, edit: {JSON of the arguments} or respond: the result, one for all or one for "
        "each; for a finish yes, or what is wrong. Leave it out to go on, or to look at what is asked.",
    )
    waiting_id: str | None = Field(
        default=None, description="The waiting_id of what is answered, as the result gave it."
    )


class GoOnWithTask(_Arguments):
    """Go on with a task, whatever stopped it: a pause, a limit, or an error, after which it tries again."""

    thread: str = _Thread
    turns: int | None = Field(
        default=None,
        description="After a limit: how many more turns. By default as many as the limit.",
        ge=1,
        le=100_000,
    )


_TOOLS: Mapping[str, type[_Arguments]] = {
    "run_task": RunTask,
    "resume": Resume,
    "go_on": GoOnWithTask,
}


class TaskServer:
    """Handles one client's requests. own: the user's own graph instead of the one from the settings."""

    def __init__(self, database: Database, storage: OpenStorage, given: Given, own: Graph | None) -> None:
        self._database, self._storage, self._given, self._own = database, storage, given, own
        self.models = Models()
        self.drivers: dict[str, Driver] = {}
        self._server: Server[Any, Any] = Server(
            "signoff", importlib.metadata.version("signoff"), instructions=_INSTRUCTIONS
        )
        self._register(self._server)

    async def run(self, incoming: Any, outgoing: Any) -> None:
        """Serves the client of these streams until it disconnects."""
        options = self._server.create_initialization_options(NotificationOptions())
        await self._server.run(incoming, outgoing, options)

    def _register(self, server: Any) -> None:
        server.list_tools()(self._list_tools)
        server.call_tool(validate_input=False)(self._call_tool)
        server.list_resources()(self._list_resources)
        server.list_resource_templates()(self._list_templates)
        server.read_resource()(self._read_resource)

    # --- tools ---

    async def _list_tools(self) -> list[Tool]:
        acts = ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False)
        return [
            Tool(
                name=name,
                description=known.__doc__,
                inputSchema=known.model_json_schema() | {"title": name},
                annotations=acts,
            )
            for name, known in _TOOLS.items()
        ]

    async def _call_tool(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        try:
            return await self._do(name, arguments)
        except SignoffError as error:
            thread = arguments.get("thread")
            return _refuse(error, thread if isinstance(thread, str) else "")

    async def _do(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        if name not in _TOOLS:
            raise SetupError(f"There is no tool {quote_id(name)}; use one of: {', '.join(_TOOLS)}.")
        if (size := len(json.dumps(arguments))) > MOST_CHARACTERS:
            raise SetupError(f"The call has {size:,} characters; at most {MOST_CHARACTERS:,} are taken.")
        try:
            asked = _TOOLS[name].model_validate(arguments)
        except ValidationError as error:
            raise SetupError(f"{name} was called wrongly: {explain(error)}") from error
        match asked:
            case RunTask(task=task, thread=thread):
                if not task.strip():
                    raise SetupError("The task is empty; say what to do.")
                return await self._run(await self._driver(thread), begin_task(task.strip()))
            case Resume():
                return await self._resume(asked)
        further = GoOnWithTask.model_validate(asked.model_dump())
        return await self._run(await self._driver(further.thread, known=True), go_on(further.turns))

    async def _driver(self, thread: str | None, *, known: bool = False) -> Driver:
        """Returns the driver of the thread, of a new one for None. known: the thread must exist."""
        if thread is None:
            taken = await asyncio.to_thread(self._storage.checkpointer.threads)
            thread = new_thread_id({*taken, *self.drivers})
        checked_thread_id(thread)
        if thread not in self.drivers:
            driver = Driver(self._storage, thread, self._given, self.models, self._own)
            if known and (await driver.status()).condition is Condition.UNKNOWN:
                raise ThreadError(f"There is no thread {quote_id(thread)}; run_task begins one.")
            self.drivers[thread] = driver
        return self.drivers[thread]

    async def _resume(self, asked: Resume) -> CallToolResult:
        driver = await self._driver(asked.thread, known=True)
        elsewhere, status = await driver.stand()
        if asked.answer is None:
            waiting = status.wait()
            if waiting is None or driver.running or elsewhere:
                return await self._run(driver, go_further())
            command = await self._ask_for_answer(driver, waiting)
            return await self._run(driver, command) if command else self._report_wait(driver, waiting)
        texts = [asked.answer] if isinstance(asked.answer, str) else asked.answer
        interrupt_id, _, short = (asked.waiting_id or "").partition("@")
        if not interrupt_id:
            raise ThreadError(
                "Say by waiting_id what is answered; resume with the thread alone shows what it waits for."
            )
        return await self._run(driver, give_answer(interrupt_id, short, texts), answers=True)

    async def _run(self, driver: Driver, command: ThreadCommand, *, answers: bool = False) -> CallToolResult:
        told = self._make_listener(driver.thread_id)
        while True:
            try:
                decision = await driver.run(command, told, answers=answers)
                if not isinstance(decision, Waiting):
                    return self._report_end(driver, decision)
                found = await self._ask_for_answer(driver, decision)
            except SignoffError as error:
                # The client has no other way to learn a new thread's ID.
                return _refuse(error, driver.thread_id)
            if found is None:
                return self._report_wait(driver, decision)
            command, answers = found, True

    def _make_listener(self, thread_id: str) -> Callable[[News], Awaitable[None]]:
        """Returns the listener that reports progress to the client, if it asked for that."""
        context = self._server.request_context
        token = context.meta.progressToken if context.meta else None
        sent, turns = 0.0, 0.0

        async def hear(news: News) -> None:
            nonlocal sent, turns
            if token is None or not isinstance(news, Entered | CallStarted) or news.path:
                return
            if isinstance(news, Entered) and (news.turn > sent or not turns):
                sent, turns = max(sent, float(news.turn)), float(news.turns)
                text = f"thread {thread_id} · turn {max(news.turn, 1)} of {news.turns}"
            elif isinstance(news, CallStarted):
                # The value must increase with every message.
                sent += 0.001
                text = f"thread {thread_id} · {one_line(news.name)}"
            else:
                return
            await context.session.send_progress_notification(
                token, sent, turns or None, cut(text, _MOST_MESSAGE), str(context.request_id)
            )

        return hear

    # --- decisions of a person or of the calling agent ---

    async def _ask_for_answer(self, driver: Driver, waiting: Waiting) -> Choose | None:
        """Returns the command with the answer that the client's user gives at once; None without one."""
        if not self._has_forms or not isinstance(waiting, Question | Approval):
            return None
        problem = ""
        for _ in range(_MOST_TRIES):
            try:
                texts = await self._ask_in_forms(waiting, problem)
                if not texts:
                    return None
                command = give_answer(waiting.interrupt_id, get_short_id(waiting), texts)
                # Validated here as the thread will do it, so that an invalid answer is asked for again.
                command.command(await driver.status())
                return command
            except TooLate:
                raise
            except ThreadError as error:
                problem = str(error)
            except (McpError, ValidationError):
                # The client cannot show it after all, or its answer is not valid.
                break
        return None

    async def _ask_in_forms(self, waiting: Waiting, problem: str) -> list[str]:
        """Returns the filled-in forms, one per call; nothing if one is dismissed. problem: why the previous
        answer was not valid, shown above the first form."""
        calls: Sequence[PendingCall | None] = waiting.calls if isinstance(waiting, Approval) else [None]
        texts: list[str] = []
        for call in calls:
            context = self._server.request_context
            message = in_text(asking(waiting)) if call is None else str(approving(call))
            if problem and not texts:
                message = f"{problem}\n\n{message}"
            response = await context.session.elicit_form(
                message, make_form(waiting, call), related_request_id=context.request_id
            )
            text = read_form(waiting, response.content, call) if response.action == "accept" else ""
            if not text:
                return []
            texts.append(text)
        return texts

    @property
    def _has_forms(self) -> bool:
        params = self._server.request_context.session.client_params
        can = params.capabilities.elicitation if params else None
        # A client that names no mode supports forms.
        return can is not None and (can.form is not None or can.url is None)

    # --- results ---

    def _report_end(self, driver: Driver, decision: Decision) -> CallToolResult:
        if isinstance(decision, Paused):
            return _make_result(
                "The task was paused, and everything is saved. resume goes on.",
                {"thread": driver.thread_id, "status": "stopped"},
            )
        assert isinstance(decision, Ended), "nothing else ends a run"
        outcome = json.loads(json.dumps(decision.outcome.model_dump(), default=str))
        report = of_outcome(outcome, driver.thread_id, self._database)
        follow = {"limit": " go_on goes on with more turns.", "error": " go_on tries again."}
        text = in_text(ending(report)) + follow.get(outcome["status"], "")
        found = {"thread": driver.thread_id, "status": outcome["status"], "outcome": outcome}
        return _make_result(text, found, error=outcome["status"] == "error")

    def _report_wait(self, driver: Driver, waiting: Waiting) -> CallToolResult:
        short = get_short_id(waiting)
        waiting_id = f"{waiting.interrupt_id}@{short}" if short else waiting.interrupt_id
        asked = {name: value for name, value in documents(waiting).items() if value is not None}
        text = f"{in_text(asking(waiting))}\n\nAnswer it with resume: thread {driver.thread_id}, waiting_id "
        return _make_result(
            f"{text}{waiting_id}.",
            {
                "thread": driver.thread_id,
                "status": "waiting",
                "waits_for": waits_for(waiting),
                "waiting_id": waiting_id,
                **asked,
            },
        )

    # --- resources ---

    async def _list_resources(self) -> list[Resource]:
        names = (await asyncio.to_thread(self._storage.checkpointer.threads))[:_LISTED]
        return [
            Resource(
                uri=AnyUrl(f"signoff://threads/{quote(name, safe='')}/{what}"),
                name=f"{what} of {name}",
                mimeType="application/json",
            )
            for name in names
            for what in _RESOURCES
        ]

    async def _list_templates(self) -> list[ResourceTemplate]:
        return [
            ResourceTemplate(
                uriTemplate=f"signoff://threads/{{thread}}/{what}",
                name=what,
                description=description,
                mimeType="application/json",
            )
            for what, description in _RESOURCES.items()
        ]

    async def _read_resource(self, uri: AnyUrl) -> Iterable[ReadResourceContents]:
        parts = str(uri).removeprefix("signoff://threads/").split("/")
        if not str(uri).startswith("signoff://threads/") or len(parts) != 2 or parts[1] not in _RESOURCES:
            raise _make_error(f"There is no resource {quote_id(str(uri))}; see the templates.")
        thread, what = unquote(parts[0]), parts[1]
        try:
            driver = await self._driver(thread, known=True)
            elsewhere, status = await driver.stand()
        except (SetupError, ThreadError) as error:
            raise _make_error(str(error)) from error
        document = _describe_status(elsewhere, status, driver.running)
        if what == "record":
            document["messages"] = [message_to_dict(message) for message in status.values.get("messages", ())]
        return [ReadResourceContents(json.dumps(document, default=str), "application/json")]


_RESOURCES = {
    "outcome": "How a thread's task has ended, or what it waits for.",
    "record": "The same, with all messages of the thread.",
}


def _describe_status(elsewhere: bool, status: ThreadStatus, here: bool) -> dict[str, Any]:
    running = elsewhere or here
    waiting, outcome = None if running else status.wait(), status.outcome
    return {
        "thread": status.thread_id,
        "status": "running" if running else outcome.status if outcome else str(status.condition),
        **({"note": "Another process runs it."} if elsewhere else {}),
        "outcome": outcome.model_dump(mode="json") if outcome else None,
        **{name: value for name, value in documents(waiting).items() if value is not None},
    }


def _make_result(text: str, found: dict[str, Any], *, error: bool = False) -> CallToolResult:
    plain = json.loads(json.dumps(found, default=str))
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structuredContent=plain, isError=error
    )


def _refuse(error: SignoffError, thread: str) -> CallToolResult:
    """Returns the result of a failed call. thread: the thread concerned; empty for none."""
    named = {}
    if thread:
        with suppress(SetupError):
            named = {"thread": checked_thread_id(thread)}
    return _make_result(str(error), {**named, "status": "refused"}, error=True)


def _make_error(why: str) -> McpError:
    return McpError(ErrorData(code=INVALID_PARAMS, message=why))
