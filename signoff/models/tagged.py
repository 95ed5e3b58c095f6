"""A chat model for models without tool calling, and for agents that act by writing code.

graph = build_graph(TaggedText(model), [python_tool()], limits=TAGGED_LIMITS)

The tools, the principles, the evidence and the current status become prompt text, and the reply, which
contains `<PLAN>`, Python code and `<STATE_UPDATE>`, is parsed into tool calls. The loop cannot tell it from a
model that calls tools by itself.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from signoff.graph.kinds import Kind
from signoff.graph.limits import Limits
from signoff.graph.state import Acting, Evidence
from signoff.models.text_protocol.calls import ToolNames
from signoff.models.text_protocol.prompt import Prompt, shortened
from signoff.models.text_protocol.status import (
    EXECUTORS,
    Position,
    Progress,
    TaggedReply,
    current_status,
    position,
)
from signoff.models.text_protocol.texts import DEFAULT, DEFAULT_TAGGED_TEXTS, TaggedTexts
from signoff.nodes.model.models import refuse_wrapped

__all__ = [
    "TAGGED_LIMITS",
    "Progress",
    "TaggedText",
    "TaggedTexts",
    "current_status",
]

TAGGED_LIMITS = Limits(turns=10)
"""The limits of a task for an agent that acts by writing code: ten turns."""

# The inner model is part of this one's call: with callbacks of its own its tokens would be reported twice.
_SILENT: RunnableConfig = {"callbacks": []}


class TaggedText(BaseChatModel):
    """Makes `model` work with tools by text alone. It never gets a tool or a tool result.

    constitution: the principles of the work, as text. It is saved with the thread: a graph that continues the
    thread without one uses the thread's. code_tool: the tool that runs the code blocks; without a tool of
    that name a code block is only text. think_tool, ask_tool, finish_tool: the control tools that plan and
    state update, `<ASK>` and finishing stand for. older_evidence: how many characters are shown of a result
    from before the last turn. texts: all other texts of the prompt.

    `bind_tools` stores the tools; its other options concern tool calling and are ignored here.
    """

    model: BaseChatModel
    constitution: str = DEFAULT
    code_tool: str = "run_python"
    think_tool: str = "think"
    ask_tool: str = "ask_user"
    finish_tool: str = "finish_task"
    older_evidence: int = Field(default=1000, ge=0)
    texts: TaggedTexts = DEFAULT_TAGGED_TEXTS
    tools: tuple[dict[str, Any], ...] = ()
    """The tools of `bind_tools`, as OpenAI-style functions."""
    tool_choice: str | None = None
    """The name of a tool that must be called; "any" for any tool; None when no call is required."""
    executors: tuple[str, ...] = EXECUTORS
    """The tools whose failure makes the status `Debugging`."""
    standing: Any = Field(default=None, repr=False, exclude=True)
    """The position of the thread's work while a graph runs it; None to read it from the messages."""

    def __init__(self, model: BaseChatModel, **kwargs: Any) -> None:
        refuse_wrapped(model)
        # The profile sets the budget of the prompt; only the inner model may cache a reply.
        given = {"cache": False, "profile": getattr(model, "profile", None), **kwargs}
        super().__init__(**{"model": model, **given})

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Returns this model with tools, like `BaseChatModel.bind_tools`."""
        if any(isinstance(tool, dict) and not {"function", "name"} & tool.keys() for tool in tools):
            raise ValueError("a text protocol has no tools of a provider")
        choice = _choice(tool_choice)
        functions = () if choice == "none" else [convert_to_openai_tool(tool)["function"] for tool in tools]
        kinds = {tool.name: (tool.metadata or {}).get("kind") for tool in tools if isinstance(tool, BaseTool)}
        shells = [name for name, kind in kinds.items() if kind == Kind.TERMINAL]
        return self.model_copy(
            update={
                "tools": tuple(functions),
                "tool_choice": None if choice in ("none", "auto") else choice,
                "executors": tuple(dict.fromkeys([self.code_tool, *self.executors, *shells])),
            }
        )

    @property
    def _llm_type(self) -> str:
        return f"tagged-{self.model._llm_type}"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"constitution": self.constitution, "model": dict(self.model._identifying_params)}

    @property
    def _names(self) -> ToolNames:
        return ToolNames(self.code_tool, self.think_tool, self.ask_tool, self.finish_tool)

    def prompt(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Returns the messages that the inner model gets for `messages`."""
        return Prompt(
            constitution=self.constitution,
            names=self._names,
            tools=self.tools,
            choice=self.tool_choice,
            executors=self.executors,
            older=self.older_evidence,
            texts=self.texts,
            standing=self.standing,
        ).messages(messages)

    def _keep(self, before: Acting | None, messages: Sequence[BaseMessage], task: str) -> Acting:
        """Returns what a graph saves of this model in the state of a thread.

        That is the constitution, the approach, the evidence and the status.
        """
        now, shown = self._position(messages), None
        if now.evidence is not None:
            found = now.evidence
            shown = Evidence(
                of=found.name or self.code_tool,
                call_id=found.tool_call_id,
                status="error" if now.failing else "ok",
                text=shortened(found.text, self.older_evidence, self.texts),
            )
        return Acting(
            task=task,
            constitution=self._constitution(before),
            approach=now.approach,
            status=now.status,
            failing=now.failing,
            evidence=shown,
        )

    def _in_thread(self, before: Acting | None, messages: Sequence[BaseMessage]) -> "TaggedText":
        """Returns this model as it continues a thread.

        It uses the thread's constitution unless it has one of its own, and the position of the work in the
        whole history, of which a prompt may show a part.
        """
        known = {"constitution": self._constitution(before), "standing": self._position(messages)}
        return self.model_copy(update=known)

    def _constitution(self, before: Acting | None) -> str:
        if before is None or "constitution" in self.model_fields_set:
            return self.constitution
        return before["constitution"]

    def _position(self, messages: Sequence[BaseMessage]) -> Position:
        return position(messages, self.executors, self.think_tool)

    def _reply(self, messages: Sequence[BaseMessage]) -> TaggedReply:
        now = self.standing or self._position(messages)
        bound = {tool["name"] for tool in self.tools}
        return TaggedReply(
            self.prompt(messages), self._names, bound, executors=self.executors, failing=now.failing
        )

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        with closing(self.model.stream(reply.prompt, _SILENT, stop=stop, **kwargs)) as chunks:  # type: ignore[type-var]  # it is a generator
            for chunk in chunks:
                given = reply.take(chunk)
                if run_manager:
                    run_manager.on_llm_new_token(given.text, chunk=given)
                yield given
                if reply.imagined:
                    break
        yield reply.end()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        async with aclosing(self.model.astream(reply.prompt, _SILENT, stop=stop, **kwargs)) as chunks:  # type: ignore[type-var]  # as above
            async for chunk in chunks:
                given = reply.take(chunk)
                if run_manager:
                    await run_manager.on_llm_new_token(given.text, chunk=given)
                yield given
                if reply.imagined:
                    break
        yield reply.end()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._reply(messages)
        whole = self.model.invoke(reply.prompt, _SILENT, stop=stop, **kwargs)
        return generate_from_stream(iter([reply.take(whole), reply.end()]))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._reply(messages)
        whole = await self.model.ainvoke(reply.prompt, _SILENT, stop=stop, **kwargs)
        return generate_from_stream(iter([reply.take(whole), reply.end()]))


def _choice(given: str | dict[str, Any] | bool | None) -> str | None:
    if isinstance(given, dict):
        return str(given.get("function", given).get("name", "any"))
    if isinstance(given, bool):
        return "any" if given else None
    return "any" if given == "required" else given
