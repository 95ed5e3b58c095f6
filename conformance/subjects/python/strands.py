"""Strands, with a file session, interrupts for approvals and questions, and the `GoalLoop` for checks."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kit import Kit
from pydantic import BaseModel
from strands import Agent, tool
from strands.hooks import BeforeInvocationEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.openai import OpenAIModel
from strands.session import FileSessionManager
from strands.vended_plugins.goal import GoalLoop
from strands.vended_tools.handoff_to_user import HANDOFF_INTERRUPT_NAME, handoff_to_user
from wire import Adapter, Refused, Report, Setup, named

COMPLETE = ("end_turn", "stop_sequence", "tool_use")


class Done(BaseModel):
    """Call this when the whole task is done."""

    summary: str


class City(BaseModel):
    """A city."""

    city: str
    population: int


class ApproveTools(HookProvider):
    """Asks before these tools run. Through a hook, a person's words and changes reach the call."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self._approve)

    def _approve(self, event: BeforeToolCallEvent) -> None:
        name, args = event.tool_use["name"], event.tool_use["input"]
        if name not in self._names:
            return
        decision = event.interrupt("approval", reason={"name": name, "args": args})
        if decision["type"] == "reject":
            event.cancel_tool = decision["message"]
        elif decision["type"] == "edit":
            event.tool_use["input"] = decision["args"]


class LimitToolCounts(HookProvider):
    """The recipe of this name in the documentation of hooks, for all tools together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._reset)
        registry.add_callback(BeforeToolCallEvent, self._limit)

    def _reset(self, _: BeforeInvocationEvent) -> None:
        self._count = 0

    def _limit(self, event: BeforeToolCallEvent) -> None:
        self._count += 1
        if self._count > self._most:
            event.cancel_tool = "Too many tools have been called. DO NOT CALL ANY MORE TOOLS"


class Strands(Adapter):
    framework = "Strands"
    packages = ("strands-agents", "openai")
    finish: ClassVar = {
        "any": {"text": "$text"},
        "call": {"name": "Done", "args": {"summary": "$text"}},
        "structured": {"name": "City", "args": "$value"},
    }
    ask: ClassVar = {"name": "handoff_to_user", "args": {"message": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"input": "$text"}}
    lacks: ClassVar = {
        "child_limit": "limits are given to one call of an agent; an agent as a tool is called without",
        "tree_limit": "limits are of one call of one agent",
        "deadline": "an interrupt waits without a deadline",
        "one_runner": "an agent object refuses a second invocation; session managers do not lock a session",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._waiting = setup.folder / "waiting.json"
        self._goal = GoalLoop(self._check) if setup.gate else None
        self._agent = self._build()

    def _build(self) -> Agent:
        setup = self.setup
        hooks: list[Any] = [ApproveTools(setup.approve)] if setup.approve and not setup.helpers else []
        hooks += [LimitToolCounts(setup.tool_calls)] if setup.tool_calls is not None else []
        tools = [self._helper(name) for name in setup.helpers] or self._tools()
        return Agent(
            self._model(),
            system_prompt=setup.system or None,
            tools=[*tools, handoff_to_user] if setup.asks else tools,
            structured_output_model={"call": Done, "structured": City}.get(setup.finish),
            callback_handler=None,
            hooks=hooks,
            plugins=[self._goal] if self._goal else [],
            session_manager=FileSessionManager(setup.thread, storage_dir=str(setup.folder)),
        )

    def _model(self) -> OpenAIModel:
        return OpenAIModel(client_args={"base_url": self.setup.url, "api_key": "none"}, model_id="scripted")

    def _tools(self) -> list[Any]:
        return [tool(function) for function in self.kit.functions()]

    def _helper(self, name: str) -> Any:
        agent = Agent(
            self._model(),
            name=name,
            description="Does a task.",
            tools=self._tools(),
            callback_handler=None,
            hooks=[ApproveTools(self.setup.approve)],
        )
        itself = agent.as_tool()
        if self.setup.recursive:
            agent.tool_registry.process_tools([itself])
        return itself

    def _check(self, *_: Any, **__: Any) -> dict[str, Any]:
        problem = self.kit.gate()
        return {"passed": problem is None, "feedback": problem}

    def say(self, text: str) -> Report:
        return self._run(text)

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        return self._respond(decisions)

    def answer(self, text: str) -> Report:
        return self._respond([{"answer": text}])

    def resume(self) -> Report:
        last = self._agent.messages[-1] if self._agent.messages else None
        if last is None or (
            last["role"] == "assistant" and not any("toolUse" in part for part in last["content"])
        ):
            raise Refused("the session ends with an answer")
        # With a message, a call that was cut short is closed as interrupted; without one it is run again.
        return self._run("Continue.")

    def stop(self) -> None:
        self._agent.cancel()

    def _respond(self, given: Sequence[Mapping[str, Any]]) -> Report:
        if not self._waiting.exists():
            raise Refused("no interrupt is pending")
        ids = json.loads(self._waiting.read_text())
        answers = [
            {"interruptId": id, "response": one.get("answer", dict(one))} for id, one in named(ids, given)
        ]
        return self._run([{"interruptResponse": answer} for answer in answers])

    def _run(self, given: Any) -> Report:
        limits = None if self.setup.turns is None else {"turns": self.setup.turns}
        try:
            result = self._agent(given, limits=limits)
        except TypeError as error:
            if "must resume from interrupt" in str(error):
                raise Refused(str(error)) from error
            raise
        self._waiting.unlink(missing_ok=True)
        if result.stop_reason == "interrupt":
            return self._waits(result.interrupts)
        if result.stop_reason == "cancelled":
            return Report("stopped", "cancelled")
        if result.stop_reason.startswith("limit_"):
            return Report("limit", result.stop_reason)
        return self._ended(result)

    def _waits(self, interrupts: Sequence[Any]) -> Report:
        self._waiting.write_text(json.dumps([one.id for one in interrupts]))
        asked = [one for one in interrupts if one.name == HANDOFF_INTERRUPT_NAME]
        if asked:
            return Report("question", asked[0].reason)
        return Report("approval", pending=[{**one.reason, "id": one.id} for one in interrupts])

    def _ended(self, result: Any) -> Report:
        goal = self._goal.last_result(self._agent) if self._goal else None
        if result.stop_reason not in COMPLETE or (goal and not goal.passed):
            return Report("error", f"{result.stop_reason}, goal: {goal and goal.stop_reason}")
        if self.setup.finish == "any":
            text = str(result).strip()
            return Report("success", f"{result.stop_reason}: {text}", text)
        answer = result.structured_output
        if answer is None:
            return Report("error", f"{result.stop_reason}, without a structured output")
        final = answer.summary if isinstance(answer, Done) else answer.model_dump()
        return Report("success", result.stop_reason, final)
