"""Replies without a call: the ladder that they climb, and the three ways to take them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Finished, Limits, Question, Session, SetupError, build_graph, sqlite_storage
from signoff.graph.messages import marks
from signoff.graph.rules import ToolChoice
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Script
from signoff.nodes.model.models import bound
from signoff.tools.control import standard_controls
from signoff.tools.toolbox import make_toolbox

DONE = call("finish_task", summary="Done.")
THINK = call("think", thought="hm")
WORK = call("look", where="here")
KEY = SecretStr("key")
CONTROLS = ["finish_task", "ask_user", "think"]


def look(where: str) -> str:
    """Look."""
    return where


LADDER: list[tuple[str, Literal["strict", "balanced"], list[Any], list[str | None]]] = [
    ("four talks, then a call", "balanced", ["a", "b", "c", "d", DONE],
     [None, None, None, "required", "required"]),
    ("a thought does not climb down", "balanced", ["a", "b", "c", THINK, DONE],
     [None, None, None, "required", "required"]),
    ("work does", "balanced", ["a", "b", "c", WORK, DONE], [None, None, None, "required", None]),
    ("but not where it does not run", "balanced", ["a", "b", "c", "d", WORK, DONE],
     [None, None, None, "required", "required", "required"]),
    ("strict requires a call from the start", "strict", [WORK, "a", DONE], ["required"] * 3),
]  # fmt: skip


@pytest.mark.parametrize("case", LADDER, ids=lambda case: case[0])
def test_the_ladder(case: tuple[Any, ...]) -> None:
    _, talk, script, choices = case
    with ScriptedModel(script) as model:
        result = build_graph(model, [look], talk=talk).invoke({"messages": ["go"]})
    assert result["outcome"]["status"] == "success"
    assert [seen.tool_choice for seen in model.seen] == choices
    assert [seen.tool_names for seen in model.seen] == [["look", *CONTROLS]] * len(script)


@pytest.mark.parametrize("last", [call("look", where="there"), [call("think", thought="x"), WORK]])
def test_after_four_replies_without_a_call_no_work_runs(last: Any) -> None:
    script: list[Any] = ["a", "b", "c", "d", last, DONE]
    with ScriptedModel(script) as model:
        result = build_graph(model, [look]).invoke({"messages": ["go"]})
    told = [message for message in result["messages"] if isinstance(message, ToolMessage)][-2]
    assert told.text.startswith("Not run: finish or ask.")
    assert told.text.endswith("finish_task, ask_user, think.")
    assert (told.status, marks(told)["not_run"]) == ("error", "controls_only")
    assert (result["outcome"]["status"], result["outcome"]["tool_calls"]) == ("success", 0)


def test_after_an_answer_work_runs_again(tmp_path: Path) -> None:
    script: list[Any] = ["a", "b", "c", "d", call("ask_user", question="Where?"), WORK, DONE]
    with sqlite_storage(tmp_path / "t.sqlite") as storage, ScriptedModel(script) as model:
        session = Session(build_graph(model, [look], storage=storage), "t")
        session.run("go")
        end = session.resume("here")
    assert isinstance(end, Finished)
    assert (end.outcome.status, end.outcome.tool_calls) == ("success", 1)
    assert [seen.tool_choice for seen in model.seen] == [None] * 3 + ["required"] * 2 + [None] * 2


NAMES = [{"type": "function", "name": name} for name in CONTROLS]
NESTED = [{"type": "function", "function": {"name": name}} for name in CONTROLS]
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": NESTED}}
RESTRICTED: dict[str, tuple[Callable[[], Any], Any]] = {
    "OpenAI's completions": (lambda: ChatOpenAI(model="m", api_key=KEY), ALLOWED),
    "OpenAI's responses": (
        lambda: ChatOpenAI(model="m", api_key=KEY, use_responses_api=True),
        {"type": "allowed_tools", "mode": "required", "tools": NAMES},
    ),
    "a server of its protocol": (
        lambda: ChatOpenAI(model="m", api_key=KEY, base_url="http://127.0.0.1:9/v1"),
        "required",
    ),
    "Anthropic": (lambda: ChatAnthropic(model="m", api_key=KEY), {"type": "any"}),
    "Google": (lambda: ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key=KEY), CONTROLS),
}


@pytest.mark.parametrize("kind", RESTRICTED)
def test_the_last_step_restricts_the_choice_where_a_provider_can(kind: str) -> None:
    made, choice = RESTRICTED[kind]
    box = make_toolbox([look], standard_controls())
    offers = bound(made(), box, quiet=True)
    last: Any = offers[ToolChoice.CONTROLS]
    first: Any = offers[ToolChoice.ALL]
    assert last.kwargs["tool_choice"] == choice
    assert json.dumps(last.kwargs["tools"]) == json.dumps(first.kwargs["tools"])


class NoChoice(ScriptedModel):
    """A model whose package knows no `tool_choice`."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(script, **options)

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        if tool_choice is not None:
            raise ValueError("tool_choice is not supported")
        return super().bind_tools(tools, **kwargs)


