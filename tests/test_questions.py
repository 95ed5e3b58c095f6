"""Questions with a deadline and a default answer."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.graph.marks import marks
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from signoff.tools.control import standard_controls
from signoff.tools.questions import expired, waiting_time
from tests.histories import ai, user
from tests.loop_cases import ANSWER, FINISH, GO, THREAD, WRITE, Bench

START: Any = {"messages": GO}


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
