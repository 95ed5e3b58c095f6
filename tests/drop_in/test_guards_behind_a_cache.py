"""`Guards` behind a middleware that answers the model's calls itself, as a cache does.

Its replies are settled like any other, each is a turn, and limits end them.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, after_agent, after_model, before_agent, before_model
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import SetupError, outcome_of, sqlite_storage, standard_controls
from signoff.graph.messages import marks
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from tests.support.guarded import tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [("user", "do it")]}
DONE = ("finish_task", {"summary": "All of it."})
PARTLY = ("finish_task", {"summary": "Half of it.", "outcome": "partial"})
ASKS = ("ask_user", {"question": "Which?"})
WAYS = pytest.mark.parametrize("way", ["sync", "async"])

Made = str | Sequence[tuple[str, dict[str, Any]]]
"""A reply in the cache: words, or calls by name and arguments."""


def look(name: str) -> tuple[str, dict[str, Any]]:
    return "look", {"name": name}


def save(name: str) -> tuple[str, dict[str, Any]]:
    return "save", {"name": name}


def message(made: Made) -> AIMessage:
    if isinstance(made, str):
        return AIMessage(made)
    # As in a real cache, the ids of the calls are the same in each reply.
    calls = [{"name": name, "args": args, "id": f"c{at}"} for at, (name, args) in enumerate(made)]
    return AIMessage("", tool_calls=calls)


class Canned(AgentMiddleware[Any, Any, Any]):
    """Answers the model's calls with one and the same object for ever; LangGraph writes an id into it."""

    def __init__(self, reply: AIMessage) -> None:
        super().__init__()
        self.reply = reply

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.reply

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.reply


class Cache(AgentMiddleware[Any, Any, Any]):
    """Answers the model's calls with these replies, the last one for ever; None: it asks the model."""

    def __init__(self, *replies: Made | None) -> None:
        super().__init__()
        self.replies, self.asked = replies, 0

    def _next(self) -> AIMessage | None:
        made = self.replies[min(self.asked, len(self.replies) - 1)]
        self.asked += 1
        return None if made is None else message(made)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._next() or handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._next() or await handler(request)


def agent(cache: Any, *beside: Any, script: Sequence[Any] = (), saved: bool = False, **rules: Any) -> Any:
    storage: dict[str, Any] = {"checkpointer": InMemorySaver() if saved else None, "store": InMemoryStore()}
    around = [cache, Guards(**rules), *beside]
    return create_agent(ScriptedModel(script), tools(), middleware=around, **storage)


def run(built: Any, way: str, given: Any = GO) -> Any:
    return built.invoke(given, CONFIG) if way == "sync" else asyncio.run(built.ainvoke(given, CONFIG))


def results(found: Any) -> list[str]:
    return [m.text for m in found["messages"] if isinstance(m, ToolMessage)]


CASES: dict[str, tuple[list[Made | None], dict[str, Any], str, str, int, int]] = {
    # name: replies, rules, status, reason, turns, how often the cache is asked
    "a finish": ([[DONE]], {}, "success", "finish_task", 1, 1),
    "talk, then a finish": (["I will.", [DONE]], {}, "success", "finish_task", 2, 2),
    "talk for ever": (["I will."], {}, "limit", "talk_turns", 5, 5),
    "a read for ever": ([[look("a")]], {"limits": {"turns": 6, "repeats": 50}}, "limit", "turns", 6, 7),
    "a write for ever": ([[save("a")]], {"limits": {"turns": 3}}, "limit", "turns", 3, 4),
    "repeats": ([[look("a")]], {}, "limit", "repeats", 5, 6),
    "a finish beside a read": ([[look("a"), DONE]], {}, "success", "finish_task", 1, 2),
    "a finish beside a failed read": ([[look("bad"), DONE], [DONE]], {}, "success", "finish_task", 2, 2),
    "no tool of the name": ([[("nobody", {})], [DONE]], {}, "success", "finish_task", 2, 2),
    "arguments that do not fit": ([[("look", {"nme": 1})], [DONE]], {}, "success", "finish_task", 2, 2),
    "a thought": ([[("think", {"thought": "hm"})], [DONE]], {}, "success", "finish_task", 2, 2),
    "a thought and a read": (
        [[("think", {"thought": "hm"}), look("a")], [DONE]],
        {},
        "success",
        "finish_task",
        2,
        2,
    ),
    "refused for ever": ([[DONE]], {"checks": [lambda: False]}, "limit", "review_deadlock", 2, 2),
    "the model in between": ([[look("a")], None, [DONE]], {}, "success", "finish_task", 3, 3),
    "the model first": ([None, [DONE]], {}, "success", "finish_task", 2, 2),
    "the model at the end": ([[look("a")], "I will.", None, None], {}, "success", "finish_task", 4, 5),
}


