"""What a replay finds: every broken rule and every bent way of the table that recorded threads pass, or it is
listed as not visible there; and it finds nothing where nothing is broken, in threads that are drawn."""

import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool

from signoff import Answer, Limits, Prices, Session, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call, reply
from signoff.session.decisions import Action, Approval, Ended, Question
from signoff.session.replay import ReplayDifference, replay
from signoff.storage import SqliteStorage
from tests.incidents.player import graph_of, imported, incidents
from tests.proof.mutations import ENTRY_MUTATIONS, TABLE_MUTATIONS
from tests.proof.mutations_of_rules import RULE_MUTATIONS
from tests.support.adapted import adapted
from tests.support.ends import is_failed, is_finished

# How many are drawn by the thorough tests; more with DRAWN_THREADS=1000.
FINISH, ASK = call("finish_task", summary="All of it."), call("ask_user", question="Which one?")
PAY, NOTE = call("pay", amount=3), call("note", text="a")
MADE_FINISH = imported({"model": [{"finish_task": {"summary": "All of it."}}]})
MADE_CALLS = imported({"model": [{"note": {"text": "a"}}, {"finish_task": {"summary": "All of it."}}]})
THREADS = int(os.environ.get("DRAWN_THREADS", "100"))
NOT_VISIBLE: Mapping[str, str] = {
    "no rule 'needs_person'": "it applies where there is no checkpointer, and so no thread",
    "review - failed -> call_llm": "a person is asked wherever there is a thread",
    "an exploration that forgets how long it was only talk": "it breaks the model checker, not the machine",
    # What comes from outside is taken as it is stored: nobody decides it.
    **dict.fromkeys(ENTRY_MUTATIONS, "an entry is no decision"),
}
MUTATIONS = {**RULE_MUTATIONS, **TABLE_MUTATIONS, **ENTRY_MUTATIONS}
THOUGHTS = AIMessage([{"type": "reasoning", "reasoning": "Hm."}], response_metadata={"finish_reason": "stop"})
QUESTION = AIMessage("", tool_calls=[{"name": "ask_user", "args": {"question": "Which?"}, "id": "q"}])
# Threads that no incident leaves: script, settings and input.
ALSO: Mapping[str, tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]] = {
    "a finish on the last turn": ([FINISH], {"limits": Limits(turns=1)}, ["go"]),
    "thoughts alone": ([THOUGHTS, FINISH], {}, ["go"]),
    "over its cost": (
        [reply(NOTE, usage=(900, 100)), FINISH],
        {"limits": Limits(cost=0.5, prices=Prices(input=1_000.0, output=1_000.0))},
        ["go"],
    ),
    "no task": ([], {}, []),
    "a question and a finish": ([[ASK, FINISH]], {}, ["go"]),
    "a history with a finish, then a question": ([], {}, ["go", MADE_FINISH, QUESTION]),
    "a history with open calls and a finish": ([FINISH], {}, ["go", MADE_CALLS]),
}


@tool
def note(text: str) -> str:
    """Note."""
    return "noted"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


note.metadata = {"kind": "read"}


pay.metadata = {"undo": lambda args, result: "paid back"}


@pytest.fixture(scope="module")
def recorded(incident_storage: SqliteStorage) -> Mapping[str, Graph]:
    """The graph of each thread, by its id."""
    storage = incident_storage
    graphs = {name: graph_of(incident, (), storage) for name, incident in incidents().items()}
    for name, (script, settings, messages) in ALSO.items():
        graphs[name] = build_graph(ScriptedModel(script), [note, pay], storage=storage, **adapted(**settings))
        graphs[name].invoke({"messages": list(messages)}, {"configurable": {"thread_id": name}})
    stopped = build_graph(ScriptedModel([[PAY, NOTE]]), [note, pay], storage=storage)
    config: Any = {"configurable": {"thread_id": "stopped"}}
    stopped.invoke({"messages": ["go"]}, config, interrupt_after=["call_llm"])
    Session(stopped, "stopped").stop()
    return {**graphs, "stopped": stopped}


