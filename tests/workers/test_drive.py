"""`drive`: takes a thread as far as it goes, however often it is called; what was posted comes once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from signoff import Answer, Limits, Question, Session, SetupError, ThreadBusy, build_graph, go_on
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.workers import Driven, Order, drive, post
from signoff.workers.driving import Driving
from signoff.workers.inbox import Inbox, edit_inbox, read_inbox, unless_known
from tests.support.adapted import adapted
from tests.support.benches.session import DONE, look, pay, play
from tests.support.databases import storage_at

ASK = call("ask_user", question="Which?")
PAY = call("pay", amount=1)


class Bench:
    """A thread "t" on a database; each call of `drive` has a graph of its own, as in another process."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.steps: tuple[Any, ...] = (DONE, DONE, DONE)
        self.tools: list[Any] = [look, pay]
        self.limits = Limits()
        self.options: dict[str, Any] = {}

    def graph(self) -> Graph:
        model = ScriptedModel(play(*self.steps))
        return build_graph(
            model, self.tools, storage=self.storage, limits=self.limits, **adapted(**self.options)
        )

    def post(self, *requests: Any, task: str = "") -> None:
        for request in requests:
            update = getattr(request, "update", None) or {}
            name = update.get("go_on", {}).get("id") or getattr(request, "id", None) or f"id of {request}"
            post(self.storage.store, "t", Order(name, request, task))

    def drive(self) -> Driven:
        return drive(self.graph(), "t")

    @property
    def session(self) -> Session:
        return Session(self.graph(), "t")

    @property
    def said(self) -> list[str]:
        """What people have written, in order."""
        return [m.text for m in self.session.status().values["messages"] if m.type == "human"]

    @property
    def left(self) -> list[Any]:
        """What is in the inbox still."""
        inbox = read_inbox(self.storage.store, "t") or Inbox()
        return [order.request for order in inbox.orders]

    def waits_for(self) -> str:
        waiting = self.session.status().wait()
        assert waiting is not None
        return waiting.interrupt_id


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


def test_nothing_is_known_of_the_thread(bench: Bench) -> None:
    assert bench.drive() == Driven("t", "unknown")


def test_a_task_is_run_once_however_often_it_is_driven(bench: Bench) -> None:
    bench.post("one")
    ended = bench.drive()
    assert (ended.state, type(ended.decision).__name__) == ("ended", "Ended")
    assert [bench.drive(), bench.drive()] == [Driven("t", "ended")] * 2
    assert (bench.said, bench.left) == (["one"], [])


def test_tasks_one_after_another(bench: Bench) -> None:
    bench.post("one", "two", "three")
    assert bench.drive().state == "ended"
    assert bench.said == ["one", "two", "three"]


def test_a_task_waits_until_the_question_of_the_one_before_is_answered(bench: Bench) -> None:
    bench.steps = (ASK, DONE, DONE)
    bench.post("one", "two")
    waiting = bench.drive()
    assert isinstance(waiting.decision, Question)
    assert (waiting.state, bench.drive().state, bench.left) == ("waiting", "waiting", ["two"])
    bench.post(Answer("blue", waiting.decision.interrupt_id))
    assert bench.drive().state == "ended"
    assert (bench.said, bench.left) == (["one", "two"], [])


def test_an_answer_to_a_question_that_is_answered_is_dropped(bench: Bench) -> None:
    bench.steps = (ASK, ASK, DONE)
    bench.post("one")
    bench.drive()
    first = bench.waits_for()
    bench.session.resume("red")
    bench.post(Answer("blue", first))
    assert (bench.drive().state, bench.left) == ("waiting", [])


def test_a_thread_that_was_killed_goes_on(bench: Bench) -> None:
    bench.steps = (PAY, DONE)
    for event in bench.session.events("one"):
        if type(event).__name__ == "CallStarted":
            break
    assert bench.drive().state == "ended"
    assert bench.session.status().task.turns == 2


REPEATED: dict[str, tuple[list[Any], Callable[[Bench], Any]]] = {
    "a task": ([DONE], lambda bench: "one"),
    "an answer": ([ASK, ASK, DONE], lambda bench: Answer("blue", bench.waits_for())),
    "more turns": ([PAY, PAY, PAY], lambda bench: go_on(1, "more")),
    "another try": ([RuntimeError("no"), RuntimeError("no")], lambda bench: go_on(id="again")),
}


@pytest.mark.parametrize("case", REPEATED)
def test_what_is_in_the_inbox_still_after_it_was_delivered_is_not_delivered_again(
    case: str, bench: Bench
) -> None:
    """As when a process is killed between the two."""
    steps, request = REPEATED[case]
    bench.steps, bench.limits = tuple(steps), Limits(turns=1 if case == "more turns" else 30)
    bench.post("one")
    if case != "a task":
        bench.drive()
    given, task = request(bench), bench.session.status().task.id
    bench.post(given, task=task)
    left = read_inbox(bench.storage.store, "t")
    first = bench.drive()
    turns, said = bench.session.status().task.turns, bench.said
    edit_inbox(bench.storage.store, "t", lambda _: left)
    assert bench.drive().state == first.state
    assert (bench.session.status().task.turns, bench.said, bench.left) == (turns, said, [])


