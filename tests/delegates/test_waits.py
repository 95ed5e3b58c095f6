"""What delegates wait for: it appears at the top, all at once, and is answered in any order by its id."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from signoff import (
    Action,
    Answer,
    Approval,
    Confirmation,
    Failed,
    Finished,
    Limits,
    Paused,
    Question,
    Session,
    SetupError,
    ThreadError,
    build_graph,
    delegate,
    outcome_of,
    request_pause,
    sqlite_storage,
    standard_controls,
)
from signoff.cli.launch import to_resume
from signoff.front.database import Database
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call
from signoff.session.expiring import expire_all
from signoff.session.status import look, reading_graph
from signoff.storage.sqlite import SqliteStorage
from signoff.workers import Order, drive, post

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Which one?")
WAYS = pytest.mark.parametrize("way", ["sync", "async"])
pytestmark = pytest.mark.filterwarnings("ignore::signoff.graph.errors.ApprovalWarning")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


class Shop:
    """Tools that write down what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def pay(self) -> Callable[..., str]:
        def pay(to: str) -> str:
            """Pay."""
            self.done.append(to)
            return f"paid {to}"

        return pay


@pytest.fixture
def shop() -> Shop:
    return Shop()


def child(*steps: Any, tools: Any = (), **options: Any) -> Graph:
    return build_graph(ScriptedModel(list(steps)), list(tools), **options)


def parent(storage: SqliteStorage, steps: Any, **children: Graph) -> Graph:
    made = [delegate(name, graph, description="Works.") for name, graph in children.items()]
    return build_graph(ScriptedModel(steps), made, storage=storage)


def calls(*names: str) -> list[Any]:
    return [call(name, task="Do it.") for name in names]


def invoke(graph: Graph, given: Any, way: str) -> Any:
    return graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))


def waiting_for_all(shop: Shop, storage: SqliteStorage) -> Graph:
    """Four children, one for each kind of wait; two levels deep where one asks."""
    below = child(ASK, DONE)
    deeper = build_graph(
        ScriptedModel([call("pay", to="asks"), call("browser", task="Look."), DONE]),
        [shop.pay, delegate("browser", below, description="Looks.")],
    )
    open_issue = call("finish_task", summary="Nearly.", pending_issues=["a detail"])
    return parent(
        storage,
        [calls("asks", "approves", "confirms", "drives"), call("finish_task", summary="All.")],
        asks=deeper,
        approves=child(call("pay", to="approved"), DONE, tools=[shop.pay], approvals={"pay": True}),
        confirms=child(call("pay", to="confirmed"), open_issue, tools=[shop.pay]),
        drives=child(call("pay", to="handed over"), DONE, tools=[shop.pay], hand_over=["pay"]),
    )


ANSWERS = {"question": "this", "approval": "approve", "confirmation": "yes", "action": "paid it"}


@WAYS
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_all_that_waits_is_shown_with_its_path_and_answered_in_any_order(
    way: str, order: tuple[int, ...], shop: Shop, storage: SqliteStorage
) -> None:
    graph = waiting_for_all(shop, storage)
    found = invoke(graph, GO, way)["__interrupt__"]
    assert [(one.value["type"], one.value["path"]) for one in found] == [
        ("question", ["asks", "browser"]),
        ("approval", ["approves"]),
        ("confirmation", ["confirms"]),
        ("action", ["drives"]),
    ]
    assert len({one.id for one in found}) == 4
    assert sorted(shop.done) == ["asks", "confirmed"]
    for at, number in enumerate(order, 1):
        one = found[number]
        values = invoke(graph, Command(resume={one.id: ANSWERS[one.value["type"]]}), way)
        left = {waiting.id for waiting in values.get("__interrupt__", ())}
        assert left == {found[number].id for number in order[at:]}
    outcome = outcome_of(values)
    # "Done" with something open is no plain success of a delegate, whoever has confirmed it.
    assert outcome.status == "success"
    assert sorted(shop.done) == ["approved", "asks", "confirmed"]


