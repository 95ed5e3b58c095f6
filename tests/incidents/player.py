"""Plays an incident: a thread as JSON, through `build_graph`, `Session` and `ScriptedModel`.

An incident says in neutral words what comes in, what the model says and what must come of it; only this
module knows by which names the package is called. Each step is taken by a new graph, so that nothing may live
in the memory of a process; a step that is `killed` is taken by a process of its own, which ends by SIGKILL.
docs/project/development.md has the words of the files.
"""

import asyncio
import json
import os
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff import (
    Action,
    Answer,
    Approval,
    Graph,
    ModelRetries,
    Outcome,
    Paused,
    Question,
    Session,
    Texts,
    ThreadError,
    TooLate,
    Waiting,
    build_graph,
    go_on,
    outcome_of,
    postgres_storage,
    sqlite_storage,
    stop,
    undo,
)
from signoff.models import ScriptedModel, TaggedText, call, reply
from signoff.outcome import UndoReport
from signoff.session import expire, request_pause
from tests.incidents.fixtures import World, fixture
from tests.support.adapted import adapted
from tests.support.ends import saved_outcome
from tests.support.plays import labelled

FOLDER = Path(__file__).parent
Document = dict[str, Any]


class RefusedCall(Exception):
    """A provider's answer in place of a reply with a call that it does not take."""

    code = "tool_use_failed"


ERRORS = {
    "connection": ConnectionError,
    "prompt too long": ContextOverflowError,
    "refused call": RefusedCall,
}
USAGE = (100, 10)
"""The input and output tokens of a reply of which nothing else is said; null for as many as it has."""
CHANNELS = ("notes", "photo")
"""The channels of the fixtures."""

_SENTENCES = re.compile(r" \{(why|next|error|issues|changes|hint|left|points|output)\}")


def _named(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: _SENTENCES.sub("", text) for name, text in labelled(texts).items()}


NAMED = Texts(
    nudges=_named(Texts().nudges),
    results=_named(Texts().results) | {"responded": "{message}"},
    refusals=_named(Texts().refusals),
    answers=_named(Texts().answers) | {"standing": "<standing>"},
)
"""What the machine says, as the names of its texts and what others say in them."""

WHOLE = (
    *("status", "reason", "claim", "verified", "result", "summary", "phases", "last_text", "open_work"),
    *("turns", "tool_calls", "nudges", "refusals", "retries"),
)
"""What is read from an outcome as it is."""


def incidents() -> dict[str, Document]:
    """All incidents, by name: "kills: in a tool" is `kills/in_a_tool.json`."""
    files = sorted(FOLDER.glob("*/*.json"))
    names = (f"{file.parent.name}: {file.stem.replace('_', ' ')}" for file in files)
    return {name: json.loads(file.read_text("utf-8")) for name, file in zip(names, files, strict=True)}


def file_of(name: str) -> Path:
    folder, _, stem = name.partition(": ")
    return FOLDER / folder / f"{stem.replace(' ', '_')}.json"


