"""The last message of a run tells how it ended; it is no turn, and the model is not shown it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph_supervisor import create_supervisor

from signoff import Limits, SetupError, build_graph, current_outcome, extend, retry, sqlite_storage
from signoff.graph.compiled.inputs import go_on
from signoff.graph.messages import is_answer, marks
from signoff.graph.texts import Texts
from signoff.models import ScriptedModel, call
from signoff.session.history import chapters
from signoff.session.replay import replay
from signoff.session.session import Session
from signoff.session.status import deps_of
from signoff.stats import read_ended
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
WORK = call("work")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def work() -> str:
    """Work."""
    return "worked"


def ended(*script: Any, **settings: Any) -> str:
    """The last words of a run."""
    result = build_graph(ScriptedModel(script), [work], **settings).invoke(GO)
    last = result["messages"][-1]
    assert isinstance(last, AIMessage)
    return last.text


UNFINISHED = "The work is not finished"
ENDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a finish": ([FINISH], {}, "All of it."),
    "a claim of less": (
        [call("finish_task", summary="No network.", outcome="blocked")],
        {},
        f"{UNFINISHED} (blocked). No network.",
    ),
    "a limit": (
        [WORK],
        {"limits": Limits(turns=1)},
        f"{UNFINISHED}. Turn limit reached: 1 of 1 turns are used. Extend it to continue where it stopped.",
    ),
    "a limit after words": (
        ["Half of it is there."],
        {"limits": Limits(turns=1)},
        f"{UNFINISHED}. Turn limit reached: 1 of 1 turns are used. Extend it to continue where it "
        "stopped.\n\nThe last words were: Half of it is there.",
    ),
    "an error": (
        [call("ask_user", question="Which one?")],
        {},
        f"{UNFINISHED}. It needs a person: The model asks: Which one? Build the graph with storage= (or a "
        "checkpointer) so that it can wait for the answer.",
    ),
    "words of one's own": (
        [WORK],
        {"limits": Limits(turns=1), "texts": Texts(answers={"limit": "Nicht fertig."})},
        "Nicht fertig.",
    ),
    "an answer beside the summary": (
        [call("finish_task", summary="All of it.", answer="It is 42.")],
        {"answer": "argument"},
        "It is 42.",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_last_message_is_the_answer(end: str) -> None:
    script, settings, expected = ENDS[end]
    assert ended(*script, **settings) == expected


def test_an_answer_that_is_asked_for_and_missing_is_refused() -> None:
    empty = call("finish_task", summary="All of it.", answer=" ")
    phase = call("finish_task", summary="Half.", completion_percentage=50)
    whole = call("finish_task", summary="All of it.", answer="42")
    model = ScriptedModel([FINISH, empty, phase, WORK, whole])
    result = build_graph(model, [work], answer="argument").invoke(GO)
    told = [m.text.split(":")[0] for m in result["messages"] if isinstance(m, ToolMessage)]
    assert told == ["Refused", "Refused", "Noted", "worked", "Accepted. The task has ended."]
    assert result["messages"][-1].text == "42"


def test_it_can_be_turned_off_and_a_wrong_option_is_told() -> None:
    last = build_graph(ScriptedModel([FINISH]), answer="none").invoke(GO)["messages"][-1]
    assert last.text == "Accepted. The task has ended."
    with pytest.raises(SetupError, match="answer is 'off'; use one of: summary, argument, none"):
        build_graph(ScriptedModel([]), answer="off")  # type: ignore[arg-type]  # so it is meant


def test_it_is_no_turn_and_costs_nothing(storage: SqliteStorage) -> None:
    model = ScriptedModel([WORK, FINISH, WORK, FINISH])
    graph = build_graph(model, [work], storage=storage)
    first, second = graph.invoke(GO, THREAD)["outcome"], graph.invoke(GO, THREAD)["outcome"]
    assert (first["turns"], second["turns"]) == (2, 2)
    assert first["usage"]["total_tokens"] == sum(_tokens(m) for m in _values(graph)["messages"][:5])
    assert [one.turns for one in read_ended(storage.store)] == [2, 2]
    assert [len(chapter.turns) for chapter in chapters(_values(graph), deps_of(graph).toolbox)] == [2, 2]
    assert replay(graph, "t").differences == ()
    # What the second task's model is shown begins with exactly what the first one's was shown.
    shown = [[(m.type, m.content) for m in seen.messages] for seen in model.seen]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(shown))
    # It stands between the result and the next task, once.
    assert [kind for kind, _ in shown[2]] == ["system", "human", "ai", "tool", "ai", "tool", "ai", "human"]
    assert shown[2][6] == ("ai", "All of it.")


def _values(graph: Any) -> dict[str, Any]:
    return dict(graph.get_state(THREAD).values)


def _tokens(message: BaseMessage) -> int:
    usage = getattr(message, "usage_metadata", None)
    return int(usage["total_tokens"]) if usage else 0


def answers(graph: Any) -> list[str]:
    return [m.text.split(".")[0] for m in _values(graph)["messages"] if is_answer(m)]


def test_every_end_of_a_task_keeps_its_own(storage: SqliteStorage) -> None:
    model = ScriptedModel([WORK, RuntimeError("down"), FINISH])
    graph = build_graph(model, [work], storage=storage, limits=Limits(turns=1))
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "turns"
    assert graph.invoke(extend(_values(graph), turns=1), THREAD)["outcome"]["reason"] == "model_error"
    result = graph.invoke(retry(_values(graph)), THREAD)
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 2)
    assert answers(graph) == [UNFINISHED, UNFINISHED, "All of it"]
    assert not any("not finished" in m.text for seen in model.seen for m in seen.messages)
    assert replay(graph, "t").differences == ()


def test_the_same_end_makes_the_same_message(storage: SqliteStorage) -> None:
    """Of a process that is killed after the step has written, and before that is saved."""
    graph = build_graph(ScriptedModel([FINISH]), storage=storage)
    graph.invoke(GO, THREAD)
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("finish",))
    again = graph.invoke(None, before.config)
    assert again["messages"][-1].id == _values(graph)["messages"][-1].id
    assert answers(graph) == ["All of it"]
    with pytest.raises(Exception, match="has ended"):
        go_on(graph.get_state(THREAD))


def test_an_ended_thread_that_is_called_with_nothing_new_stays_as_it_is(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH]), storage=storage)
    graph.invoke(GO, THREAD)
    before = _values(graph)["messages"]
    graph.invoke({"messages": []}, THREAD)
    assert _values(graph)["messages"] == before
    assert current_outcome(_values(graph)) is not None


def test_an_edit_of_an_ended_thread_and_a_fork_of_it(storage: SqliteStorage) -> None:
    model = ScriptedModel([FINISH, FINISH, WORK, FINISH])
    graph = build_graph(model, [work], storage=storage)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"messages": [HumanMessage("and more")]}, "ask_user")
    assert graph.invoke(go_on(graph.get_state(THREAD)), THREAD)["outcome"]["turns"] == 1
    assert answers(graph) == ["All of it", "All of it"]
    forked = Session(graph, "t").fork(0)
    forked.run("do it")
    messages = forked.status().values["messages"]
    assert [is_answer(message) for message in messages[-2:]] == [False, True]


IMPORTED = [
    HumanMessage("do it", id="m"),
    AIMessage("", tool_calls=[{"name": "finish_task", "args": {"summary": "All of it."}, "id": "c"}], id="r"),
    ToolMessage("Accepted.", tool_call_id="c", id="a"),
]


def test_an_imported_history_that_ends_in_a_finish_is_told_once() -> None:
    graph = build_graph(ScriptedModel([]))
    first = graph.invoke({"messages": IMPORTED})
    assert [m.text for m in first["messages"][3:]] == ["All of it."]
    again = graph.invoke({"messages": first["messages"]})
    assert [m.id for m in again["messages"]] == [m.id for m in first["messages"]]
    assert again["outcome"]["status"] == "success"


def test_a_thread_without_a_task_says_so_and_can_be_given_one(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH]), storage=storage)
    assert graph.invoke({"messages": []}, THREAD)["messages"][-1].text.startswith(UNFINISHED)
    result = graph.invoke(GO, THREAD)
    assert (result["outcome"]["status"], len(answers(graph))) == ("success", 2)


def test_a_mark_that_a_provider_sends_does_not_make_a_reply_an_answer() -> None:
    said = AIMessage("Hello.", response_metadata={"signoff": {"answer": "m", "after": ""}})
    result = build_graph(ScriptedModel([said, FINISH])).invoke(GO)
    assert (result["outcome"]["turns"], result["outcome"]["nudges"]) == (2, 1)


def test_as_a_node_of_another_graph_it_is_what_that_graph_shows() -> None:
    graph = build_graph(ScriptedModel([FINISH]), name="worker")
    outer = StateGraph(MessagesState)
    outer.add_node("worker", graph)
    outer.add_edge(START, "worker")
    outer.add_edge("worker", END)
    last = outer.compile().invoke(GO)["messages"][-1]
    assert (last.text, last.name, graph.name) == ("All of it.", "worker", "worker")


def test_what_another_agent_answered_is_shown_to_the_model() -> None:
    """Only its last message was handed on, so that nothing else of the history says it."""
    theirs = build_graph(ScriptedModel([FINISH])).invoke(GO)["messages"][-1]
    model = ScriptedModel([FINISH])
    given = [HumanMessage("do it"), AIMessage("I hand over."), theirs, HumanMessage("Go on.")]
    result = build_graph(model).invoke({"messages": given})
    assert result["outcome"]["turns"] == 1
    assert ("ai", "All of it.") in [(m.type, m.text) for m in model.seen[0].messages]


# The supervisor's own package uses what LangGraph has moved.
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("mode", ["last_message", "full_history"])
def test_a_supervisor_gets_the_answer(mode: Any) -> None:
    graph = build_graph(ScriptedModel([FINISH]), name="worker")
    top = ScriptedModel([call("transfer_to_worker"), "It is done."])
    result = create_supervisor([graph], model=top, output_mode=mode).compile().invoke(GO)
    shown = top.seen[1].messages
    before = next(at for at, m in enumerate(shown) if m.text == "Transferring back to supervisor")
    assert (shown[before - 1].text, shown[before - 1].name) == ("All of it.", "worker")
    assert result["messages"][-1].text == "It is done."


def test_events_of_a_session_tell_the_end_once(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH]), storage=storage)
    names = [type(event).__name__ for event in Session(graph, "t").events("do it")]
    assert (names.count("Said"), names.count("Ended")) == (1, 1)


def test_the_mark_names_the_task_and_what_it_follows() -> None:
    *_, before, last = build_graph(ScriptedModel([FINISH])).invoke(GO)["messages"]
    told = build_graph(ScriptedModel([FINISH])).invoke(GO)["outcome"]["task"]
    assert marks(last) == {"answer": told, "after": before.id, "accepted": True}


@pytest.mark.parametrize("name", ["two words", "", "a/b", 3, "x" * 65])
def test_a_name_that_no_provider_takes_is_refused(name: Any) -> None:
    with pytest.raises(SetupError, match="pass at most 64 characters, without"):
        build_graph(ScriptedModel([]), name=name)