@WAYS
def test_all_of_them_answered_at_once(way: str, shop: Shop, storage: SqliteStorage) -> None:
    graph = waiting_for_all(shop, storage)
    found = invoke(graph, GO, way)["__interrupt__"]
    values = invoke(graph, Command(resume={one.id: ANSWERS[one.value["type"]] for one in found}), way)
    assert outcome_of(values).status == "success"
    assert sorted(shop.done) == ["approved", "asks", "confirmed"]


def test_a_session_shows_all_and_takes_answers_by_id(shop: Shop, storage: SqliteStorage) -> None:
    graph = waiting_for_all(shop, storage)
    session = Session(graph, "t")
    first = session.run("go")
    assert isinstance(first, Question)
    assert first.path == ("asks", "browser")
    waits = session.status().waits
    assert [(type(one), one.path) for one in waits] == [
        (Question, ("asks", "browser")),
        (Approval, ("approves",)),
        (Confirmation, ("confirms",)),
        (Action, ("drives",)),
    ]
    with pytest.raises(ThreadError, match=r"waits for 4 answers; .*asks/browser: [0-9a-f]{32}"):
        session.resume("this")
    approval = waits[1]
    assert isinstance(approval, Approval)
    left = session.resume(f"approve@{approval.shown}", approval.interrupt_id)
    assert isinstance(left, Question)
    with pytest.raises(ThreadError, match="no longer waits for this answer"):
        session.resume("approve", approval.interrupt_id)
    # Whoever reads the thread without its graph sees the same.
    assert look(reading_graph(storage), "t").waits == session.status().waits
    session.resume("this", first.interrupt_id)
    session.resume("yes", waits[2].interrupt_id)
    end = session.resume("paid it")
    assert isinstance(end, Finished)
    assert sorted(shop.done) == ["approved", "asks", "confirmed"]


@pytest.mark.parametrize(
    ("above", "own", "asked"),
    [
        (None, None, False),
        ({"pay": True}, None, True),
        ({"write": ["approve", "reject"]}, {"pay": True}, ["approve", "reject"]),
        (lambda name, args: name == "pay", None, True),
        ({"delegate": False}, {"write": True}, True),
    ],
)
def test_approvals_follow_the_stricter_of_both_policies(
    above: Any, own: Any, asked: Any, shop: Shop, storage: SqliteStorage
) -> None:
    payer = build_graph(ScriptedModel([call("pay", to="x"), DONE]), [shop.pay], approvals=own)
    # The graph above knows a tool of that name as well.
    made: list[Any] = [delegate("payer", payer, description="Pays."), shop.pay]
    graph = build_graph(ScriptedModel([calls("payer"), DONE]), made, approvals=above, storage=storage)
    values = graph.invoke(GO, THREAD)
    if not asked:
        assert (outcome_of(values).status, shop.done) == ("success", ["x"])
        return
    (waits,) = values["__interrupt__"]
    assert (waits.value["path"], shop.done) == (["payer"], [])
    allowed = waits.value["review_configs"][0]["allowed_decisions"]
    assert asked is True or allowed == asked
    graph.invoke(Command(resume="approve"), THREAD)
    assert shop.done == ["x"]


def test_a_delegate_itself_may_need_approval(shop: Shop, storage: SqliteStorage) -> None:
    payer = build_graph(ScriptedModel([call("pay", to="x"), DONE]), [shop.pay])
    made = [delegate("payer", payer, description="Pays.")]
    graph = build_graph(
        ScriptedModel([calls("payer"), DONE]), made, approvals={"delegate": True}, storage=storage
    )
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert ("path" in waits.value, waits.value["action_requests"][0]["name"]) == (False, "payer")
    assert shop.done == []
    edited = {"type": "edit", "edited_action": {"name": "payer", "args": {"task": "Pay less."}}}
    values = graph.invoke(Command(resume={"decisions": [edited]}), THREAD)
    assert marks(values["messages"][2])["ran"] == {"task": "Pay less."}
    assert shop.done == ["x"]


