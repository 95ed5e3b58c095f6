"""Evidence: which cited calls are believed."""

import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from signoff import build_graph
from signoff.graph.messages import result
from signoff.models import ScriptedModel, call
from tests.support.cases.loop import AGAIN, FAIL, GO, SUCCESS
from tests.support.histories import ai, broken, done, user
from tests.support.reviews import Review, both_modes, play


@tool
def look() -> str:
    """Look."""
    return "fine"


@tool
def shell(code: int) -> str:
    """Run a command."""
    return f"output\n[exit code {code}; 0.10 s]"


look.metadata, shell.metadata = {"kind": "read"}, {"kind": "terminal"}
OPTIONS: dict[str, Any] = {"evidence": True, "tools": [look, shell]}
WRITE = call("write", text="x", id="w")
LOOK = call("look", id="l")
SHELL = call("shell", code=0, id="s")
BAD_SHELL = call("shell", code=1, id="s")


def finish(*cited: str) -> Any:
    return call("finish_task", summary="All of it.", evidence=list(cited))


BELIEVED = {"status": "success", "refusals": 0}
GIVEN_UP = call("finish_task", summary="x", outcome="partial")
REFUSED = {"status": "success", "claim": "partial", "refusals": 1}


def believed(*script: Any, **more: Any) -> Review:
    return Review(list(script), options=OPTIONS, ends={**SUCCESS, **BELIEVED}, **more)


def refused(*script: Any, says: str, **more: Any) -> Review:
    return Review([*script, GIVEN_UP], options=OPTIONS, ends=REFUSED, says=[says], **more)


OLD = "is older than the last change"
FAILED = "did not succeed"
MISSING = "is no call of this task"
CASES = {
    "nothing cited": believed(WRITE, finish(), ran=["write"]),
    "a look after the last write": believed(WRITE, LOOK, finish("l"), ran=["write"]),
    "by the name of its tool": believed(WRITE, LOOK, finish("look"), ran=["write"]),
    "several": believed(WRITE, LOOK, SHELL, finish("s"), ran=["write"]),
    "in the same reply": believed([WRITE, LOOK, finish("l")], ran=["write"]),
    "a look when nothing was written": believed(LOOK, finish("l")),
    "a command that is the last change itself": believed(WRITE, SHELL, finish("s"), ran=["write"]),
    "as one text": believed(LOOK, call("finish_task", summary="All of it.", evidence="l")),
    "a failed write changes nothing": believed(LOOK, FAIL, finish("l"), ran=["fail"]),
    "an id that does not exist": refused(LOOK, finish("nope"), says=f"'nope' {MISSING}"),
    "one right and one wrong": refused(LOOK, finish("l", "nope"), says=MISSING),
    "the finish itself": refused(call("finish_task", summary="x", evidence=["f"], id="f"), says=MISSING),
    "a control call": refused(call("think", thought="x", id="t"), finish("t"), says=MISSING),
    "a call that did not run": refused(call("ghost", id="g"), finish("g"), says=MISSING),
    "a call that failed": refused(call("fail", id="f"), finish("f"), says=FAILED, ran=["fail"]),
    "a command that failed": refused(BAD_SHELL, finish("s"), says=FAILED),
    "a look before the last write": refused(
        LOOK,
        WRITE,
        finish("l"),
        says="the evidence 'l' is older than the last change (write, w)",
        ran=["write"],
    ),
    "a command before the last write": refused(SHELL, WRITE, finish("s"), says=OLD, ran=["write"]),
    "a look before a command": refused(LOOK, SHELL, finish("l"), says=OLD),
    "a look before a command that failed": refused(LOOK, BAD_SHELL, finish("l"), says=OLD),
    "a write is no evidence of itself": refused(WRITE, finish("w"), says=OLD, ran=["write"]),
    "a call of an earlier task": Review(
        [LOOK, finish("l"), finish("l"), GIVEN_UP],
        options=OPTIONS,
        given=[GO, AGAIN],
        ends=REFUSED,
        says=[MISSING],
    ),
    "of the wrong type": refused(
        call("finish_task", summary="x", evidence=5), says="evidence: Input should be"
    ),
    "an honest partial has nothing to prove": Review(
        [call("finish_task", summary="x", outcome="blocked", evidence=["nope"])],
        options=OPTIONS,
        ends={"claim": "blocked", **BELIEVED},
    ),
    "without the setting nothing is read": Review(
        [finish("nope")], options={"tools": [look]}, ends={**SUCCESS, **BELIEVED}
    ),
    "a write whose outcome is unknown counts as a change": Review(
        [finish("l"), GIVEN_UP],
        options=OPTIONS,
        given=[
            [
                user(),
                ai(("look", "l")),
                done("l"),
                ai(("write", "w", {"text": "x"})),
                result("w", "write", "unknown", ok=False, unknown=True),
            ]
        ],
        ends=REFUSED,
        says=[OLD],
    ),
    "a write that failed for sure does not": Review(
        [finish("l")],
        options=OPTIONS,
        given=[[user(), ai(("look", "l")), done("l"), ai(("write", "w", {"text": "x"})), broken("w")]],
        ends={**SUCCESS, **BELIEVED},
    ),
}


@both_modes
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(28)
async def test_case(name: str, mode: str, tmp_path: Path) -> None:
    await play(CASES[name], mode, tmp_path)


def test_a_write_that_ran_out_of_time_may_have_changed_something() -> None:
    def hang() -> None:
        """Hang."""
        time.sleep(1)

    model = ScriptedModel([LOOK, call("hang"), finish("l"), GIVEN_UP])
    graph = build_graph(model, [look, hang], evidence=True, tool_seconds=0.1)
    outcome = graph.invoke({"messages": GO})["outcome"]
    assert (outcome["claim"], outcome["refusals"]) == ("partial", 1)


@pytest.mark.parametrize("evidence", [False, True])
def test_the_argument_is_told_only_when_it_is_read(evidence: bool) -> None:
    with ScriptedModel([finish()]) as model:
        build_graph(model, evidence=evidence).invoke({"messages": GO})
    (told,) = [found for found in model.seen[0].tools if found["function"]["name"] == "finish_task"]
    assert ("evidence" in told["function"]["parameters"]["properties"]) is evidence