@pytest.mark.parametrize("case", REPEATED)
def test_what_is_posted_again_changes_nothing(case: str, bench: Bench) -> None:
    """Not before it is delivered, not after it, and not that the thread is to stand still."""
    steps, request = REPEATED[case]
    bench.steps, bench.limits = tuple(steps), Limits(turns=1 if case == "more turns" else 30)
    bench.post("one")
    if case != "a task":
        bench.drive()
    given, task = request(bench), bench.session.status().task.id

    def post_again() -> None:
        edit_inbox(bench.storage.store, "t", lambda inbox: replace(inbox, paused=True))
        before = read_inbox(bench.storage.store, "t")
        bench.post(given, task=task)
        assert read_inbox(bench.storage.store, "t") == before
        edit_inbox(bench.storage.store, "t", lambda inbox: inbox.going())

    bench.post(given, task=task)
    post_again()
    first = bench.drive()
    turns, said = bench.session.status().task.turns, bench.said
    post_again()
    assert (bench.drive().state, bench.left) == (first.state, [])
    assert (bench.session.status().task.turns, bench.said) == (turns, said)


def test_an_answer_that_is_posted_again_decides_on_nothing_else(bench: Bench) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    def wait(waiting: Any) -> Order:
        return Order("click-1", Answer("approve", waiting.interrupt_id))

    bench.tools, bench.options = [pay], {"approvals": {"pay": True}}
    bench.steps = (PAY, call("pay", amount=2), DONE)
    bench.post("one")
    first = bench.drive().decision
    post(bench.storage.store, "t", wait(first))
    then = bench.drive().decision
    # As a client that looks anew and repeats its click.
    post(bench.storage.store, "t", wait(then))
    assert (bench.drive().state, ran, bench.left) == ("waiting", [1], [])


def test_an_order_that_is_delivered_meanwhile_is_not_added(bench: Bench) -> None:
    order = Order("order 1", "one")
    edit = unless_known(bench.storage.store, "t", order)
    post(bench.storage.store, "t", order)
    assert bench.drive().state == "ended"
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert edit(inbox) is None


def test_an_answer_that_does_not_say_to_what_is_refused(bench: Bench) -> None:
    with pytest.raises(SetupError, match=r"pass Answer\(value, interrupt_id\)"):
        bench.post(Answer("blue"))
    assert read_inbox(bench.storage.store, "t") is None


@pytest.mark.parametrize("order_id", ["", "x" * 501, "a\0b", "\ud800", 7, None])
def test_an_id_that_cannot_be_kept_is_refused(order_id: Any, bench: Bench) -> None:
    with pytest.raises(SetupError, match="cannot be used; pass text of 1 to 500"):
        post(bench.storage.store, "t", Order(order_id, "one"))
    assert read_inbox(bench.storage.store, "t") is None


def test_an_extension_of_a_task_that_is_over_is_dropped(bench: Bench) -> None:
    bench.post("one")
    bench.drive()
    bench.post(go_on(5, "more"), go_on(id="again"), task=bench.session.status().task.id)
    assert (bench.drive().state, bench.left) == ("ended", [])


def test_a_paused_thread_stands_still_until_it_is_told_to_go_on(bench: Bench) -> None:
    def paused(inbox: Inbox) -> Inbox:
        return Inbox(inbox.queue, inbox.orders, paused=True)

    bench.post("one")
    edit_inbox(bench.storage.store, "t", paused)
    assert [bench.drive().state, bench.drive().state] == ["paused", "paused"]
    edit_inbox(bench.storage.store, "t", lambda inbox: inbox.going())
    assert bench.drive().state == "ended"


def test_somebody_else_runs_it(bench: Bench) -> None:
    bench.post("one")
    with bench.storage.checkpointer.runner("t"):
        assert bench.drive() == Driven("t", "busy")
        with pytest.raises(ThreadBusy):
            bench.session.run("one")
    assert bench.drive().state == "ended"


def test_what_comes_while_the_thread_runs_is_delivered_by_the_one_who_runs_it(bench: Bench) -> None:
    told: list[str] = []

    def work() -> str:
        """Work."""
        bench.post("two")
        told.append(drive(bench.graph(), "t").state)
        return "worked"

    bench.tools, bench.steps = [work], (call("work"), DONE, DONE)
    bench.post("one")
    assert bench.drive().state == "ended"
    assert (told, bench.said) == (["busy"], ["one", "two"])


def test_a_drained_run_stops_after_its_step_and_another_process_goes_on(bench: Bench) -> None:
    driving: list[Driving] = []
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        driving[0].drain()
        return "paid"

    bench.tools, bench.steps = [pay], (PAY, call("pay", amount=2), DONE)
    bench.post("one", "two")
    driving.append(Driving(bench.graph(), "t"))
    assert driving[0].run().state == "drained"
    assert (paid, bench.left) == ([1], ["two"])
    bench.steps = (*bench.steps, DONE)
    driving[0] = Driving(bench.graph(), "t")
    driving[0].drain()
    assert driving[0].run().state == "drained"
    assert bench.drive().state == "ended"
    assert (paid, bench.said) == ([1, 2], ["one", "two"])