ASKED: dict[str, tuple[Any, str]] = {
    "text": ("Which?", "Which?"),
    "a list": (["a", 1], '["a", 1]'),
    "nothing": (None, "null"),
    "a question": ({"question": "Which?"}, "Which?"),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, "Overwrite?"),
    "a path that is none": ({"question": "Which?", "path": None}, "Which?"),
    "a path in a list": ({"question": "Which?", "path": ["etc", 1]}, "Which?"),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_a_tool_asks_by_is_shown_with_its_path(name: str, storage: SqliteStorage) -> None:
    value, text = ASKED[name]

    @tool
    def ask(what: str) -> str:
        """Ask."""
        return f"it is {interrupt(value)}"

    def asking() -> Graph:
        told = [call("ask", what="x"), lambda seen: call("finish_task", summary=seen[-1].text)]
        return child(*told, tools=[ask])

    graph = parent(storage, [calls("one", "two"), DONE], one=asking(), two=asking())
    session = Session(graph, "t")
    session.run("go")
    waits = [one for one in session.status().waits if isinstance(one, Question)]
    assert [(one.path, one.text) for one in waits] == [(("one",), text), (("two",), text)]
    # Each answer arrives at the one that it was given to.
    for one in waits:
        session.resume(f"for {one.path[0]}", one.interrupt_id, by="grace")
    told = [m.text for m in session.status().values["messages"] if isinstance(m, ToolMessage)]
    assert told[:2] == [f"{name} is done (asserted). it is for {name}" for name in ("one", "two")]


def test_a_policy_may_name_the_tools_of_delegates(shop: Shop, storage: SqliteStorage) -> None:
    below = child(call("pay", to="x"), tools=[shop.pay])
    middle = build_graph(ScriptedModel(calls("below")), [delegate("below", below, description="Works.")])
    made = [delegate("middle", middle, description="Works.")]
    graph = build_graph(ScriptedModel([calls("middle")]), made, storage=storage, approvals={"pay": True})
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert (waits.value["type"], waits.value["path"]) == ("approval", ["middle", "below"])
    with pytest.raises(
        SetupError, match=r"names .'spend'., which is neither a tool of this graph or of a delegate nor"
    ):
        build_graph(ScriptedModel([]), made, approvals={"spend": True})


def test_without_a_checkpointer_a_delegate_that_asks_fails_honestly() -> None:
    asking = delegate("asks", child(ASK), description="Asks.")
    finish = call("finish_task", summary="x", outcome="blocked")
    graph = build_graph(ScriptedModel([calls("asks"), finish]), [asking])
    values = graph.invoke(GO)
    assert values["messages"][2].text.startswith(
        "asks did not succeed (error: It needs a person: The model asks: Which one?"
    )


@WAYS
def test_what_is_left_when_a_new_message_comes_is_told_as_it_is(
    way: str, shop: Shop, storage: SqliteStorage
) -> None:
    asks = child(call("pay", to="x"), ASK, tools=[shop.pay])
    graph = parent(storage, [calls("ends", "asks"), DONE], ends=child(DONE), asks=asks)
    invoke(graph, GO, way)
    values = invoke(graph, {"messages": [("user", "Something else.")]}, way)
    ended, left = [found for found in values["messages"] if isinstance(found, ToolMessage)][:2]
    assert ended.text == "ends is done (asserted). Done."
    assert left.text.startswith(
        "asks was begun, and was ended before it had finished.\nWhat it may have changed: "
    )
    assert "pay(to='x') (ok)" in left.text
    assert (left.status, marks(left)["delegate"]["status"]) == ("error", "left")
    assert marks(left)["delegate"]["used"]["turns"] == 2
    assert (outcome_of(values).status, shop.done) == ("success", ["x"])


def test_a_stop_ends_all_below(shop: Shop, storage: SqliteStorage) -> None:
    graph = parent(
        storage, [calls("asks")], asks=child(call("pay", to="x"), ASK, call("pay", to="y"), tools=[shop.pay])
    )
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Question)
    ended = session.stop()
    assert isinstance(ended, Failed)
    assert ended.outcome.reason == "cancelled"
    assert ended.outcome.tree is not None
    assert ended.outcome.tree.turns == 3
    told = [turn for turn in session.status().values["messages"] if isinstance(turn, ToolMessage)]
    assert "was ended before it had finished" in told[0].text
    assert shop.done == ["x"]


