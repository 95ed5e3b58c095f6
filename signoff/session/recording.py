"""Reads the inputs and actions of a stored thread from its steps: enough to run it again with a script.

Replies, tool results, people's answers and verdicts of checks are taken from the writes of each step; the
settings that matter are taken from the graph. A thread that needs anything else is rejected, with one
sentence. The machines of delegates are recorded like that of the thread itself, each with its own script.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from pydantic import BaseModel

from signoff.graph.build import Graph
from signoff.graph.compiled.graph import runner
from signoff.graph.errors import SetupError, ThreadError, quote_id
from signoff.graph.foreign import checked_thread_id
from signoff.graph.limits import Limits
from signoff.graph.machine import Event, State
from signoff.graph.messages import is_genuine, is_reply, marks
from signoff.nodes.delegates.graphs import deps_of as graph_deps
from signoff.nodes.node import Dependencies
from signoff.session.machines import ThreadMachine, calls_below
from signoff.session.moments import ReplayStep, moments_of
from signoff.session.path import Step, trail
from signoff.session.replay import checks_refused, checks_run
from signoff.session.status import Condition, deps_of, look, readable
from signoff.tools.control import FinishTask, standard_controls

OUTCOME = ("status", "reason", "claim", "verified", "turns", "tool_calls")
"""The fields of an outcome that the test expects."""

TOO_LONG = "too long"
"""A placeholder for the error of a provider whose context is too small for the prompt."""

_NOTES = ("title", "description", "default", "examples", "$comment")
_BY_NAME = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")


@dataclass(frozen=True)
class Move:
    """A command from outside: `say` (a text), `answer`, `go_on` (after a limit with a number of turns)
    or `stop`.

    path, call_id: for an answer to a delegate, the way to it, and the call that waited.
    """

    kind: str
    value: Any = None
    path: tuple[str, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class RecordedResult:
    """The result of a tool. args: the arguments that ran."""

    tool: str
    args: Mapping[str, Any]
    ok: bool
    content: Any


@dataclass(frozen=True)
class RecordedTool:
    """A tool as the machine knows it. fields: the type of each argument (`any` for one of several); None if
    its arguments are not validated by type."""

    kind: str
    fields: Mapping[str, str] | None
    required: Sequence[str] = ()


@dataclass
class RecordedMachine:
    """What one machine of a thread did. path: the delegates that lead to it. calls: reply and id of each call
    that led to it. task: what it was given.

    replies: messages, or errors as text. checks: whether each round of checks passed. steps: in words.
    outcomes: how each task ended.
    """

    path: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    task: str = ""
    replies: list[AIMessage | str] = field(default_factory=list)
    results: list[RecordedResult] = field(default_factory=list)
    checks: list[bool] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class RecordedGraph:
    """The graph of a machine. settings: the arguments of `build_graph` that differ from the defaults;
    of control_tools those of `standard_controls`.
    delegates: how many calls of each run in parallel; None for all."""

    tools: Mapping[str, RecordedTool]
    settings: Mapping[str, Any]
    delegates: Mapping[str, int | None]


@dataclass
class Recording:
    """A recorded thread. machines: its own, then those of its delegates, each before those below it. graphs:
    by the delegates that lead to them."""

    thread_id: str
    begun: str
    moves: list[Move]
    machines: list[RecordedMachine]
    graphs: dict[tuple[str, ...], RecordedGraph]


@dataclass(frozen=True)
class _Stored:
    """A machine of the thread with its stored steps. calls: reply and id of each call that led to it."""

    machine: ThreadMachine
    moments: Sequence[ReplayStep]
    calls: tuple[tuple[str, str], ...] = ()


def record(graph: Graph, thread_id: str) -> Recording:
    """Records the inputs and actions of the thread and of its delegates, from its first message on.

    Raises ThreadBusy while it runs, ThreadError for an unknown thread, one with work left, or one that begins
    in the middle, SetupError for a graph that a script cannot reproduce, StorageError for data that cannot be
    read.
    """
    saver, deps = graph.checkpointer, deps_of(graph)
    if not isinstance(saver, BaseCheckpointSaver):
        raise SetupError("There is nothing to record without a checkpointer; build the graph with storage=.")
    _check_graph(deps)
    with runner(saver, checked_thread_id(thread_id)), readable(thread_id):
        condition = look(graph, thread_id).condition
        if condition is Condition.UNKNOWN:
            raise ThreadError(f"There is no thread {quote_id(thread_id)}; nothing was recorded.")
        if condition is Condition.STOPPED:
            raise ThreadError(
                f"Thread {quote_id(thread_id)} has work left; let it end, or come to a question, first."
            )
        found = list(_stored(ThreadMachine(graph, deps), graph, thread_id))
    machines = [_recorded(one) for one in found]
    begun = found[0].moments[0].step.at if found[0].moments else ""
    return Recording(thread_id, begun, _moves(found, thread_id), machines, _graphs(found))


def _stored(
    machine: ThreadMachine, root: Graph, thread_id: str, calls: tuple[tuple[str, str], ...] = ()
) -> Iterator[_Stored]:
    """A machine of the thread, and those below it."""
    saver = root.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a thread is saved"
    moments = tuple(moments_of(machine.graph, trail(saver, thread_id, machine.ns)))
    if not all(moment.whole for moment in moments):
        raise ThreadError(
            f"A run of thread {quote_id(thread_id)} saved only its end; its steps are not known."
        )
    yield _Stored(machine, moments, calls)
    for call in calls_below(machine, root, thread_id):
        tool = machine.deps.toolbox.delegates.get(call.name)
        if tool is None:
            raise SetupError(
                f"The delegate {call.name!r} is not in the graph, so a recording does not include its steps; "
                "test it with its graph."
            )
        if call.machine is not None:
            _check_graph(call.machine.deps, f"The graph of the delegate {call.name!r}")
            yield from _stored(call.machine, root, thread_id, (*calls, (call.reply_id, call.call_id)))


def _recorded(one: _Stored) -> RecordedMachine:
    task = str(one.moments[0].before["messages"][0].text) if one.moments else ""
    found = RecordedMachine(one.machine.path, one.calls, task)
    for moment in one.moments:
        _take(found, moment, one.machine.deps.toolbox.delegates)
    path = [moment.step for moment in one.moments if moment.step.name]
    # As in the history of a session: from the first reply on.
    begun = next((at for at, step in enumerate(path) if step.event == Event.REPLIED), len(path))
    way = "".join(f"{name} / " for name in found.path)
    found.steps = [f"{way}{in_words(step)}" for step in path[0 if way else begun :]]
    return found


def _moves(found: Sequence[_Stored], thread_id: str) -> list[Move]:
    """The commands from outside, in order."""
    timed = list[tuple[str, Move]]()
    for one in found:
        before: Mapping[str, Any] = {}
        path = one.machine.path
        for moment in one.moments:
            # A delegate gets commands from the machine that called it, and none runs in a step after one.
            given = [] if path else _moves_between(before, moment.before, thread_id)
            given += [replace(move, path=path) for move in _people(moment)]
            timed += [(moment.step.at, move) for move in given]
            before = moment.after
    if len(found) > 1:
        timed.sort(key=itemgetter(0))
    return [move for _, move in timed]


def _graphs(found: Sequence[_Stored]) -> dict[tuple[str, ...], RecordedGraph]:
    """The graphs of these machines, and those of their delegates that were never started."""
    graphs, idle = dict[tuple[str, ...], RecordedGraph](), dict[tuple[str, ...], RecordedGraph]()
    for path in dict.fromkeys(one.machine.path for one in found):
        same = [one for one in found if one.machine.path == path]
        machine = same[0].machine
        delegates = machine.deps.toolbox.delegates
        settings = _settings(machine, [one.moments for one in same])
        parallel = {name: made.at_once for name, made in delegates.items()}
        graphs[path] = RecordedGraph(_tools(machine.deps), settings, parallel)
        for name, made in delegates.items():
            # It may be made by a function, and even by one that never ends.
            deps = graph_deps(made.graph) if isinstance(made.graph, Pregel) else None
            idle[*path, name] = RecordedGraph(_tools(deps) if deps else {}, {}, {})
    return graphs | {path: graph for path, graph in idle.items() if path not in graphs}


def _tools(deps: Dependencies) -> dict[str, RecordedTool]:
    box = deps.toolbox
    working = {name: tool for name, tool in box.tools.items() if name not in box.delegates}
    return {name: _tool(tool, str(box.kinds[name])) for name, tool in working.items()}


def in_words(step: Step) -> str:
    """A step in words: its state, the event, and of `decide` the rule."""
    return f"{step.name}: {step.event}" + (f" by {step.rule}" if step.rule else "")


def _check_graph(deps: Dependencies, which: str = "The graph") -> None:
    """Raises SetupError for a graph that a script cannot reproduce."""
    if deps.middleware is not None:
        raise SetupError(
            f"{which} has middleware, which a recording does not include; test it with the graph."
        )
    own = {control.tool.name for control in standard_controls()}
    others = [name for name in deps.toolbox.controls if name not in own]
    if others:
        named = ", ".join(others)
        raise SetupError(
            f"{which} has control tools of its own ({named}), which a recording does not include; test it "
            "with the graph."
        )


def _moves_between(last: Mapping[str, Any], now: Mapping[str, Any], thread_id: str) -> list[Move]:
    """The commands between two steps, from the state after the first and before the second."""
    stopped = now.get("stop")
    moves = [Move("stop")] if stopped and stopped != last.get("stop") else []
    known = {message.id for message in last.get("messages", ())}
    # Not by their number: a command may take back the result of a delegate that is to go on.
    for message in now["messages"]:
        if message.id in known:
            continue
        notes = marks(message)
        if "extended" in notes:
            before = last.get("extra") or {}
            granted = before["turns"] if before.get("task") == now["extra"]["task"] else 0
            moves.append(Move("go_on", now["extra"]["turns"] - granted))
        elif isinstance(message, HumanMessage) and is_genuine(message):
            moves.append(Move("say", message.content))
        elif isinstance(message, HumanMessage):
            moves.append(Move("go_on"))
        else:
            raise ThreadError(
                f"Thread {quote_id(thread_id)} starts in the middle, as a fork or with an imported history, "
                "so its beginning is not known; record the original thread."
            )
    # Adjacent user messages belong to one input.
    said = [move.value for move in moves if move.kind == "say"]
    return moves if len(said) < 2 else [Move("say", said)]


def _take(found: RecordedMachine, moment: ReplayStep, delegates: Collection[str]) -> None:
    """Adds what the step received from outside. delegates: the tools whose results other machines give."""
    state, event, written = moment.state, moment.event, moment.written
    results = [message for message in written if isinstance(message, ToolMessage)]
    if state is State.CALL_LLM:
        replies = [message for message in written if is_reply(message)]
        if event in (Event.FAILED, Event.TOO_LONG) and not replies:
            ending: Any = moment.after.get("ending") or {}
            found.replies.append(TOO_LONG if event is Event.TOO_LONG else str(ending.get("error", "")))
        found.replies += replies
    elif state is State.EXECUTE:
        ran = [one for one in results if not _is_ours(one) and one.name not in delegates]
        found.results += [_result(one, moment) for one in ran]
    elif state is State.REVIEW:
        if checks_refused(moment):
            found.checks.append(False)
        elif checks_run(moment):
            found.checks.append(True)
    elif state is State.FINISH:
        outcome: Any = moment.after.get("outcome") or {}
        if moment.before.get("outcome") != outcome:
            found.outcomes.append({name: outcome.get(name) for name in OUTCOME})


def _people(moment: ReplayStep) -> list[Move]:
    """The answers of people or of a driver in the step."""
    results = [message for message in moment.written if isinstance(message, ToolMessage)]
    match moment.state:
        case State.APPROVE:
            return _decisions(moment)
        case State.ASK_USER:
            return [
                Move("answer", message.content, call_id=getattr(message, "tool_call_id", ""))
                for message in moment.written
            ]
        case State.CONFIRM if results:
            said = marks(results[0]).get("said", "")
            refused = moment.event is Event.SENT_BACK
            words = said if refused else f"yes {said}".strip()
            return [Move("answer", words, call_id=results[0].tool_call_id)]
        case State.HAND_OVER:
            observed = [one for one in results if not _is_ours(one)]
            return [
                Move("answer", {"output": one.content, "status": one.status}, call_id=one.tool_call_id)
                for one in observed
            ]
    return []


def _is_ours(result: ToolMessage) -> bool:
    """Whether the machine wrote the result for a call that did not run."""
    return bool({"not_run", "responded", "unknown"} & marks(result).keys())


def _result(result: ToolMessage, moment: ReplayStep) -> RecordedResult:
    ran = marks(result).get("ran")
    if ran is None:
        replies = filter(is_reply, reversed(moment.before["messages"]))
        calls = (call for reply in replies for call in reply.tool_calls)
        ran = next((call["args"] for call in calls if call["id"] == result.tool_call_id), {})
    return RecordedResult(result.name or "", ran, result.status != "error", result.content)


def _decisions(moment: ReplayStep) -> list[Move]:
    """A person's decisions on the waiting calls."""
    before: Any = moment.before.get("approvals") or {"calls": {}}
    after: Any = moment.after.get("approvals") or {"calls": {}}
    fresh = {key: one for key, one in after["calls"].items() if before["calls"].get(key) != one}
    names = {
        call["id"]: call["name"]
        for message in moment.after["messages"]
        for call in (message.tool_calls if is_reply(message) else ())
    }
    given = []
    for key, one in fresh.items():
        told: dict[str, Any] = {"call_id": key, "type": one["type"]}
        if one["type"] == "edit":
            told["edited_action"] = {"name": names[key], "args": one["args"]}
        elif one["message"]:
            told["message"] = one["message"]
        given.append(told)
    return [Move("answer", {"decisions": given}, call_id=given[0]["call_id"])] if given else []


