"""Reads the inputs and actions of a stored thread from its steps: enough to run it again with a script.

Replies, tool results, people's answers and verdicts of checks are taken from the writes of each step; the
settings that matter are taken from the graph. A thread that needs anything else is rejected, with one
sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import BaseModel

from signoff.graph.build import Graph
from signoff.graph.compiled.graph import runner
from signoff.graph.errors import SetupError, ThreadError, quote_id
from signoff.graph.foreign import checked_thread_id
from signoff.graph.limits import Limits
from signoff.graph.machine import Event, State
from signoff.graph.messages import is_genuine, is_reply, marks
from signoff.nodes.node import Dependencies
from signoff.session.moments import ReplayStep, moments_of
from signoff.session.path import Step, steps, trail
from signoff.session.replay import checks_refused, checks_run
from signoff.session.status import Condition, deps_of, look, readable
from signoff.tools.control import standard_controls

OUTCOME = ("status", "reason", "claim", "verified", "turns", "tool_calls")
"""The fields of an outcome that the test expects."""

TOO_LONG = "too long"
"""A placeholder for the error of a provider whose context is too small for the prompt."""

_MORE_TURNS = "request_more_turns"
_TYPES = ("string", "integer", "number", "boolean", "array", "object")


@dataclass(frozen=True)
class Move:
    """A command from outside: `say` (a text), `answer`, `extend` (a number of turns) or `retry`."""

    kind: str
    value: Any = None


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
class Recording:
    """A recorded thread. replies: messages, or errors as text. checks: whether each round of checks passed.

    settings: the arguments of `build_graph` that differ from the defaults. path: the steps in words.
    outcomes: how each task ended.
    """

    thread_id: str
    begun: str
    moves: list[Move] = field(default_factory=list)
    replies: list[AIMessage | str] = field(default_factory=list)
    results: list[RecordedResult] = field(default_factory=list)
    checks: list[bool] = field(default_factory=list)
    tools: dict[str, RecordedTool] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)


def record(graph: Graph, thread_id: str) -> Recording:
    """Records the inputs and actions of the thread, from its first message on.

    Raises ThreadBusy while it runs, ThreadError for an unknown thread, one with work left, or one that begins
    in the middle, SetupError for a graph that a script cannot reproduce, StorageError for data that cannot be
    read.
    """
    saver, deps = graph.checkpointer, deps_of(graph)
    if not isinstance(saver, BaseCheckpointSaver):
        raise SetupError("There is nothing to record without a checkpointer; build the graph with storage=.")
    if deps.middleware is not None:
        raise SetupError(
            "The graph has middleware, which a recording does not include; test it with the graph."
        )
    if deps.toolbox.delegates:
        raise SetupError(
            "The graph has delegates, whose machines a recording does not include; test it with them."
        )
    _check_controls(deps)
    with runner(saver, checked_thread_id(thread_id)), readable(thread_id):
        condition = look(graph, thread_id).condition
        if condition is Condition.UNKNOWN:
            raise ThreadError(f"There is no thread {quote_id(thread_id)}; nothing was recorded.")
        if condition is Condition.STOPPED:
            raise ThreadError(
                f"Thread {quote_id(thread_id)} has work left; let it end, or come to a question, first."
            )
        moments = list(moments_of(graph, trail(saver, thread_id)))
        path = [step for step in steps(saver, thread_id) if step.name]
    found = Recording(thread_id, path[0].at if path else "")
    before: Mapping[str, Any] = {}
    for moment in moments:
        if not moment.whole:
            raise ThreadError(
                f"A run of thread {quote_id(thread_id)} saved only its end; its steps are not known."
            )
        found.moves += [*_moves_between(before, moment.before, thread_id), *_people(moment)]
        _take(found, moment)
        before = moment.after
    # As in the history of a session: from the first reply on.
    begun = next((at for at, step in enumerate(path) if step.event == Event.REPLIED), len(path))
    found.path = [in_words(step) for step in path[begun:]]
    found.settings = _settings(deps, moments)
    found.tools = {
        name: _tool(tool, str(deps.toolbox.kinds[name])) for name, tool in deps.toolbox.tools.items()
    }
    return found


def in_words(step: Step) -> str:
    """A step in words: its state, the event, and of `decide` the rule."""
    return f"{step.name}: {step.event}" + (f" by {step.rule}" if step.rule else "")


def _check_controls(deps: Dependencies) -> None:
    own = {control.tool.name for control in standard_controls(deps.texts)} | {_MORE_TURNS}
    others = [name for name in deps.toolbox.controls if name not in own]
    if others or deps.shape is not None:
        what = f"control tools of its own ({', '.join(others)})" if others else "a response_format"
        raise SetupError(f"The graph has {what}, which a recording does not include; test it with the graph.")


def _moves_between(last: Mapping[str, Any], now: Mapping[str, Any], thread_id: str) -> list[Move]:
    """The commands between two steps, from the state after the first and before the second."""
    moves: list[Move] = []
    for message in now["messages"][len(last.get("messages", ())) :]:
        notes = marks(message)
        if "extended" in notes:
            before = last.get("extra") or {}
            granted = before["turns"] if before.get("task") == now["extra"]["task"] else 0
            moves.append(Move("extend", now["extra"]["turns"] - granted))
        elif isinstance(message, HumanMessage) and is_genuine(message):
            moves.append(Move("say", message.content))
        elif isinstance(message, HumanMessage):
            moves.append(Move("retry"))
        else:
            raise ThreadError(
                f"Thread {quote_id(thread_id)} starts in the middle, as a fork or with an imported history, "
                "so its beginning is not known; record the original thread."
            )
    # Adjacent user messages belong to one input.
    said = [move.value for move in moves if move.kind == "say"]
    return moves if len(said) < 2 else [Move("say", said)]


def _take(found: Recording, moment: ReplayStep) -> None:
    """Adds what the step received from outside."""
    state, event, written = moment.state, moment.event, moment.written
    results = [message for message in written if isinstance(message, ToolMessage)]
    if state is State.CALL_LLM:
        replies = [message for message in written if is_reply(message)]
        if event in (Event.FAILED, Event.TOO_LONG) and not replies:
            ending: Any = moment.after.get("ending") or {}
            found.replies.append(TOO_LONG if event is Event.TOO_LONG else str(ending.get("error", "")))
        found.replies += replies
    elif state is State.EXECUTE:
        found.results += [_result(one, moment) for one in results if not _is_ours(one)]
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
            return [Move("answer", message.content) for message in moment.written]
        case State.CONFIRM if results:
            said = marks(results[0]).get("said", "")
            refused = moment.event is Event.SENT_BACK
            return [Move("answer", said if refused else f"yes {said}".strip())]
        case State.HAND_OVER:
            observed = [one for one in results if not _is_ours(one)]
            return [Move("answer", {"output": one.content, "status": one.status}) for one in observed]
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
    return [Move("answer", {"decisions": given})] if given else []


def _settings(deps: Dependencies, moments: Sequence[ReplayStep]) -> dict[str, Any]:
    box, given = deps.toolbox, dict[str, Any]()
    limits = {name: value for name, value in deps.limits if value != getattr(Limits(), name)}
    if limits:
        given["limits"] = limits
    if talk := ("strict" if deps.required else "natural" if box.dialogue else ""):
        given["talk"] = talk
    if _MORE_TURNS in box.controls:
        given["more_turns"] = "ask" if box.ask_for_turns else "once"
    flags = {"rounds": box.rounds, "evidence": deps.evidence, "finish_alone": deps.finish_alone}
    given |= {name: True for name, value in flags.items() if value}
    if deps.ask_unknown:
        given["unknown_outcomes"] = "ask"
    if not deps.answers:
        given["answer"] = "none"
    if driven := [name for name in box.tools if box.is_driven(name)]:
        given["hand_over"] = driven
    if approvals := _approvals(deps, moments):
        given["approvals"] = approvals
    if any(moment.before.get("digest") != moment.after.get("digest") for moment in moments):
        # The size of the prompt matters only if old turns were summarised.
        given["prompt_tokens"] = deps.prompt_tokens
        given["system_prompt"] = deps.system_prompt if isinstance(deps.system_prompt, str) else ""
        given["result_chars"] = deps.result_chars
    return given


def _approvals(deps: Dependencies, moments: Sequence[ReplayStep]) -> dict[str, list[str]]:
    """The allowed decisions for each tool, from the calls of this thread."""
    found: dict[str, list[str]] = {}
    for message in moments[-1].after["messages"] if moments else ():
        for call in message.tool_calls if is_reply(message) else ():
            name = call["name"]
            allowed = deps.toolbox.approvals.allowed(name, call["args"]) if name in deps.toolbox.tools else ()
            if allowed:
                found[name] = list(map(str, allowed))
    return found


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
