"""Runs a fork of a thread with another model from a given turn on, using the recorded tool results."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from signoff.front.database import OpenStorage
from signoff.front.settings import Given, Settings, recall, remember, settle
from signoff.front.thread_ids import forked_thread_id
from signoff.front.working import graph_of, working_tools
from signoff.graph.compiled.graph import busy
from signoff.graph.errors import SetupError, ThreadError, quote_id
from signoff.graph.foreign import count_noun
from signoff.graph.kinds import Kind
from signoff.models.choose import check_model, choose_model
from signoff.session.commands import Answer
from signoff.session.comparing import Comparison, compare
from signoff.session.decisions import Message, Question
from signoff.session.events import Answered, CallFinished
from signoff.session.history import Turn, chapters
from signoff.session.session import Session
from signoff.session.status import deps_of, look, reading_graph

Running = Literal["recorded", "run", "all"]
"""Which calls without a recorded result run: none, those of tools that only read, or all."""

_NOT_RECORDED = (
    "This call is not among those that were recorded, and it is not run here. Go on with what is known, or "
    "finish."
)


@dataclass
class Record:
    """The tool results and people's answers from a turn on; each is returned once."""

    results: list[CallFinished] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "Record":
        events = [event for turn in turns for event in turn.events]
        ran = [one for one in events if isinstance(one, CallFinished) and not _is_ours(one)]
        return cls(ran, [one for one in events if isinstance(one, Answered) and not one.expired])

    def result(self, tool: str, args: dict[str, Any]) -> CallFinished | None:
        """Returns the recorded result of the call, once; None if no such call was recorded."""
        found = next((one for one in self.results if one.name == tool and _same(one.args, args)), None)
        if found is not None:
            self.results.remove(found)
        return found

    def answer(self, question: str) -> str | None:
        """Returns the recorded answer to this question, once."""
        found = next((one for one in self.answers if one.question == question), None)
        if found is None:
            return None
        self.answers.remove(found)
        return found.answer


def _is_ours(event: CallFinished) -> bool:
    return bool(event.not_run or event.unknown or event.person == "responded")


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two calls have the same arguments; None counts as omitted."""
    first, second = (
        {key: value for key, value in args.items() if value is not None} for args in (one, other)
    )
    return first == second


def go_on_with(
    storage: OpenStorage, thread_id: str, turn: int, given: Given, running: Running = "recorded"
) -> Comparison:
    """Compares the thread's current task with that of a fork that continues from this turn with the given
    model.

    A question with the same text gets its recorded answer; at any other wait the fork stops. Raises
    ThreadError for a turn that does not exist, SetupError for a thread of another program or an unavailable
    model, and ThreadBusy while the thread runs.
    """
    if storage.checkpointer.is_running(thread_id):
        raise busy(thread_id)
    before = recall(storage.store, thread_id)
    if before is None:
        raise SetupError(
            f"Thread {quote_id(thread_id)} was not begun by the command line, so its tools are "
            "not known here; fork it in the program that began it, by Session.fork."
        )
    settings = settle(given, before, os.environ)
    record = Record.of(_turns(storage, thread_id, turn))
    check_model(settings.model, settings.base_url, os.environ)
    target = forked_thread_id(thread_id, storage.threads())
    with working_tools(settings, lambda _: None) as own:
        runs = [tool for tool in own if _may_run(tool, running)]
        tools = [_recorded(tool, record, tool in runs) for tool in own]
        # A call that does not run needs no approval.
        names = {tool.name: tool for tool in runs}
        policy = {name: True for name in names if _is_asked(names[name], settings)}
        chosen = choose_model(settings.model, settings.base_url, os.environ)
        with chosen.resource:
            graph = graph_of(settings, chosen, tools, storage, policy, [])
            session = Session(reading_graph(storage, thread_id), thread_id).fork(turn - 1, target)
            remember(storage.store, target, settings)
            _run(Session(graph, session.thread_id), record)
    return compare(storage, thread_id, target)


def _turns(storage: OpenStorage, thread_id: str, turn: int) -> Sequence[Turn]:
    """Returns the turns of the current task from this one on."""
    graph = reading_graph(storage)
    history = chapters(look(graph, thread_id).values, deps_of(graph).toolbox)
    turns = history[-1].turns if history else ()
    if not 1 <= turn <= len(turns):
        raise ThreadError(
            f"The current task of {quote_id(thread_id)} has {count_noun(len(turns), 'turn')}; "
            "--from names one of them, and the new model takes it and those after it."
        )
    return turns[turn - 1 :]


def _may_run(tool: BaseTool, running: Running) -> bool:
    return running == "all" or (running == "run" and (tool.metadata or {}).get("kind") == Kind.READ)


def _is_asked(tool: BaseTool, settings: Settings) -> bool:
    return tool.name in settings.approve or (tool.metadata or {}).get("kind") in settings.approve


def _recorded(tool: BaseTool, record: Record, runs: bool) -> BaseTool:
    """Returns the tool with recorded results: it returns what the same call returned before."""

    def run(**arguments: Any) -> Any:
        found = record.result(tool.name, arguments)
        if found is None and not runs:
            raise ToolException(_NOT_RECORDED)
        if found is None:
            return tool.invoke(arguments)
        if not found.ok:
            raise ToolException(found.result)
        return found.result

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        func=run,
        args_schema=tool.tool_call_schema,
        metadata=tool.metadata,
    )


def _run(session: Session, record: Record) -> None:
    command: Answer | None = None
    while True:
        decision = session.run(command)
        command = None
        if isinstance(decision, Question):
            answer = record.answer(decision.text)
            if answer is None:
                return
            command = Answer(answer, decision.interrupt_id)
        elif not isinstance(decision, Message):
            return