def as_json(value: Any, indent: int = 0) -> str:
    """An incident as JSON, where what is short stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or (indent and indent + len(line) < 100):
        return line
    space, ends = " " * (indent + 2), "[]" if isinstance(value, list) else "{}"
    if isinstance(value, list):
        parts = [as_json(part, indent + 2) for part in value]
    else:
        parts = [f"{json.dumps(key)}: {as_json(part, indent + 2)}" for key, part in value.items()]
    return "\n".join([ends[0], ",\n".join(f"{space}{part}" for part in parts), f"{' ' * indent}{ends[1]}"])


def die(messages: Any = None) -> Any:
    """Kills this process, also as a model that is asked."""
    os.kill(os.getpid(), signal.SIGKILL)


# The words of a file, as what the package is called by.


def scripted(words: Any, ids: str) -> Any:
    """A reply: text, a call as `{"pay": {"amount": 3}}` (with text for arguments that are no JSON), a list of
    both, `{"say": …, "usage": …, "finish_reason": …}`; or `{"error": "connection"}`."""
    if isinstance(words, dict) and "error" in words:
        return ERRORS[words["error"]]("The line is dead.")
    whole = words if isinstance(words, dict) and "say" in words else {"say": words}
    parts = whole["say"] if isinstance(whole["say"], list) else [whole["say"]]
    said: list[Any] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            said.append(part)
            continue
        ((name, args),) = part.items()
        arguments = {"raw": args} if isinstance(args, str) else {"args": args}
        said.append(call(name, id=f"{ids}_{number}", **arguments))
    usage = whole.get("usage", USAGE)
    return reply(*said, usage=usage and tuple(usage), finish_reason=whole.get("finish_reason"))


def delegate_says(tasks: Mapping[str, list[Any]], killed: str) -> Callable[[list[BaseMessage]], Any]:
    """The model of a delegate: its reply depends on its task, and on how often it has replied."""

    def next_reply(messages: list[BaseMessage]) -> Any:
        task = next(message.text for message in messages if message.type == "human")
        number = sum(message.type == "ai" for message in messages)
        if killed == "while the model of a delegate is asked" and number + 1 == len(tasks[task]):
            die()
        return scripted(tasks[task][number], f"{task} {number}")

    return next_reply


def graph_of(incident: Document, script: Any, storage: Any, world: World | None = None) -> Graph:
    """The graph of an incident. Without a world it only reads."""
    world = world or World(Path(os.devnull), "", {})
    settings = {**fixture(incident["fixture"], world), **incident.get("settings", {})}
    model: Any = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    if principles := settings.pop("principles", None):
        model = TaggedText(model, constitution=principles)
    if isinstance(summary := settings.get("compaction"), dict):
        settings["compaction"] = ScriptedModel(lambda _: scripted(summary, "summary"))
    if settings.get("model_retries"):
        settings["model_retries"] = ModelRetries(**settings["model_retries"], first_wait=0.01)
    named = {"says something": world.says_something}
    settings["checks"] = [named.get(check, check) for check in settings.get("checks", ())]
    return build_graph(model, storage=storage, **adapted(texts=NAMED, **settings))


def imported(words: Mapping[str, Any]) -> BaseMessage:
    """A message of a history that was made elsewhere; a result is that of the first call."""
    match words:
        case {"model": parts}:
            calls = [(name, args) for part in parts if isinstance(part, dict) for name, args in part.items()]
            made = [{"name": name, "args": args, "id": f"made_{at}"} for at, (name, args) in enumerate(calls)]
            return AIMessage(" ".join(part for part in parts if isinstance(part, str)), tool_calls=made)
        case {"result": text}:
            return ToolMessage(text, tool_call_id="made_0")
    return HumanMessage(words["person"])


def opened(address: str) -> AbstractContextManager[Any]:
    return postgres_storage(address) if address.startswith("postgresql:") else sqlite_storage(address)


def kill_when_saved(store: Any, world: World) -> None:
    """Has this process killed right after the journal has got a result, where the kill names that."""
    batch = store.batch

    def batch_and_die(operations: Any) -> Any:
        operations = list(operations)
        results = batch(operations)
        if any((getattr(one, "value", None) or {}).get("status") == "done" for one in operations):
            world.reach("when the journal has a result")
        return results

    store.batch = batch_and_die


@dataclass
class Player:
    """Plays one incident in the storage at this address.

    folder: for what takes place outside. thread_id: the thread that it has come to, another one after a fork.
    """

    name: str
    incident: Document
    address: str
    folder: Path
    is_async: bool = False
    thread_id: str = ""

    def play(self) -> Document:
        """The incident, with what has come of it in place of what is expected."""
        self.thread_id = self.name
        steps: list[Document] = []
        (self.folder / "effects").write_text("")
        with ExitStack() as stack:
            storage = stack.enter_context(opened(self.address))
            looking = self.graph(storage)
            for number, step in enumerate(self.incident["steps"]):
                if "killed" in step:
                    # A process begins with nothing that is open.
                    stack.close()
                    self.take_and_die(number)
                    storage = stack.enter_context(opened(self.address))
                    looking, came = self.graph(storage), ""
                else:
                    came = self.take(number, storage)
                came = came or standing(Session(looking, self.thread_id))
                steps.append({key: value for key, value in step.items() if key != "then"} | {"then": came})
            expected = self.result(Session(looking, self.thread_id))
            return {**self.incident, "steps": steps, "expected": expected}

    def graph(self, storage: Any, script: Any = (), killed: str = "") -> Graph:
        tasks = self.incident.get("delegates", {})
        delegates = {name: delegate_says(replies, killed) for name, replies in tasks.items()}
        return graph_of(self.incident, script, storage, World(self.folder / "effects", killed, delegates))

    def take(self, number: int, storage: Any, killed: str = "") -> str:
        """Takes a step by a graph of its own; whether it was refused or paused."""
        step = self.incident["steps"][number]
        script = [scripted(one, f"call_{number}_{at}") for at, one in enumerate(step.get("replies", ()))]
        if killed == "while the model is asked":
            script.append(die)
        if "meanwhile" in step:
            script.append(_meanwhile(step["meanwhile"], script.pop(), lambda: session))
        with ScriptedModel(script) as model:
            session = Session(
                self.graph(storage, model, killed),
                self.thread_id,
                on_pending=step.get("pending", "answer"),
            )
            try:
                is_paused = self.move(step, session)
            except TooLate:
                return "refused: too late"
            except ThreadError:
                return "refused"
            prompt = "\n".join(message.text for message in model.seen[-1].messages) if model.seen else ""
            unseen = [words for words in step.get("shown", ()) if words not in prompt]
            assert not unseen, f"The last prompt of step {number} does not hold {unseen}."
        return "paused" if is_paused else ""

    def take_and_die(self, number: int) -> None:
        """Takes a step in a process of its own, which is killed in it."""
        with warnings.catch_warnings(action="ignore"):
            child = os.fork()
        if child == 0:
            try:
                # Whatever happens, it does not stay. Only the sync methods of a storage are watched.
                signal.alarm(60)
                self.is_async = False
                with opened(self.address) as storage:
                    killed = self.incident["steps"][number]["killed"]
                    kill_when_saved(storage.store, World(self.folder / "effects", killed, {}))
                    self.take(number, storage, killed)
            finally:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"It was not killed in step {number}."

    def move(self, step: Document, session: Session[Any]) -> bool:
        """Does what the step says; whether it was paused."""
        match step:
            case {"fork": turns}:
                self.thread_id = f"{self.thread_id} (fork)"
                session.fork(turns, self.thread_id)
            case {"expire": True}:
                expire(session.graph, self.thread_id, now=time.time() + 1e6)
            case {"pause": True}:
                assert session.graph.store is not None
                request_pause(session.graph.store, self.thread_id)
            case {"message": text, "channels": channels}:
                self.invoke(session.graph, {"messages": [HumanMessage(text)], **channels})
            case _:
                command = self.command(step, session)
                decision = asyncio.run(session.arun(command)) if self.is_async else session.run(command)
                return isinstance(decision, Paused)
        return False

    def invoke(self, graph: Graph, values: Any) -> None:
        config: Any = {"configurable": {"thread_id": self.thread_id}}
        if self.is_async:
            asyncio.run(graph.ainvoke(values, config))
        else:
            graph.invoke(values, config)

    def command(self, step: Document, session: Session[Any]) -> Any:
        """What a session is given for what comes in."""
        match step:
            case {"message": text}:
                return [HumanMessage(text, id=step.get("id"))]
            case {"messages": messages}:
                return [imported(message) for message in messages]
            case {"answer": answer}:
                waits, place = session.status().waits, step.get("to", 0)
                # An answer to what waits no longer has some other id.
                interrupt_id = waits[place].interrupt_id if place < len(waits) else "0" * 32
                return Answer(answer, interrupt_id, step.get("by"))
            case {"go_on": turns}:
                outcome = session.status().outcome
                status = outcome.status if outcome else "stopped"
                return {"limit": go_on(int(turns)), "error": go_on()}.get(status)
            case {"undo": how}:
                return undo(ask=how == "ask")
            case {"stop": True}:
                return stop()
        raise ValueError(f"Nothing is known of {step!r}.")

    # What has come of it.

    def result(self, session: Session[Any]) -> Document:
        values = session.status().values
        ended = saved_outcome(values) is not None
        channels = {name: values[name] for name in CHANNELS if values.get(name)}
        return {
            **({"outcome": self.shown_outcome(outcome_of(values))} if ended else {}),
            "effects": (self.folder / "effects").read_text("utf-8").splitlines(),
            **({"channels": json.loads(json.dumps(channels, default=bytes.decode))} if channels else {}),
            "messages": list(map(shown_message, values["messages"])),
        }

    def shown_outcome(self, outcome: Outcome[Any]) -> Document:
        """What a person reads from an outcome, without times and sentences; what is empty is left out."""
        values = outcome.model_dump(mode="json")
        shown = {name: values[name] for name in WHOLE} | {
            "pending_issues": len(outcome.pending_issues),
            "open_points": len(outcome.open_points) if outcome.status == "success" else 0,
            "checks": [f"{one.name}: {'passed' if one.passed else 'failed'}" for one in outcome.checks],
            "changes": [f"{one.call}: {one.came}" for one in outcome.changes],
            "tokens": 0 if outcome.usage.estimated else outcome.usage.total_tokens,
        }
        return {name: value for name, value in shown.items() if value not in (None, "", [], 0)}


def shown_message(message: BaseMessage) -> str:
    """A message as one line: the words of model, tools and people, and the names of the machine's."""
    text = str(message.text)
    if len(text) >= 500:
        text = f"{text[:20]}… ({len(text)} characters)"
    match message:
        case AIMessage():
            calls = [*message.tool_calls, *message.invalid_tool_calls]
            return " ".join(["model:", *filter(None, [text]), *map(shown_call, calls)])
        case ToolMessage():
            return f"{message.name or 'result'}: {'(failed) ' if message.status == 'error' else ''}{text}"
    return f"person: {text}"