def differences(graph: Graph, name: str) -> list[ReplayDifference]:
    """What is decided differently than when the thread was recorded."""
    return list(replay(graph, name).differences)


def test_nothing_is_found_where_nothing_is_broken(recorded: Mapping[str, Graph]) -> None:
    found = {name: differences(graph, name) for name, graph in recorded.items()}
    assert {name: one for name, one in found.items() if one} == {}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_machine_is_found_by_replaying_recorded_threads(
    recorded: Mapping[str, Graph], name: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name].apply(patch)
        found = next((one for one, graph in recorded.items() if differences(graph, one)), None)
    assert (found is None) == (name in NOT_VISIBLE), (name, found)


@pytest.mark.parametrize("end", ["stop", "another task"])
def test_an_earlier_end_says_nothing_of_one_that_cannot_be_decided_again(end: str, tmp_path: Path) -> None:
    child = delegate("child", build_graph(ScriptedModel([ASK])), description="Asks.")
    script = [NOTE, call("child", task="go"), FINISH]
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel(script), [note, child], storage=storage, limits={"turns": 1})
        session = Session(graph, "t", on_pending="supersede")
        assert is_finished(session.run("go"))
        assert isinstance(session.go_on(3), Question)
        found = session.stop() if end == "stop" else session.run("Another task")
        assert is_failed(found) if end == "stop" else is_finished(found)
        assert replay(graph, "t").differences == ()


STEPS: Sequence[Any] = (
    FINISH,
    NOTE,
    PAY,
    ASK,
    [NOTE, NOTE, PAY],
    [PAY, FINISH],
    [ASK, FINISH],
    "Hm.",
    "",
    THOUGHTS,
    call("think", thought="Hm."),
    call("unknown_tool"),
    call("note", raw='{"text": "cut'),
    call("finish_task", summary=" "),
    call("finish_task", summary="All of it.", requires_user_confirmation=True),
    call("finish_task", summary="Half.", completion_percentage=50, next_phase="the rest"),
    call("finish_task", summary="No.", outcome="blocked", pending_issues=["a key"]),
    reply("Cut o", finish_reason="length"),
    reply(PAY, finish_reason="length"),
    reply(refusal="No."),
    RuntimeError("the server is down"),
)
BELOW: Sequence[Any] = (FINISH, NOTE, PAY, ASK, [PAY, ASK], "Hm.", RuntimeError("the server is down"))
CHILD, DEEP = call("child", task="Do a part."), call("deep", task="Do a part of it.")
WORDS: Sequence[Any] = ("yes", "no", "approve", "reject", "reject: not today", "7")


def drawn_delegate(draw: random.Random, name: str, says: Sequence[Any], *tools: Any) -> BaseTool:
    model, limits = ScriptedModel(lambda _: draw.choice(says)), {"turns": draw.randint(1, 4)}
    graph = build_graph(model, [note, pay, *tools], limits=limits, policy={"model_retries": None})
    return delegate(name, graph, description="Works.")


