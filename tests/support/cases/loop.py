"""The scripts of the loop's tests: what the model says, what is sent, and how each must end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langgraph.types import Command

from signoff import Limits
from signoff.models import call, reply
from tests.support.histories import ai, broken, done, user

THREAD: Any = {"configurable": {"thread_id": "a thread"}}
FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?", options=["red", "blue"])
THINK = call("think", thought="hm")
WRITE, FAIL, READ = call("write", text="x"), call("fail"), call("read")
CUT = call("finish_task", raw='{"summary": "Fixed a')
REFUSAL = reply("I cannot", finish_reason="content_filter")


class Bench:
    """Working tools that note what was run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self) -> list[Callable[..., str]]:
        def write(text: str) -> str:
            """Write."""
            self.ran.append("write")
            return "written"

        def read() -> str:
            """Read."""
            self.ran.append("read")
            return "text"

        def fail() -> str:
            """Fail."""
            self.ran.append("fail")
            raise ValueError("no luck")

        return [write, read, fail]


@dataclass
class Case:
    """`given` is what is sent to the graph one after another: messages, or an answer to a question.

    streamed: whether replies come in chunks; what follows a finish then never comes at all.
    """

    script: list[Any]
    given: list[Any] = field(default_factory=lambda: [[("user", "do it")]])
    limits: Limits = field(default_factory=Limits)
    ran: list[str] = field(default_factory=list)
    ends: dict[str, Any] | None = field(default_factory=lambda: SUCCESS)
    says: list[str] = field(default_factory=list)
    streamed: bool = True


SUCCESS: dict[str, Any] = {
    "status": "success",
    "reason": "finish_task",
    "claim": "done",
    "summary": "All of it.",
}
GO: list[Any] = [("user", "do it")]
AGAIN: list[Any] = [("user", "and now that")]
ANSWER: Any = Command(resume="blue")
NOTHING: list[Any] = []


def limit(reason: str, **more: Any) -> dict[str, Any]:
    return {"status": "limit", "reason": reason, "claim": None, "verified": None, **more}


def error(reason: str, **more: Any) -> dict[str, Any]:
    return {"status": "error", "reason": reason, "claim": None, "verified": None, **more}


FINISHING = {
    "a finish ends the run": Case([FINISH], ends={**SUCCESS, "turns": 1, "verified": "asserted"}),
    "ten finishes in one reply are one": Case([[FINISH] * 10], ends={**SUCCESS, "turns": 1}),
    "work, then a finish in the same reply": Case([[WRITE, WRITE, FINISH]], ran=["write", "write"]),
    "work after a finish never runs": Case(
        [[FINISH, WRITE]], says=["Not run: a call after finish_task"], streamed=False
    ),
    "a thought, then a finish": Case([[THINK, FINISH]], says=["Noted"]),
    "[finish, ask] is a finish": Case(
        [[FINISH, ASK]], says=["Not run: a call after finish_task"], streamed=False
    ),
    "a finish beside words": Case([["Done!", FINISH]]),
    "a finish on the very last turn is a success": Case(
        [WRITE, FINISH], limits=Limits(turns=2), ran=["write"], ends={**SUCCESS, "turns": 2}
    ),
    "a failed sibling voids the claim": Case(
        [[FAIL, FINISH], FINISH],
        ran=["fail"],
        ends={**SUCCESS, "refusals": 1},
        says=["fail in the same reply"],
    ),
    "an unknown tool beside it voids the claim": Case(
        [[call("ghost"), FINISH], FINISH], ends={**SUCCESS, "refusals": 1}, says=["There is no tool 'ghost'"]
    ),
    "an empty summary is refused": Case(
        [call("finish_task", summary=" "), FINISH], ends={**SUCCESS, "refusals": 1}, says=["summary is empty"]
    ),
    "a missing summary is refused": Case(
        [call("finish_task"), FINISH], ends={**SUCCESS, "refusals": 1}, says=["summary: Field required"]
    ),
    "a percentage of 250 is refused": Case(
        [call("finish_task", summary="x", completion_percentage=250), FINISH], ends={**SUCCESS, "refusals": 1}
    ),
    "'done' with 60 % is a phase": Case(
        [call("finish_task", summary="x", completion_percentage=60), FINISH],
        ends={**SUCCESS, "turns": 2, "refusals": 0},
        says=["60 % is done"],
    ),
    "an honest end without success": Case(
        [call("finish_task", summary="No key.", outcome="blocked", pending_issues=["the key"])],
        ends={"status": "success", "claim": "blocked", "pending_issues": ["the key"]},
    ),
}

