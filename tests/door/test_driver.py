"""Driving a thread oneself: from one decision to the next, by `step()` and one `match`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Action,
    Answer,
    Decision,
    Ended,
    Graph,
    Message,
    Outcome,
    Paused,
    Session,
    Waiting,
    build_graph,
)
from signoff.models import ScriptedModel, call, reply

DONE = call("finish_task", summary="It said hello.")
LOST = {"output": "It may have run already; look first.", "status": "error"}


def shell(command: str) -> str:
    """Run a command in the terminal."""
    raise NotImplementedError("the program runs it")


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Graph]:
    def make(*script: Any, approvals: Any = "hand_over", **options: Any) -> Graph:
        model, storage = ScriptedModel([*script]), tmp_path / "t.sqlite"
        return build_graph(model, [shell], approvals={"shell": approvals}, storage=storage, **options)

    return make


class Driver:
    """The program of the door; it writes down what it was given."""

    def __init__(self, graph: Graph) -> None:
        self.session = Session(graph, "driven")
        self.given: list[str] = []

    def next(self, decision: Decision) -> Any:
        """What comes after a decision: what to take the next step with, or "the end"."""
        match decision:
            case Message(text=text):
                self.given.append(text)
                return None
            case Action(args=args, unknown=False, interrupt_id=wait):
                self.given.append(f"$ {args['command']}")
                return Answer({"output": "hello", "status": "success"}, wait)
            case Action(interrupt_id=wait):
                self.given.append("lost")
                return Answer(LOST, wait)
            case Waiting(interrupt_id=wait):
                self.given.append(decision.document()["type"])
                return Answer("yes", wait)
            case Ended(outcome=Outcome(status="error", error=text)):
                self.given.append(f"error: {text}")
            case Ended(outcome=outcome):
                self.given.append(f"{outcome.status}: {outcome.summary}")
            case Paused(by=by):
                self.given.append(f"paused by {by}")
        return "the end"

    def to_the_end(self, task: Any = "Look.") -> list[str]:
        while task != "the end":
            task = self.next(self.session.step(task))
        return self.given


LS = call("shell", command="ls")
SCRIPT = [
    reply("I look at what is here.", LS),
    "It says hello.",
    call("ask_user", question="Shall I stop?"),
    DONE,
]
ENDED = "success: It said hello."
TOLD = ["I look at what is here.", "$ ls", "It says hello.", "question", ENDED]
BOTH: Any = {"allowed_decisions": ["approve", "reject"], "hand_over": True}
DRIVEN: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "text, an action, talk, a question, the end": (SCRIPT, {}, TOLD),
    "a person decides, then the program runs it": (
        [LS, DONE],
        {"approvals": BOTH},
        ["approval", "$ ls", ENDED],
    ),
    "a limit": (["hm", "and", "so"], {"limits": {"turns": 2}}, ["hm", "and", "limit: "]),
}


@pytest.mark.parametrize("name", DRIVEN)
def test_a_program_drives_a_thread_to_its_end(build: Callable[..., Graph], name: str) -> None:
    script, options, given = DRIVEN[name]
    with build(*script, **options) as graph:
        assert Driver(graph).to_the_end() == given


async def test_each_step_has_its_async_twin(build: Callable[..., Graph]) -> None:
    with build(*SCRIPT) as graph:
        driver, step = Driver(graph), "Look."
        while step != "the end":
            step = driver.next(await driver.session.astep(step))
    assert driver.given == TOLD


def test_an_error_is_the_third_kind(build: Callable[..., Graph]) -> None:
    with build(ValueError("no quota")) as graph:
        (told,) = Driver(graph).to_the_end()
    assert told.startswith("error: ")
    assert "no quota" in told


def test_an_action_that_nobody_answered_is_handed_out_again_as_unknown(build: Callable[..., Graph]) -> None:
    with build(LS, DONE) as graph:
        first = Session(graph, "driven").step("Look.")
        assert isinstance(first, Action)
        assert not first.unknown
    # The program has died, and another one goes on.
    with build(DONE) as graph:
        driver = Driver(graph)
        assert driver.to_the_end(None) == ["lost", ENDED]
        (told,) = [m for m in driver.session.status().values["messages"] if m.name == "shell"]
        assert (told.text, told.status) == (LOST["output"], "error")