@WAYS
def test_a_pause_drains_each_at_its_step_and_all_go_on(way: str, storage: SqliteStorage) -> None:
    sessions: list[Session] = []
    done: list[str] = []

    @tool
    def work(name: str) -> str:
        """Work."""
        done.append(name)
        sessions[0].pause()
        return name

    def worker(name: str) -> Graph:
        return build_graph(
            ScriptedModel([call("work", name=f"{name}{n}") for n in range(2)] + [DONE]), [work]
        )

    graph = parent(storage, [calls("a", "b"), DONE], a=worker("a"), b=worker("b"))
    sessions.append(Session(graph, "t"))

    def run(command: Any = None) -> Any:
        return sessions[0].run(command) if way == "sync" else asyncio.run(sessions[0].arun(command))

    decision = run("go")
    assert isinstance(decision, Paused)
    for _ in range(8):
        if isinstance(decision, Finished):
            break
        decision = run()
    assert isinstance(decision, Finished)
    assert sorted(done) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize("reading", [False, True])
def test_the_question_of_a_delegate_expires_and_the_others_wait_on(
    reading: bool, storage: SqliteStorage
) -> None:
    ask = call("ask_user", question="Which?", default_answer="that", deadline_seconds=60)

    def asking(*steps: Any) -> Graph:
        return child(*steps, control_tools=standard_controls(deadlines=True))

    below = delegate("deep", asking(ask, DONE), description="Works.")
    steps = [calls("early", "late", "between"), DONE]
    waits = {"early": asking(ask, DONE), "late": child(ASK, DONE)}
    between = child(call("deep", task="Go."), DONE, tools=[below])
    graph = parent(storage, steps, **waits, between=between)
    session = Session(graph, "t")
    first = session.run("go")
    assert isinstance(first, Question)
    used = reading_graph(storage, "t") if reading else graph
    assert expire_all(used, "t") == []
    found = expire_all(used, "t", now=9e12)
    assert [(one.path, one.answer) for one in found] == [(("early",), "that"), (("between", "deep"), "that")]
    assert expire_all(used, "t", now=9e12) == []
    with pytest.raises(ThreadError, match="was stopped in the middle"):
        session.resume("too late", first.interrupt_id)
    left = session.run()
    assert isinstance(left, Question)
    assert [one.path for one in session.status().waits] == [("late",)]
    assert isinstance(session.resume("this"), Finished)


def test_a_delegate_that_is_gone_is_said_and_nothing_is_lost(shop: Shop, storage: SqliteStorage) -> None:
    steps = [calls("asks"), DONE]
    asks = child(call("pay", to="x"), ASK, DONE, tools=[shop.pay])
    (waits,) = parent(storage, steps, asks=asks).invoke(GO, THREAD)["__interrupt__"]
    without = build_graph(ScriptedModel([DONE]), [shop.pay], storage=storage)
    with pytest.raises(ThreadError, match="'asks' is at work in this thread, and this graph has none"):
        without.invoke(Command(resume={waits.id: "this"}), THREAD)
    again = parent(storage, [DONE], asks=child(DONE, tools=[shop.pay]))
    assert outcome_of(again.invoke(Command(resume={waits.id: "this"}), THREAD)).status == "success"
    assert shop.done == ["x"]


def test_an_answer_goes_to_the_thread_by_a_session_that_names_it(storage: SqliteStorage) -> None:
    graph = parent(storage, [calls("a", "b"), DONE], a=child(ASK, DONE), b=child(ASK, DONE))
    session = Session(graph, "t")
    session.run("go")
    second = session.status().waits[1]
    left = session.run(Answer("this", second.interrupt_id, by="ann"))
    assert isinstance(left, Question)
    assert left.path == ("a",)
    assert isinstance(session.resume("that"), Finished)