TALKING = {
    "saying done is not done": Case(
        [reply("Done! Everything is finished."), FINISH], ends={**SUCCESS, "nudges": 1}
    ),
    "finish_reason stop with text is not an end": Case(
        [reply("I'll patch it now…", finish_reason="stop"), FINISH]
    ),
    "a long text is not an end": Case(["word " * 2000, FINISH], ends={**SUCCESS, "nudges": 1}),
    "a model that only talks ends at talk_turns": Case(
        ["a", "b", "c", "d", "e"], ends=limit("talk_turns", turns=5, last_text="e", summary="")
    ),
    "thoughts do not reset the talk": Case(
        ["a", THINK, "b"], limits=Limits(talk_turns=2), ends=limit("talk_turns", turns=3)
    ),
    "work does": Case(["a", WRITE, "b", FINISH], limits=Limits(talk_turns=2), ran=["write"]),
    "a model that never finishes ends at its turns": Case(
        [WRITE] * 4, limits=Limits(turns=4), ran=["write"] * 4, ends=limit("turns", turns=4, tool_calls=4)
    ),
    "near the limit it is reminded once": Case(
        [WRITE, WRITE, FINISH],
        limits=Limits(turns=3),
        ran=["write"] * 2,
        ends={**SUCCESS, "nudges": 1},
        says=["1 turn(s) left"],
    ),
    "an empty reply gets its own nudge": Case(["", FINISH], says=["Your reply was empty"]),
}

TRUNCATED = {
    "work calls of a cut reply never run": Case(
        [reply(WRITE, finish_reason="length"), FINISH], says=["cut off before its end", "smaller steps"]
    ),
    "a cut finish in a cut reply is none": Case(
        [reply(CUT, finish_reason="length"), FINISH], ends={**SUCCESS, "turns": 2, "nudges": 1}
    ),
    "a whole finish in a cut reply is none": Case(
        [reply("so", FINISH, finish_reason="length"), FINISH], ends={**SUCCESS, "turns": 2, "nudges": 1}
    ),
    "a whole finish after a refused call does not": Case(
        [reply(WRITE, FINISH, finish_reason="length"), FINISH]
    ),
    "a whole finish before a cut call counts": Case(
        [reply(FINISH, call("write", raw='{"te'), finish_reason="length")], ends={**SUCCESS, "turns": 1}
    ),
    "cut words": Case([reply("so I will", finish_reason="length"), FINISH], ends={**SUCCESS, "nudges": 1}),
    "broken JSON without a cut": Case(
        [call("write", raw='{"text": '), FINISH], says=["arguments of write are not valid JSON"]
    ),
    "two refusals in a row": Case([REFUSAL, REFUSAL], ends=error("content_filter", turns=2)),
    "one refusal": Case([REFUSAL, FINISH], ends={**SUCCESS, "nudges": 1}),
}

ASKING = {
    "a question waits": Case([ASK], ends=None),
    "an answer goes on": Case([ASK, FINISH], given=[GO, ANSWER], says=["blue"]),
    "[ask, finish] asks, and the finish is not run": Case(
        [[ASK, FINISH], FINISH],
        given=[GO, ANSWER],
        ends={**SUCCESS, "turns": 2},
        says=["a call after ask_user"],
        streamed=False,
    ),
    "work before a question runs first": Case([[WRITE, ASK], FINISH], given=[GO, ANSWER], ran=["write"]),
    "a message while a question waits is the answer": Case(
        [ASK, FINISH], given=[GO, [("user", "green")]], says=["green"], ends={**SUCCESS, "turns": 2}
    ),
    "an answered question gets one more turn": Case(
        [ASK, FINISH], given=[GO, ANSWER], limits=Limits(turns=1), ends={**SUCCESS, "turns": 2}
    ),
    "a question without words is refused": Case(
        [call("ask_user", question=""), FINISH], says=["The arguments of ask_user do not fit"]
    ),
    "an empty answer is told": Case([ASK, FINISH], given=[GO, Command(resume="")], says=["empty answer"]),
    "an answer that is no text": Case([ASK, FINISH], given=[GO, Command(resume={"n": 1})], says=['{"n": 1}']),
}

