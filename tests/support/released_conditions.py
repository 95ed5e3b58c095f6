"""The conditions that a thread can be left in: how each is brought about, found, picked up and ended.

Together they hold every kind of value that is stored. Conditions are added, never removed or renamed.
"""

import json
import operator
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, StateSnapshot
from pydantic import BaseModel

from signoff import (
    Answer,
    ControlTool,
    Effect,
    Limits,
    ModelRetries,
    Session,
    build_graph,
    delegate,
    expire,
    extend,
    go_on,
    request_pause,
    retry,
    undo,
)
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import ScriptedCall
from signoff.models.tagged import TaggedText
from signoff.session.path import before_turn, steps
from signoff.stats.records import rate
from signoff.tools.control import standard_controls

FINISH = call("finish_task", summary="All of it.")
CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
NOTHING = call("finish_task", summary="Nothing.")
EMPTY = call("finish_task", summary=" ")
UNSAID = call("finish_task", summary=" ", pending_issues=["the logo"])
PHASE = call("finish_task", summary="The first half.", completion_percentage=50, next_phase="the rest")
ASK = call("ask_user", question="Which one?")
PAY = call("pay", amount=3)
MORE = call("request_more_turns", turns=2, reason="two files are left")
THINK = call("think", thought="Hm.", approach="halves first", status="Working")
NOTES = [call("note", text=f"{number} " + "x" * 1_000) for number in range(12)]
NOTE = call("note", text="a")
LONG = [call("note", text=f"{number} " + "x" * 3_000) for number in range(3)]
SUCCESS = ("success", "finish_task")

GoOn = Callable[[StateSnapshot], Any]
Move = Callable[[Graph, Any], object]
"""Something that is done to a thread, given by its graph and its configuration."""


def answer(words: Any) -> GoOn:
    """Goes on with the answer to what the thread waits for."""
    return lambda state: Command(resume={state.interrupts[0].id: words})


def message(text: str) -> GoOn:
    """Goes on with a new message."""
    return lambda state: {"messages": [("user", text)]}


def given(how: GoOn) -> Move:
    """The move that goes on in this way."""
    return lambda graph, config: graph.invoke(how(graph.get_state(config)), config)


def driven(how: Callable[[Session], object], **options: Any) -> Move:
    """The move that a session makes."""
    return lambda graph, config: how(Session(graph, config["configurable"]["thread_id"], **options))


def forked(source: str, at: int) -> Move:
    """The move that makes the thread a fork of another one."""

    def fork(graph: Graph, config: Any) -> None:
        made = Session(graph, source).fork(at, thread_id=config["configurable"]["thread_id"])
        made.run()

    return fork


def gone_back(graph: Graph, config: Any) -> None:
    """Goes on from before the second turn: what came of that turn is a branch that was left."""
    assert not isinstance(graph.checkpointer, bool | None)
    name = config["configurable"]["thread_id"]
    point = before_turn(steps(graph.checkpointer, name), 2)
    graph.invoke(None, {"configurable": {"thread_id": name, "checkpoint_id": point.checkpoint_id}})


def rated(graph: Graph, config: Any) -> None:
    """A person rates the task that has ended."""
    assert graph.store is not None
    rate(graph.store, config["configurable"]["thread_id"], 4)


def paused(graph: Graph, config: Any) -> None:
    """Somebody asks for a pause, and nobody runs the thread."""
    assert graph.store is not None
    request_pause(graph.store, config["configurable"]["thread_id"])


def expired(graph: Graph, config: Any) -> None:
    """Nobody has answered the question in time."""
    assert expire(graph, config["configurable"]["thread_id"], now=time.time() + 61)


def added_by_hand(graph: Graph, config: Any) -> None:
    """A message is written to the history, which leaves nothing to run."""
    graph.update_state(config, {"messages": [("user", "the second")]}, as_node="finish")


def imported(*messages: Any) -> Move:
    """A history that was made elsewhere is sent as one input."""
    return lambda graph, config: graph.invoke({"messages": list(messages)}, config)