def endless() -> Graph:
    """A graph that delegates to itself as deep as it may."""
    made: list[Graph] = []

    def script(messages: Any) -> Any:
        if len(messages) > 3:
            return call("finish_task", summary="It got no deeper.", outcome="blocked")
        return call("again", task="Deeper.")

    again = delegate("again", lambda: made[0], description="Goes deeper.")
    made.append(build_graph(ScriptedModel(script), [again]))
    return made[0]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_graph_that_delegates_to_itself_is_bounded_by_depth(depth: int, storage: SqliteStorage) -> None:
    graph = build_graph(
        ScriptedModel([calls("endless"), call("finish_task", summary="x", outcome="blocked")]),
        [delegate("endless", endless(), description="Recursive.")],
        limits=Limits(depth=depth),
        storage=storage,
    )
    values = graph.invoke(GO, THREAD)
    outcome = outcome_of(values)
    assert outcome.claim == "blocked"
    told = next(found for found in values["messages"] if isinstance(found, ToolMessage))
    why = "limit: Limit of depth reached" if depth == 1 else "it claims blocked"
    assert told.text.startswith(f"endless did not succeed ({why}")
    assert "limit: Limit of depth reached" in told.text
    assert outcome.tree is not None
    assert outcome.tree.turns == {1: 2 + 1, 3: 2 + 2 * 2 + 1}[depth]


def test_a_policy_cannot_name_a_tool_that_is_not_known_yet() -> None:
    """Its name could be misspelt: it would switch an approval off."""

    @tool
    def spend(to: str) -> str:
        """Spend."""
        return to

    def built(approvals: Any, below: Any) -> Graph:
        made = delegate("payer", below, description="Pays.")
        return build_graph(ScriptedModel([calls("payer"), DONE]), [made], approvals=approvals)

    def payer() -> Graph:
        return build_graph(ScriptedModel([call("spend", to="x"), DONE]), [spend])

    def middle() -> Graph:
        return build_graph(ScriptedModel([]), [delegate("deep", payer, description="Pays.")])

    why = r"names .'spend'.*The graph of 'payer', or one below it, is made by a function.*: write the kind"
    for below in (payer, middle()):
        with pytest.raises(SetupError, match=why):
            built({"spend": True}, below)
    for allowed in ({"write": True}, {"payer": True}, lambda name, args: name == "spend"):
        assert built(allowed, payer).name
    assert built({"spend": True}, payer()).name


@WAYS
@pytest.mark.parametrize("approvals", [{"write": True}, lambda name, args: name == "spend"])
def test_a_kind_or_a_function_reaches_a_graph_that_a_function_makes(
    approvals: Any, way: str, storage: SqliteStorage
) -> None:
    @tool
    def spend(to: str) -> str:
        """Spend."""
        return to

    below = build_graph(ScriptedModel([call("spend", to="x"), DONE]), [spend])
    made = delegate("payer", lambda: below, description="Pays.")
    graph = build_graph(ScriptedModel([calls("payer"), DONE]), [made], approvals=approvals, storage=storage)
    (wait,) = (graph.invoke(GO, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(GO, THREAD)))[
        "__interrupt__"
    ]
    assert (wait.value["path"], wait.value["action_requests"][0]["name"]) == (["payer"], "spend")


def test_children_are_bounded_with_a_reason_of_its_own(storage: SqliteStorage) -> None:
    graph = build_graph(
        ScriptedModel([calls("a", "a"), calls("a")]),
        [delegate("a", child(DONE, DONE), description="Works.")],
        limits=Limits(children=2),
        storage=storage,
    )
    outcome = outcome_of(graph.invoke(GO, THREAD))
    assert (outcome.status, outcome.reason) == ("limit", "children")
    assert outcome.tree is not None
    assert outcome.tree.delegates == 2


def test_the_command_line_answers_by_id_where_several_wait(storage: SqliteStorage, tmp_path: Path) -> None:
    graph = parent(
        storage,
        [calls("a", "b"), DONE],
        a=child(ASK, DONE),
        b=child(call("think", thought="?"), ASK, DONE),
    )
    Session(graph, "t").run("go")
    database, status = Database(str(tmp_path / "threads.sqlite"), True), look(graph, "t")
    with pytest.raises(ThreadError, match=r"waits for 2 answers; use --to .*a: --to \w{8}, b: --to \w{8}"):
        to_resume("this", database)(status)
    second = status.waits[1].interrupt_id
    assert to_resume("this", database, second[:8])(status).move == Answer("this", second)
    with pytest.raises(ThreadError, match="use --to to say"):
        to_resume("this", database, "nothing")(status)
    # Without an answer the first one is put to whoever is there.
    assert to_resume(None, database)(status).waiting == status.waiting


