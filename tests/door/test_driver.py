"""Driving a thread oneself: from one decision to the next, by `step()` and one `match`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Action,
    Answer,
    Approval,
    Decision,
    Ended,
    Graph,
    Message,
    Outcome,
    Paused,
    Question,
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
    def make(*script: Any, **options: Any) -> Graph:
        options = {"approvals": {"shell": "hand_over"}, **options}
        return build_graph(ScriptedModel([*script]), [shell], storage=tmp_path / "t.sqlite", **options)

    return make


class Driver:
    """The program of the door; it writes down what it was given."""

    def __init__(self, graph: Graph) -> None:
        self.session = Session(graph, "driven")
        self.given: list[str] = []

    def next(self, decision: Decision) -> Decision | None:
        """Does what is to be done about a decision; None at the end."""
        match decision:
            case Message(text=text):
                self.given.append(text)
                return self.session.step()
            case Action(args=args, unknown=False, interrupt_id=wait):
                self.given.append(f"$ {args['command']}")
                return self.session.step(Answer({"output": "hello", "status": "success"}, wait))
            case Action(interrupt_id=wait):
                self.given.append("lost")
                return self.session.step(Answer(LOST, wait))
            case Waiting(interrupt_id=wait):
                self.given.append(decision.document()["type"])
                return self.session.step(Answer("yes", wait))
            case Ended(outcome=Outcome(status="error", error=text)):
                self.given.append(f"error: {text}")
            case Ended(outcome=outcome):
                self.given.append(f"{outcome.status}: {outcome.summary}")
            case Paused(by=by):
                self.given.append(f"paused by {by}")
        return None

    def to_the_end(self, task: str | None) -> list[str]:
        decision: Decision | None = self.session.step(task)
        while decision is not None:
            decision = self.next(decision)
        return self.given


SCRIPT = [
    reply("I look at what is here.", call("shell", command="ls")),
    "It says hello.",
    call("ask_user", question="Shall I stop?"),
    DONE,
]
BOTH: dict[str, Any] = {"shell": {"allowed_decisions": ["approve", "reject"], "hand_over": True}}
CONFIRMED = call("finish_task", summary="It said hello.", requires_user_confirmation=True)
DRIVEN: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "text, an action, talk, a question, the end": (
        SCRIPT,
        {},
        [
            "I look at what is here.",
            "$ ls",
            "It says hello.",
            "question",
            "success: It said hello.",
        ],
    ),
    "a person decides, then the program runs it": (
        [call("shell", command="ls"), DONE],
        {"approvals": BOTH},
        ["approval", "$ ls", "success: It said hello."],
    ),
    "a finish to confirm": ([CONFIRMED], {}, ["approval", "success: It said hello."]),
    "a limit": (["hm", "and", "so"], {"limits": {"turns": 2}}, ["hm", "and", "limit: "]),
}


@pytest.mark.parametrize("case", DRIVEN)
def test_a_program_drives_a_thread_to_its_end(build: Callable[..., Graph], case: str) -> None:
    script, options, given = DRIVEN[case]
    with build(*script, **options) as graph:
        assert Driver(graph).to_the_end("Look.") == given


def test_an_error_is_the_third_kind(build: Callable[..., Graph]) -> None:
    with build(ValueError("no quota")) as graph:
        (said,) = Driver(graph).to_the_end("Look.")
    assert said.startswith("error: ")
    assert "no quota" in said


def test_an_action_that_nobody_answered_is_handed_out_again_as_unknown(build: Callable[..., Graph]) -> None:
    script = [call("shell", command="pay"), DONE]
    with build(*script) as graph:
        first = Session(graph, "driven").step("Pay.")
        assert isinstance(first, Action)
        assert not first.unknown
    # The program has died, and another one goes on.
    with build(*script[1:]) as graph:
        driver = Driver(graph)
        assert driver.to_the_end(None) == ["lost", "success: It said hello."]
        (told,) = [m for m in driver.session.status().values["messages"] if m.name == "shell"]
        assert (told.text, told.status) == (LOST["output"], "error")


async def test_each_step_has_its_async_twin(build: Callable[..., Graph]) -> None:
    with build(*SCRIPT) as graph:
        session = Session(graph, "driven")
        kinds: list[str] = []
        decision = await session.astep("Look.")
        while not isinstance(decision, Ended):
            kinds.append(type(decision).__name__)
            match decision:
                case Action() | Question() | Approval():
                    decision = await session.astep(Answer("hello", decision.interrupt_id))
                case _:
                    decision = await session.astep()
    assert kinds == ["Message", "Action", "Message", "Question"]
