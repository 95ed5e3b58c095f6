"""What works on every system: the import, a run, a pause, going on in another process, one runner a thread.

`python -P tests/portable.py`, in any folder, with nothing installed but Signoff: it says what it saw,
and ends with 1 at the first thing that is not so.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import signoff
from signoff import Outcome, Session, ThreadBusy, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

ITSELF = str(Path(__file__).resolve())
FILE, THREAD = "threads.sqlite", "portable"
SCRIPT = [
    call("add", a=19, b=23),
    call("ask_user", question="Is 42 fine?"),
    call("finish_task", summary="It is."),
]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def imports() -> str:
    names = [getattr(signoff, name) for name in signoff.__all__]
    for module in ("signoff.cli", "signoff.session", "signoff.tools", "signoff.models", "signoff.storage"):
        importlib.import_module(module)
    return f"{len(names)} public names of version {metadata.version('signoff')}"


def output_of(*words: str) -> str:
    """What Python prints in a process of its own."""
    command = [sys.executable, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def command() -> str:
    return output_of("-m", "signoff.cli", "--version")


def pauses() -> str:
    with sqlite_storage(FILE) as storage:
        graph = build_graph(ScriptedModel(SCRIPT), tools=[add], storage=storage)
        decision = Session(graph, THREAD).run("Add.")
    expect(getattr(decision, "text", None), "Is 42 fine?")
    return "it waits for an answer"


def goes_on() -> str:
    """In a process that knows only the file and the thread's ID."""
    return output_of("-P", ITSELF, "--resume")


def resumed() -> str:
    with sqlite_storage(FILE) as storage:
        session = Session(build_graph(ScriptedModel(SCRIPT[2:]), tools=[add], storage=storage), THREAD)
        decision = session.resume("Yes.")
    found = getattr(decision, "outcome", None)
    assert isinstance(found, Outcome), decision
    expect((found.status, found.summary, found.turns), ("success", "It is.", 3))
    return f"{found.status} after {found.turns} turns, in another process"


def has_one_runner() -> str:
    with sqlite_storage(FILE) as storage, storage.runner("locked"):
        expect(output_of("-P", ITSELF, "--second"), "ThreadBusy")
    return "a second process is refused"


def second() -> str:
    with sqlite_storage(FILE) as storage:
        try:
            Session(build_graph(ScriptedModel([]), storage=storage), "locked").run()
        except ThreadBusy as refused:
            return type(refused).__name__
    return "not refused"


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise SystemExit(f"portable: {found!r} where {wanted!r} was to be")


def main() -> None:
    for option, step in {"--resume": resumed, "--second": second}.items():
        if option in sys.argv:
            print(step())
            return
    with tempfile.TemporaryDirectory() as folder:
        home = Path.cwd()
        try:
            os.chdir(folder)
            for step in (imports, command, pauses, goes_on, has_one_runner):
                print(f"{step.__name__}: {step()}", flush=True)
        finally:
            os.chdir(home)


if __name__ == "__main__":
    main()
