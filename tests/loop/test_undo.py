"""Undo: what a task that failed has done is taken back, the newest first, each effect at most once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command, interrupt

from signoff import (
    Approval,
    Outcome,
    Session,
    SetupError,
    ThreadError,
    Undo,
    build_graph,
    current_outcome,
    extend,
    outcome_of,
    retry,
    sqlite_storage,
    undo,
)
from signoff.models import ScriptedModel, call, reply
from signoff.session.events import Undone
from signoff.session.replay import replay
from signoff.storage.sqlite import SqliteStorage
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="All of it.")


class World:
    """What tools have put there, and the order in which it was taken back."""

    def __init__(self) -> None:
        self.there: list[str] = []
        self.taken: list[str] = []

    def put(self, undo: Any = "its own", **metadata: Any) -> BaseTool:
        def put(what: str) -> str:
            """Put something there."""
            if what == "broken":
                raise RuntimeError("it broke")
            self.there.append(what)
            return f"put {what}"

        tool = StructuredTool.from_function(put)
        metadata |= {"undo": self.take} if undo == "its own" else {"undo": undo} if undo else {}
        tool.metadata = metadata
        return tool

    def take(self, args: dict[str, Any], result: str) -> str:
        self.taken.append(args["what"])
        self.there.remove(args["what"])
        return f"{result}, and took it away"

    def taker(self) -> BaseTool:
        def take_away(what: str, result: str = "") -> str:
            """Take something away."""
            return self.take({"what": what}, result)

        return StructuredTool.from_function(take_away)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def put(what: str) -> Any:
    return call("put", what=what)


def ended(storage: SqliteStorage | None, script: list[Any], *tools: Any, **options: Any) -> Outcome:
    """The end of a task that has as many turns as the script has replies."""
    limits = {"turns": len(script)}
    graph = build_graph(ScriptedModel(script), tools, storage=storage, limits=limits, **options)
    return outcome_of(graph.invoke(GO, THREAD))


def told(outcome: Outcome) -> tuple[list[str], dict[str, str]]:
    """The calls that were undone, and why others stand."""
    assert outcome.undo is not None
    standing = {one.call: str(one.why) for one in outcome.undo.standing}
    return [one.call for one in outcome.undo.undone], standing


ENDS: list[tuple[str, list[Any], dict[str, Any], tuple[str, str]]] = [
    ("a limit", [put("a"), put("b")], {}, ("limit", "turns")),
    ("a model that fails", [put("a"), put("b"), RuntimeError("down")], {}, ("error", "model_error")),
    ("a limit of calls", [reply(put("a"), put("b"), put("c"))], {"tool_calls": 2}, ("limit", "tool_calls")),
]


@pytest.mark.parametrize(("script", "limits", "end"), [case[1:] for case in ENDS], ids=[c[0] for c in ENDS])
def test_a_task_that_ends_without_success_is_undone_in_reverse_order(
    script: list[Any], limits: dict[str, Any], end: tuple[str, str], world: World, storage: SqliteStorage
) -> None:
    graph = build_graph(
        ScriptedModel(script),
        [world.put()],
        storage=storage,
        limits={"turns": max(2, len(script)), **limits},
        model_retries=None,
        on_failure="undo",
    )
    outcome = outcome_of(graph.invoke(GO, THREAD))
    assert ((outcome.status, outcome.reason), world.there, world.taken) == (end, [], ["b", "a"])
    assert told(outcome) == (["put(what='b')", "put(what='a')"], {})
    assert outcome.undo is not None
    assert [one.said for one in outcome.undo.undone] == ["put b, and took it away", "put a, and took it away"]


@pytest.mark.parametrize("mode", ["keep", "undo", "ask"])
def test_a_success_keeps_its_effects(mode: Any, world: World, storage: SqliteStorage) -> None:
    outcome = ended(storage, [put("a"), FINISH], world.put(), on_failure=mode)
    assert (outcome.succeeded, outcome.undo, world.there) == (True, None, ["a"])


def test_a_recoverable_error_of_a_tool_undoes_nothing(world: World, storage: SqliteStorage) -> None:
    outcome = ended(storage, [put("a"), put("broken"), FINISH], world.put(), on_failure="undo")
    assert (outcome.succeeded, outcome.undo, world.taken) == (True, None, [])


def test_without_being_asked_for_it_nothing_is_undone(world: World, storage: SqliteStorage) -> None:
    outcome = ended(storage, [put("a")], world.put())
    assert (outcome.status, outcome.undo, world.there) == ("limit", None, ["a"])


def test_what_cannot_be_undone_is_listed_as_standing(world: World, storage: SqliteStorage) -> None:
    def burn() -> str:
        """Burn."""
        return "burnt"

    def hang() -> str:
        """Hang."""
        time.sleep(5)
        return "never"

    hanging = StructuredTool.from_function(hang)
    hanging.metadata = {"seconds": 0.05, "undo": world.take}
    script = [put("a"), call("burn"), put("broken"), call("hang")]
    outcome = ended(storage, script, world.put(), burn, hanging, on_failure="undo")
    standing = {"burn()": "no_undo", "put(what='broken')": "failed", "hang()": "unknown"}
    assert told(outcome) == (["put(what='a')"], standing)


def hangs(args: dict[str, Any], result: str) -> None:
    time.sleep(5)


def breaks(args: dict[str, Any], result: str) -> None:
    raise ValueError("cannot be taken back")


@pytest.mark.parametrize(("undo_of", "why"), [(breaks, "undo_failed"), (hangs, "undo_unknown")])
def test_an_undo_that_fails_or_hangs_leaves_its_effect_standing_and_the_others_go_on(
    undo_of: Any, why: str, world: World, storage: SqliteStorage
) -> None:
    def odd() -> str:
        """Do something odd."""
        return "odd"

    tool = StructuredTool.from_function(odd)
    tool.metadata = {"undo": undo_of, "seconds": 0.1}
    outcome = ended(storage, [put("a"), call("odd"), put("b")], world.put(), tool, on_failure="undo")
    assert told(outcome) == (["put(what='b')", "put(what='a')"], {"odd()": why})
    assert world.there == []


Undoing = Callable[[dict[str, Any], str], Any]


def later(undo_of: Undoing) -> Undoing:
    async def undoes_later(args: dict[str, Any], result: str) -> Any:
        return undo_of(args, result)

    return lambda args, result: undoes_later(args, result)


def in_parts(undo_of: Undoing) -> Undoing:
    def undoes_in_parts(args: dict[str, Any], result: str) -> Iterator[Any]:
        yield undo_of(args, result)

    return undoes_in_parts


def in_async_parts(undo_of: Undoing) -> Undoing:
    async def undoes_in_async_parts(args: dict[str, Any], result: str) -> AsyncIterator[Any]:
        yield undo_of(args, result)

    return undoes_in_async_parts


@pytest.mark.parametrize("lazily", [later, in_parts, in_async_parts, lambda undo: later(in_parts(undo))])
@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.filterwarnings("error")
def test_an_undo_that_has_only_been_begun_is_run_to_its_end(
    lazily: Callable[[Undoing], Undoing], in_loop: bool, world: World, storage: SqliteStorage
) -> None:
    graph = build_graph(
        ScriptedModel([put("a")]),
        [world.put(lazily(world.take))],
        storage=storage,
        limits={"turns": 1},
        on_failure="undo",
    )
    found: Any = asyncio.run(graph.ainvoke(GO, THREAD)) if in_loop else graph.invoke(GO, THREAD)
    assert (told(outcome_of(found)), world.there) == ((["put(what='a')"], {}), [])


def test_an_undo_that_is_interrupted_is_never_run_again(world: World, storage: SqliteStorage) -> None:
    runs: list[str] = []

    def cut_short(args: dict[str, Any], result: str) -> str:
        runs.append(args["what"])
        if args["what"] == "b":
            interrupt_process()
            time.sleep(1)
        return world.take(args, result)

    graph = build_graph(
        ScriptedModel([put("a"), put("b"), put("c")]),
        [world.put(cut_short)],
        storage=storage,
        limits={"turns": 3},
        on_failure="undo",
    )
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    outcome = outcome_of(graph.invoke(None, THREAD))
    assert runs == ["c", "b", "a"]
    assert told(outcome) == (["put(what='c')", "put(what='a')"], {"put(what='b')": "undo_unknown"})
    # Nor on request.
    again = outcome_of(graph.invoke(undo(graph.get_state(THREAD)), THREAD))
    assert (told(again), runs) == (told(outcome), ["c", "b", "a"])


def test_on_request_a_success_is_undone_and_is_no_success_any_more(
    world: World, storage: SqliteStorage
) -> None:
    graph = build_graph(ScriptedModel([put("a"), put("b"), FINISH]), [world.put()], storage=storage)
    session = Session(graph, "t")
    assert session.run("go").outcome.succeeded  # type: ignore[union-attr]  # it has ended
    for _ in range(2):
        outcome = session.undo().outcome  # type: ignore[union-attr]  # as above
        assert (told(outcome)[0], world.taken) == (["put(what='b')", "put(what='a')"], ["b", "a"])
        assert (outcome.status, outcome.claim, outcome.succeeded) == ("success", "done", False)
    values = graph.get_state(THREAD).values
    assert "Undone, the newest first:\n- put(what='b')\n- put(what='a')" in values["messages"][-1].text
    assert replay(graph, "t").differences == ()


def test_what_runs_or_waits_is_not_undone(world: World, storage: SqliteStorage) -> None:
    script = [put("a"), call("ask_user", question="Go on?")]
    session = Session(build_graph(ScriptedModel(script), [world.put()], storage=storage), "t")
    with pytest.raises(ThreadError, match="There is no thread 't'"):
        session.undo()
    session.run("go")
    with pytest.raises(ThreadError, match="The task has not ended; stop it first"):
        session.undo()
    session.stop()
    assert told(session.undo().outcome)[0] == ["put(what='a')"]  # type: ignore[union-attr]  # it has ended


def test_events_tell_of_each_effect_once(world: World, storage: SqliteStorage) -> None:
    def burn() -> str:
        """Burn."""
        return "burnt"

    script = [put("a"), call("burn"), put("b")]
    graph = build_graph(ScriptedModel(script), [world.put(), burn], storage=storage, limits={"turns": 3})
    session = Session(graph, "t")
    session.run("go")
    found = [event for event in session.events(Undo()) if isinstance(event, Undone)]
    assert [(one.call, one.why) for one in found] == [
        ("put(what='b')", ""),
        ("burn()", "no_undo"),
        ("put(what='a')", ""),
    ]


def undone_by_name(world: World) -> list[Any]:
    return [world.put("take_away"), world.taker()]


def undone_by_tool(world: World) -> list[Any]:
    return [world.put(world.taker())]


def undone_by_coroutine(world: World) -> list[Any]:
    async def take(args: dict[str, Any], result: str) -> str:
        await asyncio.sleep(0)
        return world.take(args, result)

    return [world.put(take)]


@pytest.mark.parametrize("tools", [undone_by_name, undone_by_tool, undone_by_coroutine])
@pytest.mark.parametrize("in_loop", [False, True])
def test_what_undoes_may_be_another_tool_or_a_coroutine(
    tools: Callable[[World], list[Any]], in_loop: bool, world: World, storage: SqliteStorage
) -> None:
    graph = build_graph(
        ScriptedModel([put("a"), put("b")]),
        tools(world),
        storage=storage,
        limits={"turns": 2},
        on_failure="undo",
    )
    found: Any = asyncio.run(graph.ainvoke(GO, THREAD)) if in_loop else graph.invoke(GO, THREAD)
    assert told(outcome_of(found))[0] == ["put(what='b')", "put(what='a')"]
    assert world.taken == ["b", "a"]


def test_the_artifact_of_a_result_tells_what_was_before(storage: SqliteStorage) -> None:
    shelf = {"price": 5}

    def set_price(price: int) -> tuple[str, Any]:
        """Set the price."""
        before, shelf["price"] = shelf["price"], price
        return "set", {"before": before}

    def back(args: dict[str, Any], result: str, artifact: Any) -> None:
        shelf["price"] = artifact["before"]

    tool = StructuredTool.from_function(set_price, response_format="content_and_artifact")
    tool.metadata = {"undo": back}
    script = [call("set_price", price=7), call("set_price", price=9)]
    ended(storage, script, tool, on_failure="undo")
    assert shelf == {"price": 5}


APPROVALS: list[tuple[Any, dict[str, Any], list[str]]] = [
    ({}, {"approvals": {"write": True}}, ["undo_put"]),
    ({}, {"approvals": {"put": lambda args: args["what"] == "a"}}, ["undo_put"]),
    ({"undo": "take_away"}, {"approvals": {"take_away": True}}, ["take_away"]),
    ({}, {"on_failure": "ask"}, ["undo_put", "undo_put"]),
]


@pytest.mark.parametrize(("how", "options", "names"), APPROVALS)
@pytest.mark.parametrize("answer", ["approve", "reject: leave it"])
def test_a_person_decides_on_an_undo_as_on_other_effects(
    how: Any,
    options: dict[str, Any],
    names: list[str],
    answer: str,
    world: World,
    storage: SqliteStorage,
) -> None:
    calls = ["a", "b"] if len(names) == 2 else ["a"]
    graph = build_graph(
        ScriptedModel([put(what) for what in calls]),
        [world.put(how.get("undo", "its own")), world.taker()],
        storage=storage,
        limits={"turns": len(calls)},
        **{"on_failure": "undo", **options},
    )
    session = Session(graph, "t")
    decision = session.run("go")
    while isinstance(decision, Approval) and decision.calls[0].name == "put":
        decision = session.resume("approve")
    assert isinstance(decision, Approval)
    assert [one.name for one in decision.calls] == names
    assert (decision.payload["undo"], world.there) == (True, calls)
    # What cannot be read changes nothing, and is asked again.
    with pytest.raises(ThreadError, match="is not a decision"):
        session.resume("maybe")
    outcome = session.resume(answer).outcome  # type: ignore[union-attr]  # it ends
    if answer == "approve":
        assert (world.there, told(outcome)[1]) == ([], {})
    else:
        assert world.there == calls
        assert set(told(outcome)[1].values()) == {"rejected"}
        assert outcome.undo is not None
        assert {one.said for one in outcome.undo.standing} == {"leave it"}
        # What a person did not want is asked again when it is asked for again.
        assert isinstance(session.undo(ask=True), Approval)


def test_an_answer_that_the_graph_cannot_read_is_asked_again(world: World, storage: SqliteStorage) -> None:
    graph = build_graph(
        ScriptedModel([put("a")]), [world.put()], storage=storage, limits={"turns": 1}, on_failure="ask"
    )
    graph.invoke(GO, THREAD)
    (asked,) = graph.get_state(THREAD).interrupts
    graph.invoke(Command(resume={asked.id: {"type": "edit"}}), THREAD)
    (again,) = graph.get_state(THREAD).interrupts
    assert (again.id != asked.id, bool(again.value["problem"]), world.there) == (True, True, ["a"])
    graph.invoke(Command(resume={again.id: "approve"}), THREAD)
    assert world.there == []


def test_without_anybody_to_ask_what_needs_approval_stands(world: World) -> None:
    outcome = ended(None, [put("a")], world.put(), on_failure="ask")
    assert (told(outcome), world.there) == (([], {"put(what='a')": "not_approved"}), ["a"])


def test_an_undo_without_storage_runs_in_one_process(world: World) -> None:
    outcome = ended(None, [put("a"), put("b")], world.put(), on_failure="undo")
    assert (told(outcome)[0], world.there) == (["put(what='b')", "put(what='a')"], [])


def test_an_undo_may_wait_for_a_person_itself(world: World, storage: SqliteStorage) -> None:
    def asks(args: dict[str, Any], result: str) -> str:
        said = interrupt({"question": "Really?"})
        return f"{world.take(args, result)} since {said}"

    graph = build_graph(
        ScriptedModel([put("a")]), [world.put(asks)], storage=storage, limits={"turns": 1}, on_failure="undo"
    )
    session = Session(graph, "t")
    session.run("go")
    assert world.there == ["a"]
    outcome = session.resume("yes").outcome  # type: ignore[union-attr]  # it ends
    assert outcome.undo is not None
    assert [one.said for one in outcome.undo.undone] == ["put a, and took it away since yes"]


def test_the_model_is_told_of_what_was_undone_when_the_task_goes_on(
    world: World, storage: SqliteStorage
) -> None:
    options: dict[str, Any] = {"storage": storage, "limits": {"turns": 2}, "on_failure": "undo"}
    graph = build_graph(ScriptedModel([put("a"), put("b")]), [world.put()], **options)
    graph.invoke(GO, THREAD)
    model = ScriptedModel([FINISH])
    graph = build_graph(model, [world.put()], **options)
    outcome = outcome_of(graph.invoke(extend(graph.get_state(THREAD), 2), THREAD))
    assert (outcome.succeeded, outcome.undo) == (True, None)
    shown = model.seen[0].messages
    results = [message.text for message in shown if isinstance(message, ToolMessage)]
    note = "[After the task had stopped, this was undone and does not hold any more: put(what='{}')]"
    assert results == [f"put {what}\n{note.format(what)}" for what in ("a", "b")]
    assert "these effects of it were undone, the newest first" in shown[-1].text
    assert shown[-1].text.index("what='b'") < shown[-1].text.index("what='a'")
    # The history keeps what the tools said.
    kept = [m.text for m in graph.get_state(THREAD).values["messages"] if isinstance(m, ToolMessage)]
    assert kept[:2] == ["put a", "put b"]
    assert replay(graph, "t").differences == ()


def long_note(number: int) -> Any:
    return call("note", text=f"{number} " + "x" * 2_500)


def note(text: str) -> str:
    """Note."""
    return text


FOLDED: list[tuple[str, list[Any], bool]] = [
    ("folded after the undo", [put("a"), put("b")], True),
    ("folded before the undo", [put("a"), put("b"), *map(long_note, range(6))], True),
    ("folded before the undo, then another task", [put("a"), put("b"), *map(long_note, range(6))], False),
]


@pytest.mark.parametrize(
    ("done", "extended"), [case[1:] for case in FOLDED], ids=[case[0] for case in FOLDED]
)
def test_a_summary_of_old_turns_says_what_was_undone(
    done: list[Any], extended: bool, world: World, storage: SqliteStorage
) -> None:
    reads = StructuredTool.from_function(note, metadata={"kind": "read"})
    options: dict[str, Any] = {"storage": storage, "limits": {"turns": len(done)}, "prompt_tokens": 3_000}
    graph = build_graph(ScriptedModel(done), [world.put(), reads], on_failure="undo", **options)
    graph.invoke(GO, THREAD)
    model = ScriptedModel([*map(long_note, range(6)), FINISH])
    graph = build_graph(model, [world.put(), reads], on_failure="undo", **options)
    graph.invoke(extend(graph.get_state(THREAD), 20) if extended else GO, THREAD)
    prompts = ["\n".join(message.text for message in seen.messages[1:]) for seen in model.seen]
    for shown, what in product(prompts, ("a", "b")):
        notes = [f"{words}: put(what='{what}')" for words in ("any more", "undone since")]
        assert f"put {what}" not in shown or any(note in shown for note in notes), shown
    assert any("put({'what': 'a'}) -> success: put a" in shown for shown in prompts)
    assert replay(graph, "t").differences == ()


def test_a_task_that_fails_again_is_undone_again_but_for_what_was(
    world: World, storage: SqliteStorage
) -> None:
    options: dict[str, Any] = {"storage": storage, "on_failure": "undo", "model_retries": None}
    graph = build_graph(ScriptedModel([put("a"), RuntimeError("down")]), [world.put()], **options)
    graph.invoke(GO, THREAD)
    graph = build_graph(ScriptedModel([put("b"), RuntimeError("down")]), [world.put()], **options)
    outcome = outcome_of(graph.invoke(retry(graph.get_state(THREAD)), THREAD))
    assert told(outcome)[0] == ["put(what='b')", "put(what='a')"]
    assert world.taken == ["a", "b"]


def test_a_fork_does_not_undo_what_the_thread_that_it_came_from_has_done(
    world: World, storage: SqliteStorage
) -> None:
    graph = build_graph(
        ScriptedModel([put("a"), put("b")]), [world.put()], storage=storage, limits={"turns": 1}
    )
    session = Session(graph, "t")
    session.run("go")
    forked = session.fork(thread_id="copy")
    forked.extend(1)
    outcome = forked.undo().outcome  # type: ignore[union-attr]  # it has ended
    assert told(outcome) == (["put(what='b')"], {"put(what='a')": "elsewhere"})
    assert world.there == ["a"]
    session.undo()
    assert world.taken == ["b", "a"]


def test_an_undo_that_is_stopped_lists_the_rest_as_standing(world: World, storage: SqliteStorage) -> None:
    def stops(args: dict[str, Any], result: str) -> str:
        if args["what"] == "b":
            session.pause("stop")
        return world.take(args, result)

    graph = build_graph(
        ScriptedModel([put("a"), put("b")]), [world.put(stops)], storage=storage, limits={"turns": 2}
    )
    session = Session(graph, "t")
    session.run("go")
    outcome = session.undo().outcome  # type: ignore[union-attr]  # it ends
    assert told(outcome) == (["put(what='b')"], {"put(what='a')": "stopped"})
    assert world.there == ["a"]


def test_a_paused_undo_goes_on(world: World, storage: SqliteStorage) -> None:
    def pauses(args: dict[str, Any], result: str) -> str:
        session.pause()
        return world.take(args, result)

    graph = build_graph(
        ScriptedModel([put("a"), put("b")]), [world.put(pauses)], storage=storage, limits={"turns": 2}
    )
    session = Session(graph, "t")
    session.run("go")
    session.undo()
    assert (world.taken, current_outcome(session.status().values)) == (["b"], None)
    session.run()
    assert world.taken == ["b", "a"]


LOST: list[tuple[str, Any]] = [
    ("removed", None),
    ("a read by now", {"kind": "read"}),
    ("without its undo", {}),
]


@pytest.mark.parametrize("metadata", [case[1] for case in LOST], ids=[case[0] for case in LOST])
def test_an_effect_whose_tool_the_graph_has_lost_stands(
    metadata: Any, world: World, storage: SqliteStorage
) -> None:
    def send(what: str) -> str:
        """Send."""
        return f"sent {what}"

    sending = StructuredTool.from_function(send)
    sending.metadata = {"undo": world.take}
    script = [put("a"), call("send", what="b"), call("nothing_like_that")]
    ended(storage, script, world.put(), sending)
    if metadata is not None:
        sending = sending.model_copy(update={"metadata": metadata})
    tools = [world.put()] if metadata is None else [world.put(), sending]
    graph = build_graph(ScriptedModel([]), tools, storage=storage)
    outcome = outcome_of(graph.invoke(undo(graph.get_state(THREAD)), THREAD))
    assert told(outcome) == (["put(what='a')"], {"send(what='b')": "no_undo"})


def test_a_task_that_fails_with_only_lost_effects_lists_them(world: World, storage: SqliteStorage) -> None:
    ended(storage, [put("a"), RuntimeError("down")], world.put(), model_retries=None)
    model = ScriptedModel([RuntimeError("down")])
    graph = build_graph(model, storage=storage, on_failure="undo", model_retries=None)
    outcome = outcome_of(graph.invoke(retry(graph.get_state(THREAD)), THREAD))
    assert told(outcome) == ([], {"put(what='a')": "no_undo"})


def waits_at_b(world: World) -> Any:
    def take(args: dict[str, Any], result: str) -> str:
        if args["what"] == "b":
            interrupt({"question": "Really?"})
        return world.take(args, result)

    return take


# How the undo comes about, what of it is done when a message comes, and how the task had ended.
CUT_SHORT: dict[str, tuple[dict[str, Any], bool, list[str], tuple[str, str]]] = {
    "at the end": ({"on_failure": "undo"}, False, ["c"], ("limit", "turns")),
    "asked about": ({"on_failure": "ask"}, False, [], ("limit", "turns")),
    "on request": ({}, True, ["c"], ("limit", "turns")),
    "on request, of a success": ({}, True, ["c"], ("success", "finish_task")),
}


@pytest.mark.parametrize("case", CUT_SHORT)
def test_a_message_in_the_middle_of_an_undo_leaves_a_record_of_what_stands(
    case: str, world: World, storage: SqliteStorage
) -> None:
    options, on_request, taken, end = CUT_SHORT[case]
    turns = 4 if end[0] == "success" else 3
    graph = build_graph(
        ScriptedModel([put("a"), put("b"), put("c"), FINISH, FINISH]),
        [world.put(waits_at_b(world))],
        storage=storage,
        limits={"turns": turns},
        **options,
    )
    session = Session(graph, "t", on_pending="supersede")
    session.run("go")
    task = session.status().task.id
    if on_request:
        session.undo()
    assert session.run("Another task").outcome.succeeded  # type: ignore[union-attr]  # it has ended
    item = storage.store.get(("signoff", "outcomes", "t"), task)
    assert item is not None
    outcome = Outcome.model_validate(item.value)
    left = [what for what in ("c", "b", "a") if what not in taken]
    assert (outcome.status, outcome.reason) == end
    assert told(outcome) == (
        [f"put(what='{what}')" for what in taken],
        {f"put(what='{what}')": "stopped" for what in left},
    )
    assert (world.taken, outcome.succeeded) == (taken, False if taken else outcome.succeeded)
    assert replay(graph, "t").differences == ()


def test_edited_arguments_are_those_that_are_undone(world: World, storage: SqliteStorage) -> None:
    graph = build_graph(
        ScriptedModel([put("a")]),
        [world.put()],
        storage=storage,
        limits={"turns": 1},
        approvals={"put": True},
    )
    session = Session(graph, "t")
    session.run("go")
    session.resume({"type": "edit", "edited_action": {"name": "put", "args": {"what": "z"}}})
    session.undo()
    session.resume("approve")
    assert (world.taken, world.there) == (["z"], [])


MISTAKES = [
    (
        {"undo": 5},
        "The undo of the tool 'put' is 5; pass a function of arguments and result, or another tool.",
    ),
    ({"undo": "nothing"}, "is 'nothing', which is no tool of this graph"),
    ({"undo": lambda args: None}, "must accept the arguments of a call and its result"),
    ({"undo": lambda args, result: None, "kind": "read"}, "is of the kind read and declares an undo"),
    ({"undo": "needs_more"}, "which needs other, and a call of put has none"),
    ({"undo": "driven"}, "is a delegate or is handed over"),
]


@pytest.mark.parametrize(("metadata", "why"), MISTAKES)
def test_what_cannot_undo_anything_is_refused(metadata: dict[str, Any], why: str, world: World) -> None:
    def needs_more(what: str, other: str) -> str:
        """Need more."""
        return ""

    def driven(what: str) -> str:
        """Be handed over."""
        return ""

    tool = world.put(None)
    tool.metadata = metadata
    with pytest.raises(SetupError, match=why.replace("(", r"\(")):
        build_graph(ScriptedModel([]), [tool, needs_more, driven], hand_over=["driven"])


def test_the_option_has_three_words() -> None:
    with pytest.raises(SetupError, match="on_failure"):
        build_graph(ScriptedModel([]), on_failure="maybe")  # type: ignore[arg-type]  # that is the test
