"""What surprised the first users of a thread: each of these surprises is gone, by every way in."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import (
    Answer,
    Approval,
    BadAnswer,
    Ended,
    Graph,
    Question,
    Session,
    ThreadBusy,
    ThreadError,
    Waiting,
    build_graph,
    delegate,
    go_on,
    outcome_of,
    sqlite_storage,
    stop,
)
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.ways import GRAPH_WAYS, SESSION_WAYS, WAYS

# A delegate has no storage of its own: it waits in that of the thread.
pytestmark = pytest.mark.filterwarnings("ignore::signoff.graph.errors.ApprovalWarning")
CONFIG: Any = {"configurable": {"thread_id": "t"}}
TASK: Any = {"messages": [("user", "Do it.")]}
DONE = call("finish_task", summary="Done.")
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "t.sqlite") as opened:
        yield opened


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


class Till:
    """It pays, and knows what was paid."""

    def __init__(self) -> None:
        self.paid = list[int]()

    def pay(self, amount: int, currency: str = "EUR") -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount} {currency}"


def looks(number: int) -> list[Any]:
    return [call("look", place=str(at)) for at in range(number)]


def limited(storage: SqliteStorage) -> Graph:
    graph = build_graph(ScriptedModel([*looks(9)]), [look], storage=storage, limits={"turns": 2})
    graph.invoke(TASK, CONFIG)
    return graph


def failed(storage: SqliteStorage) -> Graph:
    graph = build_graph(ScriptedModel([ValueError("quota"), DONE]), [look], storage=storage)
    graph.invoke(TASK, CONFIG)
    return graph


def succeeded(storage: SqliteStorage) -> Graph:
    graph = build_graph(ScriptedModel([DONE, DONE]), [look], storage=storage)
    graph.invoke(TASK, CONFIG)
    return graph


def stopped(storage: SqliteStorage) -> Graph:
    graph = build_graph(ScriptedModel([call("ask_user", question="Which?"), DONE]), [look], storage=storage)
    graph.invoke(TASK, CONFIG)
    graph.invoke(stop(), CONFIG)
    return graph


# Iterating over the events of a thread that has ended gave it more turns.

ENDED: dict[str, Callable[[SqliteStorage], Graph]] = {
    "at a limit": limited,
    "by an error": failed,
    "in success": succeeded,
    "by a person": stopped,
}


@pytest.mark.parametrize("way", SESSION_WAYS)
@pytest.mark.parametrize("how", ENDED)
def test_to_look_at_a_thread_that_has_ended_grants_nothing(
    storage: SqliteStorage, how: str, way: str
) -> None:
    graph = ENDED[how](storage)
    before = graph.get_state(CONFIG)
    SESSION_WAYS[way](graph, None, CONFIG)
    assert graph.get_state(CONFIG).config == before.config
    decision = Session(graph, "t").step()
    assert isinstance(decision, Ended)
    assert decision.outcome == outcome_of(before)


# Three clicks on "go on" granted three times.


@every_way
def test_three_clicks_grant_once(storage: SqliteStorage, way: str) -> None:
    graph = limited(storage)
    for _ in range(3):
        outcome = outcome_of(WAYS[way](graph, go_on(turns=1, id="a click"), CONFIG))
        assert (outcome.reason, outcome.turns) == ("turns", 3)
    assert outcome_of(WAYS[way](graph, go_on(turns=1, id="another"), CONFIG)).turns == 4


def test_three_clicks_at_the_same_time_grant_once(storage: SqliteStorage) -> None:
    graph, begin, refused = limited(storage), threading.Barrier(3), list[ThreadBusy]()

    def click() -> None:
        begin.wait(20)
        try:
            graph.invoke(go_on(turns=1, id="a click"), CONFIG)
        except ThreadBusy as error:
            refused.append(error)

    clicks = [threading.Thread(target=click, daemon=True) for _ in range(3)]
    for each in clicks:
        each.start()
    for each in clicks:
        each.join(30)
    assert outcome_of(graph.get_state(CONFIG)).turns == 3
    assert len(refused) < 3


def test_three_clicks_by_three_sessions_grant_once(storage: SqliteStorage) -> None:
    graph = limited(storage)
    for _ in range(3):
        Session(graph, "t").go_on(1, id="a click")
    assert outcome_of(graph.get_state(CONFIG)).turns == 3


def test_after_an_error_three_clicks_try_once(storage: SqliteStorage) -> None:
    script: list[Any] = [ValueError("quota"), ValueError("again"), DONE]
    graph = build_graph(ScriptedModel(script), storage=storage)
    graph.invoke(TASK, CONFIG)
    for _ in range(3):
        assert outcome_of(graph.invoke(go_on(id="a click"), CONFIG)).reason == "model_error"
    assert outcome_of(graph.invoke(go_on(id="another"), CONFIG)).status == "success"


# The message "yes" rejected what it meant to approve.

BARE = ["yes", "Yes.", " ok ", "approve", "OK!"]
APPROVED = {"a call": call("pay", amount=5), "a finish": call("finish_task", summary="x")}


def waiting(storage: SqliteStorage, what: str, till: Till) -> Graph:
    rule = "pay" if what == "a call" else "finish_task"
    graph = build_graph(
        ScriptedModel([APPROVED[what], DONE]), [till.pay], approvals={rule: True}, storage=storage
    )
    graph.invoke(TASK, CONFIG)
    return graph


@every_way
@pytest.mark.parametrize("what", APPROVED)
def test_a_bare_yes_changes_nothing_and_says_how_to_answer(
    storage: SqliteStorage, what: str, way: str
) -> None:
    till = Till()
    graph = waiting(storage, what, till)
    before = graph.get_state(CONFIG)
    for word in BARE:
        given: Any = word if way in SESSION_WAYS else {"messages": [("user", word)]}
        WAYS[way](graph, given, CONFIG)
        after = graph.get_state(CONFIG)
        assert after.config == before.config
        assert [wait.id for wait in after.interrupts] == [wait.id for wait in before.interrupts]
    decision = Session(graph, "t").run("yes")
    assert isinstance(decision, Approval)
    assert "by its id" in decision.problem
    assert till.paid == []
    graph.invoke(Command(resume={decision.interrupt_id: "approve"}), CONFIG)
    assert (till.paid, outcome_of(graph.get_state(CONFIG)).status) == (
        [5] if what == "a call" else [],
        "success",
    )


@every_way
def test_what_a_message_says_is_wrong_is_a_rejection(storage: SqliteStorage, way: str) -> None:
    till = Till()
    graph = waiting(storage, "a call", till)
    objection = "Yes, but not today."
    WAYS[way](graph, objection if way in SESSION_WAYS else {"messages": [("user", objection)]}, CONFIG)
    state = graph.get_state(CONFIG)
    assert (till.paid, state.interrupts, outcome_of(state).status) == ([], (), "success")
    assert any(objection in message.text for message in state.values["messages"] if message.type == "tool")


# One message to two delegates that wait ended both.


def team(storage: SqliteStorage, till: Till) -> Graph:
    asker = build_graph(ScriptedModel([call("ask_user", question="Which year?"), DONE]))
    payer = build_graph(ScriptedModel([call("pay", amount=5), DONE]), [till.pay], approvals={"pay": True})
    members = [delegate("asker", asker, description="Asks."), delegate("payer", payer, description="Pays.")]
    both: list[Any] = [call("asker", task="ask"), call("payer", task="pay")]
    graph = build_graph(ScriptedModel([both, DONE]), members, storage=storage)
    graph.invoke(TASK, CONFIG)
    return graph


@every_way
@pytest.mark.parametrize("text", ["2024", "yes", "No, stop both."])
def test_one_message_to_two_waits_answers_none(storage: SqliteStorage, text: str, way: str) -> None:
    till = Till()
    graph = team(storage, till)
    before = graph.get_state(CONFIG)
    assert len(before.interrupts) == 2
    WAYS[way](graph, text if way in SESSION_WAYS else {"messages": [("user", text)]}, CONFIG)
    after = graph.get_state(CONFIG)
    assert [wait.id for wait in after.interrupts] == [wait.id for wait in before.interrupts]
    assert after.values["messages"] == before.values["messages"]
    decision = Session(graph, "t").run(text)
    assert isinstance(decision, Waiting)
    assert "by its id" in decision.problem
    for wait in Session(graph, "t").status().waits:
        Session(graph, "t").resume("2024" if isinstance(wait, Question) else "approve", wait.interrupt_id)
    assert (till.paid, outcome_of(graph.get_state(CONFIG)).status) == ([5], "success")


# A mistyped edit used the approval up.


def edit(**args: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": args}}]}


MISTYPED: dict[str, Any] = {
    "a value of another type": edit(amount="five"),
    "a slip in an optional name": edit(amount=5, curency="USD"),
    "a name that is missing": edit(),
    "no arguments": {"decisions": [{"type": "edit", "edited_action": {"name": "pay"}}]},
    "another tool": {
        "decisions": [{"type": "edit", "edited_action": {"name": "fly", "args": {"amount": 1}}}]
    },
    "a misspelt decision": {"decisions": [{"type": "aprove"}]},
    "a decision too many": {"decisions": [{"type": "approve"}, {"type": "approve"}]},
    "no decision": {"decisions": []},
    "a word": "perhaps",
}


@every_way
@pytest.mark.parametrize("mistake", MISTYPED)
def test_a_mistyped_answer_leaves_the_approval(storage: SqliteStorage, mistake: str, way: str) -> None:
    till = Till()
    graph = waiting(storage, "a call", till)
    before = graph.get_state(CONFIG)
    answer = MISTYPED[mistake]
    (wait,) = before.interrupts
    commands: list[Any] = [Command(resume=answer), Command(resume={wait.id: answer})]
    for given in [*commands, Answer(answer), Answer(answer, wait.id)] if way in SESSION_WAYS else commands:
        with pytest.raises(BadAnswer):
            WAYS[way](graph, given, CONFIG)
        after = graph.get_state(CONFIG)
        assert (after.config, after.interrupts, till.paid) == (before.config, before.interrupts, [])
    graph.invoke(Command(resume=edit(amount=6)), CONFIG)
    assert (till.paid, outcome_of(graph.get_state(CONFIG)).status) == ([6], "success")


@pytest.mark.parametrize("way", GRAPH_WAYS)
def test_a_mistyped_edit_of_a_delegates_call_leaves_its_approval(storage: SqliteStorage, way: str) -> None:
    till = Till()
    graph = team(storage, till)
    question, approval = graph.get_state(CONFIG).interrupts
    with pytest.raises(ThreadError, match="amount"):
        GRAPH_WAYS[way](graph, Command(resume={approval.id: edit(amount="five")}), CONFIG)
    assert [wait.id for wait in graph.get_state(CONFIG).interrupts] == [question.id, approval.id]
    graph.invoke(Command(resume={approval.id: edit(amount=6), question.id: "2024"}), CONFIG)
    assert (till.paid, outcome_of(graph.get_state(CONFIG)).status) == ([6], "success")
