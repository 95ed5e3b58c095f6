"""What the clients and some servers would get wrong: names of calls, usages, too many cache marks."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from signoff import build_graph
from signoff.guards import Guards
from tests.support.servers.fake_others import AnthropicReply, ResponsesReply
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, sse, tool_call

Body = dict[str, Any]
FINISH = tool_call("finish_task", summary="All of it is noted and checked.")
MARK = {"cache_control": {"type": "ephemeral"}}


def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


def openai(server: FakeProvider, **options: Any) -> BaseChatModel:
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("none"), max_retries=0, **options)


def counted(read: int, written: int) -> Body:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def streamed(*usages: Body, last: Body | None = None) -> Fault:
    """A finish in as many pieces as there are usages, each with one; `last` comes after the finish reason."""
    raw = FINISH["function"]["arguments"]
    size = len(raw) // len(usages) + 1
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    events = list[Body]()
    for number, (piece, usage) in enumerate(zip(pieces, usages, strict=True)):
        head = {"id": "call_1", "type": "function"} if not number else {}
        function = {"arguments": piece, **({"name": "finish_task"} if not number else {})}
        delta = {"tool_calls": [{"index": 0, **head, "function": function}]}
        events.append({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": usage})
    events.append(
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": usages[-1]}
    )
    if last:
        events.append({"choices": [], "usage": last})
    common = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return sse(*(f"data: {json.dumps({**common, **event})}" for event in events), "data: [DONE]")


def whole(usage: Body) -> Fault:
    body = json.loads(Reply(calls=[FINISH]).whole())
    return Fault(200, {**body, "usage": usage})


def by_build_graph(model: BaseChatModel) -> Body:
    graph = build_graph(model, [note], streaming="auto")
    state: Body = graph.invoke({"messages": [("user", "Note it.")]})
    return state


def by_build_graph_streamed(model: BaseChatModel) -> Body:
    state: Body = build_graph(model, [note]).invoke({"messages": [("user", "Note it.")]})
    return state


def by_guards(model: BaseChatModel) -> Body:
    agent: Any = create_agent(model, [note], middleware=[Guards()])
    state: Body = agent.invoke({"messages": [HumanMessage("Note it.")]})
    return state


def by_guards_streamed(model: BaseChatModel) -> Body:
    agent: Any = create_agent(model, [note], middleware=[Guards()])
    given: Any = {"messages": [HumanMessage("Note it.")]}
    states = [
        state for kind, state in agent.stream(given, stream_mode=["messages", "values"]) if kind == "values"
    ]
    last: Body = states[-1]
    return last


STREAMED = [by_build_graph_streamed, by_guards_streamed]
UP = [counted(90, 1), counted(90, 7), counted(90, 20)]
USAGES = {
    "it counts up": (streamed(*UP), (90, 20)),
    "it counts up, and says it once more": (streamed(*UP, last=counted(90, 20)), (90, 20)),
    "it counts up from zero": (streamed(counted(90, 0), *UP), (90, 20)),
    "it says it at the end": (streamed({}, {}, last=counted(90, 20)), (90, 20)),
}


@pytest.mark.parametrize("face", STREAMED)
@pytest.mark.parametrize("case", USAGES)
def test_a_usage_in_each_chunk_is_not_summed(case: str, face: Callable[[BaseChatModel], Body]) -> None:
    answer, (read, written) = USAGES[case]
    with FakeProvider([answer]) as server:
        outcome = face(openai(server, stream_usage=True))["outcome"]
    assert outcome["status"] == "success"
    usage = outcome["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["estimated"]) == (read, written, False)


@pytest.mark.parametrize(
    ("face", "answer"),
    [
        pytest.param(by_build_graph, whole(counted(0, 0)), id="whole"),
        pytest.param(by_build_graph, whole(counted(0, 20)), id="nothing read"),
        pytest.param(by_build_graph_streamed, streamed({}, {}, last=counted(0, 0)), id="streamed"),
        pytest.param(by_guards, whole(counted(0, 0)), id="guards"),
        pytest.param(by_guards_streamed, streamed({}, {}, last=counted(0, 0)), id="guards, streamed"),
    ],
)
def test_a_usage_of_zero_is_estimated(face: Callable[[BaseChatModel], Body], answer: Fault) -> None:
    with FakeProvider([answer]) as server:
        usage = face(openai(server, stream_usage=True))["outcome"]["usage"]
    assert usage["estimated"]
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] > 0


NAMES = {
    "without a name": [tool_call("", text="a"), tool_call("note", id="call_1", text="b")],
    "with one id": [tool_call("note", text="a"), tool_call("note", text="b")],
    "without name and id": [tool_call("", id="", text="a"), tool_call("note", id="", text="b")],
}


@pytest.mark.parametrize("calls", NAMES.values(), ids=NAMES)
def test_a_repaired_call_is_sent_to_responses(calls: list[Body]) -> None:
    replies = [ResponsesReply(calls=calls), ResponsesReply(calls=[FINISH])]
    with FakeProvider(replies) as server:
        graph = build_graph(openai(server, use_responses_api=True), [note], streaming="never")
        state = graph.invoke({"messages": [("user", "Note it.")]})
    assert state["outcome"]["status"] == "success"
    items = server.requests[-1].body["input"]
    sent = [item for item in items if item.get("type") == "function_call"]
    results = {
        item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"
    }
    assert [json.loads(item["arguments"])["text"] for item in sent] == ["a", "b"]
    assert all(item["name"] for item in sent)
    assert len({item["call_id"] for item in sent}) == len(results) == 2
    assert results[sent[-1]["call_id"]] == "noted b"


def marking(model: BaseChatModel, tool: StructuredTool, prompt: SystemMessage) -> Any:
    return build_graph(
        model,
        [tool],
        system_prompt=prompt,
        cache="anthropic",
        streaming="never",
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )


def marking_guards(model: BaseChatModel, tool: StructuredTool, prompt: SystemMessage) -> Any:
    middleware: list[Any] = [Guards(), AnthropicPromptCachingMiddleware()]
    saved: Any = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    return create_agent(model, [tool], system_prompt=prompt, middleware=middleware, **saved)


def marks_in(body: Body) -> int:
    return json.dumps(body).count('"cache_control"')


def parts(*texts: str, marked: int = 0) -> list[str | Body]:
    """Blocks of text, of which the first have a mark."""
    return [{"type": "text", "text": text, **(MARK if at < marked else {})} for at, text in enumerate(texts)]


SYSTEMS = {"no mark": 0, "one mark": 1, "three marks": 3, "four marks": 4}


@pytest.mark.parametrize("tools", [0, 1], ids=["plain tools", "a marked tool"])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("face", "beside"), [(marking, []), (marking_guards, ["tool", "request"])])
def test_there_are_at_most_four_cache_marks(
    face: Callable[..., Any], beside: list[str], system: str, tools: int
) -> None:
    """beside: what a middleware marks, too: the last tool, which is this one, and the whole request."""
    tool = StructuredTool.from_function(note)
    tool.extras = MARK if tools else None
    prompt = SystemMessage(parts("You.", "Note.", "Do.", "Well.", marked=SYSTEMS[system]))
    call = tool_call("note", text="a")
    script = [AnthropicReply(calls=[call]), AnthropicReply(calls=[FINISH])] * 6
    config: Any = {"configurable": {"thread_id": "t"}}
    with FakeProvider(script) as server:
        model = ChatAnthropic(model="m", base_url=server.root, api_key=SecretStr("k"))
        graph = face(model, tool, prompt)
        for task in range(6):
            message = HumanMessage(parts(f"Task {task}.", marked=1))
            state = graph.invoke({"messages": [message]}, config)
            assert state["outcome"]["status"] == "success"
    assert [marks_in(request.body) for request in server.requests if marks_in(request.body) > 4] == []
    last = server.requests[-1].body
    assert marks_in(last) == 4
    assert marks_in({"tools": last["tools"]}) == max(tools, len(beside[:1]))
    assert marks_in({"system": last["system"]}) >= min(SYSTEMS[system], 4 - max(tools, len(beside)))
