"""The command line on a bench: a folder, a database, and models that play a script by what they are shown."""

import functools
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import typer.testing
from langchain_core.tools import StructuredTool
from typer.main import get_command
from typer.testing import CliRunner, Result

from signoff import Session, build_graph, sqlite_storage
from signoff.cli.app import app
from signoff.models import ScriptedModel, call

# Made once: typer's runner makes all commands anew for each one that it runs.
typer.testing._get_command = functools.cache(get_command)  # type: ignore[attr-defined]  # typer names no other way

PROGRAM = (sys.executable, "-m", "signoff.cli")
# What would change what a run is made of, and how it looks.
CLEAN: dict[str, str | None] = {
    **dict.fromkeys(name for name in os.environ if name.startswith("SIGNOFF_")),
    **dict.fromkeys(("OPENAI_API_KEY", "OPENAI_BASE_URL", "FORCE_COLOR", "NO_COLOR")),
    "SIGNOFF_CONFIG": "none",
}

SCRIPT = """
from signoff.models import ScriptedModel, call, reply

STEPS = {steps}

def is_reply(message):
    '''Not the message by which the machine says how a task ended: no provider says why it stopped.'''
    said = message.response_metadata
    return message.type == "ai" and (not said or "finish_reason" in said)

def step(messages):
    '''The step after as many replies as the history holds: it also serves a run that goes on elsewhere.'''
    return STEPS[sum(map(is_reply, messages))]

model = ScriptedModel(step, delay={delay})
"""

ASKS = """[
    call("read_file", path="config.py"),
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    lambda messages: call("edit_file", path="config.py", old="3000", new=messages[-1].text),
    call("finish_task", summary="The port in config.py is changed."),
    call("finish_task", summary="The second task is done."),
]"""


class Bench:
    """Runs `signoff` on a workspace with a config.py in it and a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "project"
        self.workspace.mkdir()
        self.config.write_text("PORT = 3000\n")
        self.database = folder / "threads.sqlite"
        self.env = {**CLEAN, "SIGNOFF_DATABASE": str(self.database), "COLUMNS": "100"}
        self.model(ASKS)

    @property
    def config(self) -> Path:
        return self.workspace / "config.py"

    def model(self, steps: str, delay: float = 0.0) -> str:
        """Makes a model that plays `steps`, a list in Python, the one that SIGNOFF_MODEL names."""
        file = self.folder / f"model{len(list(self.folder.glob('model*.py')))}.py"
        file.write_text(SCRIPT.format(steps=steps, delay=delay))
        self.env["SIGNOFF_MODEL"] = f"scripted:{file}"
        return f"scripted:{file}"

    def __call__(self, *words: str, stdin: str | None = None, **env: str | None) -> Result:
        """The result of `signoff WORDS` in this process."""
        return CliRunner().invoke(app, words, input=stdin, env={**self.env, **env})

    def run(
        self, task: str = "Change the port", *words: str, thread: str = "t1", **env: str | None
    ) -> Result:
        return self("run", task, "--thread", thread, "--workspace", str(self.workspace), *words, **env)

    def json(self, *words: str, **env: str | None) -> dict[str, Any]:
        """The one JSON document that a command prints."""
        found: dict[str, Any] = json.loads(self(words[0], "--json", *words[1:], **env).stdout)
        return found

    def decide(self, answer: str = "approve", thread: str = "t1") -> str:
        """`answer` to the calls that wait now, with the short id under which they are shown."""
        shown = self.json("show", thread)["approval"]["shown"]
        if answer.lstrip()[:1] in ("{", "["):
            given = json.loads(answer)
            given = given["decisions"] if "decisions" in given else given  # noqa: SIM401  it may be a list
            return json.dumps({"shown": shown, "decisions": given})
        return re.sub(r"\w+", rf"\g<0>@{shown}", answer, count=1)

    def told(self, thread: str = "t1") -> list[dict[str, Any]]:
        """What happened in a thread by `show --json`: what the user wrote, the events of each turn with its
        number, and how each task ended."""
        found: list[dict[str, Any]] = []
        for task in self.json("show", thread)["tasks"]:
            found += [{"kind": "user", "turn": None, "text": words} for words in task["words"]]
            found += [{"turn": turn["turn"], **event} for turn in task["turns"] for event in turn["events"]]
            if task["outcome"]:
                found.append({"kind": "outcome", "turn": None, **task["outcome"]})
        return found

    def turns(self, thread: str = "t1") -> int:
        """How many turns the thread's current task has had."""
        return len(self.json("show", thread)["tasks"][-1]["turns"])

    def start(self, *words: str, **streams: Any) -> Popen[str]:
        """`signoff WORDS` in a process of its own."""
        env = {name: value for name, value in {**os.environ, **self.env}.items() if value is not None}
        streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, **streams}
        return Popen([*PROGRAM, *words], text=True, env=env, cwd=self.folder, **streams)

    def process(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `signoff WORDS` in a process of its own."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err


def undone_elsewhere(bench: Bench) -> None:
    """Makes a thread of another program, whose success was undone since: one of its two calls has an undo."""

    def deploy(target: str) -> str:
        """Deploy."""
        return f"deployed to {target}"

    def announce() -> str:
        """Announce."""
        return "announced"

    deploying = StructuredTool.from_function(
        deploy, metadata={"undo": lambda args, result: f"Removed from {args['target']}."}
    )
    script = [call("deploy", target="blue"), call("announce"), call("finish_task", summary="All done.")]
    with sqlite_storage(bench.database) as storage:
        graph = build_graph(ScriptedModel(script), [deploying, announce], storage=storage)
        session = Session(graph, "t1")
        session.run("Deploy it")
        session.undo()


def one_sentence(result: Result, *parts: str) -> None:
    """Checks that a command was refused: one line on stderr that says all of `parts`, and nothing else."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.count("\n") == 1, result.stderr
    missing = [part for part in parts if part not in result.stderr]
    assert not missing, (missing, result.stderr)


def steps(*items: str) -> str:
    """A script of these steps, each in Python."""
    return "[" + ", ".join(items) + "]"


CUT_OFF = '__import__("asyncio").CancelledError()'
"""A step at which the run is cut off in the model's call: the command raises it."""


def words_of(command: str) -> list[str]:
    """The words of a command that the program printed, without the program's name."""
    name, *words = shlex.split(command)
    assert name == "signoff"
    return words


def offered(out: str) -> dict[str, list[str]]:
    """The commands at the end of what a command printed: the words of each by its label."""
    found = [line.split(": signoff ", 1) for line in out.splitlines() if ": signoff " in line]
    return {label: words_of(f"signoff {command}") for label, command in found}


def bare(words: Sequence[str]) -> list[str]:
    """The words of a command without the database that they name, and without the id of what was shown."""
    at = words.index("--database")
    own = [*words[:at], *words[at + 2 :]]
    return [re.sub(r"^(approve|reject|yes)@[0-9a-f]{6}\b", r"\1", word) for word in own]


def first_offered(out: str, thread: str = "t1") -> list[str] | None:
    """The first of the commands that were printed, bare, as of thread t1."""
    found = next(iter(offered(out).values()), None)
    return found and ["t1" if word == thread else word for word in bare(found)]