def said(*calls: ScriptedCall) -> AIMessage:
    """A reply that was made elsewhere; the ids of its calls are c0, c1, …"""
    made = [
        {"name": one.name, "args": json.loads(one.arguments), "id": f"c{place}"}
        for place, one in enumerate(calls)
    ]
    return AIMessage("", tool_calls=made)


@dataclass(frozen=True)
class Condition:
    """How a thread is left, and how it ends when it is picked up.

    before: what the model says until then. tasks: the messages; moves: what is done after them. left:
    what cuts the last run short, if something does: "drained" (after a reply), "silent" (a reply that
    does not come), "killed" (in a tool), "killed asking" (while the model is asked), "killed unsaved"
    (when a reply was saved, and no checkpoint of it), "killed unwritten" (when the journal has a result,
    and no checkpoint), or the state after which it stops. later: what the model says after a kill.
    settings: of the graph; tools: beside those that every thread has. model: what is made of the script;
    in_reserve: it is asked when another one has failed. stands: how it is found (see `stands`). go_on:
    how it is picked up. after: what the model says then. ends: status, reason, turns and tool calls of
    the outcome. runs: the effects that take place when it is picked up, and no others. shows: words that
    the model is shown again, or that stand in the history when it is not called.
    """

    before: Sequence[Any]
    stands: str
    go_on: GoOn
    ends: tuple[str, str, int, int]
    after: Sequence[Any] = (FINISH,)
    tasks: Sequence[str] = ("the first",)
    moves: Sequence[Move] = ()
    left: str = ""
    later: Sequence[Any] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[BaseTool] = ()
    model: Callable[[ScriptedModel], BaseChatModel] = lambda script: script
    in_reserve: bool = False
    runs: Sequence[str] = ()
    shows: str = "the first"


def says_something(claim: dict[str, Any]) -> str | None:
    """A completion check."""
    return "It says nothing." if claim["summary"] == "Nothing." else None


@tool
def hand_in(report: str) -> dict[str, Any]:
    """Hand the work in."""
    return {"shouldContinue": report == "early", "report": report}


class Order(MessagesState):
    """Channels of a user's own."""

    notes: Annotated[list[str], operator.add]
    photo: bytes


class Number(BaseModel):
    """A result of a type."""

    number: int


@tool
def remember(text: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
    """Remember something."""
    said = ToolMessage("remembered", tool_call_id=runtime.tool_call_id or "")
    return Command(update={"notes": [text], "messages": [said]})


@tool
def photograph(shelf: str) -> Command[Any]:
    """Take a photo, which has no form in JSON."""
    return Command(update={"photo": shelf.encode()})


def told_the_order(state: Mapping[str, Any], context: Any) -> str:
    """A system prompt that tells the channels."""
    return f"Notes: {state.get('notes')}. Photo: {state.get('photo')}."


class Watched(AgentMiddleware[Any, Any]):
    """Decides by what the model has said alone, so that a thread can be decided again."""

    def before_agent(self, state: Any, runtime: Any) -> None:
        """It has a mark of its own."""

    @hook_config(can_jump_to=["end", "model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        amounts = [made["args"].get("amount", 0) for made in state["messages"][-1].tool_calls]
        if max(amounts, default=0) < 60:
            return None
        words = HumanMessage("Pay less.")
        return {"jump_to": "end"} if max(amounts) > 90 else {"jump_to": "model", "messages": [words]}

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        said = [made["args"] for one in state["messages"] for made in getattr(one, "tool_calls", ())]
        if not said or said[-1].get("summary") != "Nothing.":
            return None
        return {"jump_to": "model", "messages": [HumanMessage("Too short.")]}


WATCHED: dict[str, Any] = {"middleware": [Watched()]}
ORDERED: dict[str, Any] = {"state_schema": Order, "system_prompt": told_the_order}
REMEMBER, PHOTO = call("remember", text="the red ones"), call("photograph", shelf="low")
CHECKED: dict[str, Any] = {"checks": [says_something, "true"]}
HANDED_IN: dict[str, Any] = {
    "control_tools": [ControlTool(hand_in, Effect.FINISH), *standard_controls()[1:]],
}
ANSWER_FORMAT = {
    "title": "Answer",
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}
RESULT = call("finish_task", summary="It is 42.", result={"number": 42})
IN_TIME = call("ask_user", question="Which one?", default_answer="green", deadline_seconds=60)
ANSWERED = call("finish_task", summary="All of it.", answer="It is the blue one.")
UPDATE = "<STATE_UPDATE>\nApproach: compute\nStatus: {}\n</STATE_UPDATE>"
CODE = f"<PLAN>Compute.</PLAN>\n\n```python\n6 * x\n```\n\n{UPDATE.format('Working')}"
DONE = f"<PLAN>[FINALIZE] It is 42.</PLAN>\n\n{UPDATE.format('Finished')}"
EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 2}}}


