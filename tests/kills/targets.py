"""What is killed: a loop with everything that pauses it, a tree of delegates, an undo, a thread that is
edited and forked, and an agent with `Guards`.

Whoever goes on sees first that the list of threads and `status()` say the same.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
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
    Question,
    Session,
    Storage,
    ThreadStatus,
    build_graph,
    delegate,
    outcome_of,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.session import Condition, expire
from tests.kills.harness import Moments, Outside, Run, opened
from tests.support.waiting import wait_until

FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Go on?", id="call_1")
BOTH_TELL = attrgetter("condition", "waits", "outcome", "changed")
"""What a row in the list of threads and a status have in common, beside the task."""


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

    metadata = {"kind": "write"} | ({"undo": undo} if undo else {})
    return [StructuredTool.from_function(work, name=name, metadata=metadata) for name in names]


def driven(graph: Graph, run: Run, is_over: Callable[[ThreadStatus], bool]) -> Outcome:
    """Drives the thread until it is over, by a session that knows its id and the task."""
    session = Session(graph, run.thread)
    while not is_over(status := agreed(run.storage, session)):
        wait = next(reversed(status.waits), None)
        if isinstance(wait, Question) and wait.deadline:
            # Nobody answers it.
            expire(graph, run.thread, wait.deadline)
        else:
            begins = "do it" if status.condition is Condition.UNKNOWN else None
            _run(session, answer(wait, run.outside) if wait else begins, run.by_loop)
    assert status.outcome is not None, "it is over"
    return status.outcome


def agreed(storage: Storage, session: Session[Any]) -> ThreadStatus:
    """The status of a thread that nobody runs, of which its row in the list says the same."""
    # A server may have yet to learn that a process is dead.
    wait_until(lambda: session.status().condition is not Condition.RUNNING)
    status = session.status()
    rows = [row for row in storage.threads() if row.thread_id == session.thread_id]
    if rows or status.condition is not Condition.UNKNOWN:
        (row,) = rows
        assert (row.task, BOTH_TELL(row)) == (status.task.messages[0].text, BOTH_TELL(status))
    return status


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


class ToldOfChanges:
    """The changes in the outcome tell of the effects; the call of each has its name."""

    effects: Sequence[str] = ()
    status = "success"

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        return {
            effect: change.came
            for effect in self.effects
            for change in outcome.changes
            if f"'{effect}'" in change.call
        }


class Loop(ToldOfChanges):
    """A loop with effects, an approval, a question and a call that the program runs."""

    effects = ("one", "two", "three", "four", "five")
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


class Delegates(ToldOfChanges):
    """Two delegates of one reply, each with one below it; effects in all of them, and a question in two."""

    sides = ("left", "right")
    effects = tuple(f"{side}, {where}" for side in sides for where in ("above", "below"))
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


class Edited(ToldOfChanges):
    """A task, one that an edit by `update_state` begins, and one that a fork begins at the end of the first;
    in each a question expires and a call is approved."""

    effects = ("fork",)
    opened = staticmethod(opened)

    def driven(self, run: Run) -> Outcome:
        asks = call("ask_user", question="Go on?", default_answer="yes", deadline_seconds=60)

        def step(messages: Sequence[BaseMessage]) -> Any:
            task = of_task(messages)
            said = sum(isinstance(message, AIMessage) for message in task)
            return (asks, act(task[0].text), FINISH)[min(said, 2)]

        tools = tools_of(run.outside, "act")
        graph = build_graph(ScriptedModel(step), tools, storage=run.storage, approvals={"act": True})
        thread: RunnableConfig = {"configurable": {"thread_id": run.thread}}
        while True:
            outcome = driven(graph, run, has_ended)
            task = of_task(graph.get_state(thread).values["messages"])[0].text
            if task == "fork":
                return outcome
            ends = (state for state in graph.get_state_history(thread) if state.values.get("outcome"))
            first = (state.config for state in ends if of_task(state.values["messages"])[0].text == "do it")
            place, then = (next(first), "fork") if task == "edit" else (thread, "edit")
            graph.update_state(place, {"messages": [("user", then)]})


def of_task(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages of the current task."""
    begins = max(at for at, message in enumerate(messages) if message.type == "human")
    return messages[begins:]


class Guarded(ToldOfChanges):
    """An agent with plain `Guards`, on LangGraph's own saver and store, by its default durability."""

    effects = ("one", "two", "three")

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
