"""The loop with a model that works by text: it runs Python in the sandbox, corrects itself, and finishes."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Limits, build_graph
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply, marks
from signoff.models import ScriptedModel, reply
from signoff.models.tagged import TAGGED_LIMITS, TaggedText, current_status
from signoff.models.text_protocol.status import KEY, positions
from signoff.session.decisions import Finished
from signoff.session.session import Session
from signoff.tools.sandbox import Sandbox, UnsafeSandbox, choose_sandbox, python_tool

CONFIG: Any = {"configurable": {"thread_id": "t"}}
TASK = {"messages": [("user", "What is 6 * 7?")]}


def turn(plan: str = "", code: str = "", status: str = "", approach: str = "compute") -> str:
    """A reply in the form of the protocol."""
    parts = [f"<PLAN>{plan}</PLAN>"] if plan else []
    parts += [f"```python\n{code}\n```"] if code else []
    parts += [f"<STATE_UPDATE>\nApproach: {approach}\nStatus: {status}\n</STATE_UPDATE>"] if status else []
    return "\n\n".join(parts)


DONE = turn("[FINALIZE] It is 42.", status="Finished")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    chosen = choose_sandbox()
    yield chosen
    chosen.close()


class Bench:
    """A graph with a scripted text model and the sandbox."""

    def __init__(self, sandbox: Sandbox, *steps: Any, seconds: float = 60.0, **given: Any) -> None:
        self.model = ScriptedModel(list(steps))
        self.saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
        self.tools = [python_tool(sandbox, timeout=seconds), *given.pop("tools", ())]
        self.given: dict[str, Any] = {"limits": TAGGED_LIMITS, **given}

    def graph(self) -> Graph:
        return build_graph(TaggedText(self.model), self.tools, **self.saved, **self.given)

    def run(self, **how: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.graph().invoke(TASK, CONFIG, **how)
        self.model.assert_done()
        return result


def results(messages: list[BaseMessage]) -> list[tuple[str | None, str, str]]:
    """Name, status and last line of each result but those of thoughts."""
    found = [message for message in messages if message.type == "tool" and message.name != "think"]
    return [(message.name, str(message.status), message.text.splitlines()[-1]) for message in found]  # type: ignore[attr-defined]  # tool messages


def thoughts(messages: list[BaseMessage]) -> list[str | None]:
    """The status of every thought, as it was recorded."""
    replies = [message for message in messages if is_reply(message)]
    calls = [call for message in replies for call in message.tool_calls]
    return [call["args"].get("status") for call in calls if call["name"] == "think"]


def test_it_computes_and_finishes(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, turn("Compute.", "print(6 * 7)", "Working"), DONE)
    result = bench.run()
    assert results(result["messages"]) == [
        ("run_python", "success", "42"),
        ("finish_task", "success", "Accepted. The task has ended."),
    ]
    outcome = result["outcome"]
    assert (outcome["status"], outcome["claim"], outcome["turns"]) == ("success", "done", 2)
    assert outcome["summary"] == "It is 42.\n\nApproach: compute"
    second = bench.model.seen[1].messages
    assert '<EVIDENCE of="run_python" status="ok">\n42\n</EVIDENCE>' in second[-1].text
    assert "Approach: compute\nStatus: Working\n</CURRENT>" in second[-1].text
    assert {message.type for message in second} == {"system", "human", "ai"}


async def test_it_computes_and_finishes_in_async_code(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, turn("Compute.", "print(6 * 7)", "Working"), DONE)
    result = await bench.graph().ainvoke(TASK, CONFIG)
    assert result["outcome"]["summary"] == "It is 42.\n\nApproach: compute"


def test_a_failing_program_is_debugged(sandbox: Sandbox) -> None:
    bench = Bench(
        sandbox,
        turn("Compute.", "print(6 * x)", "Working"),
        turn("x is missing.", "x = 7\nprint(6 * x)", "Checking"),
        DONE,
    )
    messages = bench.run()["messages"]
    assert results(messages)[:2] == [
        ("run_python", "error", "NameError: name 'x' is not defined"),
        ("run_python", "success", "42"),
    ]
    assert thoughts(messages) == ["Working", "Debugging", "Finished"]
    shown = [seen.messages[-1].text for seen in bench.model.seen]
    assert [text.split("Status: ")[-1].split("\n")[0] for text in shown] == [
        "Starting",
        "Debugging",
        "Checking",
    ]
    assert "The last execution failed." in shown[1]
    statuses = [at.status for at in positions(messages)]
    assert [status for at, status in enumerate(statuses) if status != statuses[at - 1]] == [
        None, "Working", "Debugging", "Checking", "Finished",
    ]  # fmt: skip


def test_after_failed_code_a_reply_without_code_says_where_it_stands(sandbox: Sandbox) -> None:
    bench = Bench(
        sandbox,
        turn("Compute.", "print(f'{1:2000}')\nprint(6 * height)", "Working"),
        turn("I look at it.", status="Thinking"),
        turn("The height is missing.", "print(42)", "Checking"),
        DONE,
    )
    messages = bench.run()["messages"]
    assert thoughts(messages) == ["Working", "Thinking", "Debugging", "Finished"]
    shown = [seen.messages for seen in bench.model.seen]
    assert "Status: Thinking\n</CURRENT>\nThe last execution failed." in shown[2][-1].text
    (failure,) = [message.text for message in shown[2] if "NameError: name 'height'" in message.text]
    assert "older evidence left out" not in failure, "it stays as it is until something else was executed"
    (failure,) = [message.text for message in shown[3] if "NameError: name 'height'" in message.text]
    assert "older evidence left out" in failure
    assert "The last execution failed." not in shown[3][-1].text


def acting(graph: Graph) -> Any:
    return graph.get_state(CONFIG).values["acting"]


def test_what_it_goes_by_and_where_it_stands_are_in_the_state_of_the_thread(sandbox: Sandbox) -> None:
    bench = Bench(
        sandbox,
        turn("Compute.", "print(6 * width)", "Working", approach="by hand"),
        "<ASK>What is x?</ASK>",
        turn("Now.", "print(42)", "Working"),
        DONE,
    )
    first = build_graph(
        TaggedText(bench.model, constitution="Be exact."), bench.tools, **bench.saved, **bench.given
    )
    first.invoke(TASK, CONFIG)
    found = acting(first)
    evidence = found.pop("evidence")
    assert found == {
        "task": found["task"],
        "constitution": "Be exact.",
        "approach": "by hand",
        "status": "Debugging",
        "failing": True,
    }
    assert (evidence["of"], evidence["status"]) == ("run_python", "error")
    assert "NameError: name 'width' is not defined" in evidence["text"]
    # Elsewhere, built without a constitution.
    Session(bench.graph(), "t").resume("7")
    assert "# Principles\nBe exact.\n" in bench.model.seen[-1].messages[0].text
    assert (acting(first)["status"], acting(first)["evidence"]["text"]) == ("Finished", "42")
    # A new task starts clean, and keeps the constitution; one that is given takes its place.
    again = TaggedText(ScriptedModel([DONE]), constitution="Be quick.")
    seen: Any = again.model
    build_graph(again, bench.tools, **bench.saved).invoke({"messages": [("user", "Again.")]}, CONFIG)
    assert "# Principles\nBe quick.\n" in seen.seen[0].messages[0].text
    assert (acting(first)["constitution"], acting(first)["evidence"]) == ("Be quick.", None)


def test_evidence_of_a_failure_outlasts_folding() -> None:
    failed = ToolMessage("NameError", name="run_python", tool_call_id="c", status="error")
    thought = AIMessage("<PLAN>x</PLAN>", response_metadata={KEY: {}})
    model = TaggedText(ScriptedModel([])).bind_tools([python_tool(UnsafeSandbox(unsafe=True))])
    assert isinstance(model, TaggedText)
    history = [HumanMessage("Do it."), failed, thought]
    shown = model.in_thread(None, history).prompt([history[0], thought])[-1].text
    assert '<EVIDENCE of="run_python" status="error">\nNameError\n</EVIDENCE>' in shown


def test_code_that_takes_too_long_is_debugged(sandbox: Sandbox) -> None:
    bench = Bench(
        sandbox,
        turn("Wait.", "while True: pass", "Working"),
        turn("Do not.", "6 * 7", "Working"),
        DONE,
        seconds=1,
    )
    messages = bench.run()["messages"]
    assert results(messages)[0][1] == "error"
    assert "Timed out after 1.0 s." in bench.model.seen[1].messages[-1].text
    assert thoughts(messages) == ["Working", "Debugging", "Finished"]
    assert current_status(messages).status == "Finished"


def test_a_finish_in_the_reply_of_its_code_holds_when_the_code_ran(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, turn("[FINALIZE] 42 it is.", "print(6 * 7)", "Finished"))
    result = bench.run()
    assert [name for name, *_ in results(result["messages"])] == ["run_python", "finish_task"]
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 1)


VOID: Mapping[str, tuple[Any, str]] = {
    "its code failed": (turn("[FINALIZE]", "1 / 0", "Finished"), "in the same reply did not succeed"),
    "one of its blocks failed": (
        turn("[FINALIZE]", "1 / 0") + "\n" + turn(code="1", status="Finished"),
        "in the same reply did not succeed",
    ),
    "its code was left open": (turn("[FINALIZE]") + "\n```python\nprint(1)", "the code block was left open"),
    "a call in it is no JSON": (turn("[FINALIZE]") + '\n<CALL name="run_python">{x}</CALL>', "was left open"),
    "the plan was left open": ("<PLAN>[FINALIZE] It is 42.", "a tag was left open"),
    "the token is in the code": (turn("Print.", "print('<PLAN>[FINALIZE]</PLAN>')"), "&lt;PLAN>[FINALIZE]"),
    "the words are in the text": ("It is done. [FINALIZE]\nStatus: Finished", "You answered with text only"),
    "the code was cut": (
        reply(turn("[FINALIZE]") + "\n```python\nprint(1)", finish_reason="length"),
        "the reply was cut off before its end",
    ),
    "the code was whole, and the reply was cut": (
        reply(turn("[FINALIZE] It is 41.", "print(41)"), finish_reason="length"),
        "the reply was cut off before its end",
    ),
    "it made its evidence up": (
        turn("Run.", "print(6 * 7)") + "\n<EVIDENCE>\n41\n</EVIDENCE>\n" + turn("[FINALIZE] It is 41."),
        ">\n42\n</EVIDENCE>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", VOID)
def test_a_reply_that_does_not_end_the_task(case: str, sandbox: Sandbox) -> None:
    step, told = VOID[case]
    bench = Bench(sandbox, step, DONE)
    outcome = bench.run()["outcome"]
    assert (outcome["status"], outcome["turns"], outcome["summary"]) == (
        "success",
        2,
        "It is 42.\n\nApproach: compute",
    )
    assert told in bench.model.seen[1].messages[-1].text


def test_a_question_is_asked_and_its_answer_is_evidence(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, "<PLAN>Ask.</PLAN>\n<ASK>Which base?</ASK>\n" + turn(code="1 / 0"), DONE)
    graph = bench.graph()
    waiting = graph.invoke(TASK, CONFIG)
    (asked,) = waiting["__interrupt__"]
    assert (asked.value["type"], asked.value["question"]) == ("question", "Which base?")
    result = bench.graph().invoke(Command(resume={asked.id: "ten"}), CONFIG)
    assert result["outcome"]["status"] == "success"
    told = bench.model.seen[1].messages[-1].text
    assert '<EVIDENCE of="ask_user" status="ok">\nten\n</EVIDENCE>' in told
    assert "Not run: a call after ask_user" in told
    assert "Debugging" not in told


def test_another_tool_is_called_beside_the_code(sandbox: Sandbox) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    step = (
        turn("Both.", "print(1)") + '\n<CALL name="add">{"a": 40, "b": 2}</CALL>\n<CALL name="fly">{}</CALL>'
    )
    bench = Bench(sandbox, step, DONE, tools=[add])
    messages = bench.run()["messages"]
    # What cannot run is answered first.
    assert [result[:2] for result in results(messages)[:3]] == [
        ("fly", "error"),
        ("run_python", "success"),
        ("add", "success"),
    ]
    evidence = bench.model.seen[1].messages[-1].text
    places = [evidence.index(part) for part in (">\n1\n", ">\n42\n", "There is no tool 'fly'")]
    assert places == sorted(places)
    assert "\n- add: Add two numbers.\n" in bench.model.seen[0].messages[0].text


def test_it_may_end_honestly(sandbox: Sandbox) -> None:
    step = '<CALL name="finish_task">{"summary": "No network.", "outcome": "blocked"}</CALL>'
    outcome = Bench(sandbox, step).run()["outcome"]
    assert (outcome["status"], outcome["claim"], outcome["summary"]) == ("success", "blocked", "No network.")


def test_ten_turns_by_default(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, *(turn(f"Step {n}.", status="Working") for n in range(10)))
    outcome = bench.run()["outcome"]
    assert (outcome["status"], outcome["reason"], outcome["turns"]) == ("limit", "turns", 10)


def test_the_history_survives_a_restart_and_goes_on(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, turn("Compute.", "x = 42", "Working"), turn("Again.", "print(x)", "Working"), DONE)
    bench.given["limits"] = Limits(turns=1)
    assert bench.graph().invoke(TASK, CONFIG)["outcome"]["status"] == "limit"
    session = Session(
        build_graph(TaggedText(bench.model), bench.tools, **bench.saved, limits=Limits(turns=1)), "t"
    )
    decision = session.extend(turns=2)
    assert isinstance(decision, Finished)
    assert decision.outcome.status == "success"
    bench.model.assert_done()
    first, last = bench.model.seen[0].messages, bench.model.seen[2].messages
    assert last[0].text == first[0].text
    assert [message.text for message in last if message.type == "ai"] == [
        turn("Compute.", "x = 42", "Working"),
        turn("Again.", "print(x)", "Working"),
    ]


def test_tokens_flow_and_are_told_once(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, turn("Compute.", "print(6 * 7)", "Working"), DONE)
    pieces = [
        chunk.text
        for chunk, _ in bench.graph().stream(TASK, CONFIG, stream_mode="messages")
        if isinstance(chunk, AIMessageChunk)
    ]
    assert "".join(pieces) == turn("Compute.", "print(6 * 7)", "Working") + DONE
    assert len(pieces) > 8


def test_a_made_up_end_is_cut_and_its_cost_estimated(sandbox: Sandbox) -> None:
    text = turn("Run.", "print(6 * 7)", "Working") + "\n<EVIDENCE>\n" + "41\n" * 1000 + "</EVIDENCE>\n" + DONE
    bench = Bench(sandbox, text, DONE)
    result = bench.run()
    first = next(message for message in result["messages"] if isinstance(message, AIMessage))
    assert len(first.text) < 250
    assert marks(first)["estimated"] is True
    assert result["outcome"]["usage"]["estimated"] is True
    assert "41" not in "".join(message.text for message in bench.model.seen[1].messages[1:])
