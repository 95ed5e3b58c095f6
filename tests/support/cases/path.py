"""What can happen to a thread, and the path that it leaves."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command

from signoff import Limits, build_graph, extend, retry
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.path import Step, before_turn, steps
from signoff.storage.sqlite import SqliteStorage, ThreadSaver
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
WORK = call("work")
ASK = call("ask_user", question="Which one?")


def work() -> str:
    """Work."""
    return "worked"


def crash() -> str:
    """Crash."""
    interrupt_process()
    return "never heard"


def pay() -> str:
    """Pay."""
    return "paid"


class Dies(ThreadSaver):
    """Fails when it is to save a checkpoint with this value, as if the process were killed."""

    at: tuple[str, Any] = ("", None)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if self.at in checkpoint["channel_values"].items():
            raise KeyboardInterrupt
        return super().put(config, checkpoint, metadata, new_versions)


class Thread:
    """A thread in a database, with a graph that plays `script`."""

    def __init__(self, storage: SqliteStorage) -> None:
        self.storage = storage

    def graph(self, *script: Any, **settings: Any) -> Graph:
        tools = [work, crash, pay]
        return build_graph(ScriptedModel(script), tools, storage=self.storage, **settings)

    def killed(self, graph: Graph, channel: str, value: Any, given: Any = GO) -> None:
        """Runs the graph, and kills it when it is to save this value."""
        saver = self.storage.checkpointer
        dies = Dies(saver.conn, saver.file, saver.serde)
        dies.at = (channel, value)
        graph.checkpointer = dies
        with pytest.raises(KeyboardInterrupt):
            graph.invoke(given, THREAD)

    def path(self) -> list[Step]:
        return steps(self.storage.checkpointer, "t")


def told(path: list[Step]) -> list[str]:
    """Each step as "state event", those in which no state ran by the event alone."""
    return [f"{step.name} {step.event}".strip() for step in path]


# What happens, and the path it leaves.

TURN = ["compress ready", "decide think", "call_llm replied"]
SETTLED = ["route_tools settled"]
WORKED = ["route_tools work", "execute done"]
FINISHED = ["decide claimed", "review accepted", "finish ended"]
ENDS = [*TURN, *SETTLED, *FINISHED]
# After a settled reply there is nothing for `compress` to do.
ON = ENDS[1:]


def works(thread: Thread) -> None:
    thread.graph(WORK, FINISH).invoke(GO, THREAD)


def talks(thread: Thread) -> None:
    thread.graph("Let me see.", FINISH).invoke(GO, THREAD)


def asks(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    graph.invoke(Command(resume={pending.id: "blue"}), THREAD)


def waits(thread: Thread) -> None:
    thread.graph(ASK).invoke(GO, THREAD)


def is_answered_badly_first(thread: Thread) -> None:
    graph = thread.graph(call("pay"), FINISH, approvals={"pay": True})
    graph.invoke(GO, THREAD)
    graph.invoke(Command(resume=7), THREAD)
    graph.invoke(Command(resume="approve"), THREAD)


def is_killed_in_a_tool_and_goes_on(thread: Thread) -> None:
    graph = thread.graph(call("crash"), call("finish_task", summary="Unclear.", outcome="partial"))
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    graph.invoke(None, THREAD)


def is_killed_and_gets_a_new_message(thread: Thread) -> None:
    graph = thread.graph(call("crash"), FINISH)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    graph.invoke(GO, THREAD)


def is_drained_and_goes_on(thread: Thread) -> None:
    control = RunControl()

    def drained(messages: Any) -> Any:
        control.request_drain()
        return WORK

    graph = thread.graph(drained, FINISH)
    with pytest.raises(GraphDrained):
        graph.invoke(GO, THREAD, control=control)
    graph.invoke(None, THREAD)


def is_killed_when_its_last_state_was_done(thread: Thread) -> None:
    thread.killed(thread.graph(FINISH), "event", "ended")


def is_killed_when_a_message_had_come_while_it_waited(thread: Thread) -> None:
    graph = thread.graph(ASK)
    graph.invoke(GO, THREAD)
    thread.killed(graph, "branch:to:compress", None)


def gets_a_message_while_it_waits(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke({"messages": [("user", "blue")]}, THREAD)


def is_killed_when_its_answer_was_taken(thread: Thread) -> None:
    graph = thread.graph(ASK)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    thread.killed(graph, "event", "answered", Command(resume={pending.id: "blue"}))


def is_sent_elsewhere_while_it_waits(thread: Thread) -> None:
    graph = thread.graph(ASK)
    graph.invoke(GO, THREAD)
    graph.invoke(Command(goto="compress", update={}), THREAD)


def is_killed_while_it_is_extended(thread: Thread) -> None:
    graph = thread.graph(WORK, limits=Limits(turns=1))
    graph.invoke(GO, THREAD)
    thread.killed(graph, "event", "ready", extend(graph.get_state(THREAD).values, turns=9))


def is_taken_off_its_path_from_outside(thread: Thread) -> None:
    graph = thread.graph(ASK)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, None, as_node="__end__")


def is_extended(thread: Thread) -> None:
    graph = thread.graph(WORK, FINISH, limits=Limits(turns=1))
    graph.invoke(GO, THREAD)
    graph.invoke(extend(graph.get_state(THREAD).values, turns=9), THREAD)


def is_tried_again(thread: Thread) -> None:
    graph = thread.graph(RuntimeError("down"), FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke(retry(graph.get_state(THREAD).values), THREAD)


def is_changed_from_outside(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"messages": [("user", "blue")]})
    graph.invoke(None, THREAD)


def is_stopped_from_outside(thread: Thread) -> None:
    graph = thread.graph(ASK)
    graph.invoke(GO, THREAD)
    stop = graph.get_state(THREAD).values["task"]
    graph.update_state(THREAD, {"stop": stop}, as_node="compress")
    graph.invoke(None, THREAD)


def is_forked_before_its_second_turn(thread: Thread) -> None:
    graph = thread.graph(WORK, WORK, WORK, FINISH, FINISH)
    graph.invoke(GO, THREAD)
    there = before_turn(thread.path(), 2)
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_id": there.checkpoint_id}}
    graph.invoke(None, at)


def has_two_tasks(thread: Thread) -> None:
    graph = thread.graph(FINISH, FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke(GO, THREAD)


def is_called_with_nothing_new(thread: Thread) -> None:
    graph = thread.graph(FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke({"messages": []}, THREAD)


EXHAUSTED = ["decide exhausted", "finish ended"]
KILLED = ["input", *TURN, "route_tools work"]
ANSWERED = ["input", *TURN, *SETTLED, "decide asked", "ask_user answered", *ENDS]
OPENED = ["input", *TURN, "route_tools needs approval"]
HAPPENINGS: dict[Callable[[Thread], None], list[str]] = {
    works: ["input", *TURN, *WORKED, *ON],
    talks: ["input", *TURN, "route_tools talked", "nudge nudged", *ENDS],
    asks: ANSWERED,
    waits: ANSWERED[:6],
    is_answered_badly_first: [*OPENED, "approve decided", OPENED[-1], "approve decided", *WORKED, *ON],
    is_killed_in_a_tool_and_goes_on: [*KILLED, "execute done", *ON],
    is_killed_and_gets_a_new_message: [*KILLED, "input", *ENDS],
    is_drained_and_goes_on: ["input", *TURN, *WORKED, *ON],
    is_killed_when_its_last_state_was_done: ["input", *ENDS],
    is_killed_when_a_message_had_come_while_it_waited: [*ANSWERED[:6], "input"],
    gets_a_message_while_it_waits: [*ANSWERED[:6], "input", *ENDS],
    is_killed_when_its_answer_was_taken: ANSWERED[:7],
    is_sent_elsewhere_while_it_waits: ANSWERED[:6],
    is_killed_while_it_is_extended: ["input", *TURN, *WORKED, *EXHAUSTED, "compress ready"],
    is_taken_off_its_path_from_outside: [*ANSWERED[:6], "update"],
    is_extended: [
        *["input", *TURN, *WORKED, *EXHAUSTED],
        *ENDS,
    ],
    is_tried_again: ["input", *TURN[:-1], "call_llm failed", "finish ended", *ENDS],
    is_changed_from_outside: [*ANSWERED[:6], "update", "ask_user answered", *ENDS],
    is_stopped_from_outside: [*ANSWERED[:6], "update", "decide cancelled", "finish ended"],
    is_forked_before_its_second_turn: [
        *["input", *TURN, *WORKED, *TURN[1:-1], "fork", "call_llm replied"],
        *[*SETTLED, *FINISHED],
    ],
    has_two_tasks: ["input", *ENDS, "input", *ENDS],
    is_called_with_nothing_new: ["input", *ENDS, "input", "compress ready", "decide ended", "finish ended"],
}
# LangGraph's `next` is empty when what a state wrote is saved and its checkpoint is not.
KILLED_BEFORE: dict[Callable[[Thread], None], tuple[str, ...]] = {
    is_killed_when_a_message_had_come_while_it_waited: ("compress",),
    is_killed_when_its_answer_was_taken: ("compress",),
    is_killed_while_it_is_extended: ("decide",),
}
