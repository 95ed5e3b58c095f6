"""`drive`: takes a thread as far as it goes, however often it is called; what was posted comes once."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from signoff import (
    Answer,
    Session,
    SetupError,
    Storage,
    ThreadBusy,
    ThreadStatus,
    go_on,
    sqlite_storage,
)
from signoff.models import call
from signoff.workers import Driven, Order, drive, post
from tests.support.benches.workers import ASK, DONE, Bench
from tests.support.interrupting import interrupt_process

THINK = call("think", thought="hm")

MakeOrder = Callable[[ThreadStatus], Order]
"""An order to a thread that stands like this."""


class Driving(Bench):
    """A thread "t" on a database; each call of `drive` has a graph of its own, as in another process.

    is_killed: whether the process is killed before each reply, the first time.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, "")
        self.is_killed = False
        self.orders: list[Order] = []
        self._reached = -1

    def step(self, messages: Sequence[BaseMessage]) -> Any:
        said = sum(bool(getattr(message, "tool_calls", ())) for message in messages)
        if self.is_killed and said > self._reached:
            self._reached = said
            interrupt_process()
        return super().step(messages)

    @property
    def session(self) -> Session[Any]:
        return Session(self.graph(), "t")

    def post(self, make_order: MakeOrder) -> None:
        self.orders.append(make_order(self.session.status()))
        self.post_again()

    def post_again(self) -> None:
        """What was posted before, under the same ids."""
        for order in self.orders:
            post(self.storage.store, "t", order)

    def drive(self) -> Driven:
        while True:
            try:
                return drive(self.graph(), "t")
            except KeyboardInterrupt:
                continue

    def texts(self, kind: str) -> list[str]:
        messages = self.session.status().values.get("messages", ())
        return [message.text for message in messages if kind in (message.type, message.name)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Driving]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield Driving(storage)


def task(text: str) -> MakeOrder:
    return lambda _: Order(text, text)


def answer(value: str) -> MakeOrder:
    def make_order(status: ThreadStatus) -> Order:
        wait = status.wait()
        assert wait is not None
        return Order(value, Answer(value, wait.interrupt_id))

    return make_order


def more(name: str, turns: int | None = None, of: str = "") -> MakeOrder:
    """More of the task whose first message is `of`, by default of the last one."""
    return lambda status: Order(name, go_on(turns, name), of or status.task.id)


# The replies; what is posted before each call of `drive`, and the state after it; the tasks, the answers to
# questions, and the turns of the last task.
Case = tuple[Sequence[Any], list[tuple[list[MakeOrder], str]], list[str], list[str], int]
CASES: dict[str, Case] = {
    "tasks one after another": (
        [DONE] * 3,
        [([task("one"), task("two")], "ended"), ([task("three")], "ended")],
        ["one", "two", "three"],
        [],
        1,
    ),
    "a task behind a question waits": (
        [ASK, DONE, DONE],
        [([task("one"), task("two")], "waiting"), ([answer("blue")], "ended")],
        ["one", "two"],
        ["blue"],
        1,
    ),
    "only the first of two answers to one question": (
        [ASK, ASK],
        [([task("one")], "waiting"), ([answer("red"), answer("blue")], "waiting")],
        ["one"],
        ["red"],
        2,
    ),
    "more turns after a limit": (
        [THINK, THINK, THINK],
        [([task("one")], "ended"), ([more("click", 1)], "ended")],
        ["one"],
        [],
        2,
    ),
    "more turns for the task before": (
        [THINK, THINK, THINK],
        [([task("one")], "ended"), ([task("two")], "ended"), ([more("click", 1, of="one")], "ended")],
        ["one", "two"],
        [],
        1,
    ),
}


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed before each reply"])
@pytest.mark.parametrize("case", CASES)
def test_each_order_comes_once(bench: Driving, case: str, is_killed: bool) -> None:
    steps, rounds, tasks, answers, turns = CASES[case]
    bench.steps, bench.is_killed = steps, is_killed
    bench.options = {
        "limits": {"turns": 1 if THINK in steps else 30},
        "policy": {"model_retries": None},
    }
    for orders, state in rounds:
        for make_order in orders:
            bench.post(make_order)
        # Whatever is called, posted and called again changes nothing.
        assert [bench.drive().state, bench.drive().state] == [state, state]
        before = bench.session.status()
        bench.post_again()
        assert bench.drive() == Driven("t", state)  # type: ignore[arg-type]  # one of the states
        assert bench.session.status().changed == before.changed
    # The others remind the model that the task goes on.
    said = [text for text in bench.texts("human") if text in "one two three"]
    assert (said, bench.texts("ask_user")) == (tasks, answers)
    assert bench.session.status().task.turns == turns


def test_an_answer_that_a_session_was_first_with_is_dropped(bench: Driving) -> None:
    bench.steps = (ASK, ASK, DONE)
    bench.post(task("one"))
    bench.drive()
    late = answer("blue")(bench.session.status())
    bench.session.resume("red")
    bench.post(lambda _: late)
    assert (bench.drive().state, bench.texts("ask_user")) == ("waiting", ["red"])


def test_a_thread_that_somebody_else_runs_is_busy(bench: Driving) -> None:
    bench.post(task("one"))
    with bench.storage.runner("t"):
        assert bench.drive() == Driven("t", "busy")
        with pytest.raises(ThreadBusy):
            bench.session.run("one")
    assert bench.drive().state == "ended"


def test_what_comes_while_the_thread_runs_is_delivered_by_the_one_who_runs_it(bench: Driving) -> None:
    states: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        bench.post(task("two"))
        states.append(bench.drive().state)
        return "paid"

    bench.tools, bench.steps = [pay], (call("pay", amount=1), DONE, DONE)
    bench.post(task("one"))
    assert bench.drive().state == "ended"
    assert (states, bench.texts("human")) == (["busy"], ["one", "two"])


WRONG = {
    "an answer that does not say to what": Order("click", Answer("blue")),
    **{f"the id {name!r:.20}": Order(name, "one") for name in ("", "x" * 501, "a\0b", "\ud800", 7)},  # type: ignore[arg-type]  # the mistake
}


def test_an_order_that_cannot_be_kept_is_refused(bench: Driving) -> None:
    for order in WRONG.values():
        with pytest.raises(SetupError):
            post(bench.storage.store, "t", order)
    assert bench.drive() == Driven("t", "unknown")
