"""What is sent alternates between user and assistant, as strict providers want it, in every thread; and what
was sent once is never changed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from signoff import Limits, build_graph, current_outcome, extend
from signoff.graph.messages import nudge_kind
from signoff.graph.texts import NUDGES, Texts
from signoff.guards import Guards
from signoff.models import ScriptedModel, call, reply
from signoff.models.tagged import TaggedText
from tests.support.histories import assert_in_turn

LINE = "Here I stopped."
TEXTS = Texts(between={"assistant": LINE, "user": "And then?"})
WORK, FINISH = call("work", text="x"), call("finish_task", summary="All of it.")
WORKS = [call("work", text=str(at)) for at in range(5)]
HERON = ConnectionError("heron: the key sk-123 is not known")


def work(text: str) -> str:
    """Work."""
    return f"worked: {text}"


READ = {"kind": "read"}
work_tool = StructuredTool.from_function(work, metadata=READ)


class Appending(AgentMiddleware[Any, Any, Any]):
    """Says something more at the end of each prompt."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=[*request.messages, HumanMessage("The time is noon.")]))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(
            request.override(messages=[*request.messages, HumanMessage("The time is noon.")])
        )


class Choosing(AgentMiddleware[Any, Any, Any]):
    """Asks another model than the agent's."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model=self.model))


@dataclass(frozen=True)
class Thread:
    """The model's replies, the inputs, and who says what in the last prompt from the first result on."""

    script: Sequence[Any]
    inputs: Sequence[Any]
    ends: Sequence[tuple[str, str]] = ()
    limits: Limits = field(default_factory=lambda: Limits(turns=20))
    middleware: Sequence[Any] = ()


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text) for text in texts]}


def more_turns(values: Any) -> Any:
    return extend(values, turns=5)


GREETING = [AIMessage("Hello, what can I do?"), HumanMessage("Work.")]
PARTS = [HumanMessage("Hello."), AIMessage("Hello."), AIMessage("What can I do?"), HumanMessage("Work.")]
IMPORTED = [
    HumanMessage("Work."),
    AIMessage("", tool_calls=[{"name": "work", "args": {"text": "y"}, "id": "w"}]),
    ToolMessage("worked: y", tool_call_id="w", name="work"),
    HumanMessage("Once more."),
]
NAMED = [HumanMessage("I am for it.", name="ann"), HumanMessage("I am not.", name="bob")]
TWO_AT_ONCE = [{"type": "text", "text": "First this."}, {"type": "text", "text": "Then that."}]
THREADS: dict[str, Thread] = {
    "a second task after a finish": Thread(
        [WORK, FINISH, FINISH],
        [said("one"), said("two")],
        [("tool", "Accepted. The task has ended."), ("ai", "All of it."), ("human", "two")],
    ),
    "a finish that claims less": Thread(
        [call("finish_task", summary="No key.", outcome="blocked"), FINISH],
        [said("one"), said("two")],
        [("ai", "The work is not finished (blocked). No key."), ("human", "two")],
    ),
    "an empty reply after a result": Thread(
        [WORK, reply(""), FINISH], [said("one")], [("ai", LINE), ("human", NUDGES["empty"])]
    ),
    "an empty reply at once": Thread(
        [reply(""), FINISH], [said("one")], [("human", "one"), ("ai", LINE), ("human", NUDGES["empty"])]
    ),
    "words, and a reminder": Thread(
        ["I will.", FINISH], [said("one")], [("ai", "I will."), ("human", NUDGES["talked"])]
    ),
    "a reminder near a limit": Thread([*WORKS, FINISH], [said("one")], limits=Limits(turns=6)),
    "a limit, and going on": Thread(
        [WORK, FINISH],
        [said("one"), more_turns],
        [("tool", "worked: x"), ("ai", LINE), ("human", NUDGES["resumed"])],
        limits=Limits(turns=1),
    ),
    "a limit, and another task": Thread(
        [WORK, FINISH], [said("one"), said("two")], [("ai", LINE), ("human", "two")], limits=Limits(turns=1)
    ),
    "an error, and another task": Thread(
        [WORK, HERON, FINISH],
        [said("one"), said("two")],
        [("tool", "worked: x"), ("ai", LINE), ("human", "two")],
    ),
    "an error at once": Thread(
        [HERON, FINISH], [said("one"), said("two")], [("human", "one"), ("ai", LINE), ("human", "two")]
    ),
    "an import that begins with the assistant": Thread([FINISH], [{"messages": GREETING}]),
    "an import with two of the assistant in a row": Thread([FINISH], [{"messages": PARTS}]),
    "an import with a message after a result": Thread(
        [FINISH], [{"messages": IMPORTED}], [("ai", LINE), ("human", "Once more.")]
    ),
    "two messages at once": Thread(
        [WORK, FINISH], [said("First this.", "Then that.")], [("tool", "worked: x")]
    ),
    "messages of two people": Thread([FINISH], [{"messages": NAMED}], [("ai", LINE), ("human", "I am not.")]),
    "a middleware that appends": Thread(
        [WORK, FINISH],
        [said("one")],
        [("tool", "worked: x"), ("ai", LINE), ("human", "The time is noon.")],
        middleware=[Appending()],
    ),
}


def graph_of(thread: Thread, model: Any) -> Any:
    return build_graph(
        model,
        [work_tool],
        limits=thread.limits,
        texts=TEXTS,
        middleware=list(thread.middleware),
        model_retries=None,
        checkpointer=InMemorySaver(),
    )