@WAYS
@pytest.mark.parametrize("name", CASES)
def test_its_replies_are_settled_like_any_other(name: str, way: str) -> None:
    replies, rules, status, reason, turns, asked = CASES[name]
    cache = Cache(*replies)
    script = [call("look", name="b"), call("finish_task", summary="By the model.")]
    found = run(agent(cache, script=script, saved="checks" not in rules, **rules), way)
    outcome = outcome_of(found)
    assert (outcome.status, outcome.reason, outcome.turns, cache.asked) == (status, reason, turns, asked)
    answered = [m.tool_call_id for m in found["messages"] if isinstance(m, ToolMessage)]
    calls = [call["id"] or "" for m in found["messages"] if isinstance(m, AIMessage) for call in m.tool_calls]
    assert sorted(answered) == sorted(calls)
    assert found["messages"][-1].text
    assert not found["messages"][-1].tool_calls


# Marks as those of a reply in another thread with guards.
MARKED = {
    "signoff": {"answer": "task", "cut": -5, "order": ["x"], "at": "x", "seconds": None, "retries": "x"}
}
CANNED: dict[str, tuple[AIMessage, str, str, int]] = {
    "talk": (AIMessage("We open at nine."), "limit", "talk_turns", 5),
    "talk with an id": (AIMessage("We open at nine.", id="faq"), "limit", "talk_turns", 5),
    "a call": (message([look("a")]), "limit", "repeats", 5),
    "a finish": (message([DONE]), "success", "finish_task", 1),
    "with marks": (
        message([DONE]).model_copy(update={"response_metadata": MARKED}),
        "success",
        "finish_task",
        1,
    ),
}


@WAYS
@pytest.mark.parametrize("name", CANNED)
def test_the_same_object_again_is_another_reply(name: str, way: str) -> None:
    reply, status, reason, turns = CANNED[name]
    built = agent(Canned(reply.model_copy()), saved=True)
    for _ in range(3):
        outcome = outcome_of(run(built, way))
        assert (outcome.status, outcome.reason, outcome.turns) == (status, reason, turns)
    said = [m.text for m in built.get_state(CONFIG).values["messages"] if m.type == "human"]
    assert said.count("do it") == 3


@WAYS
def test_a_question_in_a_cached_reply_waits_for_its_answer(way: str) -> None:
    cache = Cache([look("a"), ASKS], "never taken", [DONE])
    asking = agent(Cache([ASKS], [DONE]), saved=True)
    assert run(asking, way)["__interrupt__"][0].value["question"] == "Which?"
    found = run(asking, way, Command(resume="The red one."))
    assert results(found)[0] == "The red one."
    assert (outcome_of(found).status, outcome_of(found).turns) == ("success", 2)
    # Beside work, the question is asked after it; what came before the answer is no turn.
    asking = agent(cache, saved=True)
    assert run(asking, way)["__interrupt__"][0].value["question"] == "Which?"
    found = run(asking, way, Command(resume="The red one."))
    assert results(found)[:2] == ["seen a", "The red one."]
    assert (outcome_of(found).status, outcome_of(found).turns, cache.asked) == ("success", 2, 3)


@WAYS
def test_a_person_confirms_a_cached_finish(way: str) -> None:
    unsure = ("finish_task", {"summary": "Maybe.", "requires_user_confirmation": True})
    asking = agent(Cache([unsure]), saved=True)
    assert run(asking, way)["__interrupt__"]
    found = run(asking, way, Command(resume="yes"))
    assert (outcome_of(found).status, outcome_of(found).summary) == ("success", "Maybe.")


