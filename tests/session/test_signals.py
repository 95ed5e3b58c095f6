"""SIGTERM and Ctrl-C in a program that drives a session: a pause at the next step, and nothing is lost."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from signoff import Finished, Session, SetupError, build_graph, pause_on_signals, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.prepared import PreparedPython

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, time
from signoff import Session, build_graph, pause_on_signals, sqlite_storage
from signoff.models import ScriptedModel, call

def work() -> str:
    "Work."
    print("working", flush=True)
    time.sleep(0.5)
    return "worked"

script = [call("work"), call("finish_task", summary="Done.")]
with sqlite_storage(sys.argv[1]) as storage:
    session = Session(build_graph(ScriptedModel(script), [work], storage=storage), "t")
    with pause_on_signals(session):
        print(session.run("do it"), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.sample(1)
def test_a_signal_pauses_and_another_process_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "t.sqlite"
    with PreparedPython(["-c", PROGRAM, file], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        child.send_signal(number)
        assert child.stdout.read() == "Paused(by='signal')\n"
    assert child.returncode == 0
    with sqlite_storage(file) as storage:
        model = ScriptedModel([call("finish_task", summary="Done.")])
        session = Session(build_graph(model, storage=storage), "t")
        assert [m.text for m in session.status().values["messages"] if m.type == "tool"] == ["worked"]
        assert isinstance(session.run(), Finished)


def test_while_nothing_runs_a_signal_interrupts(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        session = Session(build_graph(ScriptedModel([]), storage=storage), "t")
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), pause_on_signals(session):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is before


def test_only_in_the_main_thread(tmp_path: Path) -> None:
    found: list[BaseException] = []

    def attempt() -> None:
        try:
            with pause_on_signals(session):
                pass
        except SetupError as error:
            found.append(error)

    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        session = Session(build_graph(ScriptedModel([]), storage=storage), "t")
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert len(found) == 1
