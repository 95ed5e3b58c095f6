"""What delegates wait for stands at the top, with its path; each answer goes to its wait; a pause, a clock, a
worker and an interruption reach all below."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command, interrupt

from signoff import (
    Action,
    Answer,
    Approval,
    BadAnswer,
    Decision,
    Ended,
    Graph,
    Paused,
    Question,
    Session,
    Storage,
    ThreadError,
    outcome_of,
    standard_controls,
)
from signoff.models import ScriptedModel, call
from signoff.session import expire
from signoff.workers import Order, drive, post
from tests.support.trees import (
    ASK,
    DONE,
    GO,
    THREAD,
    Shop,
    by_turn,
    graph_of,
    hand_to,
    helper,
    outcome_at,
    results,
    turns_of,
)

# A delegate has no storage of its own: it waits in that of the thread.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
LATER = 9e12


def lead(storage: Storage | None, *below: BaseTool, **options: Any) -> Graph:
    """Calls each of these in one reply, and ends."""
    script = by_turn(hand_to(*[made.name for made in below]), DONE)
    return graph_of(script, below, storage=storage, **options)


def asker(name: str, *before: Any, tools: Any = ()) -> BaseTool:
    """Asks, after these steps."""
    return helper(graph_of(by_turn(*before, ASK, DONE), tools), name)


def paths(session: Session) -> list[tuple[str, ...]]:
    return [wait.path for wait in session.status().waits]


# Answers.


def one_of_each(shop: Shop, storage: Storage) -> Graph:
    """Four delegates, one for each kind of wait; two levels deep where one asks."""
    to_confirm = call("finish_task", summary="Nearly.", requires_user_confirmation=True)
    asks = graph_of(by_turn(call("pay", to="asks"), hand_to("browser"), DONE), [shop.pay, asker("browser")])
    approves = graph_of(by_turn(call("pay", to="approved"), DONE), [shop.pay], approvals={"pay": True})
    confirms = graph_of(by_turn(call("pay", to="confirmed"), to_confirm), [shop.pay])
    drives = graph_of(by_turn(call("pay", to="driver"), DONE), [shop.pay], approvals={"pay": "hand_over"})
    below = {"asks": asks, "approves": approves, "confirms": confirms, "drives": drives}
    return lead(storage, *[helper(graph, name) for name, graph in below.items()])


WAITS = [
    # Its type, its path, and what answers it.
    (Question, ("asks", "browser"), "this"),
    (Approval, ("approves",), "approve"),
    (Approval, ("confirms",), "approve"),
    (Action, ("drives",), "paid it"),
]


def test_all_that_waits_is_shown_with_its_path_and_answered_in_any_order(
    shop: Shop, storage: Storage
) -> None:
    session, order = Session(one_of_each(shop, storage), "t"), (2, 0, 3, 1)
    session.run("go")
    waits = session.status().waits
    assert [(type(wait), wait.path) for wait in waits] == [(kind, path) for kind, path, _ in WAITS]
    assert sorted(shop.paid) == ["asks", "confirmed"]
    with pytest.raises(BadAnswer):
        session.resume("this")
    for at, number in enumerate(order, 1):
        session.run(Answer(WAITS[number][2], waits[number].interrupt_id))
        assert paths(session) == [WAITS[left][1] for left in sorted(order[at:])]
    outcome = session.status().outcome
    assert outcome is not None
    assert outcome.status == "success"
    assert sorted(shop.paid) == ["approved", "asks", "confirmed"]


ASKED: dict[str, tuple[Any, str]] = {
    "a list": (["a", 1], '["a", 1]'),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, "Overwrite?"),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_a_tool_below_asks_by_is_a_question_with_its_path(name: str, storage: Storage) -> None:
    value, text = ASKED[name]

    @tool
    def ask(what: str) -> str:
        """Ask."""
        return f"it is {interrupt(value)}"

    def tells(messages: list[BaseMessage]) -> Any:
        return call("finish_task", summary=messages[-1].text)

    def asking(name: str) -> BaseTool:
        return helper(graph_of([call("ask", what="x"), tells], [ask]), name)

    session = Session(lead(storage, asking("one"), asking("two")), "t")
    session.run("go")
    waits = [wait for wait in session.status().waits if isinstance(wait, Question)]
    assert [(wait.path, wait.text) for wait in waits] == [(("one",), text), (("two",), text)]
    for wait in waits:
        session.resume(f"for {wait.path[0]}", wait.interrupt_id)
    values = session.status().values
    assert [f"it is for {name}" in results(values, name)[0].text for name in ("one", "two")] == [True] * 2


# Approvals.


def as_it_is(graph: Graph) -> Any:
    return graph


def by_a_function(graph: Graph) -> Any:
    return lambda: graph


def deep(graph: Graph) -> Any:
    return graph_of([hand_to("deep"), DONE], [helper(graph, "deep")])


POLICIES: dict[str, tuple[Any, Any, Any, bool | list[str]]] = {
    # The delegate, the policy above, its own, and whether a person is asked, or by which decisions.
    "none": (as_it_is, None, None, False),
    "above, by name": (as_it_is, {"pay": True}, None, True),
    "above, by kind, of a graph that a function makes": (by_a_function, {"write": True}, None, True),
    "above, by a function, two levels below": (deep, lambda name, args: name == "pay", None, True),
    "its own": (as_it_is, {"delegate": False}, {"write": True}, True),
    "both: what both allow, two levels below": (
        deep,
        {"write": ["approve", "reject"]},
        {"pay": True},
        ["approve", "reject"],
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_stricter_of_all_policies_on_the_way_holds(name: str, shop: Shop, storage: Storage) -> None:
    made, above, own, asked = POLICIES[name]
    below = made(graph_of([call("pay", to="x"), DONE], [shop.pay], approvals=own))
    # The graph above knows a tool of that name as well.
    top = graph_of([hand_to("helper"), DONE], [helper(below), shop.pay], approvals=above, storage=storage)
    values = top.invoke(GO, THREAD)
    if asked:
        (wait,) = values["__interrupt__"]
        path = ["helper", *["deep"] * (made is deep)]
        assert (wait.value["path"], wait.value["action_requests"][0]["name"]) == (path, "pay")
        assert asked is True or wait.value["review_configs"][0]["allowed_decisions"] == asked
        assert shop.paid == []
        values = top.invoke(Command(resume="approve"), THREAD)
    assert (outcome_of(values).status, shop.paid) == ("success", ["x"])


@pytest.mark.parametrize("args", [{"x": 1}, {"task": " \n"}, {"task": 5}])
def test_a_call_of_a_delegate_may_be_edited_to_a_task_and_to_nothing_else(
    args: dict[str, Any], shop: Shop, storage: Storage
) -> None:
    def edited(args: dict[str, Any]) -> Any:
        return [{"type": "edit", "edited_action": {"name": "helper", "args": args}}]

    below = ScriptedModel([call("pay", to="x"), DONE])
    made = helper(graph_of(below, [shop.pay]))
    session = Session(lead(storage, made, approvals={"delegate": True}), "t")
    wait = session.run("go")
    assert isinstance(wait, Approval)
    assert (wait.path, wait.calls[0].name) == ((), "helper")
    with pytest.raises(BadAnswer, match="task"):
        session.resume(edited(args))
    assert (session.status().waits, below.seen) == ((wait,), [])
    assert outcome_at(session.resume(edited({"task": "Pay less."}))).status == "success"
    assert [one.text for one in below.seen[0].messages if isinstance(one, HumanMessage)] == ["Pay less."]


# Actions that the program takes.


def says(*calls: tuple[str, dict[str, Any], str]) -> AIMessage:
    """A reply with these calls, each with its own id: a provider may give the same one at two levels."""
    return AIMessage("", tool_calls=[ToolCall(name=name, args=args, id=own) for name, args, own in calls])


def driven(shop: Shop, name: str, call_id: str) -> BaseTool:
    script = by_turn(says(("pay", {"to": name}, call_id)), DONE)
    return helper(graph_of(script, [shop.pay], approvals={"pay": "hand_over"}), name)


def unknown(decision: Decision) -> bool:
    assert isinstance(decision, Action)
    return decision.unknown


@pytest.mark.parametrize("levels", [1, 2])
def test_an_action_that_is_handed_out_again_is_unknown_and_its_answer_arrives(
    levels: int, shop: Shop, storage: Storage
) -> None:
    hands_on = by_turn(says(("a", {"task": "Go."}, "call_0")), DONE)
    below = driven(shop, "a", "call_0")
    if levels == 2:
        below = helper(graph_of(hands_on, [below]), "a")
    graph = graph_of(hands_on, [below], storage=storage)
    assert not unknown(Session(graph, "t").run("go"))
    assert unknown(Session(graph, "t").run())
    assert outcome_at(Session(graph, "t").resume("paid it")).status == "success"
    assert shop.paid == []


def test_the_callers_own_action_is_told_apart_from_its_delegates(shop: Shop, storage: Storage) -> None:
    calls = says(("a", {"task": "Go."}, "call_0"), ("pay", {"to": "mine"}, "call_1"))
    team = [driven(shop, "a", "call_1"), shop.pay]
    graph = graph_of(by_turn(calls, DONE), team, storage=storage, approvals={"pay": "hand_over"})
    session = Session(graph, "t")
    first = session.run("go")
    assert isinstance(first, Action)
    mine = session.resume("paid x", first.interrupt_id)
    assert isinstance(mine, Action)
    assert [(one.path, one.unknown) for one in (first, mine)] == [(("a",), False), ((), False)]
    session.resume("paid mine")
    assert [one.text for one in results(session.status().values, "pay")] == ["paid mine"]


def test_all_that_were_handed_out_are_unknown_to_another_driver_alone(shop: Shop, storage: Storage) -> None:
    def session(thread: str) -> Session:
        return Session(lead(storage, driven(shop, "a", "call_0"), driven(shop, "b", "call_0")), thread)

    mine = session("mine")
    first = mine.run("go")
    assert isinstance(first, Action)
    # One driver knows what it has not done yet.
    assert (unknown(first), unknown(mine.resume("paid a", first.interrupt_id))) == (False, False)
    session("t").run("go")
    other = session("t")
    again = other.run()
    assert isinstance(again, Action)
    # Also the one that the first driver has never come to.
    assert (unknown(again), unknown(other.resume("paid a", again.interrupt_id))) == (True, True)


# Graphs that have changed meanwhile.


def without_the_state(name: str) -> list[Any]:
    """A delegate of the same name, whose graph does not have the state that asks."""
    graph = graph_of([])
    del graph.nodes["ask_user"]
    return [helper(graph, name)]


def plain_tool(name: str) -> list[Any]:
    @tool(name)
    def plain(task: str) -> str:
        """Work."""
        raise AssertionError("it is never run here")

    return [plain]


CHANGED: dict[str, tuple[Callable[[str], list[Any]], str, str]] = {
    # What there is now, instead of which of two, and which is answered.
    "another graph": (without_the_state, "a", "b"),
    "another graph of the one that is answered": (without_the_state, "a", "a"),
    "a plain tool": (plain_tool, "b", "a"),
    "nothing": (lambda name: [], "a", "b"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_no_delegate_goes_on_before_all_that_are_at_work_can(name: str, shop: Shop, storage: Storage) -> None:
    """What the other has begun would be told as never run."""
    instead, changed, answered = CHANGED[name]
    team = [asker(one, call("pay", to=one), tools=[shop.pay]) for one in ("a", "b")]
    whole = lead(storage, *team)
    waits = {one.value["path"][0]: one.id for one in whole.invoke(GO, THREAD)["__interrupt__"]}
    tools = [*[made for made in team if made.name != changed], *instead(changed)]
    now = graph_of([DONE], tools, storage=storage)
    with pytest.raises(ThreadError, match=f"'{changed}'"):
        now.invoke(Command(resume={waits[answered]: "this"}), THREAD)
    left = {one.path[0]: one.interrupt_id for one in Session(whole, "t").status().waits}
    values = whole.invoke(Command(resume=dict.fromkeys(left.values(), "this")), THREAD)
    assert (outcome_of(values).status, sorted(shop.paid)) == ("success", ["a", "b"])


# A pause, a clock, a worker, an interruption.


def test_a_pause_lets_each_below_end_its_step_and_all_go_on(storage: Storage) -> None:
    done, together = list[str](), threading.Barrier(2)

    @tool
    def work(name: str) -> str:
        """Work."""
        done.append(name)
        if name.endswith("0"):
            together.wait(60)
            session.pause()
        return name

    def worker(name: str) -> BaseTool:
        return helper(graph_of([call("work", name=f"{name}{n}") for n in range(2)] + [DONE], [work]), name)

    session = Session(lead(storage, worker("a"), worker("b")), "t")
    assert isinstance(session.run("go"), Paused)
    assert sorted(done) == ["a0", "b0"]
    decision = session.run()
    while isinstance(decision, Paused):
        decision = session.run()
    assert outcome_at(decision).status == "success"
    assert sorted(done) == ["a0", "a1", "b0", "b1"]


def with_a_deadline(name: str) -> BaseTool:
    ask = call("ask_user", question="Which?", default_answer="that", deadline_seconds=60)
    return helper(graph_of(by_turn(ask, DONE), control_tools=standard_controls(deadlines=True)), name)


def test_questions_below_expire_and_the_others_wait_on(storage: Storage) -> None:
    between = helper(graph_of(by_turn(hand_to("deep"), DONE), [with_a_deadline("deep")]), "between")
    graph = lead(storage, with_a_deadline("early"), asker("late"), between)
    session = Session(graph, "t")
    first = session.run("go")
    assert isinstance(first, Question)
    assert expire(graph, "t") is None
    found = expire(graph, "t", now=LATER)
    assert found is not None
    assert (found.path, found.answer) == (("early",), "that")
    assert expire(graph, "t", now=LATER) is None
    with pytest.raises(ThreadError):
        session.resume("too late", first.interrupt_id)
    assert isinstance(session.run(), Question)
    assert paths(session) == [("late",)]
    assert outcome_at(session.resume("this")).status == "success"


def test_a_worker_takes_answers_in_any_order(storage: Storage) -> None:
    def graph() -> Graph:
        # Of another process each time.
        return lead(storage, asker("a"), asker("b"))

    Session(graph(), "t").run("go")
    first, second = Session(graph(), "t").status().waits
    post(storage.store, "t", Order("one", Answer("this", second.interrupt_id)))
    assert isinstance(drive(graph(), "t").decision, Question)
    assert paths(Session(graph(), "t")) == [("a",)]
    post(storage.store, "t", Order("two", Answer("that", first.interrupt_id)))
    post(storage.store, "t", Order("late", Answer("again", second.interrupt_id)))
    assert isinstance(drive(graph(), "t").decision, Ended)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come there")
def test_all_below_stop_at_their_step_when_the_run_is_interrupted(shop: Shop, storage: Storage) -> None:
    at_work, interrupted, most = threading.Barrier(2), threading.Event(), 60

    @tool
    def pay(to: str) -> str:
        """Pay."""
        if not interrupted.is_set():
            at_work.wait(timeout=10)
            interrupted.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        shop.paid.append(to)
        return "paid"

    def script(messages: Any) -> Any:
        task = next(one.text for one in messages if isinstance(one, HumanMessage))
        return call("pay", to=f"{task} {turns_of(messages)}") if turns_of(messages) < most else DONE

    below = graph_of(ScriptedModel(script), [pay], limits={"turns": most + 1})
    both = [call("helper", task="one"), call("helper", task="two")]
    graph = graph_of(by_turn(both, DONE), [helper(below)], storage=storage)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    # Nobody works on after the run has given its thread back.
    assert len(shop.paid) < most
    assert outcome_of(graph.invoke(None, THREAD)).status == "success"
    assert len(shop.paid) == len(set(shop.paid)) == 2 * most
