"""Undo: what a task that failed has done is taken back, the newest first, each effect at most once."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from signoff import Approval, Ended, Graph, Outcome, Session, SetupError, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import FINISH, GO, TEXTS, THREAD, results, saved

DOWN = RuntimeError("down")


def put(what: str) -> Any:
    return call("put", what=what)


class World:
    """What tools have put there, and the order in which it was taken back."""

    def __init__(self) -> None:
        self.there: list[str] = []
        self.taken: list[str] = []
        self.saved = saved()

    def take(self, args: dict[str, Any], result: str) -> str:
        self.taken.append(args["what"])
        self.there.remove(args["what"])
        return f"{result}, and took it away"

    def put(self, undo: Any = "its own", **metadata: Any) -> BaseTool:
        def put(what: str) -> str:
            """Put something there."""
            if what == "broken":
                raise RuntimeError("it broke")
            self.there.append(what)
            return f"put {what}"

        undoing = self.take if undo == "its own" else undo
        return StructuredTool.from_function(put, metadata={**metadata, "undo": undoing})

    def graph(self, *script: Any, tools: Any = (), on_failure: str = "keep", **options: Any) -> Graph:
        """With as many turns as the script has replies."""
        policy: Any = {"texts": TEXTS, "model_retries": None, "on_failure": on_failure}
        options = {"limits": {"turns": max(1, len(script))}, **self.saved, **options}
        return build_graph(ScriptedModel(script), tools or [self.put()], policy=policy, **options)

    def ended(self, *script: Any, on_failure: str = "undo", **options: Any) -> Outcome:
        return outcome_of(self.graph(*script, on_failure=on_failure, **options).invoke(GO, THREAD))


@pytest.fixture
def world() -> World:
    return World()


def told(outcome: Outcome) -> tuple[list[str], dict[str, str]]:
    """The calls that were undone, and why others stand."""
    assert outcome.undo is not None
    standing = {one.call: str(one.why) for one in outcome.undo.standing}
    return [one.call for one in outcome.undo.undone], standing


def outcome(decision: Any) -> Outcome:
    assert isinstance(decision, Ended)
    return decision.outcome


A, B = "put(what='a')", "put(what='b')"

ENDS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "a limit": ([put("a"), put("b")], {}, "turns"),
    "a model that fails": ([put("a"), put("b"), DOWN], {}, "model_error"),
    "a limit of calls": ([reply(put("a"), put("b"), put("c"))], {"tool_calls": 2}, "tool_calls"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_task_that_ends_without_success_is_undone_in_reverse_order(name: str, world: World) -> None:
    script, limits, reason = ENDS[name]
    ended = world.ended(*script, limits={"turns": max(2, len(script)), **limits})
    assert (ended.reason, world.there, world.taken, told(ended)) == (reason, [], ["b", "a"], ([B, A], {}))
    assert ended.undo is not None
    assert ended.undo.undone[0].said == "put b, and took it away"


KEPT: dict[str, tuple[list[Any], str]] = {
    "a success": ([put("a"), FINISH], "undo"),
    "a success after an error of a tool": ([put("a"), put("broken"), FINISH], "undo"),
    "a limit, where nobody wanted it": ([put("a")], "keep"),
}


@pytest.mark.parametrize(("script", "on_failure"), KEPT.values(), ids=KEPT)
def test_what_keeps_its_effects(script: list[Any], on_failure: str, world: World) -> None:
    assert (world.ended(*script, on_failure=on_failure).undo, world.there) == (None, ["a"])


def hangs(*_: Any) -> str:
    time.sleep(5)
    return "never"


def breaks(args: dict[str, Any], result: str) -> None:
    raise ValueError("cannot be taken back")


def odd(work: Callable[[], Any] = lambda: "odd", **metadata: Any) -> BaseTool:
    return StructuredTool.from_function(
        lambda: work(), name="odd", description="Odd.", metadata={"seconds": 0.1, **metadata}
    )


STANDING: dict[str, tuple[Any, BaseTool, str]] = {
    "no undo": (call("odd"), odd(), "no_undo"),
    "a call that failed": (put("broken"), odd(), "failed"),
    "a call that timed out": (call("odd"), odd(hangs, undo=breaks), "unknown"),
    "an undo that fails": (call("odd"), odd(undo=breaks), "undo_failed"),
    "an undo that hangs": (call("odd"), odd(undo=hangs), "undo_unknown"),
}


@pytest.mark.parametrize("name", STANDING)
def test_what_cannot_be_undone_stands_and_the_others_are_undone(name: str, world: World) -> None:
    step, tool, why = STANDING[name]
    undone, standing = told(world.ended(put("a"), step, put("b"), tools=[world.put(), tool]))
    assert (undone, [*standing.values()], world.there) == ([B, A], [why], [])


def taker(world: World) -> BaseTool:
    def take_away(what: str, result: str = "") -> str:
        """Take something away."""
        return world.take({"what": what}, result)

    return StructuredTool.from_function(take_away)


def test_what_undoes_may_be_a_coroutine(world: World) -> None:
    async def take(args: dict[str, Any], result: str) -> str:
        await asyncio.sleep(0)
        return world.take(args, result)

    assert told(world.ended(put("a"), put("b"), tools=[world.put(take)])) == ([B, A], {})


def test_the_artifact_of_a_result_tells_what_was_before(world: World) -> None:
    shelf = {"price": 5}

    def set_price(price: int) -> tuple[str, Any]:
        """Set the price."""
        before, shelf["price"] = shelf["price"], price
        return "set", {"before": before}

    def back(args: dict[str, Any], result: str, artifact: Any) -> None:
        shelf["price"] = artifact["before"]

    tool = StructuredTool.from_function(
        set_price, response_format="content_and_artifact", metadata={"undo": back}
    )
    world.ended(call("set_price", price=7), call("set_price", price=9), tools=[tool])
    assert shelf == {"price": 5}


def test_on_request_a_success_is_undone_and_is_no_success_any_more(world: World) -> None:
    graph = world.graph(put("a"), put("b"), FINISH)
    session = Session(graph, "t")
    assert outcome(session.run("go")).succeeded
    for _ in range(2):
        ended = outcome(session.undo())
        assert (told(ended), world.taken) == (([B, A], {}), ["b", "a"])
        assert (ended.status, ended.claim, ended.succeeded) == ("success", "done", False)
    last = session.status().values["messages"][-1].text
    assert last.index(B) < last.index(A)


# A person decides on an undo as on other effects.

ASKED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a rule for the kind": ({"approvals": {"write": True}}, ["undo_put"]),
    "a rule for the tool that undoes": ({"approvals": {"take_away": True}}, ["take_away"]),
    "asking at a failure": ({"on_failure": "ask"}, ["undo_put", "undo_put"]),
}


@pytest.mark.parametrize("answer", ["approve", "reject: leave it"])
@pytest.mark.parametrize("name", ASKED)
def test_a_person_decides_on_an_undo(name: str, answer: str, world: World) -> None:
    options, names = ASKED[name]
    tools = [world.put("take_away" if names == ["take_away"] else "its own"), taker(world)]
    effects = ["a", "b"][: len(names)]
    graph = world.graph(*map(put, effects), tools=tools, **{"on_failure": "undo", **options})
    session = Session(graph, "t")
    decision = session.run("go")
    while isinstance(decision, Approval) and decision.calls[0].name == "put":
        decision = session.resume("approve")
    assert isinstance(decision, Approval)
    assert ([one.name for one in decision.calls], world.there) == (names, effects)
    ended = outcome(session.resume(answer))
    if answer == "approve":
        assert (world.there, told(ended)[1]) == ([], {})
        return
    assert (world.there, {*told(ended)[1].values()}) == (effects, {"rejected"})
    assert ended.undo is not None
    assert {one.said for one in ended.undo.standing} == {"leave it"}
    # What a person did not want is asked again when it is asked for again.
    assert isinstance(session.undo(ask=True), Approval)


def test_the_model_is_told_of_what_was_undone(world: World) -> None:
    world.ended(put("a"), put("b"))
    model = ScriptedModel([FINISH])
    graph = build_graph(model, [world.put()], policy={"texts": TEXTS, "on_failure": "undo"}, **world.saved)
    result = graph.invoke(go_on(2), THREAD)
    assert (outcome_of(result).succeeded, outcome_of(result).undo) == (True, None)
    # The prompt says it at each result; the history keeps what the tools said.
    shown = [message.text for message in model.seen[0].messages if message.type == "tool"]
    assert shown == [f"put a\n<undone> {A}", f"put b\n<undone> {B}"]
    assert results(result)[:2] == ["put a", "put b"]
    (resumed,) = [message.text for message in result["messages"] if "<resumed_undone>" in message.text]
    assert resumed.index(B) < resumed.index(A)


def note(text: str) -> str:
    """Note."""
    return text


# An undo in parts, in another graph, of another thread.


@pytest.mark.parametrize("by", ["stop", "pause"])
def test_an_undo_that_is_stopped_leaves_the_rest_and_one_that_is_paused_goes_on(
    by: str, world: World
) -> None:
    def interferes(args: dict[str, Any], result: str) -> str:
        if args["what"] == "b":
            session.pause(by)
        return world.take(args, result)

    session = Session(world.graph(put("a"), put("b"), tools=[world.put(interferes)]), "t")
    session.run("go")
    decision = session.undo()
    assert world.taken == ["b"]
    if by == "stop":
        assert told(outcome(decision)) == ([B], {A: "stopped"})
    else:
        assert told(outcome(session.run())) == ([B, A], {})


MISTAKES: dict[str, dict[str, Any]] = {
    "a tool that does not exist": {"undo": "nothing"},
    "of a read": {"undo": lambda args, result: None, "kind": "read"},
    "a tool that needs more": {"undo": "needs_more"},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_undo_anything_is_refused(name: str, world: World) -> None:
    def needs_more(what: str, other: str) -> str:
        """Need more."""
        return ""

    tool = StructuredTool.from_function(note, name="put", metadata=MISTAKES[name])
    with pytest.raises(SetupError, match="put"):
        build_graph(ScriptedModel([]), [tool, needs_more])