def drawn_thread(draw: random.Random, storage: Any, name: str) -> Graph:
    """A thread that was run at random: what models say, its limits, what people answer and have undone."""
    limits = Limits(
        turns=draw.randint(1, 8),
        talk_turns=draw.randint(1, 4),
        repeats=draw.choice([None, 2, 3]),
        tool_calls=draw.choice([None, None, 2, 5]),
        tokens=draw.choice([None, None, 3_000]),
    )
    steps, tools = STEPS, [note, pay]
    if draw.random() < 0.3:
        deep = drawn_delegate(draw, "deep", BELOW)
        child = drawn_delegate(draw, "child", (*BELOW, DEEP, [DEEP, PAY, DEEP]), deep)
        steps, tools = [*STEPS, *[CHILD] * 6, [CHILD, NOTE, CHILD]], [*tools, child]
    graph = build_graph(
        ScriptedModel(lambda _: draw.choice(steps)),
        tools,
        storage=storage,
        limits=limits,
        **adapted(
            hand_over=draw.choice([[], ["pay"]]),
            talk=draw.choice(["strict", "balanced", "natural"]),
            rounds=draw.random() < 0.2,
            model_retries=None,
            prompt_tokens=draw.choice([None, None, 2_500]),
            on_failure=draw.choice(["keep", "keep", "undo", "ask"]),
            approvals=draw.choice([None, {"pay": True}]),
        ),
    )
    session = Session(graph, name, on_pending=draw.choice(["answer", "supersede"]))
    command: Any = draw.choice(["go", "stay"])
    for _ in range(12):
        decision = session.run(command)
        if isinstance(decision, Ended):
            status = decision.outcome.status
            if draw.random() < 0.5:
                break
            if draw.random() < 0.3:
                session.undo(ask=draw.random() < 0.5)
                command = draw.choice([None, "Never mind"])
                continue
            goes_on = {"limit": lambda: session.go_on(2), "error": session.go_on}.get(status)
            if goes_on is None or draw.random() < 0.3:
                command = draw.choice(["Another task", "And one more"])
                continue
            goes_on()
            command = "Next"
        elif isinstance(decision, Question | Approval | Action):
            command = _answered(draw, decision)
        else:
            command = None
    return graph


def _answered(draw: random.Random, waiting: Any) -> Any:
    """An answer that fits, or a message of the user in its place."""
    if draw.random() < 0.2:
        return "Something else"
    if isinstance(waiting, Approval):
        decisions = [{"call_id": one.id, "type": draw.choice(one.allowed)} for one in waiting.calls]
        filled: dict[str, dict[str, Any]] = {
            "edit": {"edited_action": {"name": "pay", "args": {"amount": 1}}},
            "respond": {"message": "done already"},
        }
        given = [{**one, **filled.get(one["type"], {})} for one in decisions]
        return Answer({"decisions": given}, waiting.interrupt_id)
    return Answer(draw.choice(WORDS), waiting.interrupt_id)


def check_drawn(numbers: range, folder: Path) -> None:
    decided = 0
    with sqlite_storage(folder / "drawn.sqlite") as storage:
        for number in numbers:
            graph = drawn_thread(random.Random(number), storage, str(number))
            found = replay(graph, str(number))
            assert found.differences == (), f"thread {number}"
            decided += len(found.again)
    assert decided > 5 * len(numbers)


def test_drawn_threads_replay_without_a_difference(tmp_path: Path) -> None:
    check_drawn(range(20), tmp_path)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_many_drawn_threads_replay_without_a_difference(tmp_path: Path) -> None:
    check_drawn(range(20, 20 + THREADS), tmp_path)


def a_team(turns: int, storage: Any, script: Sequence[Any], deep: bool = True) -> Graph:
    """A graph with a delegate, which has one, too. turns: those that the lowest may take."""
    lowest = build_graph(ScriptedModel([PAY, PAY, FINISH]), [pay], limits={"turns": turns})
    below = [delegate("deep", lowest, description="Works.")] if deep else [note]
    middle = build_graph(ScriptedModel([DEEP, FINISH]), below, limits={"depth": 3})
    return build_graph(
        ScriptedModel(script), [delegate("child", middle, description="Works.")], storage=storage
    )


@pytest.mark.parametrize("forked", [False, True])
def test_the_machines_of_delegates_are_decided_again_too(forked: bool, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session, name = Session(a_team(3, storage, [CHILD, FINISH]), "t"), "t"
        session.run("go")
        if forked:
            name = session.fork(None, "fork").thread_id
        found = replay(a_team(3, storage, []), name)
        assert found.differences == ()
        (first, *_) = replay(a_team(2, storage, []), name).differences
        assert str(first) == (
            "child / deep / turn 1, decide: rule was 'think → think: nothing else applies', "
            "and now is 'near_limit → remind: 1 of 2 turns are used'"
        )
        # What no graph is known of is taken as it is, and said to be.
        lost = replay(a_team(3, storage, [], deep=False), name)
        assert len(lost.again) < len(found.again)
        assert len(lost.again) + len(lost.taken) == len(found.again) + len(found.taken)