def _settings(machine: ThreadMachine, stored: Sequence[Sequence[ReplayStep]]) -> dict[str, Any]:
    """stored: the steps of each machine that this graph ran."""
    deps, given = machine.deps, dict[str, Any]()
    box = deps.toolbox
    limits = {name: value for name, value in deps.limits if value != getattr(Limits(), name)}
    if limits:
        given["limits"] = limits
    policy: dict[str, Any] = {"model_retries": None}
    if talk := ("strict" if deps.required else "natural" if box.dialogue else ""):
        policy["talk"] = talk
    if (schema := _result_schema(deps)) is not None:
        given["response_format"] = schema
    controls = ({"rounds": True} if box.rounds else {}) | ({} if deps.answers else {"answer": "none"})
    if controls:
        given["control_tools"] = controls
    if deps.ask_unknown:
        policy["unknown_outcomes"] = "ask"
    if approvals := _approvals(machine, stored):
        given["approvals"] = approvals
    moments = chain.from_iterable(stored)
    if any(moment.before.get("digest") != moment.after.get("digest") for moment in moments):
        # The size of the prompt matters only if old turns were summarised.
        policy |= {"prompt_tokens": deps.prompt_tokens, "result_chars": deps.result_chars}
        given["system_prompt"] = deps.system_prompt if isinstance(deps.system_prompt, str) else ""
    return {**given, "policy": policy}


