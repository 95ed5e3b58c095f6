"""The five notes that Signoff is built after, sentence by sentence: each is quoted by its meaning, and
played, checked, or shown by a file that is named.

    1  an explicit lifecycle            4  a visible terminal
    2  an executive that acts by code   5  no finishing twice
    3  a call that says that it is done
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any, get_args

import pytest
from langchain_core.tools import StructuredTool, tool
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import (
    Action,
    Answer,
    Approval,
    ControlTool,
    Kind,
    Message,
    Outcome,
    Paused,
    Session,
    SetupError,
    build_graph,
    outcome_of,
    sqlite_storage,
    standard_controls,
)
from signoff.machine import TRANSITIONS, Event, State
from signoff.models import TAGGED_LIMITS, ScriptedModel, TaggedText, call, reply
from signoff.records import rate, read_ended, stats
from signoff.text import heading
from signoff.tools import Shell, choose_sandbox, python_tool
from tests.support.ends import outcome_at
from tests.support.plays import (
    ASK,
    FAIL,
    FINISH,
    GO,
    READ,
    THINK,
    THREAD,
    WRITE,
    Bench,
    Play,
    ai,
    check,
    done,
    play,
    results,
    run,
    saved,
    user,
)

ROOT = Path(__file__).parents[2]
EDITED = [{"type": "edit", "edited_action": {"name": "write", "args": {"text": "y"}}}]
BLUE: Any = Command(resume="blue")
YES: Any = Command(resume="yes")
NO: Any = Command(resume="The port is wrong.")
EDIT: Any = Command(resume=EDITED)
REJECT: Any = Command(resume="reject: not today")
OBSERVED: Any = Command(resume={"output": "a.txt", "exit_code": 0})
WORDS = ("done", "Finished.", "TASK COMPLETE", "[FINALIZE]", "Status: Finished", "exit", "STOP")
TEN_FINISHES = [call("finish_task", summary=f"End {number}.") for number in range(10)]
THIRTY = play([call("write", text=f"{n}") for n in range(30)], ran="write " * 30, reason="turns", turns=30)
CONFIRM = call("finish_task", summary="Sent.", requires_user_confirmation=True)
ISSUE = call("finish_task", summary="Most.", pending_issues=["flaky"], requires_user_confirmation=True)
PHASE = call("finish_task", summary="Read.", completion_percentage=60, next_phase="write it")
KEPT_PHASE = {"percentage": 60, "summary": "Read.", "next_phase": "write it", "turn": 1}
IMPORT = [user(), ai(("read", "r"), ("finish_task", "f")), done("r", "text")]
ALIAS = {"control_tools": standard_controls(aliases=["task_done"])}
ROUNDS = {"control_tools": standard_controls(rounds=True)}


@tool
def escalate(reason: str) -> dict[str, Any]:
    """Give the task to a person."""
    return {"shouldContinue": reason == "try once more", "said": reason}


def escalates(reason: str) -> Any:
    return call("escalate", reason=reason)


ESCALATING = {"control_tools": [*standard_controls(), ControlTool(escalate, "finish")]}
LAST = {"turns": 1}

PLAYED: Mapping[int, Mapping[str, Play]] = {
    1: {
        "Only finish_task means done": play(["I am done. The task is complete.", FINISH], turns=2),
        "No keyword ends a run": play([*WORDS, FINISH], limits={"talk_turns": 9}, turns=8),
        "No length of a prompt or of a reply ends a run": play(["k", "word " * 10_000, FINISH], sent=["?"]),
        "finish_reason decides nothing": play(
            [
                reply("Bye.", finish_reason="stop"),
                reply(WRITE, finish_reason="stop"),
                reply("So.", finish_reason="tool_calls"),
                FINISH,
            ],
            ran="write",
            turns=4,
        ),
        "Success is one exit": play([FINISH], turns=1),
        "A limit is another, and no success": THIRTY,
        "An error is the third, a result and no exception": play([OSError("down")], reason="model_error"),
        "A reply of words only gets a nudge": play(["hm", FINISH], told="<talked>", nudges=1),
        "A reply of words only is never an exit by itself": play(["I am done."] * 5, reason="talk_turns"),
        "finish_task(reason=…) ends it": play([call("finish_task", reason="It is so.")], summary="It is so."),
        "A question pauses the run and ends nothing": play([ASK, FINISH], then=BLUE, waits="question"),
    },
    3: {
        "The summary is required": play(
            [call("finish_task"), call("finish_task", summary=" "), FINISH],
            refusals=2,
            told="<empty_summary>",
        ),
        "The call stops the run at once": play([WRITE, FINISH], ran="write", turns=2),
        "Calls after it never run": play([[FINISH, WRITE]], whole=True, told="<after_control>"),
        "think notes a thought and does not end the task": play([THINK, FINISH], told="<thought>", turns=2),
        "The call may be named task_done": play([call("task_done", summary="All.")], options=ALIAS),
        "With less than 100 % the task goes on": play([PHASE, WRITE, FINISH], ran="write", turns=3),
        "The next phase is what it goes on with": play([PHASE, FINISH], phases=[KEPT_PHASE]),
        "It may ask a person to confirm": play([CONFIRM], then=YES, waits="finish"),
        "A person may send it back": play([CONFIRM, FINISH], then=NO, refusals=1, told="The port is wrong."),
        "Pending issues are told, and need a person": play(
            [ISSUE], then=YES, waits="finish", pending_issues=["flaky"]
        ),
        "Plan, execute, think: after each batch it is asked to think": play(
            [[WRITE, READ], THINK, FINISH], options=ROUNDS, ran="write read", told="<round>"
        ),
        "A batch has one to eight calls, run in order": play(
            [[call("write", text=str(n)) for n in range(9)], FINISH], options=ROUNDS, ran="write " * 8
        ),
    },
    4: {
        "The driver runs it and gives back what it observed": play(
            [WRITE, FINISH], then=OBSERVED, approvals={"write": "hand_over"}, waits="action", told="a.txt"
        ),
        "It can be resumed with an answer": play([ASK, FINISH], then=BLUE, told="blue"),
        "Any tool may need approval": play(
            [READ, FINISH], then=YES, approvals={"read": True}, ran="read", waits="approval"
        ),
        "What is rejected does not run, and the model is told why": play(
            [WRITE, FINISH], then=REJECT, approvals={"write": True}, told="<rejected> not today"
        ),
        "What is edited runs as edited": play(
            [WRITE, FINISH], then=EDIT, approvals={"write": True}, ran="write", told="wrote y"
        ),
        "Any tool may be handed over, not only the terminal": play(
            [READ, FINISH], then=BLUE, approvals={"read": "hand_over"}, waits="action", told="blue"
        ),
    },
    5: {
        "The outer guard looks at the whole history, not at the last message": play([], sent=[IMPORT]),
        "It looks at this task only": play([FINISH, WRITE, FINISH], sent=["a", "b"], ran="write", turns=2),
        "P0.5: control calls come before limits and before what the reply says": play(
            [["I go on.", ASK], FINISH], then=BLUE, limits=LAST
        ),
        "So a finish on the last turn is a success": play([["I go on.", FINISH]], limits=LAST, turns=1),
        "A repetition of an accepted finish changes nothing": play([FINISH], sent=["a", [], []], turns=1),
        "A finish beside a call that failed is void": play([[FAIL, FINISH], FINISH], ran="fail", refusals=1),
        "A control tool of one's own takes part without a change of the machine": play(
            [[WRITE, escalates("too hard")]], options=ESCALATING, reason="escalate", ran="write"
        ),
        "shouldContinue: true goes on": play(
            [escalates("try once more"), FINISH], options=ESCALATING, turns=2, refusals=0
        ),
    },
}

# A file that shows it, and what stands in it.
TAGGED: Mapping[tuple[str, str], Sequence[str]] = {
    ("models/test_tagged_loop.py", "test_it_computes_and_finishes"): (
        "A plan, Python code and a state update are a protocol of text",
        "Current Approach: sets the approach",
        "The output becomes evidence",
        "Every turn is stored",
    ),
    ("models/test_tagged_loop.py", "test_a_failing_program_is_looked_at_and_debugged"): (
        "Failed code forces the status Debugging",
        "After failed code a reply without code has the status that it states",
        "The evidence of the failure stays until something else was run",
        "Otherwise the status is the model's own",
    ),
    ("models/test_tagged_loop.py", "test_a_constitution_and_where_the_work_stands_go_with_the_thread"): (
        "A constitution stands in every prompt",
        "Constitution, approach, evidence and status are the state",
        "A graph elsewhere goes on with the same",
    ),
    ("models/test_tagged_loop.py", "code_that_failed"): ("The code of a reply that finishes runs first",),
    ("models/test_tagged_model.py", "test_made_up_evidence"): ("Evidence is never the model's word",),
    ("models/test_tagged_reading.py", "test_what_finishes_a_task_and_in_a_part_left_open_is_void"): (
        "[FINALIZE] in the plan ends the task",
        "Status: Finished, or Finalized, in the state update ends the task",
        "Only what stands inside a tag counts",
        "A last tag that was not closed finishes nothing",
    ),
    ("models/test_tagged_reading.py", "test_nothing_in_a_reply_that_was_cut_finishes"): (
        "Nothing in a reply that was cut finishes",
    ),
}
ELSEWHERE: Mapping[int, Mapping[str, tuple[str, str]]] = {
    1: {
        "The lifecycle is a machine: a table alone picks the next state": (
            "graph/test_rules.py",
            "test_a_state_takes_the_events_of_its_row_and_no_other",
        ),
        "compress, decide, call_llm, route_tools, execute or nudge, finish": (
            "graph/test_path.py",
            "HAPPENINGS",
        ),
        "P0: an old part of the history is summarised before anything is decided": (
            "graph/test_path.py",
            "test_a_prompt_over_its_budget_is_summarised_before_the_next_turn",
        ),
        "The rules are ordered, and the one that fired says why": (
            "graph/test_rules.py",
            "test_the_first_rule_that_applies_fires",
        ),
    },
    2: {
        "Execution is restricted": ("tools/test_sandbox_attacks.py", "socket"),
        **{sentence: place for place, sentences in TAGGED.items() for sentence in sentences},
    },
    3: {
        "30 turns on average became 8.7": ("benchmarks/test_tasks.py", "SIGNOFF: 8.7"),
        "Progress has a blue card": ("page/test_shown.py", '"blue"'),
    },
    4: {
        "The application drives them in a pane that people see": ("web/test_browser.py", "#view-terminal"),
        "The command line shows what they write while they run": ("cli/test_process.py", "LIVE"),
    },
}

Check = Callable[[Path], None]
CHECKED: dict[Check, list[tuple[int, str]]] = {}


def shows(note: int, *sentences: str) -> Callable[[Check], Check]:
    """The decorated check, which is given a folder of its own, shows these sentences."""

    def listed(check: Check) -> Check:
        CHECKED.setdefault(check, []).extend((note, sentence) for sentence in sentences)
        return check

    return listed


def first_prompt() -> tuple[str, str]:
    """What the model is told at the beginning, and how its tools are described."""
    model = ScriptedModel([FINISH])
    build_graph(model, Bench().tools).invoke(GO)
    return model.seen[0].messages[0].text, str(model.seen[0].tools)


# 1. An explicit lifecycle.


@shows(1, "A run exits by success, limit or error, and by nothing else")
def _(folder: Path) -> None:
    assert set(get_args(Outcome.model_fields["status"].annotation)) == {"success", "limit", "error"}
    graph = build_graph(ScriptedModel([])).get_graph()
    assert [edge.source for edge in graph.edges if edge.target == "__end__"] == [State.FINISH]
    assert Event.ACCEPTED not in TRANSITIONS[State.DECIDE]


@shows(1, "It goes on by its thread ID after its process has ended")
def _(folder: Path) -> None:
    for given, script in ((GO, [ASK]), (BLUE, [FINISH])):
        with sqlite_storage(folder / "t.sqlite") as storage:
            result = build_graph(ScriptedModel(script), storage=storage).invoke(given, THREAD)
    assert (outcome_of(result).status, outcome_of(result).turns) == ("success", 2)


@shows(1, "The model is told that words end nothing and the call does")
@shows(3, "Its description says when to call it and what to say")
@shows(3, "Before it calls, the model asks itself what may be missing")
def _(folder: Path) -> None:
    prompt, tools = first_prompt()
    for words in ("without a tool", "Call `finish_task`", "steps done?", "you are unsure"):
        assert words in prompt
    for words in ("steps are done", "results are checked", "files were touched", "500 characters"):
        assert words in tools


# 2. An executive that acts by code.


@shows(2, "A call ends after 60 seconds", "Ten turns are the limit")
def _(folder: Path) -> None:
    assert "60 seconds" in python_tool(choose_sandbox()).description
    assert TAGGED_LIMITS.turns == 10
    model = ScriptedModel([f"<PLAN>Step {number}.</PLAN>" for number in range(10)])
    outcome = outcome_of(build_graph(TaggedText(model), limits=TAGGED_LIMITS).invoke(GO))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "turns", 10)


WRITTEN = (
    "**Current Approach:** a\n**Status:** Finished",
    "- Current Approach: a\n- Status: Finished",
    "current approach: a\nstatus: finished",
    "Current Approach: a | Status: Finished",
)


@shows(2, "Bold, lists, small letters and one line are read alike")
def _(folder: Path) -> None:
    for text in WRITTEN:
        model = ScriptedModel([f"<plan>It is 42.</plan>\n<state_update>\n{text}\n</state_update>"])
        assert outcome_of(build_graph(TaggedText(model)).invoke(GO)).status == "success", text


# 3. A call that says that it is done.


@shows(3, "A reminder comes late, before turn 26 of 30, and once")
def _(folder: Path) -> None:
    prompts = [str(seen.messages).count("<near_limit>") for seen in check(THIRTY).model.seen]
    assert prompts == [0] * 25 + [1] * 5


@shows(3, "A success that was checked has a green card", "An end without success is shown in another colour")
def _(folder: Path) -> None:
    blocked = play([call("finish_task", summary="No key.", outcome="blocked")], claim="blocked")
    plays = (play([FINISH], checks=[lambda: True], verified="verified"), blocked, THIRTY)
    colours = [heading(run(case).result["outcome"]).tone for case in plays]
    assert [colour == "green" for colour in colours] == [True, False, False]


@shows(
    3,
    "The rate of false positives: finishes that came too early",
    "The rate of false negatives: work that was done and did not end",
    "What nobody and nothing has judged has no rate",
    "How tasks end is counted",
)
def _(folder: Path) -> None:
    # One that a check refused once, one rated 1, one that only its own word calls done, and one that a limit
    # cut and a person rated 5.
    store, passes = InMemoryStore(), iter([False, True])
    scripts: list[tuple[list[Any], dict[str, Any]]] = [
        ([FINISH, WRITE, FINISH], {"checks": [lambda: next(passes)]}),
        ([FINISH], {}),
        ([FINISH], {}),
        ([WRITE], {"limits": {"turns": 1}}),
    ]
    for number, (script, options) in enumerate(scripts):
        graph = build_graph(ScriptedModel(script), Bench().tools, **saved() | {"store": store}, **options)
        graph.invoke(GO, {"configurable": {"thread_id": f"t{number}"}})
    rate(store, "t1", 1)
    rate(store, "t3", 5)
    figures = stats(read_ended(store))
    early, late = figures["false_positives"], figures["false_negatives"]
    assert (early["count"], early["judged"], early["not_judged"]) == (2, 3, 1)
    assert early["too_early"] == {"check": 1, "person": 0, "rating": 1}
    assert (late["count"], late["judged"], late["hit_limit"]) == (1, 2, 1)
    assert stats([])["false_negatives"]["rate"] is None
    assert figures["exits"]["status"] == {"success": 3, "limit": 1}


# 4. A visible terminal.


def session(*script: Any, tools: Any = (), **options: Any) -> Session:
    return Session(
        build_graph(ScriptedModel(list(script)), [*Bench().tools, *tools], **saved(), **options), "t"
    )


@shows(4, "The agent steps and yields a decision: a message", "A decision: an action", "A decision: an error")
def _(folder: Path) -> None:
    driven = session("Hello.", WRITE, OSError("down"), approvals={"write": "hand_over"})
    message, action = driven.step("Do it."), driven.step()
    assert isinstance(message, Message)
    assert isinstance(action, Action)
    assert (message.text, action.tool, action.args) == ("Hello.", "write", {"text": "x"})
    failed = outcome_at(driven.step(Answer("done")))
    assert (failed.status, "down" in str(failed.error)) == ("error", True)


@shows(4, "Tools have kinds")
def _(folder: Path) -> None:
    for kind, metadata in (("read", {"kind": "read"}), ("terminal", {"kind": "terminal"}), ("write", None)):
        look = StructuredTool.from_function(lambda: "", name="look", description="Look.", metadata=metadata)
        waits = session(call("look"), FINISH, tools=[look], approvals={kind: True}).run("Do it.")
        assert isinstance(waits, Approval), kind


@shows(4, "Commands run in a real terminal", "They are visible while they run")
def _(folder: Path) -> None:
    def hear(data: bytes) -> None:
        if b"one" in data:
            (folder / "seen").touch()

    shell = Shell(folder)
    try:
        # It ends only when somebody has seen its first word.
        ended = shell.run("tty; echo one; until [ -e seen ]; do sleep 0.02; done; echo two", 60, hear)
    finally:
        shell.close()
    terminal, *words = ended.output.splitlines()
    assert (terminal.startswith("/dev/"), words) == (True, ["one", "two"])


@shows(4, "The agent can be paused")
def _(folder: Path) -> None:
    def pause() -> str:
        """Pause."""
        driven.pause()
        return "asked"

    driven = session(call("pause"), FINISH, tools=[pause])
    assert isinstance(driven.run("Do it."), Paused)
    ended = outcome_at(driven.run())
    assert (ended.status, ended.turns) == ("success", 2)


# 5. No finishing twice.


@shows(
    5,
    "The inner guard aborts the stream at the first finish",
    "One finish of them is kept",
    "What the cut reply cost is an estimate and says so",
)
def _(folder: Path) -> None:
    sent = len(list(ScriptedModel([TEN_FINISHES]).stream("x")))
    played = check(play([TEN_FINISHES], summary="End 0."))
    assert played.model.chunks_sent < sent / 4
    assert [made["args"]["summary"] for made in played.result["messages"][1].tool_calls] == ["End 0."]
    assert played.result["outcome"]["usage"]["estimated"] is True


@shows(5, "Control tools are a registry", "Control is a kind of tool of its own")
def _(folder: Path) -> None:
    effects = {control.tool.name: control.effect for control in standard_controls()}
    assert effects == {"finish_task": "finish", "ask_user": "ask", "think": "continue"}
    assert Kind("control") is Kind.CONTROL
    with pytest.raises(SetupError, match="control"):
        build_graph(ScriptedModel([]), approvals={"control": True})


@shows(5, "Kinds decide what runs beside what")
def _(folder: Path) -> None:
    both = Barrier(2, timeout=60)

    def meet() -> str:
        """Waits for another one."""
        both.wait()
        return "met"

    meeting = StructuredTool.from_function(meet, metadata={"kind": "read"})
    play_of_two = play([[call("meet"), call("meet")], FINISH], options={"tools": [meeting]})
    assert results(check(play_of_two).result, "meet") == ["met", "met"]
    check(play([[WRITE, FAIL, WRITE], FINISH], ran="write fail write"))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for plays in PLAYED.values() for name, case in plays.items()]
)
def test_a_sentence_of_the_notes_is_played(case: Play) -> None:
    check(case)


@pytest.mark.parametrize("shown", [pytest.param(each, id=rows[0][1]) for each, rows in CHECKED.items()])
def test_a_sentence_of_the_notes_is_checked(shown: Check, tmp_path: Path) -> None:
    shown(tmp_path)


def test_the_others_are_shown_elsewhere_and_none_is_missing() -> None:
    elsewhere = [place for places in ELSEWHERE.values() for place in places.values()]
    missing = [(file, part) for file, part in elsewhere if part not in (ROOT / "tests" / file).read_text()]
    assert missing == []
    sentences = [row for rows in CHECKED.values() for row in rows]
    for table in (PLAYED, ELSEWHERE):
        sentences += [(note, sentence) for note, rows in table.items() for sentence in rows]
    assert len(set(sentences)) == len(sentences) >= 90
    assert {note for note, _ in sentences} == {1, 2, 3, 4, 5}
