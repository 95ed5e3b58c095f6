"""The agents under test: each is begun, or goes on in a new process, and says how it ended."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.agentdojo.faults import Fault
from benchmarks.agentdojo.model import Model
from benchmarks.agentdojo.task import Task
from benchmarks.agentdojo.world import World
from signoff import build_graph, current_outcome, go_on, retry, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel

TURNS = 60
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@dataclass(frozen=True)
class Said:
    """How the agent ended, by its own word. ended: as done. answer: its last words."""

    ended: bool
    answer: str
    why: str = ""


def bare(task: Task, world: World, fault: Fault | None, folder: Path) -> Said:
    model = Model(task, world, fault, "")
    with SqliteSaver.from_conn_string(str(folder / "threads.sqlite")) as saver:
        agent = create_agent(ScriptedModel(model.reply), world.tools(), checkpointer=saver)
        config: Any = {**CONFIG, "recursion_limit": 4 * TURNS}
        begun = agent.get_state(config)
        given: Any = None if begun.values else _input(task)
        if begun.values and not begun.next:
            # After a kill LangGraph may name no next step although work is left; a person sees that.
            if _is_final(begun.values):
                return Said(True, begun.values["messages"][-1].text)
            given = {"messages": [("user", "Go on.")]}
        found = agent.invoke(given, config)
    return Said(_is_final(found), found["messages"][-1].text)


def _is_final(values: Any) -> bool:
    last = values["messages"][-1]
    return isinstance(last, AIMessage) and not last.tool_calls


def with_guards(task: Task, world: World, fault: Fault | None, folder: Path) -> Said:
    with _model(task, world, fault, folder) as (model, storage):
        saved: dict[str, Any] = {"checkpointer": storage.checkpointer, "store": storage.store}
        rules = Guards(limits={"turns": TURNS})
        return _played(guarded(create_agent(model, world.tools(), middleware=[rules], **saved)), task)


def signoff(task: Task, world: World, fault: Fault | None, folder: Path) -> Said:
    with _model(task, world, fault, folder) as (model, storage):
        return _played(build_graph(model, world.tools(), storage=storage, limits={"turns": TURNS}), task)


SUBJECTS: Mapping[str, Callable[[Task, World, Fault | None, Path], Said]] = {
    "create_agent": bare,
    "create_agent with Guards": with_guards,
    "Signoff": signoff,
}


@contextmanager
def _model(task: Task, world: World, fault: Fault | None, folder: Path) -> Iterator[tuple[Any, Any]]:
    with sqlite_storage(folder / "threads.sqlite") as storage:
        yield ScriptedModel(Model(task, world, fault, "finish_task").reply), storage


def _input(task: Task) -> Any:
    return {"messages": [("user", task.prompt)]}


def _played(graph: Any, task: Task) -> Said:
    begun = graph.get_state(CONFIG)
    if not begun.values and not begun.next:
        given: Any = _input(task)
    elif (outcome := current_outcome(begun.values)) is None:
        given = go_on(begun)
    elif outcome["status"] == "error":
        given = retry(begun)
    else:
        given = ()
    if given != ():
        graph.invoke(given, CONFIG)
    outcome = current_outcome(graph.get_state(CONFIG).values)
    if outcome is None:
        return Said(False, "", "it waits")
    return Said(outcome["status"] == "success", outcome["summary"] or "", outcome["reason"])