def _result_schema(deps: Dependencies) -> Any:
    """The JSON schema of the results that the tasks must have; None without one."""
    if deps.shape is not None:
        return _without_notes(deps.shape.json_schema())
    controls = deps.toolbox.controls
    schema: Any = controls[controls.finish].tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, FinishTask) and "result" in schema.model_fields):
        return None
    return _without_notes(schema.model_json_schema()["properties"]["result"])


def _without_notes(schema: Any) -> Any:
    """The schema without the parts that only describe: they may be long, and decide nothing."""
    if isinstance(schema, list):
        return [_without_notes(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = dict[str, Any]()
    for key, part in schema.items():
        if key in _BY_NAME and isinstance(part, Mapping):
            kept[key] = {name: _without_notes(one) for name, one in part.items()}
        elif key not in _NOTES:
            kept[key] = part if key in ("const", "enum") else _without_notes(part)
    return kept


def _approvals(machine: ThreadMachine, stored: Sequence[Sequence[ReplayStep]]) -> dict[str, Any]:
    """The rule of each tool: the allowed decisions, from the calls of these machines, and what is handed
    over."""
    box, above = machine.deps.toolbox, machine.descent.policies if machine.descent else ()
    policy, found = box.approvals.below(above), dict[str, list[str]]()
    for moments in stored:
        for message in moments[-1].after["messages"] if moments else ():
            for call in message.tool_calls if is_reply(message) else ():
                name = call["name"]
                if allowed := policy.allowed(name, call["args"]) if name in box.tools else ():
                    found[name] = list(map(str, allowed))
    rules: dict[str, Any] = dict(found)
    for name in filter(box.is_driven, box.tools):
        rules[name] = {"allowed_decisions": found[name], "hand_over": True} if name in found else "hand_over"
    return rules


def _tool(tool: BaseTool, kind: str) -> RecordedTool:
    schema: Any = tool.tool_call_schema
    told = schema if isinstance(schema, dict) else schema.model_json_schema()
    properties = told.get("properties", {})
    plain = all(name.isidentifier() and not name.startswith("_") for name in properties)
    if isinstance(schema, dict) or not plain or any(hasattr(BaseModel, name) for name in properties):
        return RecordedTool(kind, None)
    types = {name: one.get("type", "any") for name, one in properties.items()}
    fields = {name: sort if sort in _TYPES else "any" for name, sort in types.items()}
    return RecordedTool(kind, fields, [name for name in told.get("required", ()) if name in fields])