TASKS = {
    "a finish of an earlier task does not end the next": Case(
        [FINISH, WRITE, FINISH], given=[GO, AGAIN], ran=["write"], ends={**SUCCESS, "turns": 2}
    ),
    "the turns of an earlier task do not count": Case(
        [WRITE, FINISH, WRITE, FINISH], given=[GO, AGAIN], limits=Limits(turns=2), ran=["write"] * 2
    ),
    "nothing new on an ended thread: the same outcome": Case([FINISH], given=[GO, NOTHING]),
    "nothing at all": Case([], given=[NOTHING], ends=error("no_task", turns=0)),
    "a system message alone is nothing": Case([], given=[[("system", "be kind")]], ends=error("no_task")),
    "a message after a failed task begins a new one": Case(
        [RuntimeError("down"), FINISH], given=[GO, AGAIN], ends={**SUCCESS, "turns": 1}
    ),
    "a failing model is an outcome": Case([RuntimeError("down")], ends=error("model_error", turns=0)),
}

BAD = [ai(("finish_task", "f", {"summary": ""})), done("f")]

IMPORTS = {
    "a finish with its result ends at once, without a model call": Case(
        [], given=[[user(), ai(("finish_task", "f")), done("f")]], ends={**SUCCESS, "turns": 1}
    ),
    "a finish, its result, and talk after it": Case(
        [], given=[[user(), ai(("finish_task", "f")), done("f"), ai("Bye!")]], ends={**SUCCESS, "turns": 2}
    ),
    "a finish without a result": Case([], given=[[user(), ai(("finish_task", "f"))]]),
    "a bad finish cannot cycle": Case(
        [FINISH],
        given=[[user(), ai(("finish_task", "f", {"summary": ""})), done("f")]],
        ends={**SUCCESS, "turns": 2, "refusals": 1, "nudges": 1},
    ),
    "the same bad finish twice, under the same id": Case(
        [FINISH],
        given=[[user(), *BAD, *(message.model_copy() for message in BAD)]],
        ends={**SUCCESS, "turns": 3, "refusals": 2},
    ),
    "a finish with an error result is none": Case(
        [FINISH], given=[[user(), ai(("finish_task", "f")), broken("f")]]
    ),
    "a finish of an earlier task": Case(
        [FINISH], given=[[user("a"), ai(("finish_task", "f")), done("f"), user("b")]]
    ),
    "open calls in the middle do not run here, and may have elsewhere": Case(
        [FINISH],
        given=[[user("a"), ai(("write", "w")), user("b"), ai(("read", "r")), done("r")]],
        says=["Outcome unknown: write may have run"],
    ),
    "open calls at the end run": Case(
        [FINISH], given=[[user(), ai(("write", "w", {"text": "x"}))]], ran=["write"]
    ),
    "a repeated id in the middle": Case(
        [FINISH],
        given=[[user(), ai(("read", "0")), user("b"), ai(("read", "0"))]],
        ran=["read"],
        says=["Outcome unknown: read may have run"],
    ),
    "words at the end get a nudge": Case(
        [FINISH], given=[[user(), ai("All done!")]], ends={**SUCCESS, "nudges": 1}
    ),
    "no message of a person": Case(
        [], given=[[ai("x"), ai(("finish_task", "f"))]], ends={**SUCCESS, "turns": 2}
    ),
}

REPLIES = {
    "the id call_0 twice is two calls": Case(
        [call("write", text="a", id="call_0"), call("write", text="b", id="call_0"), FINISH],
        ran=["write"] * 2,
    ),
    "the id call_0 twice in one reply is two calls": Case(
        [[call("write", text="a", id="0"), call("write", text="b", id="0")], FINISH], ran=["write"] * 2
    ),
    "no id at all": Case([call("write", text="a", id=""), FINISH], ran=["write"]),
    "more calls than allowed": Case(
        [[READ] * 4, FINISH], limits=Limits(calls_per_reply=2), ran=["read"] * 2, says=["at most 2 calls"]
    ),
    "half characters in a reply": Case(
        [["so \ud800", call("write", raw='{"text": "\\ud800"}')], FINISH], ran=["write"], says=["written"]
    ),
    "wrong arguments": Case([call("write", words="x"), FINISH], says=["The arguments of write do not fit"]),
    "a tool that raises": Case([FAIL, FINISH], ran=["fail"], says=["ValueError: no luck"]),
    "a batch of reads and a write keeps its order": Case(
        [[READ, READ, WRITE, READ], FINISH], ran=["read", "read", "write", "read"]
    ),
}

CASES = {**FINISHING, **TALKING, **TRUNCATED, **ASKING, **TASKS, **IMPORTS, **REPLIES}
