"""A run that is interrupted in the process: every delegate comes to rest at its step, and goes on later."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool

from signoff import build_graph, delegate, outcome_of, sqlite_storage
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
DONE = call("finish_task", summary="Done.")
MOST = 200


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come there")
def test_all_below_stop_at_their_step_when_the_run_is_interrupted(tmp_path: Path) -> None:
    paid: list[str] = []
    at_work = threading.Barrier(2)
    interrupted = threading.Event()

    @tool
    def pay(to: str) -> str:
        """Pay."""
        if not interrupted.is_set():
            at_work.wait(timeout=10)
            interrupted.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        paid.append(to)
        return "paid"

    def script(messages: list[BaseMessage]) -> Any:
        turn = sum(map(is_reply, messages))
        task = next(message.text for message in messages if isinstance(message, HumanMessage))
        return call("pay", to=f"{task} {turn}") if turn < MOST else DONE

    below = build_graph(ScriptedModel(script), [pay], limits={"turns": MOST + 1})
    made = delegate("below", below, description="Works.")
    calls = [call("below", task="one"), call("below", task="two")]
    model = ScriptedModel([calls, DONE])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(model, [made], storage=storage)
        with pytest.raises(KeyboardInterrupt):
            graph.invoke({"messages": [("user", "go")]}, THREAD)
        # Nobody works on after the run has given its thread back.
        assert len(paid) < MOST
        assert outcome_of(graph.invoke(None, THREAD)).status == "success"
    assert len(paid) == len(set(paid)) == 2 * MOST
