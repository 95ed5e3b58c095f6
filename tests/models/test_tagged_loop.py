"""The loop with a model that works by text: it runs Python, corrects itself, asks, and finishes."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import Command

from signoff import Graph, Limits, Session, build_graph, outcome_of
from signoff.models import TAGGED_LIMITS, ScriptedModel, TaggedText, reply
from signoff.models.local import local_model
from signoff.tools import UnsafeSandbox, choose_sandbox, python_tool
from tests.support.plays import THREAD, saved

TASK: Any = {"messages": [("user", "What is 6 * 7?")]}
SUMMARY = "It is 42.\n\nApproach: compute"


def turn(plan: str = "", code: str = "", status: str = "", approach: str = "compute") -> str:
    """A reply in the form of the protocol."""
    parts = [f"<PLAN>{plan}</PLAN>"] if plan else []
    parts += [f"```python\n{code}\n```"] if code else []
    parts += [f"<STATE_UPDATE>\nApproach: {approach}\nStatus: {status}\n</STATE_UPDATE>"] if status else []
    return "\n\n".join(parts)


COMPUTE = turn("Compute.", "print(6 * 7)", "Working")
DONE = turn("[FINALIZE] It is 42.", status="Finished")


class Bench:
    """Graphs of one thread, whose scripted text model runs Python."""

    def __init__(self, *steps: Any, tools: Sequence[Any] = ()) -> None:
        self.model = ScriptedModel(list(steps))
        self.saved = saved()
        self.tools = [python_tool(UnsafeSandbox(unsafe=True)), *tools]

    def graph(self, limits: Limits = TAGGED_LIMITS, **options: Any) -> Graph:
        return build_graph(TaggedText(self.model, **options), self.tools, limits=limits, **self.saved)

    def run(self) -> dict[str, Any]:
        result: dict[str, Any] = self.graph().invoke(TASK, THREAD)
        self.model.assert_done()
        return result

    def prompt(self, number: int) -> list[str]:
        """What the model was shown for this reply."""
        return [message.text for message in self.model.seen[number].messages]


def results(messages: list[BaseMessage]) -> list[tuple[str | None, str, str]]:
    """Name, status and last line of each result but those of thoughts."""
    found = [message for message in messages if isinstance(message, ToolMessage) and message.name != "think"]
    return [(message.name, message.status, message.text.splitlines()[-1]) for message in found]


def test_it_computes_and_finishes() -> None:
    bench = Bench(COMPUTE, DONE)
    result = bench.run()
    outcome = outcome_of(result)
    assert results(result["messages"])[0] == ("run_python", "success", "42")
    assert (outcome.status, outcome.claim, outcome.turns, outcome.summary) == ("success", "done", 2, SUMMARY)
    last = bench.prompt(1)[-1]
    assert '<EVIDENCE of="run_python" status="ok">\n42\n</EVIDENCE>' in last
    assert "Approach: compute\nStatus: Working\n</CURRENT>" in last
    assert {message.type for message in bench.model.seen[1].messages} == {"system", "human", "ai"}


def test_a_failing_program_is_looked_at_and_debugged() -> None:
    failing = turn("Compute.", "print(6 * height)", "Working")
    repaired = turn("The height is missing.", "print(42)", "Checking")
    bench = Bench(failing, turn("I look at it.", status="Thinking"), repaired, DONE)
    messages = bench.run()["messages"]
    assert [status for _, status, _ in results(messages)][:2] == ["error", "success"]
    statuses = [found.status for found in Session(bench.graph(), "t").history()]
    assert statuses == ["Debugging", "Thinking", "Checking", "Finished"]


def test_a_finish_beside_code_that_failed_or_in_a_reply_that_was_cut_ends_nothing() -> None:
    cut = reply(turn("[FINALIZE] It is 41.", "print(41)"), finish_reason="length")
    outcome = outcome_of(Bench(turn("[FINALIZE]", "1 / 0", "Finished"), cut, DONE).run())
    assert (outcome.status, outcome.turns, outcome.summary) == ("success", 3, SUMMARY)


def test_a_question_is_asked_and_its_answer_is_evidence() -> None:
    bench = Bench("<PLAN>Ask.</PLAN>\n<ASK>Which base?</ASK>\n" + turn(code="1 / 0"), DONE)
    (wait,) = bench.graph().invoke(TASK, THREAD)["__interrupt__"]
    assert (wait.value["type"], wait.value["question"]) == ("question", "Which base?")
    result = bench.graph().invoke(Command(resume={wait.id: "ten"}), THREAD)
    assert outcome_of(result).status == "success"
    last = bench.prompt(1)[-1]
    assert '<EVIDENCE of="ask_user" status="ok">\nten\n</EVIDENCE>' in last
    assert "Debugging" not in last, "the code after it did not run"


def test_a_constitution_and_where_the_work_stands_go_with_the_thread() -> None:
    failing = turn("Compute.", "print(6 * width)", "Working", approach="by hand")
    bench = Bench(failing, "<ASK>What is x?</ASK>", turn("Now.", "print(42)", "Working"), DONE, DONE)
    bench.graph(constitution="Be exact.").invoke(TASK, THREAD)
    # Elsewhere, built without a constitution.
    Session(bench.graph(), "t").resume("7")
    after = bench.model.seen[2].messages
    assert "# Principles\nBe exact.\n" in after[0].text
    assert "Approach: by hand\nStatus: Debugging\n" in after[-1].text
    # A new task starts clean, and keeps the constitution; one that is given takes its place.
    bench.graph(constitution="Be quick.").invoke({"messages": [("user", "Again.")]}, THREAD)
    anew = bench.model.seen[-1].messages
    assert "# Principles\nBe quick.\n" in anew[0].text
    assert "by hand" not in anew[-1].text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.thorough
@pytest.mark.embedded
def test_the_embedded_model_computes_and_finishes() -> None:
    pytest.importorskip("xllamacpp", reason="the extra signoff[local] is not installed")
    sandbox = choose_sandbox()
    with local_model() as model:
        graph = build_graph(TaggedText(model), [python_tool(sandbox)], limits=TAGGED_LIMITS)
        result = graph.invoke({"messages": [("user", "Compute 12345 * 6789 with Python.")]})
    sandbox.close()
    outputs = [message.text for message in result["messages"] if getattr(message, "name", "") == "run_python"]
    outcome = outcome_of(result)
    assert (outcome.status, outcome.reason) == ("success", "finish_task")
    assert outputs[-1] == "83810205"
    assert "83810205" in outcome.summary
