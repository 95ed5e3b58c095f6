"""`request_more_turns`: who may ask, who grants, and that the history alone says how many turns there are."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphRecursionError

from signoff import (
    Approval,
    Finished,
    Limits,
    Session,
    SetupError,
    build_graph,
    current_outcome,
    extend,
    go_on,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")


def work(n: int) -> str:
    """Work."""
    return "worked"


def works(count: int) -> list[Any]:
    return [call("work", n=n) for n in range(count)]


def ask(turns: Any = 2, reason: str = "two files are left") -> Any:
    return call("request_more_turns", reason=reason, turns=turns)


def edited(args: dict[str, Any]) -> dict[str, Any]:
    """The decision of a person who changes the request."""
    return {"type": "edit", "edited_action": {"name": "request_more_turns", "args": args}}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def answers(messages: list[Any]) -> list[str]:
    """What the requests were answered, in short."""
    found = [m for m in messages if isinstance(m, ToolMessage) and m.name == "request_more_turns"]
    return [
        message.text.split(".")[0]
        .split(": turns")[0]
        .replace(" more turn(s), so ", ", left: ")
        .removesuffix(" are left")
        for message in found
    ]


ONCE: dict[str, tuple[list[Any], int, str, list[str]]] = {
    "granted": ([ask(2), *works(3), FINISH], 3, "finish_task", ["Granted: 2, left: 4"]),
    "granted on the last turn": ([*works(1), ask(1), FINISH], 2, "finish_task", ["Granted: 1, left: 1"]),
    "at most as many again as the limit": ([ask(99), *works(5)], 3, "turns", ["Granted: 3, left: 5"]),
    "once in a task": (
        [ask(1), ask(1), *works(2)],
        3,
        "turns",
        ["Granted: 1, left: 3", "Not granted"],
    ),
    "once in a reply": (
        [[ask(1), ask(1)], *works(3)],
        3,
        "turns",
        ["Granted: 1, left: 3", "Not granted"],
    ),
    "a request that does not fit may be made again": (
        [ask(0), ask("2"), *works(3)],
        3,
        "turns",
        [
            "The arguments of request_more_turns do not fit",
            "Granted: 2, left: 3",
        ],
    ),
    "beside work": ([[call("work", n=1), ask(1)], *works(3)], 3, "turns", ["Granted: 1, left: 3"]),
}


@pytest.mark.parametrize("mode", ["sync", "async", "restarts"])
@pytest.mark.parametrize("name", ONCE)
async def test_once(name: str, mode: str, storage: SqliteStorage) -> None:
    script, turns, reason, told = ONCE[name]
    with ScriptedModel(script) as model:

        def fresh() -> Any:
            return build_graph(model, [work], limits=Limits(turns=turns), storage=storage, more_turns="once")

        if mode == "sync":
            result = fresh().invoke(GO, THREAD)
        elif mode == "async":
            result = await fresh().ainvoke(GO, THREAD)
        else:
            result = by_steps(fresh)
    assert result["outcome"]["reason"] == reason
    assert result["outcome"]["turns"] == len(script)
    assert answers(result["messages"]) == told


def by_steps(fresh: Callable[[], Any]) -> dict[str, Any]:
    """Every step of the machine by another graph that has read nothing before."""
    given: Any = GO
    while True:
        graph = fresh()
        try:
            found: dict[str, Any] = graph.invoke(given, THREAD | {"recursion_limit": 1})
            return found
        except GraphRecursionError:
            reached = graph.get_state(THREAD)
            if current_outcome(reached.values):
                return dict(reached.values)
            given = go_on(reached)


def test_a_request_is_no_work_and_no_talk() -> None:
    with ScriptedModel(["a", ask(1), "b"]) as model:
        graph = build_graph(model, [work], limits=Limits(talk_turns=2), more_turns="once")
        outcome = graph.invoke(GO)["outcome"]
    assert (outcome["reason"], outcome["tool_calls"]) == ("talk_turns", 0)


def test_the_reminder_names_the_tool_while_it_may_be_used() -> None:
    with ScriptedModel([*works(2), FINISH]) as model:
        result = build_graph(model, [work], limits=Limits(turns=3), more_turns="once").invoke(GO)
    assert "ask for more with request_more_turns" in "\n".join(m.text for m in result["messages"])
    with ScriptedModel([ask(1), *works(2), FINISH]) as model:
        result = build_graph(model, [work], limits=Limits(turns=3), more_turns="once").invoke(GO)
    assert "turn(s) left" in "\n".join(m.text for m in result["messages"])
    assert "ask for more" not in "\n".join(m.text for m in result["messages"])


def test_by_default_the_model_has_no_such_tool() -> None:
    with ScriptedModel([FINISH]) as model:
        build_graph(model, [work]).invoke(GO)
    assert "request_more_turns" not in model.seen[0].tool_names


def test_another_policy_is_refused() -> None:
    with pytest.raises(SetupError, match="never, once, ask"):
        build_graph(ScriptedModel([]), more_turns="always")  # type: ignore[arg-type]  # the error is the point


def test_extending_adds_to_what_was_granted(storage: SqliteStorage) -> None:
    with ScriptedModel([ask(1), *works(3), FINISH]) as model:
        graph = build_graph(model, [work], limits=Limits(turns=2), storage=storage, more_turns="once")
        assert graph.invoke(GO, THREAD)["outcome"]["turns"] == 3
        last = graph.invoke(extend(graph.get_state(THREAD).values, turns=2), THREAD)["outcome"]
    assert (last["status"], last["turns"]) == ("success", 5)


class TestAsk:
    """A person is asked as for an approval, so that a session, an inbox or a chat page can answer."""

    @pytest.fixture(autouse=True)
    def _storage(self, storage: SqliteStorage) -> None:
        self.storage = storage

    def session(self, model: ScriptedModel, turns: int = 1) -> Session:
        limits = Limits(turns=turns)
        graph = build_graph(model, [work], limits=limits, storage=self.storage, more_turns="ask")
        return Session(graph, "t")

    WORDS: ClassVar[dict[str, tuple[Any, list[Any], str, str]]] = {
        "yes": ("yes", [*works(1), FINISH], "finish_task", "Granted: 2, left: 2"),
        "approve": ({"type": "approve"}, works(2), "turns", "Granted: 2, left: 2"),
        "another number": (
            edited({"reason": "x", "turns": 1}),
            works(1),
            "turns",
            "Granted: 1, left: 1",
        ),
        "a number that is none": (
            edited({"turns": "all"}),
            [],
            "turns",
            "Not granted",
        ),
        "no": ("no", [], "turns", "Not granted"),
    }

    @pytest.mark.parametrize("name", WORDS)
    def test_what_a_person_says_counts_also_in_another_process(self, name: str) -> None:
        word, after, reason, told = self.WORDS[name]
        with ScriptedModel([ask(2), *after]) as model:
            asked = self.session(model).run("go")
            assert isinstance(asked, Approval)
            assert asked.calls[0].args == {"reason": "two files are left", "turns": 2}
            session = self.session(model)
            end = session.resume(word)
        assert isinstance(end, Finished)
        assert end.outcome.reason == reason
        assert answers(session.status().values["messages"]) == [told]

    def test_an_inbox_is_shown_the_request_in_words(self) -> None:
        with ScriptedModel([ask(2)]) as model:
            session = self.session(model)
            session.run("go")
            (found,) = session.graph.get_state(THREAD).interrupts
        shown = found.value["action_requests"][0]["description"]
        assert shown == "The model asks for 2 more turns: two files are left"

    async def test_async(self) -> None:
        with ScriptedModel([ask(1), FINISH]) as model:
            assert isinstance(await self.session(model).arun("go"), Approval)
            end = await self.session(model).aresume("approve")
        assert isinstance(end, Finished)
        assert (end.outcome.status, end.outcome.turns) == ("success", 2)

    def test_the_reason_of_a_no_reaches_the_model(self) -> None:
        with ScriptedModel([ask(9), FINISH]) as model:
            session = self.session(model, turns=2)
            session.run("go")
            session.resume("reject: it is good enough")
        assert "it is good enough" in "\n".join(m.text for m in model.seen[-1].messages)

    def test_a_message_while_it_waits_is_a_no_with_a_reason(self) -> None:
        with ScriptedModel([ask(9), FINISH]) as model:
            session = self.session(model, turns=2)
            session.run("go")
            end = session.run("Come to an end.")
        assert isinstance(end, Finished)
        assert end.outcome.turns == 2
        shown = [message for message in model.seen[-1].messages if isinstance(message, ToolMessage)]
        assert "Come to an end." in shown[-1].text

    @pytest.mark.parametrize("first", ["yes", "no"])
    def test_a_person_is_asked_once(self, first: str) -> None:
        with ScriptedModel([ask(1), ask(1), FINISH]) as model:
            session = self.session(model, turns=3)
            session.run("go")
            end = session.resume(first)
        assert isinstance(end, Finished)
        assert end.outcome.turns == 3

    def test_work_that_needs_no_approval_waits_with_it(self) -> None:
        with ScriptedModel([[ask(1), call("work", n=1)], FINISH]) as model:
            session = self.session(model)
            asked = session.run("go")
            assert isinstance(asked, Approval)
            assert [found.name for found in asked.calls] == ["request_more_turns"]
            end = session.resume("yes")
        assert isinstance(end, Finished)
        assert (end.outcome.status, end.outcome.tool_calls) == ("success", 1)

    def test_where_nobody_can_be_asked_nothing_is_granted(self) -> None:
        with ScriptedModel([ask(5), FINISH]) as model:
            graph = build_graph(model, [work], limits=Limits(turns=2), more_turns="ask")
            result = graph.invoke(GO)
        assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 2)
        assert answers(result["messages"]) == ["Not granted"]
