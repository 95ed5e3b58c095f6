"""Approvals: who is asked, how an answer decides, that it counts for nothing but what was shown; and calls
that the program runs."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import (
    Approval,
    BadAnswer,
    Graph,
    Session,
    SetupError,
    TooLate,
    build_graph,
    delegate,
    outcome_of,
)
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, TEXTS, THREAD, results, saved

Args = dict[str, Any]
A_ARGS: Args = {"to": "ada", "amount": 5}
B_ARGS: Args = {"to": "bob", "amount": 7}
ADA, BOB = call("pay", **A_ARGS), call("pay", **B_ARGS)
ADA_PAID, BOB_PAID = ("ada", 5), ("bob", 7)


def look() -> str:
    """Look."""
    return "looked"


class Bank:
    """A graph with tools that note every payment."""

    def __init__(self, *script: Any, approvals: Any = None) -> None:
        self.paid: list[tuple[str, int]] = []
        self.saved = saved()
        self.graph = self.build(ScriptedModel(script), {"pay": True} if approvals is None else approvals)

    def build(self, model: ScriptedModel, approvals: Any) -> Graph:
        reading = StructuredTool.from_function(look, metadata={"kind": "read"})
        policy = {"texts": TEXTS}
        return build_graph(model, [self.pay, reading], approvals=approvals, policy=policy, **self.saved)

    def pay(self, to: str, amount: int) -> str:
        """Pay."""
        self.paid.append((to, amount))
        return f"paid {amount} to {to}"

    def ask(self) -> Any:
        """What it waits for, once the model has begun."""
        (wait,) = self.graph.invoke(GO, THREAD)["__interrupt__"]
        return wait

    def answer(self, answer: Any) -> Any:
        return self.graph.invoke(Command(resume=answer), THREAD)


APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "too much"}
CHEAP: Args = {"to": "ada", "amount": 1}
EDIT: Args = {"type": "edit", "edited_action": {"name": "pay", "args": CHEAP}}
EDITED = '<edited> {"to": "ada", "amount": 1} paid 1 to ada'
ANSWERS: dict[str, tuple[Any, list[tuple[str, int]], str]] = {
    "approve": ({"decisions": [APPROVE]}, [ADA_PAID], "paid 5 to ada"),
    "edit": ({"decisions": [EDIT]}, [("ada", 1)], EDITED),
    "reject": ({"decisions": [REJECT]}, [], "<rejected> too much"),
    "respond": ({"decisions": [{"type": "respond", "message": "paid before"}]}, [], "paid before"),
    "a word": (" Yes ", [ADA_PAID], "paid 5 to ada"),
    "JSON": ('{"decisions": [{"type": "approve"}]}', [ADA_PAID], "paid 5 to ada"),
    "a word with its reason": ("reject: too much", [], "<rejected> too much"),
    "an inbox accepts": ([{"type": "accept", "args": None}], [ADA_PAID], "paid 5 to ada"),
    "an inbox responds": ([{"type": "response", "args": "too late"}], [], "too late"),
    "an inbox edits": ([{"type": "edit", "args": {"action": "pay", "args": CHEAP}}], [("ada", 1)], EDITED),
}


@pytest.mark.parametrize(("answer", "paid", "told"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_decides(answer: Any, paid: list[tuple[str, int]], told: str) -> None:
    bank = Bank(ADA, FINISH)
    wait = bank.ask()
    assert bank.paid == []
    result = bank.answer({wait.id: answer})
    assert (bank.paid, results(result, "pay")) == (paid, [told])
    assert outcome_of(result).status == "success"


def test_what_waits_is_shown_as_langchain_shows_it() -> None:
    bank = Bank([call("look"), ADA, BOB], FINISH)
    value = bank.ask().value
    assert (value["type"], value["call_ids"]) == ("approval", ["call_2", "call_3"])
    assert [request["name"] for request in value["action_requests"]] == ["pay", "pay"]
    assert [request["args"] for request in value["action_requests"]] == [A_ARGS, B_ARGS]
    allowed = ["approve", "edit", "reject", "respond"]
    assert value["review_configs"] == [{"action_name": "pay", "allowed_decisions": allowed}] * 2
    result = bank.answer({"decisions": [REJECT, APPROVE]})
    assert bank.paid == [BOB_PAID]
    assert sorted(results(result)[:3]) == ["<rejected> too much", "looked", "paid 7 to bob"]


# Of two calls each is decided on, by position or by its id.

A, B = "call_1", "call_2"
TWO: dict[str, tuple[Any, list[tuple[str, int]]]] = {
    "by position": ([REJECT, APPROVE], [BOB_PAID]),
    "by ids, in another order": ([REJECT | {"call_id": B}, APPROVE | {"callId": A}], [ADA_PAID]),
    "by a list beside them": ({"call_ids": [B, A], "decisions": [REJECT, APPROVE]}, [ADA_PAID]),
    "an edit": ([REJECT | {"call_id": B}, {**EDIT, "call_id": A}], [("ada", 1)]),
}


@pytest.mark.parametrize(("answer", "paid"), TWO.values(), ids=TWO)
def test_decisions_count_for_the_calls_that_they_name(answer: Any, paid: list[tuple[str, int]]) -> None:
    bank = Bank([ADA, BOB], FINISH)
    bank.ask()
    assert outcome_of(bank.answer(answer)).status == "success"
    assert bank.paid == paid


REFUSED: dict[str, Any] = {
    "two for one call": [APPROVE | {"call_id": A}] * 2,
    "an unknown call": [APPROVE | {"call_id": A}, APPROVE | {"call_id": "call_9"}],
    "one names two": [APPROVE | {"call_id": A, "id": B}, APPROVE | {"call_id": B}],
    "a list beside them that differs": {"call_ids": [B, A], "decisions": [APPROVE | {"call_id": A}, REJECT]},
    "a word for something else shown": "approve@000000",
    "decisions for something else shown": {"shown": "000000", "decisions": [APPROVE] * 2},
}


@pytest.mark.parametrize("name", REFUSED)
def test_decisions_for_other_calls_are_refused(name: str) -> None:
    bank = Bank([ADA, BOB], FINISH)
    wait, before = bank.ask(), bank.graph.get_state(THREAD)
    for given in (REFUSED[name], {wait.id: REFUSED[name]}):
        with pytest.raises(BadAnswer):
            bank.answer(given)
    assert (bank.paid, bank.graph.get_state(THREAD)) == ([], before)
    bank.answer([APPROVE, APPROVE])
    assert bank.paid == [ADA_PAID, BOB_PAID]


@pytest.mark.parametrize("form", ["a word", "decisions"])
def test_an_answer_may_name_what_was_shown_and_then_approves_nothing_else(form: str) -> None:
    bank = Bank(ADA, ADA, FINISH)
    session = Session(bank.graph, "t")

    def answer(wait: Any) -> Any:
        shown = wait.document()["shown"]
        return f" Yes@{shown} " if form == "a word" else {"shown": shown, "decisions": [APPROVE]}

    first = session.run("pay them")
    second = session.resume(answer(first))
    with pytest.raises(BadAnswer):
        session.resume(answer(first))
    assert bank.paid == [ADA_PAID]
    assert outcome_of(bank.answer(answer(second))).status == "success"
    assert bank.paid == [ADA_PAID] * 2


def test_a_message_rejects_all_calls_with_its_words() -> None:
    bank = Bank([ADA, BOB], FINISH)
    bank.ask()
    task = bank.graph.get_state(THREAD).values["task"]
    result = bank.graph.invoke({"messages": [("user", "pay nobody today")]}, THREAD)
    assert (bank.paid, results(result, "pay")) == ([], ["<rejected> pay nobody today"] * 2)
    assert (outcome_of(result).status, outcome_of(result).task) == ("success", task)


# Who is asked.

LARGE: Args = {
    "allowed_decisions": ["approve", "edit", "reject"],
    "when": lambda request: request.tool_call["args"]["amount"] > 6,
}


def fails(_: Any) -> bool:
    raise RuntimeError("policy down")


POLICIES: dict[str, tuple[Any, list[str]]] = {
    # Of paying 5, paying 7 and looking.
    "by name": ({"pay": True}, ["pay", "pay"]),
    "by kind": ({"write": True}, ["pay", "pay"]),
    "a name counts before its kind": ({"write": True, "pay": False}, []),
    "by the arguments": ({"pay": lambda args: args["amount"] > 6}, ["pay"]),
    "a function that fails asks": ({"pay": fails}, ["pay", "pay"]),
    "a condition": ({"pay": LARGE}, ["pay"]),
    "a function that gives a rule": ({"pay": lambda args: LARGE}, ["pay"]),
}


@pytest.mark.parametrize(("approvals", "asked"), POLICIES.values(), ids=POLICIES)
def test_who_is_asked(approvals: Any, asked: list[str]) -> None:
    bank = Bank([ADA, BOB, call("look")], FINISH, approvals=approvals)
    result = bank.graph.invoke(GO, THREAD)
    waits = result.get("__interrupt__", ())
    assert [one["name"] for wait in waits for one in wait.value["action_requests"]] == asked
    if waits:
        result = bank.answer({waits[0].id: ["approve"] * len(asked)})
    assert (bank.paid, outcome_of(result).status) == ([ADA_PAID, BOB_PAID], "success")


def test_a_condition_that_fails_asks_and_says_why_beside_what_a_function_describes() -> None:
    rule: Args = {
        "allowed_decisions": ["approve"],
        "when": lambda request: request.tool_call["args"]["sum"] > 6,
        "description": lambda call, state, runtime: f"{call['id']} of {len(state['messages'])}",
    }
    (request,) = Bank(ADA, approvals={"pay": rule}).ask().value["action_requests"]
    assert [part for part in ("'sum'", "call_1 of 2") if part not in request["description"]] == []


def test_edited_arguments_fit_the_schema_of_the_rule() -> None:
    schema: Args = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 10}}}
    bank = Bank(ADA, FINISH, approvals={"pay": {"allowed_decisions": ["edit"], "args_schema": schema}})
    session = Session(bank.graph, "t")
    asked = session.run("pay them")
    assert isinstance(asked, Approval)
    assert asked.calls[0].args_schema == schema
    large = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "ada", "amount": 11}}}
    with pytest.raises(BadAnswer, match="amount"):
        session.resume(large)
    session.resume(EDIT)
    assert bank.paid == [("ada", 1)]


def test_where_nobody_can_be_asked_the_call_does_not_run_and_building_warns() -> None:
    bank = Bank(ADA, FINISH)
    bank.saved = {}
    with pytest.warns(UserWarning, match="checkpointer") as caught:
        graph = bank.build(ScriptedModel([ADA, FINISH]), {"pay": True})
    assert caught[0].filename == __file__
    result = graph.invoke(GO)
    assert (bank.paid, outcome_of(result).status) == ([], "success")
    assert results(result, "pay")[0].startswith("<nobody> pay")
    # Rules that ask about nothing need nobody.
    bank.build(ScriptedModel([]), {"pay": False})


# An answer, an observation and the journal are bound to exactly the call that was meant.


def change_arguments(graph: Graph, args: Args, **where: Any) -> None:
    messages = graph.get_state(THREAD).values["messages"]
    reply = next(message for message in messages if isinstance(message, AIMessage))
    changed = reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": args}]})
    graph.update_state(THREAD, {"messages": [changed]}, **where)


def test_arguments_changed_after_the_approval_do_not_run() -> None:
    bank = Bank(ADA, FINISH)
    wait = bank.ask()
    bank.graph.invoke(Command(resume={wait.id: [APPROVE]}), THREAD, interrupt_before=["execute"])
    change_arguments(bank.graph, {"to": "eve", "amount": 500}, as_node="route_tools")
    bank.graph.update_state(THREAD, {"event": "work"}, as_node="route_tools")
    result = bank.graph.invoke(None, THREAD)
    assert (bank.paid, results(result, "pay")) == ([], ["<not_approved> pay"])


def test_an_answer_counts_only_for_the_arguments_that_were_shown() -> None:
    bank = Bank(ADA, FINISH)
    wait = bank.ask()
    change_arguments(bank.graph, {"to": "eve", "amount": 500}, as_node="route_tools")
    with pytest.raises(TooLate):
        bank.answer({wait.id: "approve"})
    (again,) = bank.graph.invoke(None, THREAD)["__interrupt__"]
    assert (bank.paid, again.value["action_requests"][0]["args"]["to"]) == ([], "eve")


def test_an_answer_counts_only_for_the_calls_that_were_shown() -> None:
    bank = Bank([ADA, call("look")], FINISH)
    wait = bank.ask()
    graph = bank.build(ScriptedModel([FINISH]), {"look": True})
    (again,) = graph.invoke(Command(resume={wait.id: "approve"}), THREAD)["__interrupt__"]
    assert (bank.paid, again.value["action_requests"][0]["name"]) == ([], "look")
    assert again.value["problem"]


SHELL = call("shell", command="ls")


def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError("the driver runs it")


def see() -> str:
    """Look."""
    return "looked"


def handing_over(*script: Any, rule: Any = "hand_over", **options: Any) -> Graph:
    tools = [
        StructuredTool.from_function(shell, metadata={"kind": "terminal"}),
        StructuredTool.from_function(see, metadata={"kind": "read"}),
    ]
    options = {"approvals": {"shell": rule}, "policy": {"texts": TEXTS}, **saved(), **options}
    return build_graph(ScriptedModel(script), tools, **options)


OBSERVED: dict[str, tuple[Any, str, str]] = {
    "output": ({"output": "3 files"}, "3 files", "success"),
    "an error": ({"output": "no such file", "status": "error"}, "no such file", "error"),
}


@pytest.mark.parametrize(("observed", "text", "status"), OBSERVED.values(), ids=OBSERVED)
def test_the_driver_gives_what_it_observed(observed: Any, text: str, status: str) -> None:
    graph = handing_over([call("see"), SHELL, call("see")], FINISH)
    (wait,) = graph.invoke(GO, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={wait.id: observed}), THREAD)
    told = [(one.text, one.status) for one in result["messages"] if isinstance(one, ToolMessage)]
    assert told[:3] == [("looked", "success"), (text, status), ("looked", "success")]
    assert outcome_of(result).tool_calls == 3


def test_what_is_handed_out_is_shown_as_a_call_without_decisions() -> None:
    (wait,) = handing_over(SHELL).invoke(GO, THREAD)["__interrupt__"]
    (request,) = wait.value.pop("action_requests")
    assert (request["name"], request["args"]) == ("shell", {"command": "ls"})
    assert wait.value == {
        "type": "action",
        "tool": "shell",
        "args": {"command": "ls"},
        "kind": "terminal",
        "call_id": "call_1",
        "review_configs": [{"action_name": "shell", "allowed_decisions": []}],
    }


def test_a_message_takes_the_action_back_which_may_have_been_done() -> None:
    graph = handing_over(SHELL, FINISH, FINISH)
    graph.invoke(GO, THREAD)
    task = graph.get_state(THREAD).values["task"]
    result = graph.invoke({"messages": [("user", "stop, not that")]}, THREAD)
    told = results(result, "shell")[0]
    assert told.startswith("<maybe_run> shell")
    assert told.endswith("<instead> stop, not that")
    outcome = outcome_of(result)
    assert (outcome.task, outcome.changes[0].came) == (task, "unknown")
    assert "shell(command='ls')" in outcome.open_points[0]


def test_an_approval_comes_first_and_its_edit_is_handed_over() -> None:
    graph = handing_over(SHELL, FINISH, rule={"allowed_decisions": ["edit"], "hand_over": True})
    (asked,) = graph.invoke(GO, THREAD)["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "shell", "args": {"command": "pwd"}}}
    (action,) = graph.invoke(Command(resume={asked.id: [edit]}), THREAD)["__interrupt__"]
    assert (action.value["type"], action.value["args"]) == ("action", {"command": "pwd"})
    result = graph.invoke(Command(resume={action.id: "/home"}), THREAD)
    assert results(result, "shell") == ['<edited> {"command": "pwd"} /home']


def deploy(place: str) -> str:
    """Deploy."""
    return f"deployed to {place}"


A_PERSON_FIRST: dict[str, Any] = {"allowed_decisions": ["approve"], "hand_over": True}
HANDED_OVER: dict[str, tuple[Any, dict[str, Any] | None, str]] = {
    # Of a tool that writes: the approvals, its metadata, and what it waits for first.
    "of the tool": ({"deploy": "hand_over"}, None, "action"),
    "of its kind": ({"write": "hand_over"}, None, "action"),
    "the tool's no in place of its kind": ({"write": "hand_over", "deploy": False}, None, ""),
    "a person's in place of its kind": ({"write": "hand_over", "deploy": ["approve"]}, None, "approval"),
    "a person first": ({"deploy": A_PERSON_FIRST}, None, "approval"),
    "the tool says so": (None, {"hand_over": True}, "action"),
    "the tool says so, and a person first": ({"deploy": True}, {"hand_over": True}, "approval"),
    # What a function returns hands nothing over, and what it does not know asks.
    "a function": (lambda name, args: "hand_over", None, "approval"),
}


@pytest.mark.parametrize(("approvals", "metadata", "first"), HANDED_OVER.values(), ids=HANDED_OVER)
def test_who_decides_and_who_runs_it(approvals: Any, metadata: dict[str, Any] | None, first: str) -> None:
    tool = StructuredTool.from_function(deploy, metadata=metadata)
    model = ScriptedModel([call("deploy", place="x"), FINISH])
    waits = build_graph(model, [tool], approvals=approvals, **saved()).invoke(GO, THREAD).get("__interrupt__")
    assert (waits[0].value["type"] if waits else "") == first


MAY: Args = {"allowed_decisions": ["approve", "reject"]}
IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "a condition of nothing": ({"deploy": {**MAY, "when": lambda: True}}, "when"),
    "a schema that is none": ({"deploy": {**MAY, "args_schema": {"type": "text"}}}, "args_schema"),
    "a tool of a delegate": ({"deploy": "hand_over"}, "deploy"),
    "a finish": ({"finish_task": "hand_over"}, "finish_task"),
    "to edit a finish": ({"finish_task": ["edit"]}, "approve, reject"),
}


@pytest.mark.parametrize(("approvals", "named"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_handed_over_or_approved_is_refused(approvals: Any, named: str) -> None:
    helper = delegate("helper", build_graph(ScriptedModel([FINISH]), [deploy]), description="Helps.")
    with pytest.raises(SetupError, match=named):
        build_graph(ScriptedModel([]), [helper], approvals=approvals)