def test_a_model_without_tool_choice_is_offered_the_same_tools() -> None:
    with NoChoice(["a", "b", "c", "d", DONE]) as model:
        outcome = build_graph(model, [look]).invoke({"messages": ["go"]})["outcome"]
    assert outcome["status"] == "success"
    assert [seen.tool_choice for seen in model.seen] == [None] * 5
    assert [len(seen.tools) for seen in model.seen] == [4] * 5


class Refuses(ScriptedModel):
    """A provider that refuses requests with a `tool_choice`."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(script, **options)

    def _stream(self, *args: Any, **options: Any) -> Any:
        if options.get("tool_choice"):
            raise ValueError("400: 'tool_choice' is not supported by this server")
        return super()._stream(*args, **options)


def test_a_provider_that_refuses_tool_choice_is_asked_without() -> None:
    with Refuses(["a", "b", "c", "d", DONE]) as model:
        outcome = build_graph(model, [look]).invoke({"messages": ["go"]})["outcome"]
    assert (outcome["status"], outcome["turns"]) == ("success", 5)
    assert [len(seen.tools) for seen in model.seen] == [4] * 5


class TestNatural:
    """Talk is put to the user like a question."""

    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> Iterator[None]:
        with sqlite_storage(tmp_path / "t.sqlite") as self.storage:
            yield

    def session(self, *script: Any, **options: Any) -> tuple[Session, ScriptedModel]:
        model = ScriptedModel(list(script))
        graph = build_graph(model, [look], storage=self.storage, talk="natural", **options)
        return Session(graph, "t"), model

    def test_a_dialogue(self) -> None:
        session, model = self.session("Hello, what is it?", WORK, "It is here.", DONE)
        first = session.run("hi")
        assert isinstance(first, Question)
        assert first.text == "Hello, what is it?"
        second = session.resume("Where is my hat?")
        assert isinstance(second, Question)
        assert second.text == "It is here."
        end = session.run("Thank you.")
        assert isinstance(end, Finished)
        assert (end.outcome.turns, end.outcome.nudges, end.outcome.status) == (4, 0, "success")
        shown = [message.text for message in model.seen[-1].messages if isinstance(message, HumanMessage)]
        assert shown == ["hi", "Where is my hat?", "Thank you."]
        words = [turn.text for turn in session.history()]
        assert words == ["Hello, what is it?", "", "It is here.", ""]
        assert {turn.task for turn in session.history()} == {end.outcome.task}

    def test_the_limit_of_turns_ends_it(self) -> None:
        session, _ = self.session("a", "b", "c", limits=Limits(turns=2))
        assert isinstance(session.run("hi"), Question)
        end = session.resume("yes?")
        assert isinstance(end, Finished)
        assert (end.outcome.status, end.outcome.reason, end.outcome.last_text) == ("limit", "turns", "b")
        again = session.run("More.")
        assert isinstance(again, Question)
        assert len({turn.task for turn in session.history()}) == 2

    def test_talking_for_long_is_legal(self) -> None:
        session, _ = self.session(*map(str, range(12)), DONE)
        session.run("hi")
        for number in range(1, 12):
            asked = session.resume("go on")
            assert isinstance(asked, Question)
            assert asked.text == str(number)
        assert isinstance(session.resume("bye"), Finished)

    def test_without_a_checkpointer_it_is_balanced(self) -> None:
        with ScriptedModel(["a", DONE]) as model:
            outcome = build_graph(model, [look], talk="natural").invoke({"messages": ["go"]})["outcome"]
        assert (outcome["status"], outcome["nudges"]) == ("success", 1)

    def test_a_question_is_a_question_still(self) -> None:
        session, _ = self.session(call("ask_user", question="Which?"), "So that.", DONE)
        assert isinstance(session.run("hi"), Question)
        said = session.resume("this")
        assert isinstance(said, Question)
        assert said.text == "So that."
        assert isinstance(session.resume("fine"), Finished)


@pytest.mark.parametrize("talk", ["loud", "", None, 3])
def test_another_mode_is_refused(talk: Any) -> None:
    with pytest.raises(SetupError, match="strict, balanced, natural"):
        build_graph(ScriptedModel([]), talk=talk)
