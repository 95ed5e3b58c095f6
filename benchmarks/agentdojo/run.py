"""One run: the agent in a process of its own, a new one when it was killed or has failed, and the verdict."""

import json
import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.agentdojo.faults import ENDS, Fault
from benchmarks.agentdojo.subjects import SUBJECTS
from benchmarks.agentdojo.task import Done, Task
from benchmarks.agentdojo.world import World

PROCESSES = 3
"""Somebody starts it again this often, in all."""
PATIENCE = 60.0
BY_WORDS = "create_agent"


def claimed(subject: str, fault: str) -> bool:
    """Whether the fault can happen to this subject: what ends by words alone has no second finish."""
    return subject != BY_WORDS or fault != ENDS[1]


def run(subject: str, task: Task, fault: Fault) -> Done:
    """Plays the task to its end."""
    done = Done(subject, task.name, fault.name)
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        world = World(folder, task, None)
        world.begin()
        said: dict[str, object] = {}
        for number in range(PROCESSES):
            done.processes = number + 1
            said = _in_a_process(subject, task, fault if number == 0 else None, folder)
            if said.get("ended"):
                break
        done.ended, done.why = bool(said.get("ended")), str(said.get("why", ""))
        ran = world.ran
        done.twice = task.twice(key for key, _ in ran)
        done.solved = task.solved(str(said.get("answer", "")), world.state, [call for _, call in ran])
    return done


def _in_a_process(subject: str, task: Task, fault: Fault | None, folder: Path) -> dict[str, object]:
    told = folder / "said.json"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(subject, task, fault, folder, told)
    ends = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.005)
    return dict(json.loads(told.read_text())) if told.exists() else {"why": "its process died"}


def _child(subject: str, task: Task, fault: Fault | None, folder: Path, told: Path) -> None:
    """In the child: plays, says what came of it, and ends without the parent's cleaning up."""
    with suppress(BaseException):
        warnings.simplefilter("ignore")
        try:
            said = SUBJECTS[subject](task, World(folder, task, fault), fault, folder)
            found = {"ended": said.ended, "answer": said.answer, "why": said.why}
        except Exception as error:  # noqa: BLE001  whatever an agent raises is how it ended
            found = {"why": f"{type(error).__name__}: {error}"[:200]}
        told.write_text(json.dumps(found))
    os._exit(0)
