"""A tree of delegates that waits, and one that has ended: each answer goes to its wait; what all have used
below is told; it goes on where each stood, is copied with all that it had done, and undone whole."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import Command

from signoff import (
    Action,
    Answer,
    Approval,
    BadAnswer,
    Graph,
    Limits,
    Outcome,
    Paused,
    Question,
    Session,
    Storage,
    ThreadError,
    go_on,
    outcome_of,
    standard_controls,
)
from signoff.models import ScriptedModel, call, reply
from signoff.session import expire
from tests.support.ends import outcome_at, to_the_end
from tests.support.trees import (
    ASK,
    BLOCKED,
    DONE,
    DOWN,
    GO,
    ONCE,
    THREAD,
    Shop,
    by_turn,
    graph_of,
    hand_to,
    helper,
    results,
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


# Graphs that have changed meanwhile.


@tool("b")
def plain(task: str) -> str:
    """Work."""
    raise AssertionError("it is never run here")


def test_no_delegate_goes_on_before_all_that_are_at_work_can(shop: Shop, storage: Storage) -> None:
    """What the other has begun would be told as never run."""
    team = [asker(one, call("pay", to=one), tools=[shop.pay]) for one in ("a", "b")]
    whole = lead(storage, *team)
    waits = {one.value["path"][0]: one.id for one in whole.invoke(GO, THREAD)["__interrupt__"]}
    now = graph_of([DONE], [team[0], plain], storage=storage)
    with pytest.raises(ThreadError, match="'b'"):
        now.invoke(Command(resume={waits["a"]: "this"}), THREAD)
    assert sorted(paths(Session(whole, "t"))) == [("a",), ("b",)]
    values = whole.invoke(Command(resume=dict.fromkeys(waits.values(), "this")), THREAD)
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


PARTIAL = call("finish_task", summary="x", outcome="partial")


def pay(to: str) -> Any:
    return call("pay", to=to)


def changes(outcome: Outcome) -> list[str]:
    return [f"{change.call} {change.came}" for change in outcome.changes]


# What is told of it.


def payer(*then: Any, **options: Any) -> Graph:
    return graph_of([pay("x"), *then], [Shop().pay], **options)


def over(below: Graph, **options: Any) -> Graph:
    """A graph that has paid, and calls one delegate."""
    return graph_of([pay("y"), hand_to("helper"), DONE], [helper(below), Shop().pay], **options)


# What stands below the top when its task is ended, what that may have changed, and the turns and calls of the
# whole tree.
LEFT: dict[str, tuple[Callable[[], Graph], list[str], int, int]] = {
    "three levels": (
        lambda: over(over(payer(ASK))),
        [
            *("pay(to='y') ok", "helper(task='Go.') unknown", "helper / pay(to='y') ok"),
            *("helper / helper(task='Go.') unknown", "helper / helper / pay(to='x') ok"),
        ],
        8,
        7,
    ),
    "handed out, it may be done": (
        lambda: payer(approvals={"pay": "hand_over"}),
        ["pay(to='x') unknown"],
        3,
        3,
    ),
    "one that may change nothing": (lambda: graph_of([ASK]), [], 3, 2),
}


@pytest.mark.parametrize("name", LEFT)
def test_all_that_was_used_and_changed_below_is_told_of_a_tree_that_is_ended(
    name: str, storage: Storage
) -> None:
    below, changed, turns, calls = LEFT[name]
    lines = [f"{call} ({came})" for call, came in (line.rsplit(" ", 1) for line in changed)]
    session = Session(over(below(), storage=storage), "t")
    session.run("go")
    outcome = outcome_at(session.stop())
    # Also where a new task takes its place.
    other = Session(over(below(), storage=storage), "other", on_pending="supersede")
    other.run("go")
    assert outcome_at(other.run("Something else.")).status == "success"
    for each in (session, other):
        (told,) = results(each.status().values)
        assert (told.status, [line for line in lines if line not in told.text]) == ("error", [])
    assert (outcome.reason, outcome.open_work) == ("cancelled", [])
    own = ["pay(to='y') ok", *["helper(task='Go.') unknown"] * bool(lines)]
    assert changes(outcome) == [*own, *[f"helper / {line}" for line in changed]]
    assert outcome.tree is not None
    assert (outcome.tree.turns, outcome.tree.tool_calls) == (turns, calls)


@pytest.mark.parametrize(("end", "came"), [(DONE, "ok"), (BLOCKED, "error")], ids=["done", "it gives up"])
def test_what_a_delegate_that_ended_by_itself_has_changed_is_in_the_outcome(end: Any, came: str) -> None:
    outcome = outcome_of(over(payer(end), limits={"turns": 2}).invoke(GO))
    assert changes(outcome) == ["pay(to='y') ok", f"helper(task='Go.') {came}", "helper / pay(to='x') ok"]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_one_that_the_graph_has_lost_can_be_left_and_may_have_run(is_stopped: bool, storage: Storage) -> None:
    graph_of([hand_to("helper")], [helper(payer(ASK))], storage=storage).invoke(GO, THREAD)
    session = Session(graph_of([DONE], storage=storage), "t", on_pending="supersede")
    decision = session.stop() if is_stopped else session.run("Something else.")
    assert outcome_at(decision).status == ("error" if is_stopped else "success")
    assert [one.status for one in results(session.status().values)] == ["error"]


# It goes on where each stood.


def test_after_an_error_it_goes_on_in_the_delegate_that_failed(shop: Shop, storage: Storage) -> None:
    """The provider is down for everybody; then it is there again. Between the two a graph only hands on."""
    below = graph_of([pay("x"), DOWN, pay("y"), DONE], [shop.pay], **ONCE)
    between = graph_of([hand_to("helper"), DOWN, DONE], [helper(below)], **ONCE)
    graph = graph_of([hand_to("helper"), DOWN, DONE], [helper(between)], storage=storage, **ONCE)
    session = Session(graph, "t")
    assert (outcome_at(session.run("go")).reason, shop.paid) == ("model_error", ["x"])
    outcome = outcome_at(session.go_on())
    assert outcome.tree is not None
    assert (outcome.status, shop.paid) == ("success", ["x", "y"])
    # The delegates' replies of before count once; their results of before are taken back.
    assert outcome.tree.turns == 2 + 2 + 3
    assert [one.status for one in results(session.status().values)] == ["success"]


def test_the_model_is_not_shown_that_its_task_was_stopped(shop: Shop, storage: Storage) -> None:
    """The message that says so follows a result that is taken back, however often."""
    model = ScriptedModel([hand_to("helper"), DONE])
    graph = graph_of([pay("x"), ASK, pay("y"), DONE], [shop.pay])
    session = Session(graph_of(model, [helper(graph)], storage=storage), "t")
    session.run("go")
    for _ in range(2):
        session.stop()
        decision = session.go_on()
        assert isinstance(decision, Question)
        assert decision.path == ("helper",)
    assert (outcome_at(session.resume("this")).status, shop.paid) == ("success", ["x", "y"])
    shown = model.seen[-1].messages
    assert [one.status for one in shown if isinstance(one, ToolMessage)] == ["success"]
    assert not any("stop" in one.text for one in shown if isinstance(one, AIMessage))


# Copies.


def both_ask(shop: Shop, storage: Storage) -> Graph:
    """Pays here, then two delegates pay, one of them two levels deep, and both ask."""
    deep = graph_of(by_turn(pay("deep"), ASK, DONE), [shop.pay])
    left = graph_of(by_turn(pay("left"), hand_to("deep"), DONE), [shop.pay, helper(deep, "deep")])
    right = graph_of(by_turn(pay("right"), ASK, pay("right again"), DONE), [shop.pay])
    model = by_turn(pay("top"), hand_to("left", "right"), pay("top again"), DONE)
    below = [shop.pay, helper(left, "left"), helper(right, "right")]
    return graph_of(model, below, limits=Limits(tree_turns=50), storage=storage)


FIRST, SECOND = ["deep", "left", "right", "top"], ["right again", "top again"]


def answered(session: Session) -> None:
    outcome = to_the_end(session)
    assert outcome.tree is not None
    assert (outcome.status, outcome.tree.turns) == ("success", 4 + 3 + 3 + 4)


def test_a_fork_waits_for_the_same_and_both_end_with_each_effect_once(shop: Shop, storage: Storage) -> None:
    session = Session(both_ask(shop, storage), "t")
    session.run("go")
    copy = session.fork(thread_id="copy")
    copy.run()
    assert {wait.path for wait in copy.status().waits} == {("left", "deep"), ("right",)}
    assert sorted(shop.paid) == FIRST
    answered(copy)
    assert sorted(shop.paid) == sorted([*FIRST, *SECOND])
    # What the copy did is not in the thread that it was made of.
    answered(session)
    assert sorted(shop.paid) == sorted([*FIRST, *SECOND, *SECOND])


# Undone.


@dataclass
class World:
    """What was done, and what was taken back."""

    done: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    one_by_one: threading.Lock = field(default_factory=threading.Lock)

    def act(self) -> BaseTool:
        def act(what: str) -> str:
            """Act."""
            # Of two that end in the same moment neither is the newer one.
            with self.one_by_one:
                self.done.append(what)
                time.sleep(0.03)
            return f"did {what}"

        tool = StructuredTool.from_function(act)
        tool.metadata = {"undo": lambda args, result: self.taken.append(args["what"])}
        return tool

    def acting(self, name: str, *steps: Any, below: Any = (), **options: Any) -> BaseTool:
        return helper(graph_of(by_turn(*steps), [self.act(), *below], **options), name)


def act(what: str) -> Any:
    return call("act", what=what)


@pytest.fixture
def world() -> World:
    return World()


UNDO: Any = {"policy": {"on_failure": "undo"}}


def test_effects_of_the_whole_tree_are_undone_the_newest_first(world: World, storage: Storage) -> None:
    deep = world.acting("deep", act("deep 1"), act("deep 2"), DONE)
    left = world.acting("left", act("left 1"), hand_to("deep"), act("left 2"), DONE, below=[deep])
    right = world.acting("right", act("right 1"), act("right 2"), DONE)
    script = [act("top 1"), reply(*hand_to("left", "right")), act("top 2"), DONE]
    model, tools = ScriptedModel(script), [world.act(), left, right]
    graph = graph_of(model, tools, storage=storage, limits={"turns": 3}, **UNDO)
    report = outcome_of(graph.invoke(GO, THREAD)).undo
    assert report is not None
    assert (len(world.done), world.taken, report.standing) == (8, world.done[::-1], [])
    paths = {one.call: one.path for one in report.undone}
    assert paths["act(what='deep 2')"] == ["left", "deep"]
    assert (paths["act(what='right 1')"], paths["act(what='top 1')"]) == (["right"], [])
    # The model reads in the results of its delegates what of theirs was undone.
    graph.invoke(go_on(1), THREAD)
    _, lefts, rights, _ = [one.text for one in model.seen[-1].messages if isinstance(one, ToolMessage)]
    assert all(f"act(what='{what}')" in lefts for what in ("left 1", "left 2", "deep 1", "deep 2"))
    assert "act(what='right 2')" in rights


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_policies_of_all_hold_for_the_undo_of_what_a_delegate_has_done(
    world: World, storage: Storage
) -> None:
    script = [hand_to("child"), act("b")]
    graph = graph_of(
        script,
        [world.act(), world.acting("child", act("a"), DONE)],
        storage=storage,
        limits={"turns": 2},
        approvals={"act": lambda args: args["what"] == "a"},
        **UNDO,
    )
    session = Session(graph, "t")
    decision = session.run("go")
    assert isinstance(decision, Approval)
    assert (decision.path, world.done) == (("child",), [])
    decision = session.resume("approve")
    assert isinstance(decision, Approval)
    assert (decision.path, [one.name for one in decision.calls], world.taken) == ((), ["undo_act"], [])
    assert "child / act(what='a')" in decision.calls[0].note
    session.resume("approve")
    assert world.taken == ["b", "a"]


def test_a_fork_undoes_nothing_of_what_the_tree_had_done_before(world: World, storage: Storage) -> None:
    deep = world.acting("deep", act("deep"), DONE)
    child = world.acting("child", act("child"), hand_to("deep"), DONE, below=[deep])
    script = [act("first"), hand_to("child"), act("last"), DONE]
    session = Session(graph_of(script, [world.act(), child], storage=storage), "t")
    session.run("go")
    report = outcome_at(session.fork(thread_id="fork").undo()).undo
    assert report is not None
    assert (world.taken, {one.why for one in report.standing}) == ([], {"elsewhere"})
    # The thread that it came from undoes what is its own.
    session.undo()
    assert world.taken == ["last", "deep", "child", "first"]


def test_no_delegate_goes_on_that_does_not_know_what_was_undone(world: World, storage: Storage) -> None:
    """However often the task fails again before its model has said anything."""
    child = helper(graph_of([act("a"), DOWN, act("b"), DONE], [world.act()], **ONCE), "child")
    graph = graph_of([hand_to("child"), *[DOWN] * 3, PARTIAL], [child], storage=storage, **ONCE)
    session = Session(graph, "t")
    session.run("go")
    session.undo()
    for _ in range(3):
        decision = session.go_on()
    assert outcome_at(decision).status == "success"
    assert (world.done, world.taken) == (["a"], ["a"])