@WAYS
def test_each_task_of_a_thread_ends_by_itself(way: str) -> None:
    built = agent(Cache([save("a")], [DONE], "I will.", [PARTLY]), saved=True)
    outcomes = [outcome_of(run(built, way)) for _ in range(2)]
    assert [(one.claim, one.turns, one.tool_calls) for one in outcomes] == [("done", 2, 1), ("partial", 2, 0)]


@WAYS
@pytest.mark.parametrize("hook", [before_model, after_model, after_agent])
def test_other_hooks_change_nothing(hook: Any, way: str) -> None:
    @hook  # type: ignore[untyped-decorator]  # one of three
    def looks_on(state: Any, runtime: Any) -> None:
        return None

    cache = Cache([save("a"), save("b")], [look("a"), DONE])
    found = run(agent(cache, looks_on, saved=True), way)
    outcome = outcome_of(found)
    assert (outcome.status, outcome.turns, outcome.tool_calls, cache.asked) == ("success", 2, 3, 3)
    assert results(found)[:3] == ["saved a", "saved b", "seen a"]


def test_the_effect_of_a_cached_reply_takes_place_once_over_a_kill(tmp_path: Path) -> None:
    path, log = tmp_path / "threads.sqlite", tmp_path / "log"

    def built(storage: Any, *, dies: bool) -> Any:
        @tool
        def pay(name: str) -> str:
            """Pay."""
            with log.open("a") as file:
                file.write(f"{name}\n")
            if dies:
                os._exit(9)
            return "paid"

        saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
        cache = Cache([("pay", {"name": "ada"})], [PARTLY]) if dies else Cache([PARTLY])
        return create_agent(ScriptedModel([]), [pay], middleware=[cache, Guards()], **saved)

    child = os.fork()
    if child == 0:
        with sqlite_storage(path) as storage:
            built(storage, dies=True).invoke(GO, CONFIG)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with sqlite_storage(path) as storage:
        found = built(storage, dies=False).invoke(None, CONFIG)
    assert log.read_text().split() == ["ada"]
    told = [marks(m).get("unknown", False) for m in found["messages"] if isinstance(m, ToolMessage)]
    assert (outcome_of(found).turns, told[0]) == (2, True)


class Chooses(AgentMiddleware[Any, Any, Any]):
    """Asks the model twice and takes the first reply, as it is or as a message of its own."""

    def __init__(self, *, anew: bool) -> None:
        super().__init__()
        self.anew = anew

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        first, _ = handler(request), handler(request)
        if not self.anew:
            return first
        said = next(m for m in reversed(first.result) if isinstance(m, AIMessage))
        return AIMessage(said.content, tool_calls=said.tool_calls)


@pytest.mark.parametrize("anew", [False, True])
def test_a_reply_that_was_chosen_among_two_is_the_one_that_counts(anew: bool) -> None:
    first, second = call("save", name="a"), call("save", name="b")
    built = agent(
        Chooses(anew=anew),
        script=[first, second, call("finish_task", summary="A."), "Or talk."] + ["More."] * 6,
    )
    found = built.invoke(GO, {"recursion_limit": 60})
    outcome = outcome_of(found)
    assert (outcome.status, outcome.summary) == ("success", "A.")
    assert [text for text in results(found) if text.startswith("saved")] == ["saved a"]


@before_agent(can_jump_to=["end"])
def refuses(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("I cannot do that.")], "jump_to": "end"}


@after_agent
def looks_on(state: Any, runtime: Any) -> None:
    return None


@pytest.mark.parametrize(
    "around",
    [
        lambda: [refuses, Guards()],
        lambda: [Guards(), refuses],
        lambda: [Guards(), looks_on, refuses],
        lambda: [refuses, Guards(), looks_on],
        lambda: [looks_on, Guards(), refuses],
    ],
)
def test_a_middleware_that_refuses_the_input_is_not_overruled(around: Any) -> None:
    model = ScriptedModel([call("finish_task", summary="By the model.")])
    outcome = outcome_of(create_agent(model, tools(), middleware=around()).invoke(GO))
    assert (outcome.status, outcome.reason) == ("error", "middleware")
    assert model.seen == []


def test_without_a_thinking_tool_a_cache_in_front_is_a_mistake_and_no_endless_loop() -> None:
    controls = [control for control in standard_controls() if control.tool.name == "finish_task"]
    with pytest.raises(SetupError, match="put it after Guards"):
        agent(Cache([DONE]), controls=controls).invoke(GO)
