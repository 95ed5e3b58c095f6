"""Google ADK, with a resumable app, a SQLite session service, tool confirmations and task mode.

The model is ADK's own chat completions client, `OpenAILlm`: LiteLlm does not start without further packages.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.integrations.openai import OpenAILlm
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import request_input
from google.adk.workflow import START, Workflow
from google.genai import types
from kit import Kit
from pydantic import BaseModel
from wire import Adapter, Refused, Report, Setup, named, run_async

CONFIRM = "adk_request_confirmation"
INPUT = "adk_request_input"
USER = "user"


class City(BaseModel):
    """A city."""

    city: str
    population: int


class GoogleADK(Adapter):
    framework = "Google ADK"
    packages = ("google-adk", "google-genai", "openai")
    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "finish_task", "args": {"result": "$text"}},
        "structured": {"name": "set_model_response", "args": "$value"},
    }
    ask: ClassVar = {"name": INPUT, "args": {"message": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"request": "$text"}}
    lacks: ClassVar = {
        "child_limit": "calls of the model are limited for the whole invocation, not for one agent",
        "recursion": "an agent has one parent, so none stands below itself",
        "finish_again": "a task agent does one task; in a thread of several messages it ends with words",
        "compaction": "events are compacted where the app is given an `EventsCompactionConfig`",
        "call_limit": "only calls of the model are limited",
        "deadline": "a long-running call waits without a deadline",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._who = {"user_id": USER, "session_id": setup.thread}
        self._abort: Any = None
        self._stop: Any = None
        self._runner = Runner(
            app=App(
                name="bench",
                root_agent=self._workflow() if setup.gate else self._agent(),
                plugins=[ReflectAndRetryToolPlugin()],
                resumability_config=ResumabilityConfig(is_resumable=True),
            ),
            session_service=SqliteSessionService(str(setup.folder / "sessions.sqlite")),
            auto_create_session=True,
        )

    def _agent(self) -> LlmAgent:
        setup = self.setup
        if setup.helpers:
            helpers: list[Any] = [self._helper(name) for name in setup.helpers]
            return LlmAgent(name="worker", model=self._model(), sub_agents=helpers)
        return LlmAgent(
            name="worker",
            model=self._model(),
            instruction=setup.system,
            tools=[*self.kit.functions(), *([request_input] if setup.asks else [])],
            mode="task" if setup.finish == "call" else None,
            output_schema=City if setup.finish == "structured" else None,
            before_tool_callback=self._confirm,
        )

    def _model(self) -> OpenAILlm:
        return OpenAILlm(model="scripted", base_url=self.setup.url, api_key="none")

    def _helper(self, name: str) -> LlmAgent:
        return LlmAgent(
            name=name,
            description="Does a task.",
            model=self._model(),
            mode="single_turn",
            tools=[*self.kit.functions()],
            before_tool_callback=self._confirm,
        )

    def _workflow(self) -> Workflow:
        def check(node_input: str) -> Event:
            problem = self.kit.gate()
            return Event(output=problem or node_input, route="again" if problem else None)

        worker = self._agent()
        return Workflow(name="checked", edges=[(START, worker, check, {"again": worker})])

    def _confirm(self, tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, str] | None:
        """Asks before a tool runs; the payload of a confirmation holds a reason or other arguments."""
        if tool.name not in self.setup.approve:
            return None
        confirmation = tool_context.tool_confirmation
        if confirmation is None:
            tool_context.request_confirmation(hint=f"Approve or reject the call of {tool.name}.")
            return {"status": "This call waits for a person."}
        payload = confirmation.payload or {}
        if not confirmation.confirmed:
            return {"error": payload["message"]}
        args.update(payload.get("args", {}))
        return None

    def say(self, text: str) -> Report:
        return run_async(self._run([types.Part(text=text)]))

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        return run_async(self._decide(decisions))

    def answer(self, text: str) -> Report:
        return run_async(self._answer(text))

    def resume(self) -> Report:
        return run_async(self._resume())

    def stop(self) -> None:
        self._stop()

    async def _decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        """Each answer names the call by which its confirmation was asked for."""
        waiting = [call.id for call in await self._waiting(CONFIRM)]
        parts = []
        for id, decision in named(waiting, decisions):
            payload = {key: value for key, value in decision.items() if key not in ("type", "id")}
            answer = {"confirmed": decision["type"] != "reject", "payload": payload}
            parts.append(_response(id, CONFIRM, answer))
        return await self._run(parts)

    async def _answer(self, text: str) -> Report:
        if self.setup.finish == "call" and _asks_in_words(await self._events()):
            return await self._run([types.Part(text=text)])
        [call] = await self._waiting(INPUT)
        return await self._run([_response(call.id, INPUT, {"result": text})])

    async def _resume(self) -> Report:
        events = await self._events()
        if not events or (events[-1].author != USER and events[-1].is_final_response()):
            raise Refused("the last event is a final response")
        return await self._run(None, invocation_id=events[-1].invocation_id)

    async def _events(self) -> list[Event]:
        session = await self._runner.session_service.get_session(app_name="bench", **self._who)
        return session.events if session else []

    async def _waiting(self, name: str) -> list[Any]:
        found = await self._open(name)
        if not found:
            raise Refused("no long-running call is pending")
        return found

    async def _open(self, name: str) -> list[Any]:
        """The long-running calls of this tool that the user has not answered."""
        events = await self._events()
        answered = {r.id for event in events if event.author == USER for r in event.get_function_responses()}
        calls = [c for event in events for c in event.get_function_calls() if c.name == name]
        return [call for call in calls if call.id not in answered]

    async def _run(self, parts: list[Any] | None, **more: Any) -> Report:
        turns = self.setup.tree_turns or self.setup.turns
        self._abort = abort = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(abort.set)
        message = types.Content(role="user", parts=parts) if parts else None
        events = []
        try:
            async for event in self._runner.run_async(
                new_message=message,
                run_config=RunConfig() if turns is None else RunConfig(max_llm_calls=turns),
                abort_signal=abort,
                **self._who,
                **more,
            ):
                events.append(event)
        except LlmCallsLimitExceededError as limit:
            return Report("limit", str(limit))
        # An answer to one of two calls that wait ends the run, too, and the session shows that one waits on.
        confirms = await self._open(CONFIRM) if all(_says_nothing(event) for event in events) else []
        return _approval(confirms) if confirms else self._told(events)

    def _told(self, events: Sequence[Event]) -> Report:
        calls = [call for event in events for call in event.get_function_calls()]
        confirms = [call for call in calls if call.name == CONFIRM]
        asked = [call for call in calls if call.name == INPUT]
        if confirms:
            return _approval(confirms)
        if asked:
            return Report("question", asked[0].args["message"])
        errors = [event for event in events if event.error_code]
        if errors:
            code, message = errors[-1].error_code, errors[-1].error_message
            return Report("stopped" if code == "INVOCATION_ABORTED" else "error", f"{code}: {message}")
        return self._ended(events)

    def _ended(self, events: Sequence[Event]) -> Report:
        outputs = [event.output for event in events if event.output]
        if self.setup.finish == "call" and outputs:
            return Report("success", "the task agent's output", outputs[-1]["result"])
        finals = [event for event in events if event.is_final_response() and event.content]
        if not finals:
            return Report("error", "no final response")
        last = finals[-1]
        text = "".join(part.text or "" for part in last.content.parts or [] if not part.thought)
        if last.finish_reason not in (None, types.FinishReason.STOP):
            return Report("error", f"finish_reason {last.finish_reason}: {text}")
        if self.setup.finish == "call":
            return Report("question", f"the task agent waits for the user: {text}")
        return Report("success", text, json.loads(text) if self.setup.finish == "structured" else text)


def _asks_in_words(events: Sequence[Event]) -> bool:
    """Whether a task agent stopped with words, which are for the user to answer."""
    spoken = [event for event in events if event.content and event.content.role in ("model", USER)]
    last = spoken[-1] if spoken else None
    return last is not None and last.author != USER and last.is_final_response() and not _calls(last)


def _calls(event: Event) -> bool:
    return bool(event.get_function_calls() or event.get_function_responses())


def _says_nothing(event: Event) -> bool:
    """Whether the model did not speak in it, and nothing went wrong."""
    spoke = event.content and event.content.role == "model"
    return not (spoke or event.error_code or event.output)


def _approval(confirms: Sequence[Any]) -> Report:
    originals = [(call.id, call.args["originalFunctionCall"]) for call in confirms]
    return Report(
        "approval", pending=[{"name": one["name"], "args": one["args"], "id": id} for id, one in originals]
    )


def _response(id: str, name: str, answer: Mapping[str, Any]) -> Any:
    return types.Part(function_response=types.FunctionResponse(id=id, name=name, response=dict(answer)))