def _meanwhile(asked: str, step: Any, session: Callable[[], Session[Any]]) -> Callable[[Any], Any]:
    """A reply during which somebody asks for a pause, or for the end."""

    def reply_later(messages: Any) -> Any:
        session().pause(asked)
        return step

    return reply_later


def plain(kind: str) -> str:
    return kind.replace("_", " ")


def shown_call(tool_call: Mapping[str, Any]) -> str:
    args = tool_call["args"]
    words = args if isinstance(args, str) else ", ".join(f"{name}={value!r}" for name, value in args.items())
    return f"{tool_call['name']}({words})"


def standing(session: Session[Any]) -> Any:
    """What the thread waits for, how it has ended, or that it was stopped."""
    status = session.status()
    if status.outcome:
        outcome = Outcome.model_validate(status.outcome)
        parts = (outcome.status, outcome.reason, outcome.claim, outcome.verified)
        ended = f"ended: {', '.join(plain(part) for part in parts if part)}"
        return f"{ended}; {shown_undo(outcome.undo)}" if outcome.undo else ended
    waits = [" / ".join([*wait.path, shown_wait(wait)]) for wait in status.waits]
    return (waits[0] if len(waits) == 1 else waits) or str(status.condition)


def shown_undo(undo: UndoReport) -> str:
    undone = (" / ".join([*one.path, one.call]) for one in undo.undone)
    standing = (" / ".join([*one.path, f"{one.call} ({plain(one.why)})"]) for one in undo.standing)
    return f"undone: {', '.join(undone) or 'nothing'}; standing: {', '.join(standing) or 'nothing'}"


def shown_wait(wait: Waiting) -> str:
    match wait:
        case Question():
            default = [f"(else {wait.default})"] if wait.default else []
            return " ".join(["question:", wait.text, *map(repr, wait.options), *default])
        case Approval(calls=(finish,)) if wait.document()["waits_for"] == "confirmation":
            return f"confirmation: {finish.args['summary']}{' (refused before)' if wait.problem else ''}"
        case Approval():
            calls = [f"{shown_call(vars(one))} {'|'.join(one.allowed)}" for one in wait.calls]
            return f"approval: {'; '.join(calls)}"
        case Action():
            again = " (handed out before)" if wait.unknown else ""
            return f"action: {shown_call({'name': wait.tool, 'args': wait.args})}{again}"
    raise AssertionError(wait)
