"""The two loops that `benchmarks.iterations` compares, and the result of a run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool

from signoff import Limits, build_graph

PLAIN, SIGNOFF = "A: plain loop", "B: Signoff"

PLAIN_PROMPT = """\
You work on the user's task by calling tools, step by step, until it is completely done. When it is done, \
answer with a short summary and without a tool call."""


@dataclass(frozen=True)
class Run:
    """One task, run with one loop.

    kind: the class of the task. tokens: input and output of all model calls. repeated_tokens: input that the
    previous call had already read, word for word, which a provider's cache serves; None if unknown. ended:
    how it ended. right: whether the work is right; None if that cannot be checked.
    """

    loop: str
    kind: str
    task: str
    turns: int
    input_tokens: int
    output_tokens: int
    seconds: float
    ended: str
    right: bool | None = None
    repeated_tokens: int | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def plain_loop(model: BaseChatModel, tools: Sequence[BaseTool], task: str, kind: str, turns: int) -> Run:
    """A typical hand-written loop: it runs calls until a reply has none or the turns are used up."""
    begun = time.monotonic()
    bound, by_name = model.bind_tools(tools), {tool.name: tool for tool in tools}
    messages: list[BaseMessage] = [SystemMessage(PLAIN_PROMPT), HumanMessage(task)]
    replies: list[AIMessage] = []
    ended = f"{turns} turns"
    while len(replies) < turns:
        try:
            reply = bound.invoke(messages)
        except Exception as error:  # noqa: BLE001  whatever a provider raises ends this loop
            ended = type(error).__name__
            break
        replies.append(reply)
        messages.append(reply)
        if not reply.tool_calls:
            ended = "words"
            break
        messages += [_result(call, by_name) for call in reply.tool_calls]
    usage = [reply.usage_metadata for reply in replies if reply.usage_metadata]
    return Run(
        PLAIN,
        kind,
        task,
        len(replies),
        sum(one["input_tokens"] for one in usage),
        sum(one["output_tokens"] for one in usage),
        time.monotonic() - begun,
        ended,
    )


def _result(call: Any, tools: dict[str, BaseTool]) -> ToolMessage:
    try:
        found: ToolMessage = tools[call["name"]].invoke(call)
    except Exception as error:  # noqa: BLE001  the model is told, as every loop does it
        return ToolMessage(f"{type(error).__name__}: {error}", tool_call_id=call["id"], status="error")
    return found


def signoff_loop(model: BaseChatModel, tools: Sequence[BaseTool], task: str, kind: str, turns: int) -> Run:
    """Runs the same task in Signoff, with only the turn limit configured."""
    begun = time.monotonic()
    graph = build_graph(model, list(tools), limits=Limits(turns=turns))
    outcome = graph.invoke({"messages": [("user", task)]})["outcome"]
    seconds = time.monotonic() - begun
    usage = outcome["usage"]
    said = outcome["reason"] if outcome["status"] != "success" else f"finish_task ({outcome['claim']})"
    ended = f"{turns} turns" if said == "turns" else said
    return Run(
        SIGNOFF, kind, task, outcome["turns"], usage["input_tokens"], usage["output_tokens"], seconds, ended
    )


LOOPS = {PLAIN: plain_loop, SIGNOFF: signoff_loop}
