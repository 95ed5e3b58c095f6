"""What a person decides comes to the same by every face: one table, and an adapter for each."""

import json
import runpy
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi.testclient import TestClient
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.types import Command

from signoff import Session, Storage, build_graph, outcome_of, postgres_storage, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.protocols.test_acp import FORMS, Editor, choose, edit_to
from tests.protocols.test_mcp import Client
from tests.support.benches.cli import Bench
from tests.support.benches.served import Place, Served, Thread
from tests.support.rpc import fill_in, signoff

FILE = "said.txt"
"""What the command appends to, and what an answer to the question is written to, in the folder of a case."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "support"
CONFIG: Any = {"configurable": {"thread_id": "t"}}
NUMBERS = count(1)

WAITS = {
    "approval": f"""[
        call("run_shell", command="echo ran >> {FILE}"),
        call("finish_task", summary="It ran."),
    ]""",
    "question": f"""[
        call("ask_user", question="Which port?", options=["8080", "9090"]),
        lambda messages: call("write_file", path="{FILE}", content=messages[-1].text),
        call("finish_task", summary="The port is set."),
    ]""",
    "finish": """[
        call("finish_task", summary="Half.", requires_user_confirmation=True),
        call("finish_task", summary="All of it."),
    ]""",
}
EDITED = {"command": f"echo edited >> {FILE}"}
# What a thread waits for, what a person decides, what then stands in the file, and the summary at the end.
CASES = {
    "a call is approved": ("approval", "approve", "ran\n", "It ran."),
    "a call is rejected": ("approval", "reject: No", "", "It ran."),
    "a call is edited": ("approval", f"edit: {json.dumps(EDITED)}", "edited\n", "It ran."),
    "an option": ("question", "9090", "9090", "The port is set."),
    "the number of an option": ("question", "1", "8080", "The port is set."),
    "words in place of an option": ("question", "port 7070", "port 7070", "The port is set."),
    "a finish is confirmed": ("finish", "approve", "", "Half."),
    "a finish is sent back": ("finish", "Not yet.", "", "All of it."),
}


class Face(Protocol):
    """A thread in a folder, by one face. begin: until it waits. decide: returns the summary at the end."""

    folder: Path

    def begin(self, wait: str) -> None: ...

    def decide(self, wait: str, decision: str) -> str: ...


def document(decision: str) -> Any:
    """A decision as programs write it."""
    if decision.startswith("edit: "):
        return {"decisions": [{"type": "edit", "edited_action": {"name": "run_shell", "args": EDITED}}]}
    return decision


class ByInvoke:
    """A graph of tools that do the same as the command line's."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder, self.storage = folder, storage

    def build(self, model: ScriptedModel, tools: list[Any]) -> Any:
        return build_graph(model, tools, storage=self.storage, approvals={"run_shell": True})

    def begin(self, wait: str) -> None:
        file = self.folder / FILE

        def run_shell(command: str) -> str:
            """Run a command."""
            with file.open("a") as opened:
                opened.write(command.split()[1] + "\n")
            return "ran"

        def write_file(path: str, content: str) -> str:
            """Write a file."""
            file.write_text(content)
            return "written"

        steps = eval(WAITS[wait], {"call": call})
        self.graph = self.build(ScriptedModel(steps), [run_shell, write_file])
        (self.wait,) = self.graph.invoke({"messages": [("user", "Do it.")]}, CONFIG)["__interrupt__"]

    def decide(self, wait: str, decision: str) -> str:
        ended = self.graph.invoke(Command(resume={self.wait.id: document(decision)}), CONFIG)
        return outcome_of(ended).summary


class ByGuards(ByInvoke):
    def build(self, model: ScriptedModel, tools: list[Any]) -> Any:
        asks: Any = HumanInTheLoopMiddleware(interrupt_on={"run_shell": True})
        saved: dict[str, Any] = {"checkpointer": self.storage.checkpointer, "store": self.storage.store}
        return guarded(create_agent(model, tools, middleware=[Guards(), asks], **saved))

    def decide(self, wait: str, decision: str) -> str:
        given = document(decision)
        if wait == "approval" and isinstance(given, str):
            # LangChain's own middleware takes documents alone.
            kind, _, message = given.partition(": ")
            given = {"decisions": [{"type": kind, **({"message": message} if message else {})}]}
        ended = self.graph.invoke(Command(resume={self.wait.id: given}), CONFIG)
        return outcome_of(ended).summary


class BySession(ByInvoke):
    def decide(self, wait: str, decision: str) -> str:
        session = Session(self.graph, "t")
        session.resume(document(decision), self.wait.id, by="ada")
        outcome = session.status().outcome
        assert outcome is not None
        return outcome.summary


