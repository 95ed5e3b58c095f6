"""Kills a process with SIGKILL after every single write that follows a new message on a thread.

Run as a program: `python -m tests.message_sweep [--case …] [--way …] [--then …] [--sample N --seed S]`. The
thread stands in each of the cases, the message comes by each of the ways, and once the process is dead
another one goes on by the same way: it looks and goes on ("look"), sends the same message once more because
it got no answer ("same"), or sends another one ("next"). However it went, each message stands in the thread
once and is answered once. It prints a line for each combination, and one for each kill that went wrong.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from io import StringIO
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.store.base import PutOp

import signoff.storage.sqlite
from signoff import Answer, Limits, Session, build_graph, current_outcome, go_on, sqlite_storage
from signoff.cli.app import app
from signoff.graph.build import Graph
from signoff.graph.messages import is_genuine, is_reply
from signoff.models import ScriptedModel, call, reply
from signoff.session.decisions import Approval
from signoff.session.status import ThreadStatus
from signoff.tools.files import workspace_tools
from signoff.workers import Order, drive, post

CASES = ("new", "success", "limit", "error", "question", "approval", "paused")
WAYS = ("invoke", "session", "command", "workers")
THENS = ("look", "same", "next")
THREAD: Any = {"configurable": {"thread_id": "t"}}
SENT, OTHER = "message-one", "message-two"
OPENINGS: dict[str, Any] = {
    "success": call("finish_task", summary="The first task."),
    "limit": call("list_files"),
    "error": ValueError("the provider is out of order"),
    "question": call("ask_user", question="Which one?"),
    "approval": call("write_file", path="a.txt", content="hi"),
    "paused": reply("Let me see.", call("list_files")),
}


def script(messages: list[BaseMessage]) -> Any:
    """What the model says: it finishes with the names of the messages that it has not answered yet."""
    ended = [at for at, one in enumerate(messages) if isinstance(one, AIMessage) and _finishes(one)]
    new = messages[ended[-1] + 1 if ended else 0 :]
    heard = [one for one in new if not isinstance(one, AIMessage)]
    told = [name for name in (SENT, OTHER) if any(name in one.text for one in heard)]
    if told:
        return call("finish_task", summary=f"answered: {', '.join(told)}")
    first = next(name for name in CASES if any(f"first: {name}" in one.text for one in new))
    return "Well." if any(map(is_reply, new)) else OPENINGS[first]


def _finishes(message: AIMessage) -> bool:
    return any(made["name"] == "finish_task" for made in message.tool_calls)


class Moments:
    """Ends the process at the n-th moment. What stands in the database is the same after a write as before
    the next one."""

    left = 0

    @classmethod
    def moment(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _around(method: Any, writes: Callable[..., bool] = lambda *_: True) -> Any:
    # With its signature: by that LangGraph tells what the saver takes.
    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = method(self, *args, **kwargs)
        if writes(*args):
            Moments.moment()
        return done

    return wrapped


def _puts(ops: Any, *_: Any) -> bool:
    return any(isinstance(op, PutOp) for op in ops)


class Saver(signoff.storage.sqlite.ThreadSaver):
    put = _around(signoff.storage.sqlite.ThreadSaver.put)
    put_writes = _around(signoff.storage.sqlite.ThreadSaver.put_writes)


class Store(signoff.storage.sqlite.ThreadStore):
    batch = _around(signoff.storage.sqlite.ThreadStore.batch, _puts)
    swap = _around(signoff.storage.sqlite.ThreadStore.swap)


def graph_on(storage: Any, folder: Path, case: str) -> Graph:
    return build_graph(
        ScriptedModel(script),
        [tool for tool in workspace_tools(folder / "work") if tool.name in ("list_files", "write_file")],
        storage=storage,
        approvals={"write_file": True},
        limits=Limits(turns=1) if case == "limit" else None,
    )


def begin(folder: Path, case: str) -> None:
    """A thread that stands as the case says."""
    (folder / "work").mkdir()
    (folder / "model.py").write_text(
        "from signoff.models import ScriptedModel\nfrom tests.message_sweep import script\n"
        "model = ScriptedModel(script)\n"
    )
    with sqlite_storage(folder / "threads.sqlite") as storage:
        if case != "new":
            session = Session(graph_on(storage, folder, case), "t")
            session.step(f"first: {case}")
            assert OPENS[case](session), f"the thread does not stand as {case}"


OPENS: dict[str, Callable[[Session], bool]] = {
    "success": lambda session: (session.status().outcome or {})["status"] == "success",
    "limit": lambda session: (session.status().outcome or {})["status"] == "limit",
    "error": lambda session: (session.status().outcome or {})["status"] == "error",
    "question": lambda session: session.status().waiting is not None,
    "approval": lambda session: isinstance(session.status().waiting, Approval),
    "paused": lambda session: session.status().left == "execute",
}


@dataclass
class Sender:
    """Whoever sends messages to the thread by one of the ways, and knows nothing but its ID."""

    folder: Path
    case: str
    way: str
    storage: Any

    @cached_property
    def graph(self) -> Graph:
        return graph_on(self.storage, self.folder, self.case)

    def send(self, text: str) -> None:
        match self.way:
            case "invoke":
                self.graph.invoke({"messages": [("user", text)]}, THREAD)
            case "session":
                Session(self.graph, "t").run(text)
            case "command":
                self._command("run", text, "--thread", "t", "--workspace", str(self.folder / "work"))
            case "workers":
                self._post(text)
                drive(self.graph, "t")

    def go_on(self) -> None:
        """What the docs say for a thread that has not ended."""
        match self.way:
            case "invoke":
                state = self.graph.get_state(THREAD)
                if not state.interrupts and current_outcome(state.values) is None:
                    self.graph.invoke(go_on(state), THREAD)
            case "session":
                Session(self.graph, "t").run()
            case "command":
                self._command("resume", "t")
            case "workers":
                drive(self.graph, "t")

    def _post(self, text: str) -> None:
        """A retry has the same id: an inbox takes it once."""
        waiting = Session(self.graph, "t").status().waiting
        if waiting is None:
            post(self.storage.store, "t", Order(f"id of {text}", text))
        else:
            reject = {"decisions": [{"type": "reject", "message": text}]}
            given = reject if isinstance(waiting, Approval) else text
            post(self.storage.store, "t", Order(f"id of {text}", Answer(given, waiting.interrupt_id)))

    def _command(self, *words: str) -> None:
        # It opens the database itself, as a process of its own would.
        model = f"scripted:{self.folder / 'model.py'}"
        options = ["--tools", "files", "--model", model, "--quiet"]
        where = ["--database", str(self.folder / "threads.sqlite")]
        with suppress(SystemExit), redirect_stdout(StringIO()):
            app([*words, *options, *where])

    def after(self, then: str) -> None:
        """Another process has died while it sent SENT."""
        status = Session(self.graph, "t").status()
        messages = status.values.get("messages") or []
        said = [SENT in one.text for one in messages if one.type in ("human", "tool")]
        answered = status.outcome is not None or isinstance((messages or [None])[-1], AIMessage)
        known = any(said) or (self.way == "workers" and then != "same")
        if then == "same" and not (any(said) and (answered or _replied(messages))):
            self.send(SENT)
        elif then == "next":
            if not known:
                self.send(SENT)
            elif self.way == "workers":
                # One thing is answered once: what is in the inbox is delivered first.
                self.go_on()
            self.send(OTHER)
        elif not known:
            self.send(SENT)
        elif self.way == "workers":
            self.go_on()
        for _ in range(4):
            if Session(self.graph, "t").status().outcome is None:
                self.go_on()


def _replied(messages: list[BaseMessage]) -> bool:
    """Whether the model has said something since the message came."""
    at = max(at for at, one in enumerate(messages) if SENT in one.text and one.type in ("human", "tool"))
    return any(isinstance(one, AIMessage) for one in messages[at:])


def problems(status: ThreadStatus, then: str) -> list[str]:
    """What is wrong with the thread in the end."""
    messages = status.values.get("messages") or []
    ended = (status.outcome or {}).get("status")
    found = [] if ended == "success" else [f"ended with {ended}"]
    for name in (SENT, OTHER) if then == "next" else (SENT,):
        stands = sum(is_genuine(one) and one.text == name for one in messages)
        results = sum(one.type == "tool" and name in one.text for one in messages)
        finishes = [made for one in messages if isinstance(one, AIMessage) for made in one.tool_calls]
        answered = sum(name in str(made["args"].get("summary")) for made in finishes)
        if max(stands, results) != 1 or answered != 1:
            found.append(f"{name} stands {stands} times, results {results}, is answered {answered} times")
    return found


def in_child(work: Callable[[], None], errors: Path) -> int:
    """Runs in a process of its own; gives its exit code, negative when it was killed."""
    child = os.fork()
    if child == 0:
        code = 0
        with errors.open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            try:
                work()
            except BaseException as error:  # noqa: BLE001  the other process tells it
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                code = 1
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def send(folder: Path, case: str, way: str, kill_at: int) -> None:
    """Sends SENT, and is killed at that moment."""
    signoff.storage.sqlite.ThreadSaver = Saver  # type: ignore[misc]  # the storage opens these from now on
    signoff.storage.sqlite.ThreadStore = Store  # type: ignore[misc]
    with sqlite_storage(folder / "threads.sqlite") as storage:
        sender = Sender(folder, case, way, storage)
        Moments.left = kill_at
        sender.send(SENT)


def go_on_after(folder: Path, case: str, way: str, then: str) -> None:
    with sqlite_storage(folder / "threads.sqlite") as storage:
        sender = Sender(folder, case, way, storage)
        sender.after(then)
        found = problems(Session(sender.graph, "t").status(), then)
        (folder / "problems").write_text("\n".join(found))


def one(base: Path, case: str, way: str, then: str, kill_at: int) -> tuple[bool, list[str]]:
    """One kill: whether the process lived to its end before it came, and what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "t"
        shutil.copytree(base, folder)
        errors = folder / "errors"
        died = in_child(lambda: send(folder, case, way, kill_at), errors)
        if died not in (0, -signal.SIGKILL):
            return False, [errors.read_text()[-300:]]
        if in_child(lambda: go_on_after(folder, case, way, then), errors):
            return died == 0, [errors.read_text()[-300:]]
        return died == 0, (folder / "problems").read_text().splitlines()