def agent_of(thread: Thread, model: Any) -> Any:
    guards = Guards(thread.limits, texts=TEXTS)
    middleware = [guards, *thread.middleware]
    return create_agent(model, [work_tool], middleware=middleware, checkpointer=InMemorySaver())


def chosen_of(thread: Thread, model: Any) -> Any:
    middleware = [Guards(thread.limits, texts=TEXTS), Choosing(model), *thread.middleware]
    return create_agent(ScriptedModel([]), [work_tool], middleware=middleware, checkpointer=InMemorySaver())


CONFIG: Any = {"configurable": {"thread_id": "t"}}


def in_sync(graph: Any, given: Any) -> None:
    graph.invoke(given, CONFIG)


def in_a_loop(graph: Any, given: Any) -> None:
    asyncio.run(graph.ainvoke(given, CONFIG))


def streamed(graph: Any, given: Any) -> None:
    for _ in graph.stream(given, CONFIG, stream_mode="messages"):
        pass


WAYS: dict[str, tuple[Callable[[Thread, Any], Any], Callable[[Any, Any], None]]] = {
    "build_graph": (graph_of, in_sync),
    "build_graph in a loop": (graph_of, in_a_loop),
    "Guards": (agent_of, in_sync),
    "Guards in a loop": (agent_of, in_a_loop),
    "Guards, streamed": (agent_of, streamed),
    "Guards, with a model that another middleware chooses": (chosen_of, in_sync),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", THREADS)
def test_the_roles_alternate_and_what_was_sent_stands(name: str, way: str) -> None:
    thread, (build, run) = THREADS[name], WAYS[way]
    model = ScriptedModel(thread.script)
    graph = build(thread, model)
    for given in thread.inputs:
        run(graph, given(graph.get_state(CONFIG).values) if callable(given) else given)
    outcome = current_outcome(graph.get_state(CONFIG).values)
    assert outcome is not None
    assert outcome["status"] == "success"
    prompts = [seen.messages for seen in model.seen]
    for prompt in prompts:
        assert_in_turn(prompt)
        assert prompt[-1].type in ("human", "tool")
        assert not any("heron" in message.text for message in prompt)
    told = [(message.type, message.text) for message in prompts[-1]]
    assert told[len(told) - len(thread.ends) :] == list(thread.ends)
    if not thread.middleware:
        shown = [[(message.type, message.content) for message in prompt] for prompt in prompts]
        assert all(after[: len(before)] == before for before, after in pairwise(shown))
    if name == "two messages at once":
        assert prompts[0][1].content == TWO_AT_ONCE


NOTES = "Four notes were taken, and the word is heron."
ASKED = "Stop here for a moment"


def test_a_summary_by_the_model_is_asked_for_in_turn() -> None:
    steps = iter([*(call("work", text=f"{at} " + "x" * 900) for at in range(8)), FINISH])

    def step(messages: list[BaseMessage]) -> Any:
        return NOTES if messages[-1].text.startswith(ASKED) else next(steps)

    model = ScriptedModel(step, profile={"max_input_tokens": 200_000})
    graph = build_graph(model, [work_tool], prompt_tokens=2_500, compaction="model", texts=TEXTS)
    assert graph.invoke(said("one"))["outcome"]["status"] == "success"
    requests = [seen.messages for seen in model.seen if seen.messages[-1].text.startswith(ASKED)]
    assert requests
    assert all(request[-2].text == LINE for request in requests)
    for seen in model.seen:
        assert_in_turn(seen.messages)
    assert any(NOTES in message.text for message in model.seen[-1].messages)


def large(text: str) -> str:
    """Look."""
    return f"begins {'y' * 50_000} ends"


large_tool = StructuredTool.from_function(large, metadata=READ)
LOOK = call("large", text="x")


def test_a_large_result_before_a_reminder_is_cut_to_the_budget_and_shown() -> None:
    settings: Any = {"prompt_tokens": 4_000, "result_chars": 10**6, "limits": Limits(turns=6)}
    with ScriptedModel([*WORKS[:4], LOOK, FINISH]) as model:
        graph = build_graph(model, [work_tool, large_tool], texts=TEXTS, **settings)
        assert graph.invoke(said("one"))["outcome"]["status"] == "success"
    assert_in_turn(model.seen[-1].messages)
    assert tokens(model.seen[-1].messages) <= 4_000
    *_, result, line, reminder = model.seen[-1].messages
    assert (line.text, nudge_kind(reminder)) == (LINE, "near_limit")
    assert result.text.startswith("begins ")
    assert result.text.endswith(" ends")
    assert len(result.text) < 20_000


def test_a_model_of_text_is_shown_the_whole_of_it_and_no_line() -> None:
    steps = iter(["", "<PLAN>[FINALIZE] All of it.</PLAN>"])
    inner = ScriptedModel(
        lambda _: '<CALL name="large">{"text": "x"}</CALL>' if len(inner.seen) == 1 else next(steps)
    )
    graph = build_graph(TaggedText(inner), [large_tool], result_chars=10**6, texts=TEXTS)
    assert graph.invoke(said("one"))["outcome"]["status"] == "success"
    last = inner.seen[2].messages
    assert_in_turn(last)
    assert "y" * 50_000 in last[-1].text
    assert NUDGES["empty"] in last[-1].text
    assert not any(LINE in message.text for message in last)
