"""What providers, tools and people really send: nothing of it may raise out of a run or end it wrongly."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ChatMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import ControlTool, Effect, Limits, build_graph, current_outcome, extend, go_on, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.control import standard_controls
from tests.support.histories import ai, done, user

THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="All of it.")
WORK = call("work")


def work() -> str:
    """Work."""
    return "worked"


def go(text: str) -> Any:
    return {"messages": [("user", text)]}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def test_a_task_after_one_that_failed_without_a_reply_stays_a_task_of_its_own(storage: SqliteStorage) -> None:
    model = ScriptedModel([RuntimeError("down"), WORK, WORK, FINISH])
    graph = build_graph(model, [work], limits=Limits(turns=2), storage=storage)
    first = graph.invoke(go("one"), THREAD)["outcome"]
    second = graph.invoke(go("two"), THREAD)["outcome"]
    third = graph.invoke(extend(graph.get_state(THREAD).values, turns=5), THREAD)["outcome"]
    assert [outcome["reason"] for outcome in (first, second, third)] == [
        "model_error",
        "turns",
        "finish_task",
    ]
    assert first["task"] != second["task"] == third["task"]
    again = graph.invoke({"messages": []}, THREAD)["outcome"]
    assert again == third
    assert [outcome.reason for outcome in recorded(storage.store, "t")] == ["model_error", "finish_task"]


ROUTES: dict[str, Any] = {
    "invoke": lambda graph: graph.invoke(go("x")),
    "batch": lambda graph: graph.batch([go("x")])[0],
    "a chain": lambda graph: (RunnableLambda(lambda given: given) | graph).invoke(go("x")),
}


@pytest.mark.parametrize("route", ROUTES)
def test_no_way_to_call_the_graph_brings_a_step_limit(route: str) -> None:
    graph = build_graph(ScriptedModel([WORK] * 12 + [FINISH]), [work], limits=Limits(repeats=None))
    assert ROUTES[route](graph)["outcome"]["turns"] == 13


async def test_async_ways_bring_no_step_limit_either() -> None:
    model = ScriptedModel([*[WORK] * 12, FINISH, *[WORK] * 12, FINISH])
    graph = build_graph(model, [work], limits=Limits(repeats=None))
    assert (await graph.abatch([go("x")]))[0]["outcome"]["turns"] == 13
    events = [event async for event in graph.astream_events(go("x"), version="v2")]
    assert events[-1]["data"]["output"]["outcome"]["turns"] == 13


CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one issue as a text": ({"pending_issues": "the key"}, {"pending_issues": ["the key"]}),
    "no as a text": ({"requires_user_confirmation": "false"}, {"pending_issues": []}),
    "issues as null": ({"pending_issues": None}, {"pending_issues": []}),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_arguments_count_as_their_schema_reads_them(name: str) -> None:
    given, expected = CLAIMS[name]
    outcome = build_graph(ScriptedModel([call("finish_task", summary="x", **given)])).invoke(go("x"))[
        "outcome"
    ]
    assert {key: outcome[key] for key in expected} == expected


@tool
def escalate(reason: str, outcome: str = "done") -> str:
    """Give the task to a person."""
    return reason


@pytest.mark.parametrize(
    ("args", "claim", "summary"),
    [
        ({"reason": "too hard"}, "done", "reason: too hard; outcome: done"),
        ({"reason": "x", "outcome": "escalated"}, None, "reason: x; outcome: escalated"),
    ],
)
def test_a_finish_tool_of_ones_own_needs_no_summary(args: dict[str, Any], claim: Any, summary: str) -> None:
    controls = [*standard_controls(), ControlTool(escalate, Effect.FINISH)]
    graph = build_graph(ScriptedModel([call("escalate", args=args)]), control_tools=controls)
    outcome = graph.invoke(go("x"))["outcome"]
    found = (outcome["status"], outcome["reason"], outcome["claim"], outcome["summary"])
    assert found == ("success", "escalate", claim, summary)


def test_repeated_finish_ids_of_an_import_are_told_apart() -> None:
    empty = ("finish_task", "1", {"summary": ""})
    history = [user(), ai(empty), done("1"), ai(("finish_task", "1", {"summary": "good"})), done("1")]
    outcome = build_graph(ScriptedModel([])).invoke({"messages": history})["outcome"]
    assert (outcome["status"], outcome["summary"]) == ("success", "good")


RAW = {
    "an integer beyond 64 bits": '{"text": 1' + "0" * 30 + "}",
    "nested very deep": '{"text": ' + "[" * 100_000,
    "nested too deep to save": '{"text": ' + "[" * 200 + "]" * 200 + "}",
}


@pytest.mark.parametrize("name", RAW)
def test_arguments_that_cannot_be_saved_are_malformed(name: str, storage: SqliteStorage) -> None:
    model = ScriptedModel([call("work", raw=RAW[name]), FINISH], chunk_size=1_000_000)
    result = build_graph(model, [work], storage=storage).invoke(go("x"), THREAD)
    assert result["outcome"]["status"] == "success"
    assert "not valid JSON" in result["messages"][2].text


class Odd(BaseChatModel):
    """A model that answers with just what it is given."""

    answers: Sequence[Any]
    streams: bool = False

    @property
    def _llm_type(self) -> str:
        return "odd"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answers[0])])


class OddStream(Odd):
    def _stream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for answer in self.answers:
            yield ChatGenerationChunk(message=answer)


def finishing(**more: Any) -> AIMessage:
    calls = [{"name": "finish_task", "id": "f", "args": {"summary": "x"}}]
    return AIMessage("", tool_calls=calls, **more)


ANSWERS: dict[str, tuple[BaseMessage, str]] = {
    "another role": (ChatMessage(content="hi", role="critic"), "error"),
    "a finish reason that is no text": (finishing(response_metadata={"finish_reason": ["x"]}), "success"),
    "metadata under our own name": (finishing(response_metadata={"signoff": "x"}), "success"),
    "metadata that cannot be saved": (finishing(response_metadata={"raw": object()}), "success"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_odd_answers_of_a_model_are_outcomes(name: str, storage: SqliteStorage) -> None:
    answer, status = ANSWERS[name]
    outcome = build_graph(Odd(answers=[answer]), storage=storage).invoke(go("x"), THREAD)["outcome"]
    assert outcome["status"] == status


class Panic(BaseException):
    """What an extension in Rust raises when it panics."""


class Panicky(Odd):
    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        raise Panic("index out of bounds")


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_panic_in_the_package_of_a_model_is_an_outcome(mode: str, storage: SqliteStorage) -> None:
    graph = build_graph(Panicky(answers=[]), storage=storage)
    result = await graph.ainvoke(go("x"), THREAD) if mode == "async" else graph.invoke(go("x"), THREAD)
    assert result["outcome"]["reason"] == "model_error"
    assert "Panic: index out of bounds" in result["outcome"]["error"]


def test_a_finish_reason_that_comes_twice_is_read_once() -> None:
    ran: list[str] = []

    def act() -> str:
        """Act."""
        ran.append("act")
        return ""

    length = {"finish_reason": "length"}
    first = AIMessageChunk(
        content="",
        tool_call_chunks=[{"name": "act", "args": "{}", "id": "1", "index": 0}],
        response_metadata=length,
    )
    chunks = [first, AIMessageChunk(content="", response_metadata=length)]
    build_graph(OddStream(answers=chunks), [act], limits=Limits(turns=1)).invoke(go("x"))
    assert ran == []


def test_a_message_that_comes_by_an_update_is_the_answer_too(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([call("ask_user", question="Which?"), FINISH]), storage=storage)
    graph.invoke(go("x"), THREAD)
    graph.update_state(THREAD, {"messages": [("user", "blue")]})
    result = graph.invoke(None, THREAD)
    assert result["outcome"]["status"] == "success"
    assert "blue" in [message.text for message in result["messages"] if message.type == "tool"]


def test_removing_what_is_not_there_leaves_the_thread_usable(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH]), storage=storage)
    graph.invoke(go("x"), THREAD)
    graph.invoke({"messages": [RemoveMessage(id="nothing")]}, THREAD)
    assert current_outcome(graph.get_state(THREAD).values) is not None


def test_going_on_after_the_history_was_changed_by_hand(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH]), storage=storage)
    first = graph.invoke(go("x"), THREAD)["outcome"]
    graph.update_state(THREAD, {"messages": [("user", "and that")]})
    state = graph.get_state(THREAD)
    assert current_outcome(state.values) is None
    second = graph.invoke(go_on(state), THREAD)["outcome"]
    assert (second["status"], second["task"] != first["task"]) == ("success", True)


@pytest.mark.parametrize("thread", ["a.b/c", "ünï", "x" * 500, "'; DROP TABLE store"])
def test_any_thread_id(thread: str, storage: SqliteStorage) -> None:
    config: Any = {"configurable": {"thread_id": thread}}
    outcome = build_graph(ScriptedModel([FINISH]), storage=storage).invoke(go("x"), config)["outcome"]
    assert (outcome["status"], len(recorded(storage.store, thread))) == ("success", 1)


def test_a_command_may_answer_and_add_a_message(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([call("ask_user", question="Which?"), FINISH]), storage=storage)
    graph.invoke(go("x"), THREAD)
    both: Any = Command(resume="blue", update={"messages": [("user", "also this")]})
    assert graph.invoke(both, THREAD)["outcome"]["status"] == "success"
