"""A tree that has ended: what all below have used and changed is told, it goes on where each stood, is copied
with all that it had done, and undone whole."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from signoff import (
    Approval,
    Graph,
    Limits,
    Outcome,
    Question,
    Session,
    Storage,
    go_on,
    outcome_of,
    undo,
)
from signoff.machine import Event
from signoff.models import ScriptedModel, call, reply
from signoff.workers import Order, drive, post
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
    outcome_at,
    results,
)

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


@dataclass
class Left:
    """What stands below the top when its task is ended, what that may have changed, and the turns and calls
    of the whole tree."""

    below: Callable[[], Graph]
    changed: list[str]
    turns: int
    calls: int


LEFT = {
    "one that asks": Left(lambda: payer(ASK), ["pay(to='x') ok"], 2 + 2, 2 + 1),
    "three levels": Left(
        lambda: over(over(payer(ASK))),
        [
            *("pay(to='y') ok", "helper(task='Go.') unknown", "helper / pay(to='y') ok"),
            *("helper / helper(task='Go.') unknown", "helper / helper / pay(to='x') ok"),
        ],
        2 + 2 + 2 + 2,
        2 + 2 + 2 + 1,
    ),
    "an action that was handed out may be done": Left(
        lambda: payer(approvals={"pay": "hand_over"}), ["pay(to='x') unknown"], 2 + 1, 2 + 1
    ),
    "one that may change nothing": Left(lambda: graph_of([ASK]), [], 2 + 1, 2),
}


@pytest.mark.parametrize("name", LEFT)
def test_all_that_was_used_and_changed_below_is_told_of_a_tree_that_is_ended(
    name: str, storage: Storage
) -> None:
    case = LEFT[name]
    lines = [f"{call} ({came})" for call, came in (line.rsplit(" ", 1) for line in case.changed)]
    session = Session(over(case.below(), storage=storage), "t")
    session.run("go")
    outcome = outcome_at(session.stop())
    # Also where a new task takes its place.
    other = Session(over(case.below(), storage=storage), "other", on_pending="supersede")
    other.run("go")
    assert outcome_at(other.run("Something else.")).status == "success"
    for each in (session, other):
        (told,) = results(each.status().values)
        assert (told.status, [line for line in lines if line not in told.text]) == ("error", [])
    assert (outcome.reason, outcome.open_work) == ("cancelled", [])
    own = ["pay(to='y') ok", *["helper(task='Go.') unknown"] * bool(lines)]
    assert changes(outcome) == [*own, *[f"helper / {line}" for line in case.changed]]
    assert outcome.tree is not None
    assert (outcome.tree.turns, outcome.tree.tool_calls) == (case.turns, case.calls)


BY_ITSELF: dict[str, tuple[Callable[[], Graph], list[str]]] = {
    "one that is done": (lambda: payer(DONE), ["helper(task='Go.') ok", "helper / pay(to='x') ok"]),
    "one that gives up": (lambda: payer(BLOCKED), ["helper(task='Go.') error", "helper / pay(to='x') ok"]),
    "one whose delegate gives up": (
        lambda: over(payer(BLOCKED), limits={"turns": 2}),
        [
            *("helper(task='Go.') error", "helper / pay(to='y') ok"),
            *("helper / helper(task='Go.') error", "helper / helper / pay(to='x') ok"),
        ],
    ),
    "the last eight": (
        lambda: graph_of([[pay(str(n)) for n in range(9)], BLOCKED], [Shop().pay]),
        [f"helper / pay(to='{n}') ok" for n in range(1, 9)],
    ),
    "one that may change nothing": (lambda: graph_of([BLOCKED]), []),
}


@pytest.mark.parametrize("name", BY_ITSELF)
def test_what_a_delegate_that_ended_by_itself_has_changed_is_in_the_outcome(name: str) -> None:
    below, expected = BY_ITSELF[name]
    outcome = outcome_of(over(below(), limits={"turns": 2}).invoke(GO))
    assert changes(outcome) == ["pay(to='y') ok", *expected][-8:]


def test_one_that_had_ended_when_the_tree_was_stopped_has_told_all(storage: Storage) -> None:
    """Of two delegates one has given up, and the other waits: its result is in no history yet."""
    team = [helper(over(payer(BLOCKED), limits={"turns": 2}), "over"), helper(payer(ASK), "asks")]
    session = Session(graph_of([hand_to("over", "asks"), DONE], team, storage=storage), "t")
    session.run("go")
    assert changes(outcome_at(session.stop())) == [
        *("over(task='Go.') error", "over / pay(to='y') ok", "over / helper(task='Go.') error"),
        *("over / helper / pay(to='x') ok", "asks(task='Go.') unknown", "asks / pay(to='x') ok"),
    ]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_one_that_the_graph_has_lost_can_be_left_and_may_have_run(is_stopped: bool, storage: Storage) -> None:
    graph_of([hand_to("helper")], [helper(payer(ASK))], storage=storage).invoke(GO, THREAD)
    session = Session(graph_of([DONE], storage=storage), "t", on_pending="supersede")
    decision = session.stop() if is_stopped else session.run("Something else.")
    assert outcome_at(decision).status == ("error" if is_stopped else "success")
    assert [one.status for one in results(session.status().values)] == ["error"]


# It goes on where each stood.


def team(shop: Shop, storage: Storage, child: list[Any], top: list[Any], deep: int = 1) -> Graph:
    """A graph above a delegate that pays, with graphs between them that only hand on."""
    graph = graph_of(child, [shop.pay], **ONCE)
    for _ in range(deep - 1):
        graph = graph_of([hand_to("helper"), *[DOWN] * (DOWN in top), DONE], [helper(graph)], **ONCE)
    return graph_of(top, [helper(graph)], storage=storage, **ONCE)


@pytest.mark.parametrize(("deep", "by_worker"), [(1, False), (3, False), (2, True)])
def test_after_an_error_it_goes_on_in_the_delegate_that_failed(
    by_worker: bool, deep: int, shop: Shop, storage: Storage
) -> None:
    """The provider is down for everybody; then it is there again."""
    graph = team(shop, storage, [pay("x"), DOWN, pay("y"), DONE], [hand_to("helper"), DOWN, DONE], deep)
    session = Session(graph, "t")
    assert (outcome_at(session.run("go")).reason, shop.paid) == ("model_error", ["x"])
    if by_worker:
        post(storage.store, "t", Order("again", go_on(id="again"), session.status().task.id))
        drive(graph, "t")
    else:
        session.go_on()
    status = session.status()
    assert status.outcome is not None
    assert status.outcome.tree is not None
    assert (status.outcome.status, shop.paid) == ("success", ["x", "y"])
    # The delegate's replies of before count once; its result of before is taken back.
    assert status.outcome.tree.turns == 2 + 2 * (deep - 1) + 3
    assert [one.status for one in results(status.values)] == ["success"]


def test_a_delegate_at_its_own_limit_has_more_turns_as_its_caller_has(shop: Shop, storage: Storage) -> None:
    """It was answered beyond its limit, and counts from there."""
    below = graph_of([ASK, *[pay(f"{n}") for n in range(9)]], [shop.pay], limits={"turns": 1})
    graph = graph_of([hand_to("helper"), BLOCKED], [helper(below)], limits={"turns": 1}, storage=storage)
    session = Session(graph, "t")
    session.run("go")
    assert outcome_at(session.resume("this")).reason == "turns"
    assert shop.paid == ["0"]
    outcome = outcome_at(session.go_on(3))
    assert (outcome.status, shop.paid) == ("success", ["0", "1", "2", "3"])


@pytest.mark.parametrize(("below", "stops"), [(ASK, 2), (DOWN, 0)], ids=["stopped twice", "an error"])
def test_the_model_is_not_shown_how_its_task_had_ended(
    below: Any, stops: int, shop: Shop, storage: Storage
) -> None:
    """The message that says so follows a result that is taken back."""
    model = ScriptedModel([hand_to("helper"), *[DOWN] * (not stops), DONE])
    graph = graph_of([pay("x"), below, pay("y"), DONE], [shop.pay], **ONCE)
    session = Session(graph_of(model, [helper(graph)], storage=storage, **ONCE), "t")
    decision = session.run("go")
    for _ in range(stops):
        session.stop()
        decision = session.go_on()
        assert isinstance(decision, Question)
        assert decision.path == ("helper",)
    decision = session.resume("this") if stops else session.go_on()
    assert (outcome_at(decision).status, shop.paid) == ("success", ["x", "y"])
    shown = model.seen[-1].messages
    assert [one.status for one in shown if isinstance(one, ToolMessage)] == ["success"]
    assert not any("down" in one.text or "stop" in one.text for one in shown if isinstance(one, AIMessage))


def test_what_the_model_has_read_is_not_taken_back(shop: Shop, storage: Storage) -> None:
    top = [hand_to("helper"), call("think", thought="It failed."), DOWN, hand_to("helper"), DONE]
    graph = team(shop, storage, [pay("x"), DOWN, DONE], top)
    graph.invoke(GO, THREAD)
    values = graph.invoke(go_on(), THREAD)
    assert [one.status for one in results(values)] == ["error", "success"]


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
    while waits := session.status().waits:
        session.resume("yes", waits[0].interrupt_id)
    outcome = session.status().outcome
    assert outcome is not None
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


def test_a_fork_of_an_earlier_point_has_what_was_called_by_then(shop: Shop, storage: Storage) -> None:
    session = Session(both_ask(shop, storage), "t")
    session.run("go")
    answered(session)
    for at, again in ((2, ["top again"]), (1, ["deep", "left", "right", *SECOND])):
        shop.paid.clear()
        copy = session.fork(at=at, thread_id=f"copy {at}")
        copy.run()
        answered(copy)
        assert sorted(shop.paid) == sorted(again)


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


def test_a_delegate_that_fails_alone_is_not_undone(world: World, storage: Storage) -> None:
    child = world.acting("child", act("a"), act("b"), DONE, limits={"turns": 2}, **UNDO)
    graph = graph_of([hand_to("child"), PARTIAL], [child], storage=storage, **UNDO)
    assert outcome_of(graph.invoke(GO, THREAD)).status == "success"
    assert (world.done, world.taken) == (["a", "b"], [])


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


def test_what_a_delegate_has_done_that_the_graph_has_lost_stands(world: World, storage: Storage) -> None:
    child = world.acting("child", act("a"), DONE)
    graph_of([hand_to("child"), act("b"), DONE], [world.act(), child], storage=storage).invoke(GO, THREAD)
    report = outcome_of(graph_of([], [world.act()], storage=storage).invoke(undo(), THREAD)).undo
    assert report is not None
    standing = [(one.call, one.why) for one in report.standing]
    assert (standing, world.taken) == ([("child(task='Go.')", "another_graph")], ["b"])


FORKS: dict[str, tuple[int | str | None, list[str]]] = {
    # Where the fork begins, and what it does itself and can undo.
    "as it ended": (None, []),
    "while its last effect was open": ("open", ["new"]),
    "before what came after it": (2, ["new"]),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_fork_undoes_nothing_of_what_the_tree_had_done_before(
    name: str, world: World, storage: Storage
) -> None:
    at, own = FORKS[name]
    deep = world.acting("deep", act("deep"), DONE)
    child = world.acting("child", act("child"), hand_to("deep"), DONE, below=[deep])
    script = [act("first"), hand_to("child"), act("last"), DONE]
    session = Session(graph_of(script, [world.act(), child], storage=storage), "t")
    session.run("go")
    if at == "open":
        steps = [step for turn in session.history() for step in turn.steps]
        at = [step.checkpoint_id for step in steps if step.event == Event.WORK][-1]
    session.fork(at, "fork")
    fork = Session(graph_of([act("new"), DONE], [world.act(), child], storage=storage), "fork")
    if own:
        fork.run()
    report = outcome_at(fork.undo()).undo
    assert report is not None
    assert (world.taken, {one.why for one in report.standing}) == (own, {"elsewhere"})
    # The thread that it came from undoes what is its own.
    world.taken.clear()
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
