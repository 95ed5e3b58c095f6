"""A chat model that works by text: for models without tool calling, and for agents that act by writing code.

    graph = build_graph(TaggedText(model), [python_tool()], limits=TAGGED_LIMITS)

The tools, the principles, the evidence and the current status become prompt text, and the reply, which has
`<PLAN>`, Python code and `<STATE_UPDATE>` in it, is read back into tool calls. The loop does not know it from
a model that calls tools by itself.
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

__all__ = [
    "DEFAULT",
    "TAGGED_LIMITS",
    "Acting",
    "Evidence",
    "Progress",
    "TaggedText",
    "TaggedTexts",
    "current_status",
]

TAGGED_LIMITS = Limits(turns=10)
"""The limits of a task for an agent that acts by code: ten turns."""

# The inner model is part of this one's call: with callbacks of its own its tokens would be told twice.
_SILENT: RunnableConfig = {"callbacks": []}


class TaggedText(BaseChatModel):
    """`model`, made to work with tools by text alone. It is never sent a tool or a tool's result.

    constitution: the principles of the work, as text. A thread keeps it: a graph that goes on with the thread
    and is given none takes the thread's. code_tool: the tool that runs the code blocks; without
    a tool of that name a code block is only text. think_tool, ask_tool, finish_tool: the control tools that
    plan and state update, `<ASK>` and finishing stand for. older_evidence: characters that are shown of a
    result that is not one of the last turn. texts: all other texts of the prompt.

    `bind_tools` keeps the tools; its further options concern tool calling and have no meaning here.
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
    """What `bind_tools` was given, as OpenAI-style functions."""
    tool_choice: str | None = None
    """The name of a tool that must be called; "any" for any; None when nothing must."""
    executors: tuple[str, ...] = EXECUTORS
    """The tools whose failure makes the status `Debugging`."""
    standing: Any = Field(default=None, repr=False, exclude=True)
    """Where the work of the thread stands, while a graph works on it; None to read it from the messages."""

    def __init__(self, model: BaseChatModel, **kwargs: Any) -> None:
        # The prompt is budgeted by the profile; a reply is cached by the inner model, if by any.
        given = {"cache": False, "profile": getattr(model, "profile", None), **kwargs}
        super().__init__(**{"model": model, **given})

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools, as `BaseChatModel.bind_tools`."""
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
        """What the inner model is shown for `messages`."""
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

    def kept(self, before: Acting | None, messages: Sequence[BaseMessage], task: str) -> Acting:
        """What a graph keeps of this model in the state of a thread: the constitution that it goes by, the
        approach, the evidence and the status."""
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

    def in_thread(self, before: Acting | None, messages: Sequence[BaseMessage]) -> "TaggedText":
        """This model as it goes on in a thread: by the thread's constitution, unless it was given one of its
        own, and from where the work stands in the whole history, of which a prompt may show a part."""
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
