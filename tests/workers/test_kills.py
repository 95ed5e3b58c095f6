"""`drive` in processes that are killed at random moments: each order comes once, no effect is repeated."""

import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from signoff import Answer, Limits, Session, build_graph, go_on
from signoff.graph.build import Graph
from signoff.graph.messages import is_genuine, is_reply, nudge_kind
from signoff.models import ScriptedModel, call
from signoff.session.status import ThreadStatus
from signoff.workers import Order, drive, post
from signoff.workers.inbox import read_inbox
from tests.support.databases import storage_at

pytestmark = pytest.mark.slow

THREADS = 4
# Seconds that a process lives at most: so that a few kills fall on every thread.
LONGEST = {"sqlite": 0.12, "postgres": 0.25}
STEPS: list[Any] = [
    call("pay", amount=1),
    call("ask_user", question="Which?"),
    call("pay", amount=2),
    call("pay", amount=3),
    # Not "done", which is refused over an unknown effect.
    call("finish_task", summary="One.", outcome="partial"),
    call("finish_task", summary="Two.", outcome="partial"),
]


def step(messages: list[BaseMessage]) -> Any:
    """The script; the second task fails until it is tried again."""
    done = sum(map(is_reply, messages))
    tried_again = sum(nudge_kind(message) == "resumed" for message in messages) > 1
    return RuntimeError("no") if done == 5 and not tried_again else STEPS[done]


def graph_on(storage: Any, paid: Path) -> Graph:
    def pay(amount: int) -> str:
        """Pay."""
        with paid.open("a") as file:
            file.write(f"{amount}\n")
        return f"paid {amount}"

    model = ScriptedModel(step, delay=0.001)
    return build_graph(model, [pay], storage=storage, limits=Limits(turns=3))


def driven_and_killed(database: str, thread_id: str, paid: Path, seconds: float) -> bool:
    """Whether a process that drives the thread was killed, so many seconds after it began."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            with storage_at(database) as storage:
                os.write(write, b"!")
                drive(graph_on(storage, paid), thread_id)
                code = 0
        finally:
            os._exit(code)
    os.close(write)
    assert os.read(read, 1) == b"!", "the child did not begin"
    select.select([read], [], [], seconds)
    os.kill(child, signal.SIGKILL)
    os.close(read)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "drive failed"
    return os.WIFSIGNALED(status)


def next_order(thread_status: ThreadStatus) -> Order | None:
    """What a person does who finds the thread like this."""
    task, outcome = thread_status.task.id, thread_status.outcome
    if waiting := thread_status.wait():
        return Order(f"answer {waiting.interrupt_id}", Answer("blue", waiting.interrupt_id))
    if outcome and outcome.status == "limit":
        return Order("more", go_on(2, "more"), task)
    if outcome and outcome.status == "error":
        return Order("again", go_on(id="again"), task)
    return Order("two", "two") if outcome and task == "one" else None


def brought_to_its_end(database: str, thread_id: str, paid: Path, dice: random.Random) -> tuple[int, Any]:
    """How often the thread was killed on its way, and its messages."""
    # A little longer than where a process delivers nothing but tasks: here it reads an inbox, too.
    kills, longest = 0, 1.5 * LONGEST["postgres" if database.startswith("postgres") else "sqlite"]
    with storage_at(database) as storage:
        post(storage.store, thread_id, Order("one", "one"))
    while True:
        killed = driven_and_killed(database, thread_id, paid, dice.uniform(0, longest))
        kills += killed
        # A fast machine is done before most of these moments: then earlier ones are drawn.
        longest *= 1 if killed else 0.7
        with storage_at(database) as storage:
            thread_status = Session(graph_on(storage, paid), thread_id).status()
            inbox = read_inbox(storage.store, thread_id)
            assert inbox is not None
            if order := next_order(thread_status):
                post(storage.store, thread_id, order)
            elif thread_status.outcome and thread_status.task.id == "two" and not inbox.orders:
                return kills, thread_status.values["messages"]


def sweep(database: str, folder: Path, figure: Callable[[str], None]) -> None:
    seed, kills, unknown = int(time.time()), 0, 0
    for number in range(seed, seed + THREADS):
        paid = folder / f"paid {number}"
        killed, messages = brought_to_its_end(database, f"t{number}", paid, random.Random(number))
        kills += killed
        assert [m.text for m in messages if isinstance(m, HumanMessage) and is_genuine(m)] == ["one", "two"]
        assert [m.id for m in messages if nudge_kind(m) == "resumed"] == ["more", "again"]
        assert sum(map(is_reply, messages)) == len(STEPS)
        results = [m.text for m in messages if m.type == "tool" and m.name in ("pay", "ask_user")]
        assert results[1] == "blue"
        done = paid.read_text().split() if paid.exists() else []
        told = [text.removeprefix("paid ") for text in results if text.startswith("paid ")]
        assert len(set(done)) == len(done), f"seed {number}: twice"
        assert set(told) <= set(done)
        unknown += sum("unknown" in text for text in results)
    figure(f"drive, seeds {seed} on: {THREADS} threads right after {kills} kills, {unknown} outcomes unknown")
    assert kills >= THREADS


@pytest.mark.thorough
def test_on_sqlite(tmp_path: Path, figure: Callable[[str], None]) -> None:
    sweep(str(tmp_path / "threads.sqlite"), tmp_path, figure)


@pytest.mark.thorough
def test_on_postgresql(postgres_url: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    sweep(postgres_url, tmp_path, figure)