def test_the_command_line_finds_the_approval_that_an_answer_names(
    shop: Shop, storage: SqliteStorage, tmp_path: Path
) -> None:
    pays = [child(call("pay", to=to), DONE, tools=[shop.pay], approvals={"pay": True}) for to in "xy"]
    Session(parent(storage, [calls("a", "b"), DONE], a=pays[0], b=pays[1]), "t").run("go")
    status = look(reading_graph(storage), "t")
    second = status.waits[1]
    assert isinstance(second, Approval)
    plan = to_resume(f"approve@{second.shown}", Database(str(tmp_path / "threads.sqlite"), True))
    assert plan(status).move == Answer(f"approve@{second.shown}", second.interrupt_id)


def test_a_worker_takes_answers_in_any_order(storage: SqliteStorage) -> None:
    def graph(*steps: Any) -> Graph:
        # Of another process each time.
        return parent(storage, list(steps), a=child(*script), b=child(*script))

    script: list[Any] = [ASK]
    Session(graph(calls("a", "b")), "t").run("go")
    first, second = look(reading_graph(storage), "t").waits
    script = [DONE]
    post(storage.store, "t", Order("one", Answer("this", second.interrupt_id)))
    driven = drive(graph(), "t")
    assert [one.interrupt_id for one in look(reading_graph(storage), "t").waits] == [first.interrupt_id]
    assert isinstance(driven.decision, Question)
    post(storage.store, "t", Order("two", Answer("that", first.interrupt_id)))
    post(storage.store, "t", Order("late", Answer("again", second.interrupt_id)))
    assert isinstance(drive(graph(DONE), "t").decision, Finished)


@WAYS
@pytest.mark.parametrize("beside", [1, 2])
def test_a_pause_that_another_process_asks_for_reaches_all_below(
    beside: int, way: str, storage: SqliteStorage
) -> None:
    done: list[str] = []
    together = threading.Barrier(beside)

    @tool
    def work(name: str) -> str:
        """Work."""
        done.append(name)
        if name.endswith("0"):
            together.wait(20)
        request_pause(storage.store, "t")
        return name

    def worker(name: str) -> Graph:
        return build_graph(
            ScriptedModel([call("work", name=f"{name}{n}") for n in range(2)] + [DONE]), [work]
        )

    names = "ab"[:beside]
    graph = parent(storage, [calls(*names), DONE], **{name: worker(name) for name in names})
    session = Session(graph, "t")

    def run(command: Any = None) -> Any:
        return session.run(command) if way == "sync" else asyncio.run(session.arun(command))

    decision = run("go")
    assert isinstance(decision, Paused)
    assert decision.by == "request"
    # Each has ended its step, and begun no other.
    assert sorted(done) == [f"{name}0" for name in names]
    for _ in range(4):
        decision = run() if isinstance(decision, Paused) else decision
    assert isinstance(decision, Finished)
    assert sorted(done) == [f"{name}{n}" for name in names for n in range(2)]


def test_an_answer_that_comes_while_the_thread_is_stopped_is_kept(storage: SqliteStorage) -> None:
    ask = call("ask_user", question="Which?", default_answer="that", deadline_seconds=60)
    early = child(ask, DONE, control_tools=standard_controls(deadlines=True))
    graph = parent(storage, [calls("early", "late"), DONE], early=early, late=child(ASK, DONE))
    session = Session(graph, "t")
    session.run("go")
    late = session.status().waits[1]
    post(storage.store, "t", Order("one", Answer("this", late.interrupt_id)))
    # Until it has run the thread waits for nothing.
    expire_all(graph, "t", now=9e12)
    assert isinstance(drive(graph, "t").decision, Finished)