def sweep(base: Path, case: str, way: str, then: str, only: set[int] | None = None) -> tuple[int, list[str]]:
    """How many kills there were, and what went wrong."""
    kills, wrong, alive, at = 0, list[str](), False, 0
    while not alive:
        at += 1
        if only is not None and at not in only:
            if at > max(only, default=0):
                break
            continue
        alive, found = one(base, case, way, then, at)
        kills += not alive
        wrong += [f"{case}, {way}, {then}, kill {at}: {'; '.join(found)}"] if found else []
    return kills, wrong


def warm(folder: Path) -> None:
    """Sends a message by every way in this process: else each child would import everything anew."""
    base = folder / "warm"
    base.mkdir()
    begin(base, "success")
    for way in WAYS:
        go_on_after(base, "success", way, "next")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--then", choices=THENS, action="append")
    parser.add_argument("--kills", type=int, nargs="*", help="only these moments; default: all")
    parser.add_argument("--sample", type=int, help="that many combinations, three moments of each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    chosen = [
        (case, way, then)
        for case in given.case or CASES
        for way in given.way or WAYS
        for then in given.then or THENS
    ]
    dice, only = random.Random(given.seed), set(given.kills) if given.kills else None
    if given.sample:
        chosen = dice.sample(chosen, given.sample)
    kills, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory() as name:
        for case in dict.fromkeys(case for case, _, _ in chosen):
            (Path(name) / case).mkdir()
            folder = Path(name) / case
            assert in_child(lambda: begin(folder, case), folder / "errors") == 0, (  # noqa: B023  it runs now
                folder / "errors"
            ).read_text()
        warm(Path(name))
        for case, way, then in chosen:
            moments = set(dice.sample(range(1, 19), 3)) if given.sample else only
            done, found = sweep(Path(name) / case, case, way, then, moments)
            kills, wrong = kills + done, wrong + found
            print(f"{case}, {way}, {then}: {done} kills, {len(found)} wrong", flush=True)
            for line in found:
                print(f"  {line}", flush=True)
    print(f"{kills} kills, {len(wrong)} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