def written(messages: Any) -> Any:
    """A digest that a model writes."""
    return reply("Some notes were taken.", usage=(200, 20))


def by_text(script: ScriptedModel) -> BaseChatModel:
    """An agent that acts by text."""
    return TaggedText(script, constitution="Compute, do not guess.")


def down(messages: Any) -> Any:
    """What a model says that is never there."""
    raise RuntimeError("no such model")


def charged(amount: int) -> str:
    """Charge a card."""
    return f"charged {amount}"


def paid_back(args: Mapping[str, Any], result: str) -> str:
    """What undoes a charge."""
    if args["amount"] == 4:
        raise ValueError("the bank is closed")
    return f"paid back {args['amount']}"


def clerk_says(messages: Sequence[Any]) -> Any:
    """What a delegate says: it charges once, by its task, and is done."""
    if isinstance(messages[-1], ToolMessage):
        return reply(FINISH, usage=(90, 10))
    return reply(call("charge", amount=int(messages[-1].text)), usage=(90, 10))


def killed_here(messages: Any) -> Any:
    """A reply during which the process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


charge = StructuredTool.from_function(charged, name="charge", metadata={"undo": paid_back})
clerk = delegate("clerk", build_graph(ScriptedModel(clerk_says), [charge]), description="Charges a card.")
CHARGE, CLERK = call("charge", amount=3), call("clerk", task="5")
CLERKS = reply(CLERK, call("clerk", task="6"), usage=(90, 10))


CONDITIONS: dict[str, Condition] = {
    "waits for an answer": Condition(
        before=[ASK],
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 2, 0),
        shows="blue",
    ),
    "waits for an approval": Condition(
        before=[PAY],
        settings={"approvals": {"pay": True}},
        stands="approval",
        go_on=answer("approve"),
        runs=["pay 3"],
        ends=("success", "finish_task", 2, 1),
    ),
    "waits for an action": Condition(
        before=[call("shell", command="ls")],
        stands="action",
        go_on=answer("3 files"),
        ends=("success", "finish_task", 2, 1),
        shows="3 files",
    ),
    "drained after a reply with an open call": Condition(
        before=[PAY],
        left="drained",
        stands="stopped",
        go_on=go_on,
        runs=["pay 3"],
        ends=("success", "finish_task", 2, 1),
        shows="paid 3",
    ),
    "killed in a tool": Condition(
        before=[PAY],
        left="killed",
        stands="stopped",
        go_on=go_on,
        ends=("success", "finish_task", 2, 1),
        shows="Outcome unknown",
    ),
    "just reminded after talk": Condition(
        before=["Let me see."],
        left="nudge",
        stands="stopped",
        go_on=go_on,
        ends=("success", "finish_task", 2, 0),
        shows="Let me see.",
    ),
    "ended with success": Condition(
        before=[FINISH], stands="success", go_on=message("the second"), ends=("success", "finish_task", 1, 0)
    ),
    "ended at a limit": Condition(
        before=[PAY],
        settings={"limits": Limits(turns=1)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=("success", "finish_task", 2, 1),
    ),
    "ended with an error": Condition(
        before=[PAY, ConnectionError("down")],
        settings={"model_retries": None},
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=("success", "finish_task", 2, 1),
    ),
    "in its second task": Condition(
        before=[PAY, FINISH, PAY, ASK],
        tasks=["the first", "the second"],
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 3, 1),
    ),
    "with a folded history": Condition(
        before=[*NOTES, ASK],
        settings={"prompt_tokens": 3_000},
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 14, 12),
        shows="- note({'text': '2 xxx",
    ),
    "waits for a confirmation": Condition(
        before=[CONFIRM],
        stands="confirmation",
        go_on=answer("yes"),
        after=(),
        ends=(*SUCCESS, 1, 0),
        shows="Accepted. A person confirmed it.",
    ),
    "waits for a confirmation of pending issues": Condition(
        before=[call("finish_task", summary="All of it.", pending_issues=["the logo"])],
        stands="confirmation",
        go_on=answer("The logo belongs to it."),
        ends=(*SUCCESS, 2, 0),
        shows="The logo belongs to it.",
    ),
    "waits for a confirmation of a refused finish": Condition(
        before=[EMPTY, EMPTY],
        stands="confirmation",
        go_on=answer("yes"),
        after=(),
        ends=(*SUCCESS, 2, 0),
    ),
    "confirmed although refused": Condition(
        before=[EMPTY, EMPTY],
        moves=[given(answer("yes"))],
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "waits for a confirmation of a finish with checks": Condition(
        before=[CONFIRM],
        settings=CHECKED,
        stands="confirmation",
        go_on=message("The title is wrong."),
        ends=(*SUCCESS, 2, 0),
        shows="The title is wrong.",
    ),
    "sent back by a person": Condition(
        before=[CONFIRM, ASK],
        moves=[given(answer("The title is wrong."))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="The title is wrong.",
    ),
    "sent back by a message": Condition(
        before=[CONFIRM, ASK],
        moves=[given(message("The title is wrong."))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="The title is wrong.",
    ),
    "an imported finish, sent back": Condition(
        before=[ASK],
        tasks=(),
        moves=[
            imported(HumanMessage("the first"), said(CONFIRM), ToolMessage("ok", tool_call_id="c0")),
            given(answer("The title is wrong.")),
        ],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="The title is wrong.",
    ),
    "an imported question before a call": Condition(
        before=[],
        tasks=(),
        moves=[imported(HumanMessage("the first"), said(ASK, PAY))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 2, 0),
        shows="a call after ask_user",
    ),
    "confirmed by a person": Condition(
        before=[CONFIRM],
        moves=[given(answer("yes")), rated],
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "a phase is done": Condition(
        before=[PHASE, ASK],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="the rest",
    ),
    "refused by a check": Condition(
        before=[NOTHING, ASK],
        settings=CHECKED,
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="It says nothing.",
    ),
    "ended with checks that passed": Condition(
        before=[FINISH],
        settings=CHECKED,
        stands="success",
        go_on=message("the second"),
        after=(NOTHING, FINISH),
        ends=(*SUCCESS, 2, 0),
    ),
    "approved, edited, rejected and responded": Condition(
        before=[PAY, PAY, PAY, PAY, ASK],
        settings={"approvals": {"pay": True}},
        moves=[
            given(answer("approve")),
            given(answer(EDIT)),
            given(answer({"type": "reject", "message": "Too dear."})),
            given(answer({"type": "respond", "message": "It is paid."})),
        ],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 6, 3),
        shows="Too dear.",
    ),
    "decided and answered by somebody who is named": Condition(
        before=[PAY, ASK, ASK],
        settings={"approvals": {"pay": True}},
        moves=[
            driven(lambda session: session.resume([EDIT], by="ada")),
            driven(lambda session: session.resume("blue", by="ada")),
        ],
        stands="question",
        go_on=answer("red"),
        ends=(*SUCCESS, 4, 1),
        shows="blue",
    ),
    "waits again after an answer that could not be read": Condition(
        before=[PAY],
        settings={"approvals": {"pay": True}},
        moves=[given(answer({"decisions": []}))],
        stands="approval",
        go_on=answer("approve"),
        runs=["pay 3"],
        ends=(*SUCCESS, 2, 1),
    ),
    "rejected by a message": Condition(
        before=[PAY, ASK],
        settings={"approvals": {"pay": True}},
        moves=[given(message("No, wait."))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="No, wait.",
    ),
    "answered by a message": Condition(
        before=[ASK, ASK],
        moves=[given(message("blue"))],
        stands="question",
        go_on=message("red"),
        ends=(*SUCCESS, 3, 0),
        shows="red",
    ),
    "superseded by a new message": Condition(
        before=[PAY, ASK, ASK],
        moves=[driven(lambda session: session.run("the second"), on_pending="supersede")],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 2, 0),
        shows="the second",
    ),
    "extended after a limit": Condition(
        before=[PAY, ASK],
        settings={"limits": Limits(turns=1)},
        moves=[given(lambda state: extend(state.values, turns=3))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
    ),
    "ended beyond its limit, after an answer": Condition(
        before=[ASK, PAY],
        settings={"limits": Limits(turns=1)},
        moves=[given(answer("red"))],
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 3, 1),
    ),
    "extended beyond its limit, after an answer": Condition(
        before=[ASK, PAY, ASK],
        settings={"limits": Limits(turns=1)},
        moves=[given(answer("red")), given(lambda state: extend(state.values, turns=1))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 1),
    ),
    "ended at a limit twice, after a phase and a refusal": Condition(
        before=[PHASE, UNSAID, PAY, PAY],
        settings={"limits": Limits(turns=3)},
        moves=[given(lambda state: extend(state.values, turns=1))],
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 5, 2),
    ),
    "granted more turns": Condition(
        before=[MORE, PAY, ASK],
        settings={"limits": Limits(turns=2), "more_turns": "once"},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 1),
    ),
    "waits for more turns": Condition(
        before=[MORE],
        settings={"limits": Limits(turns=1), "more_turns": "ask"},
        stands="approval",
        go_on=answer("yes"),
        after=(PAY, FINISH),
        runs=["pay 3"],
        ends=(*SUCCESS, 3, 1),
    ),
    "granted more turns by a person": Condition(
        before=[MORE, PAY, ASK],
        settings={"limits": Limits(turns=2), "more_turns": "ask"},
        moves=[given(answer("yes"))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 1),
    ),
    "reminded near its limit": Condition(
        before=[PAY, call("pay", amount=4)],
        settings={"limits": Limits(turns=3)},
        left="nudge",
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 3, 2),
    ),
    "with a call too many in a reply": Condition(
        before=[[PAY, call("pay", amount=4)], ASK],
        settings={"limits": Limits(calls_per_reply=1)},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
    ),
    "a reply grew too large": Condition(
        before=[PAY, "x" * 3_000],
        settings={"reply_chars": 1_000},
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=(*SUCCESS, 3, 1),
    ),
    "ended at the limit of tool calls": Condition(
        before=[[PAY, call("pay", amount=4)]],
        settings={"limits": Limits(tool_calls=1)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 2, 1),
    ),
    "ended at the limit of tokens": Condition(
        before=[PAY],
        settings={"limits": Limits(tokens=100)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 2, 1),
    ),
    "ended by talk": Condition(
        before=["a", "b"],
        settings={"limits": Limits(talk_turns=2)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 3, 0),
    ),
    "ended by repeats": Condition(
        before=[PAY] * 3,
        settings={"limits": Limits(repeats=3)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 4, 3),
    ),
    "ended by a filter": Condition(
        before=[reply("No.", finish_reason="content_filter")] * 2,
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=(*SUCCESS, 3, 0),
    ),
    "retried after an error": Condition(
        before=[PAY, ConnectionError("down"), ASK],
        settings={"model_retries": None},
        moves=[given(lambda state: retry(state.values))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
    ),
    "asked again, and of another model": Condition(
        before=[PAY, ConnectionError("down"), ASK],
        settings={"model_retries": ModelRetries(first_wait=0.01)},
        in_reserve=True,
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
        shows="blue",
    ),
    "failed in every try": Condition(
        before=[PAY, ConnectionError("down"), ConnectionError("down")],
        settings={"model_retries": ModelRetries(tries=2, first_wait=0.01)},
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=(*SUCCESS, 2, 1),
    ),
    "cancelled": Condition(
        before=[ASK],
        moves=[driven(lambda session: session.stop())],
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=(*SUCCESS, 2, 0),
    ),
    "a pause was requested": Condition(
        before=[PAY, ASK],
        moves=[paused],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
    ),
    "with replies of every kind": Condition(
        before=[
            [THINK, NOTE, call("note", text="b"), PAY],
            reply(call("pay", amount=4), finish_reason="length"),
            [call("pay", amount="much"), call("fly", to="Rome")],
            reply(),
            [ASK, PAY],
        ],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 6, 3),
        shows="noted",
    ),
    "an action was handed out": Condition(
        before=[call("shell", command="ls")],
        tasks=(),
        moves=[driven(lambda session: session.step("the first"))],
        stands="action",
        go_on=answer("3 files"),
        ends=(*SUCCESS, 2, 1),
        shows="3 files",
    ),
    "an action was observed": Condition(
        before=[call("shell", command="ls"), ASK],
        tasks=(),
        moves=[
            driven(lambda session: session.step("the first")),
            driven(lambda session: session.step(Answer({"output": "3 files", "seconds": 2}))),
        ],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
        shows="3 files",
    ),
    "an action was taken back by a message": Condition(
        before=[call("shell", command="ls"), ASK],
        moves=[given(message("No, wait."))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
        shows="No, wait.",
    ),
    "waits in a tool": Condition(
        before=[call("choose")],
        stands="card",
        go_on=answer("the blue one"),
        runs=["chose the blue one"],
        ends=(*SUCCESS, 2, 1),
        shows="chose the blue one",
    ),
    "killed in a tool, then approved": Condition(
        before=[PAY],
        left="killed",
        settings={"unknown_outcomes": "ask"},
        moves=[given(go_on), given(answer("approve"))],
        later=[ASK],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
        shows="paid 3",
    ),
    "killed in a tool, waits for a person": Condition(
        before=[PAY],
        left="killed",
        settings={"unknown_outcomes": "ask"},
        moves=[given(go_on)],
        stands="approval",
        go_on=answer("approve"),
        runs=["pay 3"],
        ends=(*SUCCESS, 2, 1),
        shows="paid 3",
    ),
    "killed in a tool, then a message": Condition(
        before=[PAY],
        left="killed",
        moves=[given(message("the second"))],
        later=[ASK],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 2, 0),
        shows="Outcome unknown",
    ),
    "killed before a reply had its checkpoint": Condition(
        before=[PAY],
        left="killed unsaved",
        stands="stopped",
        go_on=go_on,
        runs=["pay 3"],
        ends=(*SUCCESS, 2, 1),
        shows="paid 3",
    ),
    "killed before a reply had its checkpoint, then went on": Condition(
        before=[PAY],
        left="killed unsaved",
        moves=[given(go_on)],
        later=[ASK],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
        shows="paid 3",
    ),
    "a result of a format": Condition(
        before=[RESULT],
        settings={"response_format": ANSWER_FORMAT},
        stands="success",
        go_on=message("the second"),
        after=(RESULT,),
        ends=(*SUCCESS, 1, 0),
    ),
    "a finishing tool goes on": Condition(
        before=[call("hand_in", report="early"), ASK],
        settings=HANDED_IN,
        stands="question",
        go_on=answer("blue"),
        after=[call("hand_in", report="late")],
        ends=("success", "hand_in", 3, 0),
    ),
    "ended by a finishing tool": Condition(
        before=[call("hand_in", report="late")],
        settings=HANDED_IN,
        stands="success",
        go_on=message("the second"),
        after=[call("hand_in", report="late")],
        ends=("success", "hand_in", 1, 0),
    ),
    "an imported history that ends in a finish": Condition(
        before=[],
        tasks=(),
        moves=[
            imported(HumanMessage("the first"), said(FINISH), ToolMessage("ok", tool_call_id="c0")),
            given(lambda state: {"messages": []}),
        ],
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "an imported history that ends in a call": Condition(
        before=[ASK],
        tasks=(),
        moves=[imported(HumanMessage("the first"), said(PAY))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
        shows="paid 3",
    ),
    "an imported history that ends in talk, then a round": Condition(
        before=[NOTE, ASK],
        tasks=(),
        moves=[imported(HumanMessage("the first"), AIMessage("Let me see."))],
        settings={"rounds": True},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 1),
    ),
    "a dialogue": Condition(
        before=["Hello, what is it?", "And then?"],
        settings={"talk": "natural"},
        moves=[given(answer("The roof."))],
        stands="question",
        go_on=answer("Thanks."),
        ends=(*SUCCESS, 3, 0),
        shows="Thanks.",
    ),
    "the prompt was too long": Condition(
        before=[*LONG, ContextOverflowError("too big"), ASK],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 5, 3),
    ),
    "with a digest that a model wrote": Condition(
        before=[*LONG, ASK],
        settings={"prompt_tokens": 1_800, "compaction": ScriptedModel(written)},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 5, 3),
        shows="Some notes were taken.",
    ),
    "with a contract beside the digest": Condition(
        before=[THINK, PHASE, UNSAID, *LONG, ASK],
        settings={"prompt_tokens": 1_800},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 8, 3),
        shows="halves first",
    ),
    "an agent by text after a failed execution": Condition(
        before=[CODE],
        model=by_text,
        left="execute",
        stands="stopped",
        go_on=go_on,
        after=[DONE],
        ends=(*SUCCESS, 2, 1),
        shows="is not defined",
    ),
    "a fork of another thread": Condition(
        before=[ASK],
        tasks=(),
        moves=[forked("sent back by a person", 1)],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 0),
    ),
    "gone back to before its second turn": Condition(
        before=[PAY, NOTES[0], ASK, ASK],
        moves=[gone_back],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 1),
    ),
    "ended by another model, after more tries": Condition(
        before=[ConnectionError("down"), PAY, FINISH],
        settings={"model_retries": ModelRetries(first_wait=0.01)},
        in_reserve=True,
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "paused in a reply that did not come": Condition(
        before=[PAY, NOTE],
        left="silent",
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 2, 1),
        shows="paid 3",
    ),
    "offered some of its tools": Condition(
        before=[PAY, NOTE, ASK],
        settings={"select_tools": lambda state, context: ["pay"]},
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 1),
        shows="note cannot be called now",
    ),
    "with channels of a user's own": Condition(
        before=[[REMEMBER, PHOTO], ASK],
        tools=[remember, photograph],
        settings=ORDERED,
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 3, 2),
        shows="Notes: ['the red ones']. Photo: b'low'.",
    ),
    "killed before an update of channels was saved": Condition(
        before=[REMEMBER],
        tools=[remember],
        settings=ORDERED,
        left="killed unwritten",
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 2, 1),
        shows="Notes: ['the red ones']",
    ),
    "killed before an update of no JSON was saved": Condition(
        before=[PHOTO],
        tools=[photograph],
        settings=ORDERED,
        left="killed unwritten",
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 2, 1),
        shows="Photo: b'low'.",
    ),
    "a result of a type": Condition(
        before=[RESULT],
        settings={"response_format": Number},
        stands="success",
        go_on=message("the second"),
        after=(RESULT,),
        ends=(*SUCCESS, 1, 0),
    ),
    "the answer in an argument": Condition(
        before=[ANSWERED],
        settings={"answer": "argument"},
        stands="success",
        go_on=message("the second"),
        after=(ANSWERED,),
        ends=(*SUCCESS, 1, 0),
        shows="the second",
    ),
    "ended without an answer": Condition(
        before=[FINISH],
        settings={"answer": "none"},
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "a question expired": Condition(
        before=[IN_TIME],
        moves=[expired],
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 2, 0),
        shows="green",
    ),
    "went on with a message that was added by hand": Condition(
        before=[FINISH, ASK],
        moves=[added_by_hand, given(go_on)],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 2, 0),
        shows="the second",
    ),
    "a fork of a thread that had ended": Condition(
        before=[ASK],
        tasks=(),
        moves=[forked("confirmed by a person", 1), given(message("the second"))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 2, 0),
    ),
    "set aside and sent back by a middleware": Condition(
        before=[call("pay", amount=60), NOTHING, ASK],
        settings=WATCHED,
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 0),
        shows="Too short.",
    ),
    "ended by a middleware": Condition(
        before=[call("pay", amount=99)],
        settings=WATCHED,
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=(*SUCCESS, 2, 0),
    ),
    "its effects were undone at a limit": Condition(
        before=[CHARGE, call("charge", amount=4), CLERK],
        tools=[charge, clerk],
        settings={"limits": Limits(turns=3), "on_failure": "undo"},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=(*SUCCESS, 4, 3),
        shows="charge(amount=3)",
    ),
    "extended after its effects were undone": Condition(
        before=[CHARGE, CHARGE, ASK],
        tools=[charge],
        settings={"limits": Limits(turns=2), "on_failure": "undo"},
        moves=[given(lambda state: extend(state.values, turns=3))],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 4, 2),
    ),
    "an undo waits for a person": Condition(
        before=[CHARGE],
        tools=[charge],
        settings={"limits": Limits(turns=1), "on_failure": "ask"},
        stands="approval",
        go_on=answer("approve"),
        after=(),
        ends=("limit", "turns", 1, 1),
    ),
    "an undo waits again after an answer that could not be read": Condition(
        before=[CHARGE, FINISH],
        tools=[charge],
        moves=[given(lambda state: undo(state.values, ask=True)), given(answer({"decisions": []}))],
        stands="approval",
        go_on=answer("approve"),
        after=(),
        ends=(*SUCCESS, 2, 1),
    ),
    "an undo was rejected by somebody who is named": Condition(
        before=[CHARGE, FINISH],
        tools=[charge],
        moves=[
            given(lambda state: undo(state.values, ask=True)),
            driven(lambda session: session.resume([{"type": "reject", "message": "It is owed."}], by="ada")),
        ],
        stands="success",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "an undo was stopped": Condition(
        before=[CHARGE, FINISH],
        tools=[charge],
        moves=[
            given(lambda state: undo(state.values, ask=True)),
            driven(lambda session: session.stop()),
        ],
        stands="error",
        go_on=message("the second"),
        ends=(*SUCCESS, 1, 0),
    ),
    "killed beside delegates in a tree with limits": Condition(
        before=[CLERKS, killed_here],
        tools=[clerk],
        settings={"limits": Limits(tokens=700, tree_turns=20, tool_calls=9)},
        left="killed asking",
        stands="stopped",
        go_on=go_on,
        ends=(*SUCCESS, 2, 2),
    ),
    "extended beside delegates, after a reply was lost": Condition(
        before=[CLERKS, killed_here],
        tools=[clerk],
        settings={"limits": Limits(tokens=700, tree_turns=20, tool_calls=9)},
        left="killed asking",
        later=[reply(ASK, usage=(190, 10)), reply(CLERK, usage=(190, 10)), ASK],
        moves=[
            given(go_on),
            given(answer("blue")),
            given(lambda state: extend(state.values, turns=3)),
        ],
        stands="question",
        go_on=answer("blue"),
        ends=(*SUCCESS, 5, 3),
    ),
}
