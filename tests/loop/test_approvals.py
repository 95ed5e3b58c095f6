"""Approvals: who is asked, how an answer decides, and that it counts for nothing but what was shown."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import Approval, BadAnswer, Graph, Session, SetupError, TooLate, build_graph, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.interrupting import interrupt_process
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
    "a list": ([APPROVE], [ADA_PAID], "paid 5 to ada"),
    "a word": ("yes", [ADA_PAID], "paid 5 to ada"),
    "a word with its reason": ("reject: too much", [], "<rejected> too much"),
    "an inbox accepts": ([{"type": "accept", "args": None}], [ADA_PAID], "paid 5 to ada"),
    "an inbox responds": ([{"type": "response", "args": "too late"}], [], "too late"),
    "an inbox edits": ([{"type": "edit", "args": {"action": "pay", "args": CHEAP}}], [("ada", 1)], EDITED),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_decides(name: str) -> None:
    answer, paid, told = ANSWERS[name]
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
    "by ids, in another order": ([REJECT | {"call_id": B}, APPROVE | {"call_id": A}], [ADA_PAID]),
    "by JavaScript's names": ([REJECT | {"toolCallId": B}, APPROVE | {"callId": A}], [ADA_PAID]),
    "by a list beside them": ({"call_ids": [B, A], "decisions": [REJECT, APPROVE]}, [ADA_PAID]),
    "an edit": ([REJECT | {"call_id": B}, {**EDIT, "call_id": A}], [("ada", 1)]),
}


@pytest.mark.parametrize("name", TWO)
def test_decisions_count_for_the_calls_that_they_name(name: str) -> None:
    answer, paid = TWO[name]
    bank = Bank([ADA, BOB], FINISH)
    bank.ask()
    assert outcome_of(bank.answer(answer)).status == "success"
    assert bank.paid == paid


REFUSED: dict[str, Any] = {
    "too few": [APPROVE],
    "two for one call": [APPROVE | {"call_id": A}] * 2,
    "an unknown call": [APPROVE | {"call_id": A}, APPROVE | {"call_id": "call_9"}],
    "only some have ids": [APPROVE | {"call_id": A}, APPROVE],
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

APPROVE_ALONE: Args = {"allowed_decisions": ["approve"]}
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
    "a function of all": (lambda name, args: name == "look", ["look"]),
    "a function that fails asks": ({"pay": fails}, ["pay", "pay"]),
    "a condition": ({"pay": LARGE}, ["pay"]),
    "a function that gives a rule": ({"pay": lambda args: LARGE}, ["pay"]),
}


@pytest.mark.parametrize("name", POLICIES)
def test_who_is_asked(name: str) -> None:
    approvals, asked = POLICIES[name]
    bank = Bank([ADA, BOB, call("look")], FINISH, approvals=approvals)
    result = bank.graph.invoke(GO, THREAD)
    waits = result.get("__interrupt__", ())
    assert [one["name"] for wait in waits for one in wait.value["action_requests"]] == asked
    if waits:
        result = bank.answer({waits[0].id: ["approve"] * len(asked)})
    assert (bank.paid, outcome_of(result).status) == ([ADA_PAID, BOB_PAID], "success")


@pytest.mark.parametrize(
    ("when", "why"),
    [
        pytest.param(lambda request: request.tool_call["args"]["sum"] > 6, "'sum'", id="no such argument"),
        pytest.param(lambda request: request.state["messages"], "tool call", id="it wants the state"),
    ],
)
def test_a_condition_that_fails_asks_and_says_why(when: Any, why: str) -> None:
    value = Bank(ADA, approvals={"pay": APPROVE_ALONE | {"when": when}}).ask().value
    assert value["review_configs"] == [{"action_name": "pay", **APPROVE_ALONE}]
    assert why in value["action_requests"][0]["description"]


DESCRIPTIONS: dict[str, tuple[Any, str]] = {
    "text": ("Look\nclosely.", "Look\nclosely."),
    "a function of the call, the state and the runtime": (
        lambda call, state, runtime: f"{call['id']} {len(state['messages'])} {runtime.store is not None}",
        "call_1 2 True",
    ),
    "one that fails": (lambda call, state, runtime: call["no"], "KeyError: 'no'"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_what_a_person_is_told(name: str) -> None:
    description, told = DESCRIPTIONS[name]
    bank = Bank(ADA, approvals={"pay": APPROVE_ALONE | {"description": description}})
    assert told in bank.ask().value["action_requests"][0]["description"]


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


async def later(*_: Any) -> bool:
    return False


MAY: Args = {"allowed_decisions": ["approve", "reject"]}
UNREADABLE: dict[str, tuple[Any, str]] = {
    # What of it the error names.
    "a condition of nothing": ({**MAY, "when": lambda: True}, "when"),
    "a description of the call alone": ({**MAY, "description": lambda call: "x"}, "description"),
    "a schema that is none": ({**MAY, "args_schema": {"type": "text"}}, "args_schema"),
    "a function that comes later": (later, "'pay'"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_rule_that_cannot_be_read_is_refused_when_the_graph_is_built(name: str) -> None:
    rule, named = UNREADABLE[name]
    with pytest.raises(SetupError, match=named):
        Bank(approvals={"pay": rule})


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


def test_an_unknown_outcome_names_the_arguments_that_ran() -> None:
    def pay(amount: int) -> str:
        """Pay, and be killed."""
        interrupt_process()
        return "never heard"

    model = ScriptedModel([call("pay", amount=5), FINISH])
    graph = build_graph(model, [pay], approvals={"pay": True}, policy={"texts": TEXTS}, **saved())
    graph.invoke(GO, THREAD)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 500}}}
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume=edit), THREAD)
    (told,) = results(graph.invoke(None, THREAD), "pay")
    assert told.startswith('<edited> {"amount": 500} <unknown_outcome> pay')
