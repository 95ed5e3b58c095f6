"""The five notes that Signoff is built after, sentence by sentence: each row quotes one by its meaning, says
what was run, and runs it.

    1  an explicit lifecycle            4  a visible terminal
    2  an executive that acts by code   5  no finishing twice
    3  a call that says that it is done
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any, get_args

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from benchmarks.iterations import CLASSES, MOST_TURNS, TOOLS, compulsive
from benchmarks.loops import LOOPS, PLAIN, SIGNOFF
from signoff import (
    Action,
    Answer,
    Approval,
    ControlTool,
    Kind,
    Limits,
    Message,
    Outcome,
    Paused,
    Question,
    Session,
    SetupError,
    Texts,
    build_graph,
    sqlite_storage,
    standard_controls,
)
from signoff.machine import TRANSITIONS, Event, State
from signoff.models import ScriptedModel, TaggedText, call, reply
from signoff.records import rate, read_ended, stats
from signoff.text import heading
from signoff.tools import Shell, choose_sandbox, python_tool
from tests.support.adapted import adapted
from tests.support.benches.cli import Bench, steps
from tests.support.benches.cli_terminal import run_words, terminal
from tests.support.benches.notes import (
    ASK,
    CODE,
    END,
    FINISH,
    GO,
    PLAN,
    READ,
    THINK,
    THREAD,
    WORKING,
    WRITE,
    Coded,
    Ran,
    one_call,
    python,
    session,
    update,
)
from tests.support.benches.page_shown import DONE, shown, titles
from tests.support.chromium import MISSING, PROGRAM
from tests.support.ends import is_failed, is_finished

Check = Callable[[Path], None]


@dataclass(frozen=True)
class Row:
    """A sentence of a note, what was run to see it, and the check that runs it in a folder of its own."""

    note: int
    sentence: str
    ran: str
    check: Check
    slow: bool = False


ROWS: list[Row] = []


def shows(note: int, sentence: str, ran: str, *, slow: bool = False) -> Callable[[Check], Check]:
    """The decorated check shows the sentence."""

    def listed(check: Check) -> Check:
        ROWS.append(Row(note, sentence, ran, check, slow))
        return check

    return listed


# Runs that several rows look at.


@cache
def talked() -> Ran:
    return Ran("I am done. The task is complete.", FINISH)


@cache
def turn_limit() -> Ran:
    return Ran(*(call("write", text=str(number)) for number in range(30)))


def card_of(ran: Ran) -> str:
    """The colour of its card."""
    return heading(ran.outcome).tone


# 1. An explicit lifecycle.


@shows(1, "Only finish_task means done", "a reply that says that all is done, then the call")
def _(folder: Path) -> None:
    assert talked().ended == ("success", "finish_task", 2)


@shows(1, "No keyword ends a run", "seven replies that are nothing but a word for the end")
def _(folder: Path) -> None:
    for word in ("done", "Finished.", "TASK COMPLETE", "[FINALIZE]", "Status: Finished", "exit", "STOP"):
        assert Ran(word, FINISH).ended == ("success", "finish_task", 2), word


@shows(
    1, "No length of a prompt or of a reply ends a run", "a task of one character, replies of 1 and 50,000"
)
def _(folder: Path) -> None:
    ran = Ran("k", "word " * 10_000, FINISH, given={"messages": [("user", "?")]})
    assert (ran.ended, ran.nudges) == (("success", "finish_task", 3), ["talked", "talked"])


@shows(1, "finish_reason decides nothing", "words and a call with `stop`, words with `tool_calls`")
def _(folder: Path) -> None:
    steps = [reply("Bye.", finish_reason="stop"), reply(WRITE, finish_reason="stop")]
    assert Ran(*steps, reply("So.", finish_reason="tool_calls"), FINISH).ended[2] == 4


@shows(
    1,
    "A run exits by success, limit or error, and by nothing else",
    "the type, and the last state",
)
def _(folder: Path) -> None:
    assert set(get_args(Outcome.model_fields["status"].annotation)) == {"success", "limit", "error"}
    graph = build_graph(ScriptedModel([])).get_graph()
    assert [edge.source for edge in graph.edges if edge.target == "__end__"] == [State.FINISH]


@shows(1, "Success is one exit", "the call alone")
def _(folder: Path) -> None:
    assert Ran(FINISH).ended == ("success", "finish_task", 1)


@shows(1, "A limit is another, and no success", "thirty turns of work without an end")
def _(folder: Path) -> None:
    ran = turn_limit()
    assert (ran.ended, ran.outcome["claim"]) == (("limit", "turns", 30), None)


@shows(1, "An error is the third, a result and no exception", "a provider that raises")
def _(folder: Path) -> None:
    ran = Ran(RuntimeError("down"))
    assert ran.ended[:2] == ("error", "model_error")
    assert "down" in ran.outcome["error"]


@shows(1, "A reply of words only gets a nudge", "words, then the call")
def _(folder: Path) -> None:
    assert talked().nudges == ["talked"]
    assert talked().model.seen[1].messages[-1].text == Texts().nudges["talked"].format()


@shows(1, "A reply of words only is never an exit by itself", "words without end: a limit says so in the end")
def _(folder: Path) -> None:
    assert Ran(*["I am done."] * 5).ended == ("limit", "talk_turns", 5)


@shows(1, "finish_task(reason=…) ends it", "the call with a reason and no summary")
def _(folder: Path) -> None:
    ran = Ran(call("finish_task", reason="The port is changed."))
    assert (ran.ended[0], ran.outcome["summary"]) == ("success", "The port is changed.")


@shows(1, "The lifecycle is a machine: a table alone picks the next state", "an event that a state has not")
def _(folder: Path) -> None:
    assert Event.ACCEPTED not in TRANSITIONS[State.DECIDE]
    assert TRANSITIONS[State.REVIEW][Event.ACCEPTED] == State.FINISH


@shows(1, "compress, decide, call_llm, route_tools, execute or nudge, finish", "the states of a small run")
def _(folder: Path) -> None:
    graph = build_graph(ScriptedModel([WRITE, "words", FINISH]), WORKING)
    states = [name for update in graph.stream(GO, stream_mode="updates") for name in update]
    assert states[:4] == ["compress", "decide", "call_llm", "route_tools"]
    assert {"execute", "nudge", "review"} < set(states)
    assert states[-1] == "finish"


@shows(
    1, "P0: an old part of the history is summarised before anything is decided", "a prompt of 1,500 tokens"
)
def _(folder: Path) -> None:
    steps = [call("write", text=f"{number} " * 300) for number in range(6)]
    ran = Ran(*steps, FINISH, prompt_tokens=1500)
    kept = ran.graph.get_state(THREAD).values
    assert kept["digest"]["lines"]
    assert len(kept["messages"]) == 1 + 2 * 7 + 1, "the thread keeps everything"


@shows(1, "The rules are ordered, and the one that fired says why", "the last decision of a run")
def _(folder: Path) -> None:
    decided = talked().graph.get_state(THREAD).values["decision"]
    assert decided == {"rule": "claimed", "event": "claimed", "why": decided["why"]}
    assert decided["why"].startswith("finish_task stands")


@shows(1, "A question pauses the run and ends nothing", "a question, its answer, the call")
def _(folder: Path) -> None:
    ran = Ran(ASK, FINISH)
    assert (ran.outcome, len(ran.state["__interrupt__"])) == ({}, 1)
    assert ran.resume("8080").ended == ("success", "finish_task", 2)


@shows(1, "It goes on by its thread ID after its process has ended", "a question, answered by a second graph")
def _(folder: Path) -> None:
    def script(messages: list[BaseMessage]) -> Any:
        return FINISH if any(message.type == "tool" for message in messages) else ASK

    with sqlite_storage(folder / "t.sqlite") as storage:
        build_graph(ScriptedModel(script), storage=storage).invoke(GO, THREAD)
    with sqlite_storage(folder / "t.sqlite") as storage:
        ended = Session(build_graph(ScriptedModel(script), storage=storage), "t").resume("8080")
    assert is_finished(ended)
    assert ended.outcome.turns == 2


@shows(1, "The model is told that words end nothing and the call does", "the prompt of the first turn")
def _(folder: Path) -> None:
    told = talked().model.seen[0].messages[0].text
    assert "Text without a tool call does not end the task" in told
    assert "Call `finish_task` when the task is absolutely done" in told


# 2. An executive that acts by code.


@cache
def computed() -> Coded:
    return Coded(
        f"{PLAN}\n{CODE}\n{update('Working')}", f"{END}\n{update('Finished')}", constitution="Be exact."
    )


@cache
def debugged() -> Coded:
    broken = CODE.replace("6 * 7", "6 * x")
    return Coded(
        f"{PLAN}\n{broken}\n{update('Working')}",
        f"<PLAN>What is x?</PLAN>\n{update('Thinking')}",
        f"{PLAN}\n{CODE}\n{update('Checking')}",
        END,
    )


@shows(2, "A plan, Python code and a state update are a protocol of text", "a reply with all three")
def _(folder: Path) -> None:
    (first, *_) = (message for message in computed().messages if isinstance(message, AIMessage))
    assert [made["name"] for made in first.tool_calls] == ["think", "run_python"]
    assert computed().model.seen[0].tools == []


@shows(2, "[FINALIZE] in the plan ends the task", "the token alone")
def _(folder: Path) -> None:
    assert Coded(END).ended == ("success", "finish_task", 1)


@shows(2, "Status: Finished, or Finalized, in the state update ends the task", "both words")
def _(folder: Path) -> None:
    for word in ("Finished", "Finalized"):
        assert Coded(f"{PLAN}\n{update(word)}").ended == ("success", "finish_task", 1), word


@shows(
    2, "The code of a reply that finishes runs first", "plan, code and token in one reply, right and wrong"
)
def _(folder: Path) -> None:
    assert Coded(f"{END}\n{CODE}").results[1] == "42"
    assert Coded(f"{END}\n```python\n1 / 0\n```", END).ended == ("success", "finish_task", 2)


@shows(2, "Failed code forces the status Debugging", "code with an unknown name")
def _(folder: Path) -> None:
    assert "Status: Debugging" in debugged().prompts[1]
    assert "NameError" in debugged().prompts[1]


@shows(2, "After failed code a reply without code has the status that it states", "a plan that says Thinking")
def _(folder: Path) -> None:
    assert "Status: Thinking" in debugged().prompts[2]


@shows(2, "The evidence of the failure stays until something else was run", "the same run")
def _(folder: Path) -> None:
    assert "The last execution failed." in debugged().prompts[2]
    assert any("NameError" in message.text for message in debugged().model.seen[2].messages)
    assert "The last execution failed." not in debugged().prompts[3]


@shows(2, "Otherwise the status is the model's own", "the status after the repair")
def _(folder: Path) -> None:
    assert "Status: Checking" in debugged().prompts[3]


@shows(2, "Current Approach: sets the approach", "the prompt after it")
def _(folder: Path) -> None:
    assert "Approach: by code" in computed().prompts[1]


@shows(2, "Bold, lists, small letters and one line are read alike", "five ways to write the same")
def _(folder: Path) -> None:
    for said in (
        "**Current Approach:** a\n**Status:** Finished",
        "- Current Approach: a\n- Status: Finished",
        "current approach: a\nstatus: finished",
        "Current Approach: a | Status: Finished",
        "Approach: a. Status: Finalized",
    ):
        ran = Coded(f"<plan>It is 42.</plan>\n<state_update>\n{said}\n</state_update>")
        assert (ran.ended[0], ran.acting["approach"].rstrip(".")) == ("success", "a"), said


@shows(2, "Only what stands inside a tag counts", "the words outside, in code and in a quotation")
def _(folder: Path) -> None:
    outside = (
        f"[FINALIZE]\nStatus: Finished\n{PLAN}",
        f"```\n{END}\n```",
        f"> {END}",
        f"I write {END} later",
    )
    assert Coded(*outside, END).ended == ("success", "finish_task", 5)


@shows(2, "A last tag that was not closed finishes nothing", "a plan, a state update and a call left open")
def _(folder: Path) -> None:
    left = (
        "<PLAN>[FINALIZE] It is 42.",
        "<STATE_UPDATE>\nStatus: Finished",
        '<CALL name="finish_task">{"summary": "x"}',
    )
    assert Coded(*left, END).ended == ("success", "finish_task", 4)


@shows(
    2, "Nothing in a reply that was cut finishes", "a whole plan and a whole update with finish_reason length"
)
def _(folder: Path) -> None:
    cut = [reply(text, finish_reason="length") for text in (END, update("Finished"))]
    assert Coded(*cut, END).ended == ("success", "finish_task", 3)


@shows(2, "Execution is restricted", "code that opens a connection, and code that looks for a key")
def _(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as env:
        env.setenv("SIGNOFF_ROW_KEY", "a secret")
        reach = f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        look = "import os\nprint(os.environ.get('SIGNOFF_ROW_KEY'))"
        ran = Coded(*(f"```python\n{code}\n```" for code in (reach, look)), END)
    assert "Error" in ran.results[0]
    assert "a secret" not in "".join(ran.results)


@shows(2, "A call ends after 60 seconds", "the default, and a loop without end under a shorter one")
def _(folder: Path) -> None:
    assert "60 seconds" in python().description
    quick = python_tool(choose_sandbox(), timeout=0.3)
    ran = Coded("```python\nwhile True: pass\n```", END, tools=[quick])
    assert "Timed out after 0.3 s." in ran.prompts[1]
    assert "Status: Debugging" in ran.prompts[1]


@shows(2, "The output becomes evidence", "the prompt after the code")
def _(folder: Path) -> None:
    assert '<EVIDENCE of="run_python" status="ok">\n42\n</EVIDENCE>' in computed().prompts[1]


@shows(2, "Evidence is never the model's word", "a reply that goes on with a result of its own")
def _(folder: Path) -> None:
    ran = Coded(f"{CODE}\n<EVIDENCE>\n41\n</EVIDENCE>\n<PLAN>[FINALIZE] 41.</PLAN>", END)
    assert (ran.outcome["summary"].startswith("It is 42."), "41" in ran.prompts[1]) == (True, False)


@shows(2, "A constitution stands in every prompt", "one of a sentence")
def _(folder: Path) -> None:
    assert all("# Principles\nBe exact.\n" in seen.messages[0].text for seen in computed().model.seen)


@shows(
    2, "Constitution, approach, evidence and status are the state", "the state of the thread after the run"
)
def _(folder: Path) -> None:
    found = computed().acting
    assert (found["constitution"], found["approach"], found["status"]) == ("Be exact.", "by code", "Finished")
    assert (found["evidence"]["of"], found["evidence"]["text"]) == ("run_python", "42")


@shows(2, "A graph elsewhere goes on with the same", "a second task by a graph without a constitution")
def _(folder: Path) -> None:
    with sqlite_storage(folder / "t.sqlite") as storage:
        build_graph(TaggedText(ScriptedModel([END]), constitution="Be exact."), storage=storage).invoke(
            GO, THREAD
        )
    model = ScriptedModel([END])
    with sqlite_storage(folder / "t.sqlite") as storage:
        build_graph(TaggedText(model), storage=storage).invoke(GO, THREAD)
    assert "# Principles\nBe exact.\n" in model.seen[0].messages[0].text


@shows(2, "Every turn is stored", "the turns of a thread, read from its file")
def _(folder: Path) -> None:
    with sqlite_storage(folder / "t.sqlite") as storage:
        model = ScriptedModel([f"{PLAN}\n{update('Working')}", END])
        build_graph(TaggedText(model), storage=storage).invoke(GO, THREAD)
    with sqlite_storage(folder / "t.sqlite") as storage:
        session = Session(build_graph(ScriptedModel([]), storage=storage), "t")
        assert [turn.status for turn in session.history()] == ["Working", "Working"]
        assert [turn.text for turn in session.history()] == [f"{PLAN}\n{update('Working')}", END]


@shows(2, "Ten turns are the limit", "plans without end")
def _(folder: Path) -> None:
    steps = [f"<PLAN>Step {number}.</PLAN>" for number in range(10)]
    assert Coded(*steps).ended == ("limit", "turns", 10)


# 3. A call that says that it is done.


@shows(3, "The summary is required", "the call without one, and with an empty one")
def _(folder: Path) -> None:
    ran = Ran(call("finish_task"), call("finish_task", summary=" "), FINISH)
    assert (ran.ended[2], ran.outcome["refusals"]) == (3, 2)
    assert "the summary is empty" in ran.results[1]


@shows(3, "The call stops the run at once", "the model is not asked again")
def _(folder: Path) -> None:
    ran = Ran(WRITE, FINISH, "never said")
    assert (len(ran.model.seen), ran.ended[0]) == (2, "success")


@shows(3, "Calls after it never run", "a write behind the call in one reply")
def _(folder: Path) -> None:
    wrote: list[str] = []

    def note(text: str) -> str:
        """Note."""
        wrote.append(text)
        return text

    whole = AIMessage(
        "", tool_calls=[one_call("finish_task", "f", summary="x"), one_call("note", "n", text="x")]
    )
    ran = Ran(tools=[note], given={"messages": [("user", "Do it."), whole]})
    assert (ran.ended[0], wrote) == ("success", [])
    assert any("Not run: a call after finish_task" in text for text in ran.results)


@shows(3, "A reminder comes late, before turn 26 of 30, and once", "thirty turns of work")
def _(folder: Path) -> None:
    ran = turn_limit()
    assert ran.nudges == ["near_limit"]
    told = [turn.number for turn in ran.history if any(event.type == "nudged" for event in turn.events)]
    assert told == [25]
    assert "5 turn(s)" in next(message.text for message in ran.messages[1:] if message.type == "human")


@shows(3, "think notes a thought and does not end the task", "a thought, then the call")
def _(folder: Path) -> None:
    ran = Ran(THINK, FINISH)
    assert (ran.results[0], ran.ended[2]) == ("Noted. Go on with the next step.", 2)


@shows(3, "The call may be named task_done", "an alias by configuration")
def _(folder: Path) -> None:
    ran = Ran(call("task_done", summary="All."), control_tools=standard_controls(aliases=["task_done"]))
    assert (ran.ended[0], ran.outcome["summary"]) == ("success", "All.")


@shows(3, "Its description says when to call it and what to say", "what the model is given")
def _(folder: Path) -> None:
    told = next(found for found in talked().model.seen[0].tools if found["function"]["name"] == "finish_task")
    for said in ("all steps are done", "results are checked", "files were touched", "100 to 500 characters"):
        assert said in told["function"]["description"], said


@shows(3, "Before it calls, the model asks itself what may be missing", "the prompt of the first turn")
def _(folder: Path) -> None:
    asked = "Are all steps done? Is a check forgotten? Is the result as expected? If you are unsure, go on"
    assert asked in talked().model.seen[0].messages[0].text


@shows(3, "A success that was checked has a green card", "a run with a check that passes")
def _(folder: Path) -> None:
    ran = Ran(FINISH, checks=[lambda: True])
    assert (ran.outcome["verified"], card_of(ran)) == ("verified", "green")


@shows(3, "Progress has a blue card", "the card of a phase on the page of a run")
def _(folder: Path) -> None:
    bench = Bench(folder)
    bench.model(steps('call("finish_task", summary="Half of it.", completion_percentage=60)', DONE))
    bench.run("Do it")
    (title,) = titles(shown(bench), "blue")
    assert "60 % done" in title


@shows(3, "An end without success is shown in another colour", "the cards of a limit and of a blocked task")
def _(folder: Path) -> None:
    blocked = Ran(call("finish_task", summary="No key.", outcome="blocked"))
    assert "green" not in (card_of(turn_limit()), card_of(blocked))


@cache
def phased() -> Ran:
    part = call("finish_task", summary="Read it.", completion_percentage=60, next_phase="write it")
    return Ran(part, WRITE, FINISH)


@shows(3, "With less than 100 % the task goes on", "60 %, work, the end")
def _(folder: Path) -> None:
    assert phased().ended == ("success", "finish_task", 3)
    assert [found["percentage"] for found in phased().outcome["phases"]] == [60]


@shows(3, "The next phase is what it goes on with", "the answer to the call")
def _(folder: Path) -> None:
    assert "go on with the next phase, write it" in phased().results[0]


@shows(3, "It may ask a person to confirm", "a finish that waits for a yes")
def _(folder: Path) -> None:
    ran = Ran(call("finish_task", summary="Sent.", requires_user_confirmation=True))
    assert ran.state["__interrupt__"][0].value["finish"]
    assert ran.resume("yes").ended == ("success", "finish_task", 1)


@shows(3, "A person may send it back", "a no with a reason")
def _(folder: Path) -> None:
    ran = Ran(call("finish_task", summary="Sent.", requires_user_confirmation=True), FINISH)
    assert ran.resume("The port is wrong.").ended[2] == 2
    assert "The port is wrong." in ran.results[0]


@shows(3, "Pending issues are told, and need a person", "a done with an open issue")
def _(folder: Path) -> None:
    asks: Any = {"pending_issues": ["a flaky test"], "requires_user_confirmation": True}
    ran = Ran(call("finish_task", summary="Most.", **asks))
    assert ran.state["__interrupt__"][0].value["action_requests"][0]["args"]["pending_issues"] == [
        "a flaky test"
    ]
    assert ran.resume("yes").outcome["pending_issues"][0] == "a flaky test"


@cache
def figures() -> dict[str, Any]:
    """Four tasks: one that a check refused once, one rated 1, one that only its own word calls done, one
    that a limit cut and a person rated 5."""
    store, passes = InMemoryStore(), iter([False, True])
    scripts: Sequence[tuple[list[Any], Mapping[str, Any]]] = (
        ([FINISH, WRITE, FINISH], {"checks": [lambda: next(passes)]}),
        ([FINISH], {}),
        ([FINISH], {}),
        ([WRITE], {"limits": Limits(turns=1)}),
    )
    for number, (script, options) in enumerate(scripts):
        graph = build_graph(
            ScriptedModel(script),
            WORKING,
            checkpointer=InMemorySaver(),
            store=store,
            **adapted(**options),
        )
        graph.invoke(GO, {"configurable": {"thread_id": f"t{number}"}})
    rate(store, "t1", 1)
    rate(store, "t3", 5)
    return stats(read_ended(store))


@shows(3, "The rate of false positives: finishes that came too early", "refused by a check, and rated 1")
def _(folder: Path) -> None:
    found = figures()["false_positives"]
    assert (found["count"], found["judged"], found["rate"]) == (2, 3, 0.6667)
    assert found["too_early"] == {"check": 1, "person": 0, "rating": 1}


@shows(3, "The rate of false negatives: work that was done and did not end", "a limit that was rated 5")
def _(folder: Path) -> None:
    found = figures()["false_negatives"]
    assert (found["count"], found["judged"], found["hit_limit"]) == (1, 2, 1)


@shows(3, "What nobody and nothing has judged has no rate", "a task that only its own word calls done")
def _(folder: Path) -> None:
    assert figures()["false_positives"]["not_judged"] == 1
    assert stats([])["false_negatives"]["rate"] is None


@shows(3, "How tasks end is counted", "the statistics of four tasks")
def _(folder: Path) -> None:
    assert figures()["exits"]["status"] == {"success": 3, "limit": 1}


@shows(3, "30 turns on average became 8.7", "a simulated model that goes on unless a call ends the run")
def _(folder: Path) -> None:
    count = sum(tasks for tasks, _ in CLASSES.values())
    mean = {
        loop: sum(
            tasks * LOOPS[loop](compulsive(turns - 1, 0.0), TOOLS, "Do it.", kind, MOST_TURNS).turns
            for kind, (tasks, turns) in CLASSES.items()
        )
        / count
        for loop in LOOPS
    }
    assert (mean[PLAIN], round(mean[SIGNOFF], 1)) == (30.0, 8.7)


@shows(3, "Plan, execute, think: after each batch it is asked to think", "a run in rounds")
def _(folder: Path) -> None:
    ran = Ran([WRITE, READ], THINK, FINISH, rounds=True)
    assert (ran.ended[2], ran.nudges) == (3, ["round"])


@shows(3, "A batch has one to eight calls, run in order", "nine calls in one reply")
def _(folder: Path) -> None:
    ran = Ran([call("write", text=str(number)) for number in range(9)], FINISH, rounds=True)
    assert [text for text in ran.results if text.startswith("wrote")] == [f"wrote {n}" for n in range(8)]


# 4. A visible terminal.


@shows(4, "The agent steps and yields a decision: a message", "words, then the end, by step()")
def _(folder: Path) -> None:
    driven = session("Hello.", FINISH)
    said = driven.step("Do it.")
    assert isinstance(said, Message)
    assert (said.text, type(driven.step()).__name__) == ("Hello.", "Ended")


@cache
def acted() -> tuple[Session, Any, Any]:
    driven = session(call("run_command", command="ls"), FINISH, hand_over=["terminal"])
    action = driven.step("Do it.")
    return driven, action, driven.step(Answer({"output": "a.txt", "exit_code": 0}))


@shows(4, "A decision: an action", "a command that is handed over")
def _(folder: Path) -> None:
    _, action, _ = acted()
    assert isinstance(action, Action)
    assert (action.tool, action.args, action.document()["kind"]) == (
        "run_command",
        {"command": "ls"},
        "terminal",
    )


@shows(4, "The driver runs it and gives back what it observed", "the result in the history")
def _(folder: Path) -> None:
    driven, _, ended = acted()
    assert is_finished(ended)
    assert any("a.txt" in message.text for message in driven.status().values["messages"])


@shows(4, "A decision: an error", "a provider that raises")
def _(folder: Path) -> None:
    failed = session(RuntimeError("down")).step("Do it.")
    assert is_failed(failed)
    assert "down" in str(failed.outcome.error)


@shows(4, "Tools have kinds", "a tool of each, and one that says nothing")
def _(folder: Path) -> None:
    for kind, step in (("read", READ), ("write", WRITE), ("terminal", call("run_command", command="ls"))):
        assert isinstance(session(step, FINISH, approvals={kind: True}).run("Do it."), Approval), kind
    assert isinstance(session(call("fail"), FINISH, approvals={"write": True}).run("Do it."), Approval)


@shows(4, "Commands run in a real terminal", "`tty` in the shell of the agent")
def _(folder: Path) -> None:
    shell = Shell(folder)
    try:
        assert "/dev/" in shell.run("tty").output
    finally:
        shell.close()


@shows(4, "They are visible while they run", "what a command has written before it ends")
def _(folder: Path) -> None:
    def hear(data: bytes) -> None:
        if b"one" in data:
            (folder / "seen").touch()

    shell = Shell(folder)
    try:
        # It ends only when somebody has seen its first word.
        ended = shell.run("echo one; until [ -e seen ]; do sleep 0.02; done; echo two", 10, hear)
    finally:
        shell.close()
    assert ended.output.splitlines() == ["one", "two"]


# What it prints is not in its words, so that only a command that has run shows it.
ASKING = "tty; read -p 'A w''ord: ' word; echo read ${#word} letters"
WAITING = "tty; echo $((6 * 7)) seen; until [ -e seen ]; do sleep 0.02; done; echo $((7 * 7)) at the end"


def shell_steps(command: str) -> str:
    return f'[call("run_shell", command={command!r}), call("finish_task", summary="Done.")]'


@shows(
    4,
    "The application drives them in a pane that people see",
    "the terminal of `signoff serve` in Chromium, where a person types what a command reads",
    slow=True,
)
def _(folder: Path) -> None:
    if PROGRAM is None:
        pytest.skip(MISSING)
    from tests.support.benches.web import WebBench  # imports the web application
    from tests.support.benches.web_browser import Served, browser

    bench = WebBench(folder)
    options = ("--workspace", str(bench.workspace), "--tools", "shell", "--thread", "t1")
    served = Served("--database", str(bench.database), *options, "--model", bench.model(shell_steps(ASKING)))
    try:
        with browser() as seen:
            seen.page.goto(served.address)
            seen.shows("Describe the task below")
            seen.send("Do it.")
            lines = seen.page.locator(".xterm-rows")
            for words in ("$ tty; read -p", "/dev/", "A word: "):
                lines.filter(has_text=words).wait_for()
            seen.page.locator("#terminal textarea").focus()
            seen.page.keyboard.type("yes")
            seen.page.keyboard.press("Enter")
            lines.filter(has_text="read 3 letters").wait_for()
            seen.stands("Asserted: done")
    finally:
        assert served.end() == 0


@shows(
    4,
    "The command line shows what they write while they run",
    "the live lines of `signoff run` in a terminal, before the command ends",
    slow=True,
)
def _(folder: Path) -> None:
    bench = Bench(folder)
    bench.model(shell_steps(WAITING))
    with terminal(bench, *run_words(bench)) as shown:
        live = shown.until("42 seen")
        assert "tty; echo" in live
        assert "/dev/" in live
        # It ends only when somebody has seen its first words.
        (bench.workspace / "seen").touch()
        shown.until("49 at the end")
        assert shown.end() == 0


@shows(4, "The agent can be paused", "a pause from within a tool")
def _(folder: Path) -> None:
    held: list[Session] = []

    def pause() -> str:
        """Pause."""
        held[0].pause()
        return "asked"

    graph = build_graph(
        ScriptedModel([call("pause"), FINISH]), [pause], checkpointer=InMemorySaver(), store=InMemoryStore()
    )
    held.append(Session(graph, "t"))
    assert isinstance(held[0].run("Do it."), Paused)
    ended = held[0].run()
    assert is_finished(ended)
    assert ended.outcome.turns == 2


@shows(4, "It can be resumed with an answer", "a question and its answer")
def _(folder: Path) -> None:
    driven = session(ASK, FINISH)
    assert isinstance(driven.run("Do it."), Question)
    assert is_finished(driven.resume("8080"))


@shows(4, "Any tool may need approval", "a tool that only reads, by name, and writing, by kind")
def _(folder: Path) -> None:
    for approvals, step in (({"read": True}, READ), ({"write": True}, WRITE)):
        waiting = session(step, FINISH, approvals=approvals).run("Do it.")
        assert isinstance(waiting, Approval), approvals
        assert [found.name for found in waiting.calls] == [step.name]


@shows(4, "What is rejected does not run, and the model is told why", "a no with a reason")
def _(folder: Path) -> None:
    driven = session(WRITE, FINISH, approvals={"write": True})
    driven.run("Do it.")
    driven.resume("reject: not today")
    (told,) = [found.text for found in driven.status().values["messages"] if found.type == "tool"][:1]
    assert ("not today" in told, "wrote" in told) == (True, False)


@shows(4, "What is edited runs as edited", "other arguments in the decision")
def _(folder: Path) -> None:
    driven = session(WRITE, FINISH, approvals={"write": True})
    driven.run("Do it.")
    driven.resume([{"type": "edit", "edited_action": {"name": "write", "args": {"text": "y"}}}])
    assert any("wrote y" in found.text for found in driven.status().values["messages"])


@shows(4, "Any tool may be handed over, not only the terminal", "a tool that reads")
def _(folder: Path) -> None:
    assert isinstance(session(READ, FINISH, hand_over=["read"]).run("Do it."), Action)


# 5. No finishing twice.


@cache
def ten_finishes() -> Ran:
    return Ran([call("finish_task", summary=f"End {number}.") for number in range(10)])


@shows(
    5, "The inner guard aborts the stream at the first finish", "ten finishes in one reply, chunk by chunk"
)
def _(folder: Path) -> None:
    model = ScriptedModel([[call("finish_task", summary=f"End {number}.") for number in range(10)]])
    sent = len(list(model.stream("x")))
    assert ten_finishes().model.chunks_sent < sent / 4


@shows(5, "One finish of them is kept", "the history")
def _(folder: Path) -> None:
    (made,) = [found for found in ten_finishes().messages if getattr(found, "tool_calls", ())]
    assert isinstance(made, AIMessage)
    assert [one["args"]["summary"] for one in made.tool_calls] == ["End 0."]
    assert ten_finishes().outcome["summary"] == "End 0."


@shows(5, "What the cut reply cost is an estimate and says so", "the usage of the outcome")
def _(folder: Path) -> None:
    assert ten_finishes().outcome["usage"]["estimated"] is True


@shows(
    5,
    "The outer guard looks at the whole history, not at the last message",
    "a finish with a result after it",
)
def _(folder: Path) -> None:
    work = AIMessage("", tool_calls=[one_call("read", "r"), one_call("finish_task", "f", summary="Done.")])
    seen = [("user", "Do it."), work, {"role": "tool", "tool_call_id": "r", "content": "text"}]
    ran = Ran(given={"messages": seen})
    assert (ran.ended, len(ran.model.seen)) == (("success", "finish_task", 1), 0)


@shows(5, "It looks at this task only", "a second task on a thread that has ended")
def _(folder: Path) -> None:
    ran = Ran(FINISH, WRITE, call("finish_task", summary="The second."))
    ran.state = ran.graph.invoke({"messages": [("user", "And now that.")]}, THREAD)
    assert (ran.ended[2], ran.outcome["summary"]) == (2, "The second.")


@shows(
    5,
    "P0.5: control calls come before limits and before what the reply says",
    "a question and a finish on the last turn, beside words",
)
def _(folder: Path) -> None:
    limits = Limits(turns=1)
    assert Ran(["I go on.", ASK], limits=limits).state["__interrupt__"]
    assert Ran(["I go on.", FINISH], limits=limits).ended == ("success", "finish_task", 1)


@shows(5, "So a finish on the last turn is a success", "two turns, the second finishes")
def _(folder: Path) -> None:
    assert Ran(WRITE, FINISH, limits=Limits(turns=2)).ended == ("success", "finish_task", 2)


@shows(5, "A repetition of an accepted finish changes nothing", "the ended thread, run again without news")
def _(folder: Path) -> None:
    ran = Ran(FINISH)
    before = ran.outcome
    again = ran.graph.invoke({"messages": []}, THREAD)
    assert (again["outcome"], len(ran.model.seen)) == (before, 1)


@shows(5, "A finish beside a call that failed is void", "both in one reply")
def _(folder: Path) -> None:
    ran = Ran([call("fail"), FINISH], FINISH)
    assert (ran.ended[2], ran.outcome["refusals"]) == (2, 1)


@shows(5, "Control tools are a registry", "its names and effects")
def _(folder: Path) -> None:
    assert {control.tool.name: control.effect for control in standard_controls()} == {
        "finish_task": "finish",
        "ask_user": "ask",
        "think": "continue",
    }


@tool
def escalate(reason: str) -> dict[str, Any]:
    """Give the task to a person."""
    return {"shouldContinue": reason == "try once more", "said": reason}


ESCALATING = {"control_tools": [*standard_controls(), ControlTool(escalate, "finish")]}


@shows(
    5, "A control tool of one's own takes part without a change of the machine", "escalate, with an effect"
)
def _(folder: Path) -> None:
    ran = Ran([WRITE, call("escalate", reason="too hard")], **ESCALATING)
    assert ran.ended == ("success", "escalate", 1)
    assert ran.outcome["result"]["said"] == "too hard"


@shows(5, "shouldContinue: true goes on", "the same tool with that answer")
def _(folder: Path) -> None:
    assert Ran(call("escalate", reason="try once more"), FINISH, **ESCALATING).ended[1:] == ("finish_task", 2)


@shows(5, "Control is a kind of tool of its own", "the kinds of the control tools")
def _(folder: Path) -> None:
    assert Kind("control") is Kind.CONTROL
    with pytest.raises(SetupError, match="control"):
        build_graph(ScriptedModel([]), approvals={"control": True})


@shows(5, "Kinds decide what runs beside what", "two reads at once, and two writes in order")
def _(folder: Path) -> None:
    both = Barrier(2, timeout=10)

    def meet() -> str:
        """Waits for another one."""
        both.wait()
        return "met"

    reading = [tool(meet)]
    reading[0].metadata = {"kind": "read"}
    assert Ran([call("meet"), call("meet")], FINISH, tools=reading).results[:2] == ["met", "met"]
    assert Ran([call("write", text="1"), call("write", text="2")], FINISH).results[:2] == [
        "wrote 1",
        "wrote 2",
    ]


PARAMETERS = [
    pytest.param(row, id=f"{row.note}: {row.sentence}", marks=[pytest.mark.slow] if row.slow else [])
    for row in ROWS
]


@pytest.mark.parametrize("row", PARAMETERS)
def test_a_sentence_of_the_notes(row: Row, tmp_path: Path) -> None:
    row.check(tmp_path)


def test_every_note_has_its_rows_and_no_sentence_stands_twice() -> None:
    sentences = [(row.note, row.sentence) for row in ROWS]
    assert len(set(sentences)) == len(ROWS) >= 60
    assert {row.note for row in ROWS} == {1, 2, 3, 4, 5}
    assert [row.sentence for row in ROWS if not row.ran] == []
