"""Questions with a deadline and a default answer."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Finished, Session, ThreadError, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.answers import expired, read_question, waiting_time
from signoff.tools.control import standard_controls
from tests.support.cases.loop import ANSWER, FINISH, GO, THREAD, WRITE, Bench
from tests.support.histories import ai, user

START: Any = {"messages": GO}
THREAD_ID: str = THREAD["configurable"]["thread_id"]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


ARGUMENTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"default_answer": "8080", "deadline_seconds": 60}, {"default": "8080", "deadline": 1060.0}),
    ({"default_answer": "8080", "deadline_seconds": 0.5}, {"default": "8080", "deadline": 1000.5}),
    ({"default_answer": 8080, "deadline_seconds": "60"}, {"default": "8080", "deadline": 1060.0}),
    ({"deadline_seconds": 60}, {"deadline": 1060.0}),
    ({"default_answer": "8080"}, {"default": "8080"}),
    ({"default_answer": None, "deadline_seconds": None}, {}),
    ({"default_answer": " ", "deadline_seconds": 0}, {}),
    *(({"deadline_seconds": bad}, {}) for bad in (-5, "soon", True, [60], math.inf, math.nan, 10**400)),
    ({"default_answer": ["a"], "deadline_seconds": {"s": 1}}, {}),
]


@pytest.mark.parametrize(("args", "expected"), ARGUMENTS, ids=lambda value: str(value)[:60])
def test_the_part_of_the_payload(args: dict[str, Any], expected: dict[str, Any]) -> None:
    assert waiting_time(args, asked_at=1000.0) == expected


def test_a_question_put_at_an_unknown_time_has_no_deadline() -> None:
    assert waiting_time({"default_answer": "x", "deadline_seconds": 5}, None) == {"default": "x"}


QUESTION = {"type": "question", "question": "Which?", "call_id": "q"}
NOBODY = DEFAULT_TEXTS.results["nobody_answered"]


def port_graph(**saved: Any) -> Graph:
    """Asks for a port, and says in its summary what it was answered."""

    def script(messages: list[BaseMessage]) -> Any:
        answers = [message.text for message in messages if message.type == "tool"]
        if answers:
            return call("finish_task", summary=answers[-1])
        return call("ask_user", question="Which port?", options=["8080", "9090"])

    return build_graph(ScriptedModel(script), **saved)


ANSWERS: list[tuple[Any, str]] = [
    ("8081", "8081"),
    ("2", "9090"),
    (2, "9090"),
    ("8080", "8080"),
    ([{"type": "response", "args": "blue"}], "blue"),
    ({"type": "response", "args": "blue"}, "blue"),
    ({"type": "response", "args": {"answer": "blue"}}, "blue"),
    ({"answer": "blue"}, "blue"),
    ({"answer": 2}, "9090"),
    ({"response": "blue"}, "blue"),
    ({"decisions": [{"type": "respond", "message": "blue"}]}, "blue"),
    ([{"type": "accept", "args": None}], "accept"),
    ([{"type": "ignore", "args": None}], ""),
    ({"answer": ""}, ""),
    ([], ""),
    ("", ""),
    ({"colour": "blue", "shade": 3}, '{"colour": "blue", "shade": 3}'),
    (["a", "b"], '["a", "b"]'),
    (False, "false"),
]


@pytest.mark.parametrize("way", ["by a command", "by a session"])
@pytest.mark.parametrize(("answer", "read"), ANSWERS, ids=ascii)
def test_an_answer_is_read_alike_by_every_way(way: str, answer: Any, read: str) -> None:
    graph = port_graph(checkpointer=InMemorySaver(), store=InMemoryStore())
    graph.invoke(START, THREAD)
    if way == "by a session":
        Session(graph, THREAD_ID).resume(answer)
    else:
        graph.invoke(Command(resume=answer), THREAD)
    summary = graph.get_state(THREAD).values["outcome"]["summary"]
    assert summary == (read or DEFAULT_TEXTS.results["no_answer"])
    assert read_question(read_question(answer)) == read_question(answer)


@pytest.mark.parametrize("answer", [None, {}])
async def test_an_answer_that_would_not_be_delivered_is_refused(storage: SqliteStorage, answer: Any) -> None:
    graph = port_graph(storage=storage)
    graph.invoke(START, THREAD)
    with pytest.raises(ThreadError, match=r'nothing would be delivered; pass text .* or "" for no answer'):
        graph.invoke(Command(resume=answer), THREAD)
    with pytest.raises(ThreadError, match="Nothing was changed"):
        await port_graph(checkpointer=InMemorySaver()).ainvoke(Command(resume=answer), THREAD)
    assert graph.invoke(Command(resume="1"), THREAD)["outcome"]["summary"] == "8080"


def test_another_answer_at_a_point_that_was_answered_is_refused_and_says_how_to_fork(
    storage: SqliteStorage,
) -> None:
    graph = port_graph(storage=storage)
    graph.invoke(START, THREAD)
    asked = graph.get_state(THREAD).config
    assert graph.invoke(Command(resume="8080"), asked)["outcome"]["summary"] == "8080"
    point = asked["configurable"]["checkpoint_id"]
    with pytest.raises(ThreadError, match=rf"already answered \('8080'\).*fork\('{point}'\)"):
        graph.invoke(Command(resume="9090"), asked)
    (waiting,) = graph.get_state(asked).interrupts
    with pytest.raises(ThreadError, match=f"signoff fork THREAD --at {point}"):
        graph.invoke(Command(resume={waiting.id: "9090"}), asked)
    assert graph.invoke(Command(resume="8080"), asked)["outcome"]["summary"] == "8080"
    ended = Session(graph, THREAD_ID).fork(point).resume("9090")
    assert isinstance(ended, Finished)
    assert ended.outcome.summary == "9090"


EXPIRY: list[tuple[Any, str | None]] = [
    (QUESTION, None),
    ({**QUESTION, "default": "8080"}, None),
    ({**QUESTION, "default": "8080", "deadline": 1000.1}, None),
    ({**QUESTION, "default": "8080", "deadline": 1000.0}, "8080"),
    ({**QUESTION, "default": "8080", "deadline": 5}, "8080"),
    ({**QUESTION, "deadline": 999.0}, NOBODY),
    ({**QUESTION, "default": 8080, "deadline": 999.0}, NOBODY),
    *(({**QUESTION, "default": "8080", "deadline": bad}, None) for bad in ("1", True, None, math.nan)),
    ({"type": "approval", "default": "8080", "deadline": 1.0}, None),
    ({}, None),
    ("Which?", None),
    (None, None),
]


@pytest.mark.parametrize(("payload", "answer"), EXPIRY)
def test_what_is_taken_when_the_time_is_over(payload: Any, answer: str | None) -> None:
    assert expired(payload, now=1000.0) == answer


ASK = call("ask_user", question="Which port?", default_answer="8080", deadline_seconds=60)


def test_the_deadline_counts_from_the_reply_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        result = build_graph(ScriptedModel([ASK]), storage=storage).invoke(START, THREAD)
    asked = result["__interrupt__"][0].value
    at = marks(result["messages"][-1])["at"]
    assert (asked["default"], asked["deadline"]) == ("8080", at + 60)
    with sqlite_storage(file) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
        (again,) = graph.invoke({"messages": []}, THREAD)["__interrupt__"]
    assert again.value == asked


def test_the_deadline_begins_when_the_question_gets_its_turn(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([[WRITE, ASK]]), Bench().tools(), storage=storage)
    result = graph.invoke(START, THREAD)
    reply, written = result["messages"][-2:]
    seconds = marks(written)["seconds"]
    assert seconds > 0
    assert result["__interrupt__"][0].value["deadline"] == marks(reply)["at"] + seconds + 60


def test_the_default_is_an_answer_like_any_other(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([ASK, FINISH]), storage=storage)
    (pending,) = graph.invoke(START, THREAD)["__interrupt__"]
    answer = expired(pending.value, pending.value["deadline"] + 1)
    result = graph.invoke(Command(resume={pending.id: answer}), THREAD)
    assert result["messages"][2].text == "8080"
    assert result["outcome"]["status"] == "success"


BAD: dict[str, dict[str, Any]] = {
    "negative": {"default_answer": "8080", "deadline_seconds": -1},
    "words": {"default_answer": "8080", "deadline_seconds": "soon"},
    "null": {"default_answer": None, "deadline_seconds": None},
    "lists": {"default_answer": ["8080"], "deadline_seconds": [60]},
    "without a deadline": {"default_answer": "8080"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_deadline_that_cannot_be_read_is_none_and_the_question_is_put(
    name: str, storage: SqliteStorage
) -> None:
    model = ScriptedModel([call("ask_user", question="Which port?", **BAD[name]), FINISH])
    graph = build_graph(model, storage=storage)
    (pending,) = graph.invoke(START, THREAD)["__interrupt__"]
    assert pending.value["question"] == "Which port?"
    assert "deadline" not in pending.value
    assert graph.invoke(ANSWER, THREAD)["outcome"]["status"] == "success"


def test_a_question_of_an_import_has_no_deadline(storage: SqliteStorage) -> None:
    ask = ai(("ask_user", "q", {"question": "Which?", "default_answer": "a", "deadline_seconds": 1}))
    graph = build_graph(ScriptedModel([]), storage=storage)
    (pending,) = graph.invoke({"messages": [user(), ask]}, THREAD)["__interrupt__"]
    assert (pending.value["default"], "deadline" in pending.value) == ("a", False)


def test_an_answer_with_odd_keys_is_text(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([ASK, FINISH]), storage=storage)
    (pending,) = graph.invoke(START, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={pending.id: {("a", 1): 2}}), THREAD)
    assert result["messages"][2].text == "{('a', 1): 2}"


def test_the_model_is_told_of_it_in_few_words() -> None:
    """Small models read the schema with every call."""
    (ask,) = [found.tool for found in standard_controls() if found.tool.name == "ask_user"]
    schema = convert_to_openai_tool(ask)["function"]["parameters"]
    assert schema["required"] == ["question"]
    added = {name: schema["properties"][name] for name in ("default_answer", "deadline_seconds")}
    assert [found["type"] for found in added.values()] == ["string", "number"]
    assert len(json.dumps(added)) < 240
