"""What is killed: a loop with everything that pauses it, a tree of delegates, an undo, and an agent with
`Guards`."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from signoff import (
    Action,
    Answer,
    Approval,
    Graph,
    Limits,
    Outcome,
    Session,
    Storage,
    ThreadBusy,
    ThreadStatus,
    build_graph,
    delegate,
    outcome_of,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.session import Condition
from tests.kills.harness import Moments, Outside, Run, opened, told_of_changes

PATIENCE = 60
"""Seconds in which a server has learnt that a process is dead."""
FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Go on?", id="call_1")


def by_turn(*script: Any) -> ScriptedModel:
    """A model without a memory. A claim over an unknown effect is refused once, and made again."""

    def step(messages: Sequence[BaseMessage]) -> Any:
        said = sum(isinstance(message, AIMessage) for message in messages)
        return script[min(said, len(script) - 1)]

    return ScriptedModel(step)


def act(name: str, tool: str = "act") -> Any:
    """A call of a provider that repeats its ids."""
    return call(tool, name=name, id="call_0")


def tools_of(outside: Outside, *names: str, undo: Callable[..., str] | None = None) -> list[BaseTool]:
    def work(name: str) -> str:
        """Works."""
        return outside.happen(name)

    return [
        StructuredTool.from_function(work, name=name, metadata={"kind": "write", "undo": undo})
        if undo
        else StructuredTool.from_function(work, name=name, metadata={"kind": "write"})
        for name in names
    ]


def patient(work: Callable[[], Any]) -> Any:
    """Does it as soon as the thread is free."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except ThreadBusy:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def driven(graph: Graph, run: Run, is_over: Callable[[ThreadStatus], bool]) -> Outcome:
    """Drives the thread until it is over, by a session that knows its id and the task."""
    session = Session(graph, run.thread)
    while not is_over(status := session.status()):
        command: Any = "do it" if status.condition is Condition.UNKNOWN else None
        if status.waits:
            command = answer(status.waits[-1], run.outside)
        patient(partial(_run, session, command, run.by_loop))
    assert status.outcome is not None, "it is over"
    return status.outcome


def _run(session: Session[Any], command: Any, by_loop: bool) -> None:
    if by_loop:
        asyncio.run(session.arun(command))
    else:
        session.run(command)


def has_ended(status: ThreadStatus) -> bool:
    return status.condition is Condition.ENDED


def answer(wait: Any, outside: Outside) -> Answer:
    value: Any = "approve" if isinstance(wait, Approval) else "yes"
    if isinstance(wait, Action):
        # What was handed out before may have been done: it looks first.
        name = str(wait.args["name"])
        value = f"did {name}" if name in outside.seen() else outside.happen(name)
    return Answer(value, wait.interrupt_id)


class Loop:
    """A loop with effects, an approval, a question and a call that the program runs."""

    effects = ("one", "two", "three", "four", "five")
    status = "success"
    opened = staticmethod(opened)

    def driven(self, run: Run) -> Outcome:
        script = (
            [act("one"), act("two")],
            act("three", "pay"),
            ASK,
            act("four", "drive"),
            act("five"),
            FINISH,
        )
        graph = build_graph(
            by_turn(*script),
            tools_of(run.outside, "act", "pay", "drive"),
            storage=run.storage,
            approvals={"pay": True, "drive": "hand_over"},
        )
        return driven(graph, run, has_ended)

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        return told_of_changes(outcome, self.effects)


class Delegates:
    """Two delegates of one reply, each with one below it; effects in all of them, and a question in two."""

    sides = ("left", "right")
    effects = tuple(f"{side}, {where}" for side in sides for where in ("above", "below"))
    status = "success"
    opened = staticmethod(opened)

    def driven(self, run: Run) -> Outcome:
        tools = tools_of(run.outside, "act")
        below = [delegate(side, self._child(side, tools), description="Works.") for side in self.sides]
        calls = [call(side, task=side, id="call_0") for side in self.sides]
        return driven(build_graph(by_turn(calls, FINISH), below, storage=run.storage), run, has_ended)

    def _child(self, side: str, tools: Sequence[BaseTool]) -> Graph:
        deepest = build_graph(by_turn(act(f"{side}, below"), FINISH), tools)
        deep = delegate("deep", deepest, description="Goes deeper.")
        script = act(f"{side}, above"), call("deep", task="dig", id="call_0"), ASK, FINISH
        return build_graph(by_turn(*script), [*tools, deep])

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        return told_of_changes(outcome, self.effects)


class Undo:
    """Five effects that are undone when their task has failed."""

    names = ("one", "two", "three", "four", "five")
    effects = tuple(f"undo {name}" for name in names)
    status = "limit"
    opened = staticmethod(opened)

    def driven(self, run: Run) -> Outcome:
        def undo(args: dict[str, Any], result: str) -> str:
            return run.outside.happen(f"undo {args['name']}")

        graph = build_graph(
            by_turn(*map(act, self.names)),
            tools_of(run.outside, "act", undo=undo),
            storage=run.storage,
            limits=Limits(turns=len(self.names)),
            policy={"on_failure": "undo"},
        )
        return driven(graph, run, lambda status: bool(status.outcome and status.outcome.undo))

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        assert outcome.undo is not None, "it was driven until there is one"
        undone = {one.call: "ok" for one in outcome.undo.undone}
        came = {**undone, **{one.call: one.why for one in outcome.undo.standing}}
        return {
            f"undo {name}": how for name in self.names for made, how in came.items() if f"'{name}'" in made
        }


class Guarded:
    """An agent with plain `Guards`, on LangGraph's own saver and store, by its default durability."""

    effects = ("one", "two", "three")
    status = "success"

    @contextmanager
    def opened(self, database: str) -> Iterator[Storage]:
        is_server = "://" in database
        saver_class: Any = PostgresSaver if is_server else SqliteSaver
        store_class: Any = PostgresStore if is_server else SqliteStore
        with ExitStack() as stack:
            saver = stack.enter_context(saver_class.from_conn_string(database))
            beside = database if is_server else f"{database}.store"
            store = stack.enter_context(store_class.from_conn_string(beside))
            saver.setup()
            store.setup()
            Moments.around(saver_class, "put", "put_writes")
            Moments.around(store_class, "batch")
            yield Storage(saver, store)

    def driven(self, run: Run) -> Outcome:
        agent: Any = create_agent(
            by_turn([act("one"), act("two")], act("three"), FINISH),
            tools_of(run.outside, "act"),
            middleware=[Guards()],
            checkpointer=run.storage.checkpointer,
            store=run.storage.store,
        )
        config: RunnableConfig = {"configurable": {"thread_id": run.thread}}
        while True:
            state = agent.get_state(config)
            if state.values.get("outcome") and not state.next:
                return outcome_of(state.values)
            is_known = bool(state.values.get("messages"))
            # A letter makes the checkpoint late.
            letter = "Do it all. " * 20_000
            agent.invoke(None if is_known else {"messages": [("user", letter)]}, config)

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        return told_of_changes(outcome, self.effects)
