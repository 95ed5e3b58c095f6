"""Microsoft's agent-framework, with sessions in a file, approvals of tools and the `AgentLoopMiddleware`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_framework import (
    Agent,
    AgentLoopMiddleware,
    AgentResponse,
    AgentSession,
    Content,
    FileSessionStore,
    FunctionTool,
    Message,
    ToolApprovalMiddleware,
    tool,
)
from agent_framework.openai import OpenAIChatCompletionClient
from kit import Kit
from pydantic import BaseModel
from wire import Adapter, Refused, Report, Setup, named, run_async


class City(BaseModel):
    """A city."""

    city: str
    population: int


class Question(BaseModel):
    question: str


ASK_USER = FunctionTool(name="ask_user", description="Ask the user something.", input_model=Question)
"""Without a function: the call goes to the host, who gives its result to the next run."""


class AgentFramework(Adapter):
    framework = "Microsoft agent-framework"
    packages = ("agent-framework-core", "agent-framework-openai", "openai")
    finish: ClassVar = {"any": {"text": "$text"}, "structured": {"text": "$json"}}
    ask: ClassVar = {"name": "ask_user", "args": {"question": "$text"}}
    delegation: ClassVar = {"name": "$name", "args": {"task": "$text"}}
    lacks: ClassVar = {
        "tree_limit": "limits are of one run of one agent",
        "child_wait": "an agent as a tool does not pass approvals up; its documentation points to workflows",
        "child_durable": "an agent as a tool does not pass approvals up",
        "recursion": "an agent's tools are given when it is made, so none is its own",
        "compaction": "a history is made smaller where an agent is given a `compaction_strategy`",
        "finish_call": "a run ends with words or a structured answer; no tool of an agent ends it",
        "edit": "an approval holds for the arguments as they are; changed ones are asked about again",
        "deadline": "a request to the user waits without a deadline",
        "crash": "durable runs are left to the Durable Task integration; a session is saved between runs",
        "one_runner": "durable runs are left to the Durable Task integration; a session store does not lock",
        "stop": "a run ends early by cancelling its asyncio task, at whatever it is awaiting",
    }

    def __init__(self, setup: Setup, kit: Kit) -> None:
        super().__init__(setup, kit)
        self._asked = setup.folder / "asked.json"
        self._waiting = setup.folder / "waiting.json"
        self._store = FileSessionStore(setup.folder)
        self._agent = self._build()

    def _build(self) -> Agent:
        setup = self.setup
        tools = [self._helper(name) for name in setup.helpers] or self._tools()
        return Agent(
            self._client(setup.turns),
            instructions=setup.system or None,
            tools=[*tools, ASK_USER] if setup.asks else tools,
            default_options={"response_format": City} if setup.finish == "structured" else None,
            middleware=self._middleware(),
        )

    def _tools(self) -> list[Any]:
        required = self.setup.approve
        return [
            tool(
                function,
                approval_mode="always_require" if function.__name__ in required else "never_require",
            )
            for function in self.kit.functions()
        ]

    def _helper(self, name: str) -> Any:
        agent = Agent(self._client(self.setup.helper_turns), name=name, tools=self._tools())
        return agent.as_tool(description="Does a task.")

    def _client(self, turns: int | None) -> OpenAIChatCompletionClient:
        return OpenAIChatCompletionClient(
            "scripted",
            api_key="none",
            base_url=self.setup.url,
            function_invocation_configuration=self._limits(turns),
        )

    def _limits(self, turns: int | None) -> Any:
        found: dict[str, Any] = {}
        if turns is not None:
            found["max_iterations"] = turns - 1  # one more follows them, without tools
        if self.setup.tool_calls is not None:
            found["max_function_calls"] = self.setup.tool_calls
        return found or None

    def _middleware(self) -> list[Any]:
        def should_continue(**_: Any) -> tuple[bool, str | None]:
            problem = self.kit.gate()
            return problem is not None, problem

        def next_message(*, feedback: str | None, **_: Any) -> str | None:
            return feedback

        found: list[Any] = []
        if self.setup.gate:
            found.append(
                AgentLoopMiddleware(should_continue, next_message=next_message, return_final_only=True)
            )
        if self.setup.approve:
            found.append(ToolApprovalMiddleware())
        return found

    def say(self, text: str) -> Report:
        return run_async(self._run(text))

    def decide(self, decisions: Sequence[Mapping[str, Any]]) -> Report:
        """A response is made of the request that the person was shown, and so names its call. It says yes or
        no; it has no place for a reason."""
        waiting = [_id(request) for request in self._requests()]
        shown = {_id(request): request for request in _read(self._asked)}
        responses = [
            shown[id].to_function_approval_response(decision["type"] == "approve")
            for id, decision in named(waiting, decisions)
        ]
        return run_async(self._run(Message("user", responses)))

    def answer(self, text: str) -> Report:
        [request] = self._requests()
        result = Content.from_function_result(request.call_id, result=text)
        return run_async(self._run(Message("tool", [result])))

    def _requests(self) -> list[Content]:
        if not self._waiting.exists():
            raise Refused("no request to the user is pending")
        return _read(self._waiting)

    async def _run(self, given: Any) -> Report:
        thread = self.setup.thread
        session = await self._store.get(thread) or AgentSession(session_id=thread)
        response = await self._agent.run(given, session=session)
        await self._store.set(thread, session)
        waiting = [one.to_dict() for one in response.user_input_requests]
        self._waiting.write_text(json.dumps(waiting)) if waiting else self._waiting.unlink(missing_ok=True)
        asked = [one.to_dict() for one in _read(self._asked)] if self._asked.exists() else []
        self._asked.write_text(json.dumps([*asked, *waiting]))
        return self._told(response)

    def _told(self, response: AgentResponse) -> Report:
        asked = response.user_input_requests
        approvals = [one for one in asked if one.type == "function_approval_request"]
        if approvals:
            return Report("approval", pending=[_waits(one) for one in approvals])
        if asked:
            return Report("question", asked[0].parse_arguments()["question"])
        reason, text = response.finish_reason, response.text
        if reason == "tool_calls":
            return Report("limit", f"finish_reason tool_calls: {text}")
        if reason != "stop":
            return Report("error", f"finish_reason {reason}: {text}")
        final = response.value.model_dump() if self.setup.finish == "structured" else text
        return Report("success", text, final)


def _read(file: Path) -> list[Content]:
    return [Content.from_dict(one) for one in json.loads(file.read_text())]


def _id(request: Content) -> str:
    return str(request.id)


def _waits(request: Content) -> dict[str, Any]:
    call = request.function_call
    return {"name": call.name, "args": call.parse_arguments(), "id": _id(request)}