class ByService(ByInvoke):
    """The service of `examples/support`."""

    def decide(self, wait: str, decision: str) -> str:
        client = TestClient(runpy.run_path(str(EXAMPLE / "service.py"))["make_app"](self.graph, self.storage))
        answered = client.post(f"/threads/t/waits/{self.wait.id}", json=document(decision))
        assert answered.status_code == 200, answered.text
        return outcome_of(self.graph.get_state(CONFIG).values).summary


class ByCommand:
    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.folder = self.bench.workspace

    def begin(self, wait: str) -> None:
        self.bench.model(WAITS[wait])
        assert self.bench.run("Do it.", "--tools", "files,shell", "--approve", "terminal").exit_code == 4

    def decide(self, wait: str, decision: str) -> str:
        given = document(decision)
        words = given if isinstance(given, str) else json.dumps(given)
        answer = words if wait == "question" else self.bench.decide(words)
        return str(self.bench.json("resume", "t1", answer)["outcome"]["summary"])


class ByApplication:
    """`signoff serve`."""

    def __init__(self, place: Place, served: Served) -> None:
        self.place, self.served = place, served

    def begin(self, wait: str) -> None:
        self.thread = Thread(self.place, self.served, WAITS[wait])
        self.folder = self.thread.folder
        self.thread.begin()

    def decide(self, wait: str, decision: str) -> str:
        return str(self.thread.answered(decision).last["result"]["summary"])


TASKS = {"approval": "run", "question": "ask", "finish": "confirm"}
"""The tasks of `scripted_tasks`, which say and do the same."""


class ByMcp:
    def __init__(self, folder: Path) -> None:
        self.client = Client(signoff("mcp", folder / "threads.sqlite", "--approve", "terminal"), folder)

    def begin(self, wait: str) -> None:
        self.folder = self.client.folder / f"{next(NUMBERS)}"
        self.folder.mkdir()
        self.waits = self.client.call("run_task", task=f"{TASKS[wait]} {self.folder.name}/{FILE}")

    def decide(self, wait: str, decision: str) -> str:
        ended = self.answer(decision.replace(FILE, f"{self.folder.name}/{FILE}"))
        # The task "confirm" wants a yes to its second finish, too.
        ended = ended if "outcome" in ended else self.answer("approve", **ended)
        return str(ended["outcome"]["summary"])

    def answer(self, text: str, **waits: Any) -> dict[str, Any]:
        waits = waits or self.waits
        given = {name: waits[name] for name in ("thread", "waiting_id")}
        return self.client.call("resume", answer=text, **given)


class ByAcp:
    """An editor asks as soon as something waits: the task begins when the decision is known."""

    def __init__(self, folder: Path) -> None:
        command = signoff("acp", folder / "threads.sqlite", "--approve", "terminal")
        self.editor = Editor(command, folder, **FORMS)

    def begin(self, wait: str) -> None:
        self.folder = self.editor.folder / f"{next(NUMBERS)}"
        self.folder.mkdir()
        self.session = self.editor.new(self.folder)

    def decide(self, wait: str, decision: str) -> str:
        kind, _, rest = decision.partition(": ")
        answers = {
            "approval": [choose(kind), *([edit_to(rest)] if kind == "edit" else ())],
            "question": [fill_in(words=decision)],
            "finish": [choose("approve")] if decision == "approve" else [choose("reject"), choose("approve")],
        }[wait]
        assert self.editor.prompt(self.session, f"{TASKS[wait]} {FILE}", *answers) == "end_turn"
        return self.editor.said(self.session)


IN_PROCESS = {"invoke": ByInvoke, "Guards": ByGuards, "Session": BySession, "a service": ByService}


def check(face: Face, name: str) -> None:
    wait, decision, wrote, summary = CASES[name]
    face.begin(wait)
    assert summary in face.decide(wait, decision)
    file = face.folder / FILE
    assert (file.read_text() if file.exists() else "") == wrote


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("face", IN_PROCESS)
def test_by_a_program(face: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        check(IN_PROCESS[face](tmp_path, storage), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_on_the_other_database(name: str, tmp_path: Path, postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        check(ByInvoke(tmp_path, storage), name)


@pytest.mark.parametrize("name", CASES)
def test_by_the_command_line(name: str, tmp_path: Path) -> None:
    check(ByCommand(tmp_path), name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Face]]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("served", "mcp", "acp")}
    place, by_mcp, by_acp = Place(folders["served"]), ByMcp(folders["mcp"]), ByAcp(folders["acp"])
    with place.serve() as server, by_mcp.client, by_acp.editor:
        yield {"the application": ByApplication(place, server), "MCP": by_mcp, "ACP": by_acp}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("face", ["the application", "MCP", "ACP"])
def test_by_a_server(programs: dict[str, Face], face: str, name: str) -> None:
    check(programs[face], name)
