"""Approvals: who is asked, how an answer decides, and that it counts for nothing but what was shown."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command, interrupt

from signoff import (
    Approval,
    BadAnswer,
    Graph,
    Session,
    SetupError,
    ThreadBusy,
    TooLate,
    build_graph,
    outcome_of,
    sqlite_storage,
    stop,
)
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from tests.support.interrupting import interrupt_process
from tests.support.plays import FINISH, GO, TEXTS, THREAD, results, saved

Args = dict[str, Any]
A_ARGS: Args = {"to": "ada", "amount": 5}
B_ARGS: Args = {"to": "bob", "amount": 7}
ADA, BOB = call("pay", **A_ARGS), call("pay", **B_ARGS)
ADA_PAID, BOB_PAID = ("ada", 5), ("bob", 7)


class Bank:
    """A graph with tools that note every payment."""

    def __init__(self, *script: Any, approvals: Any = None, kind: str = "write", **options: Any) -> None:
        self.paid: list[tuple[str, int]] = []
        self.saved = options.pop("saved", None) or saved()
        self.model = ScriptedModel(script)
        self.graph = self.build(self.model, {"pay": True} if approvals is None else approvals, kind, options)
        self.session = Session(self.graph, "t") if self.saved else None

    def build(self, model: ScriptedModel, approvals: Any, kind: str = "write", options: Any = None) -> Graph:
        def pay(to: str, amount: int) -> str:
            """Pay."""
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        def look() -> str:
            """Look."""
            return "looked"

        tools = [
            StructuredTool.from_function(pay, metadata={"kind": kind}),
            StructuredTool.from_function(look, metadata={"kind": "read"}),
        ]
        options = {"policy": {"texts": TEXTS}, **(options or {})}
        return build_graph(model, tools, approvals=approvals, **self.saved, **options)

    def ask(self) -> Any:
        """What it waits for, once the model has begun."""
        (wait,) = self.graph.invoke(GO, THREAD)["__interrupt__"]
        return wait

    def answer(self, answer: Any) -> Any:
        return self.graph.invoke(Command(resume=answer), THREAD)


APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "too much"}
EDIT: Args = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "ada", "amount": 1}}}
EDITED = '<edited> {"to": "ada", "amount": 1} paid 1 to ada'
ANSWERS: dict[str, tuple[Any, list[tuple[str, int]], str]] = {
    "approve": ({"decisions": [APPROVE]}, [ADA_PAID], "paid 5 to ada"),
    "edit": ({"decisions": [EDIT]}, [("ada", 1)], EDITED),
    "reject": ({"decisions": [REJECT]}, [], "<rejected> too much"),
    "respond": ({"decisions": [{"type": "respond", "message": "paid before"}]}, [], "paid before"),
    "a list": ([APPROVE], [ADA_PAID], "paid 5 to ada"),
    "one decision": (APPROVE, [ADA_PAID], "paid 5 to ada"),
    "a word": ("yes", [ADA_PAID], "paid 5 to ada"),
    "true": (True, [ADA_PAID], "paid 5 to ada"),
    "a word with its reason": ("reject: too much", [], "<rejected> too much"),
    "an inbox accepts": ([{"type": "accept", "args": None}], [ADA_PAID], "paid 5 to ada"),
    "an inbox ignores": ([{"type": "ignore"}], [], "<rejected>"),
    "an inbox responds": ([{"type": "response", "args": "too late"}], [], "too late"),
    "an inbox edits": (
        [{"type": "edit", "args": {"action": "pay", "args": {"to": "ada", "amount": 1}}}],
        [("ada", 1)],
        EDITED,
    ),
}


@pytest.mark.parametrize("kind", ["write", "read"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_decides(name: str, kind: str) -> None:
    answer, paid, told = ANSWERS[name]
    bank = Bank(ADA, FINISH, kind=kind)
    wait = bank.ask()
    assert bank.paid == []
    result = bank.answer({wait.id: answer})
    assert (bank.paid, results(result, "pay")) == (paid, [told])
    assert outcome_of(result).status == "success"


def test_what_waits_is_shown_as_langchain_shows_it() -> None:
    bank = Bank([call("look"), ADA, BOB], FINISH)
    value = bank.ask().value
    assert (value["type"], value["call_ids"]) == ("approval", ["call_2", "call_3"])
    assert [(one["name"], one["args"]) for one in value["action_requests"]] == [
        ("pay", A_ARGS),
        ("pay", B_ARGS),
    ]
    allowed = ["approve", "edit", "reject", "respond"]
    assert value["review_configs"] == [{"action_name": "pay", "allowed_decisions": allowed}] * 2
    result = bank.answer({"decisions": [REJECT, APPROVE]})
    assert bank.paid == [BOB_PAID]
    assert sorted(results(result)[:3]) == ["<rejected> too much", "looked", "paid 7 to bob"]


# Of two calls each is decided on, by position or by its id.

A, B = "call_1", "call_2"
TWO: dict[str, tuple[Any, list[tuple[str, int]]]] = {
    "by position": ([REJECT, APPROVE], [BOB_PAID]),
    "by ids": ([APPROVE | {"call_id": A}, REJECT | {"call_id": B}], [ADA_PAID]),
    "by ids, in another order": ([REJECT | {"call_id": B}, APPROVE | {"call_id": A}], [ADA_PAID]),
    "by the name of a tool message": (
        [REJECT | {"tool_call_id": B}, APPROVE | {"tool_call_id": A}],
        [ADA_PAID],
    ),
    "by JavaScript's names": ([REJECT | {"toolCallId": B}, APPROVE | {"callId": A}], [ADA_PAID]),
    "by the name of a tool call": ([REJECT | {"id": B}, APPROVE | {"id": A}], [ADA_PAID]),
    "by a list beside them": ({"call_ids": [B, A], "decisions": [REJECT, APPROVE]}, [ADA_PAID]),
    "an edit": (
        [REJECT | {"call_id": B}, {**EDIT, "edited_action": {**EDIT["edited_action"], "id": A}}],
        [("ada", 1)],
    ),
    "by no id in so many words": ([REJECT | {"call_id": None}, APPROVE | {"call_id": None}], [BOB_PAID]),
}


@pytest.mark.parametrize("name", TWO)
def test_decisions_count_for_the_calls_that_they_name(name: str) -> None:
    answer, paid = TWO[name]
    for given in [answer] if "call_ids" in answer else [answer, {"decisions": answer}]:
        bank = Bank([ADA, BOB], FINISH)
        bank.ask()
        assert outcome_of(bank.answer(given)).status == "success"
        assert bank.paid == paid


REFUSED: dict[str, Any] = {
    "too few": [APPROVE],
    "too many": [APPROVE] * 3,
    "two for one call": [APPROVE | {"call_id": A}] * 2,
    "an unknown call": [APPROVE | {"call_id": A}, APPROVE | {"call_id": "call_9"}],
    "an id that is no text": [APPROVE | {"call_id": 1}, APPROVE | {"call_id": 2}],
    "an empty id": [APPROVE | {"call_id": ""}] * 2,
    "only some have ids": [APPROVE | {"call_id": A}, APPROVE],
    "a word and an id": ["approve", APPROVE | {"call_id": B}],
    "one is missing": [APPROVE | {"call_id": B}],
    "one too many": [APPROVE | {"call_id": found} for found in (A, B, "call_3")],
    "one names two": [APPROVE | {"call_id": A, "id": B}, APPROVE | {"call_id": B}],
    "a list beside them, for one": {"call_ids": [A], "decisions": "approve"},
    "a list beside them, too short": {"call_ids": [A], "decisions": [APPROVE, APPROVE]},
    "a list beside them that differs": {
        "call_ids": [B, A],
        "decisions": [APPROVE | {"call_id": A}, REJECT | {"call_id": B}],
    },
    "a word for something else shown": "approve@000000",
    "words for something else shown": ["approve@000000"] * 2,
    "decisions for something else shown": {"shown": "000000", "decisions": [APPROVE] * 2},
    "a decision for something else shown": [APPROVE, APPROVE | {"shown": "000000"}],
    "a response without words": [{"type": "respond"}, APPROVE],
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


SHOWN: dict[str, Callable[[str], Any]] = {
    "a word": "approve@{}".format,
    "a word with spaces": " Yes@{} ".format,
    "decisions": lambda shown: {"shown": shown, "decisions": [APPROVE]},
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_answer_may_name_what_was_shown_and_then_approves_nothing_else(name: str) -> None:
    bank = Bank(ADA, ADA, FINISH)
    session = Session(bank.graph, "t")

    def shown(decision: Any) -> Any:
        return SHOWN[name](decision.document()["shown"])

    first = session.run("pay them")
    second = session.resume(shown(first))
    with pytest.raises(BadAnswer):
        session.resume(shown(first))
    assert bank.paid == [ADA_PAID]
    assert outcome_of(bank.answer(shown(second))).status == "success"
    assert bank.paid == [ADA_PAID] * 2


def test_a_decision_that_is_not_allowed_is_refused() -> None:
    bank = Bank(ADA, FINISH, approvals={"pay": ["approve", "reject"]})
    bank.ask()
    with pytest.raises(BadAnswer, match="edit"):
        bank.answer([EDIT])
    assert bank.paid == []


def test_a_message_rejects_all_calls_with_its_words() -> None:
    bank = Bank([ADA, BOB], FINISH)
    bank.ask()
    task = bank.graph.get_state(THREAD).values["task"]
    result = bank.graph.invoke({"messages": [("user", "pay nobody today")]}, THREAD)
    assert (bank.paid, results(result, "pay")) == ([], ["<rejected> pay nobody today"] * 2)
    assert (outcome_of(result).status, outcome_of(result).task) == ("success", task)


def test_a_rejected_call_voids_a_finish_beside_it() -> None:
    bank = Bank([ADA, FINISH], FINISH)
    bank.ask()
    assert outcome_of(bank.answer([REJECT])).refusals == 1


@pytest.mark.parametrize("attempt", range(3))
def test_two_answers_at_the_same_moment_pay_once(attempt: int, tmp_path: Path) -> None:
    """Each by a connection of its own, as two processes would."""
    start, file = Barrier(2), tmp_path / "t.sqlite"
    with sqlite_storage(file) as storage:
        bank = Bank(ADA, saved={"storage": storage})
        bank.ask()
    bank.saved = {}

    def answer() -> None:
        with sqlite_storage(file) as storage:
            model = ScriptedModel(lambda messages: [ADA, FINISH][len(messages) > 2])
            graph = bank.build(model, {"pay": True}, options={"storage": storage})
            (wait,) = graph.get_state(THREAD).interrupts
            start.wait()
            # On a busy machine the first may take longer than the second waits.
            with suppress(ThreadBusy, TooLate):
                graph.invoke(Command(resume={wait.id: [APPROVE]}), THREAD)

    both = [Thread(target=answer) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert bank.paid == [ADA_PAID]


# Who is asked.

LARGE: Args = {
    "allowed_decisions": ["approve", "edit", "reject"],
    "when": lambda request: request.tool_call["args"]["amount"] > 6,
}


def fails(_: Any) -> bool:
    raise RuntimeError("policy down")


POLICIES: dict[str, tuple[Any, list[str]]] = {
    # Of paying 5, paying 7 and looking.
    "none": ({}, []),
    "by name": ({"pay": True}, ["pay", "pay"]),
    "by kind": ({"write": True}, ["pay", "pay"]),
    "a name counts before its kind": ({"write": True, "pay": False}, []),
    "by the arguments": ({"pay": lambda args: args["amount"] > 6}, ["pay"]),
    "a function of all": (lambda name, args: name == "look", ["look"]),
    "a function that fails asks": ({"pay": fails}, ["pay", "pay"]),
    "a condition": ({"pay": LARGE}, ["pay"]),
    "a condition of a kind": ({"write": LARGE}, ["pay"]),
    "a function that gives a rule": ({"pay": lambda args: LARGE}, ["pay"]),
    "a function that gives a misspelt rule asks": (
        {"pay": lambda args: {"allowed_decision": ["approve"]}},
        ["pay", "pay"],
    ),
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


WHEN_FAILS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an argument that is not there": (lambda request: request.tool_call["args"]["sum"] > 6, "'sum'"),
    "it wants the state": (lambda request: request.state["messages"], "tool call"),
    "it wants the runtime": (lambda request: request.runtime.context.trusted, "tool call"),
}


@pytest.mark.parametrize("name", WHEN_FAILS)
def test_a_condition_that_fails_asks_and_says_why(name: str) -> None:
    when, why = WHEN_FAILS[name]
    bank = Bank(ADA, FINISH, approvals={"pay": {"allowed_decisions": ["approve"], "when": when}})
    value = bank.ask().value
    assert value["review_configs"] == [{"action_name": "pay", "allowed_decisions": ["approve"]}]
    assert why in value["action_requests"][0]["description"]


DESCRIPTIONS: dict[str, tuple[Any, str]] = {
    "text": ("Look\nclosely.", "Look\nclosely."),
    "a function of the call, the state and the runtime": (
        lambda call, state, runtime: f"{call['id']} {len(state['messages'])} {runtime.store is not None}",
        "call_1 2 True",
    ),
    "no text": (lambda call, state, runtime: 7, "7"),
    "half a character": (lambda call, state, runtime: "half \ud800", "half \ufffd"),
    "nothing": (lambda call, state, runtime: None, "pay"),
    "one that fails": (lambda call, state, runtime: call["no"], "KeyError: 'no'"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_what_a_person_is_told(name: str) -> None:
    description, told = DESCRIPTIONS[name]
    bank = Bank(
        ADA, FINISH, approvals={"pay": {"allowed_decisions": ["approve"], "description": description}}
    )
    wait = bank.ask()
    assert told in wait.value["action_requests"][0]["description"]
    bank.answer({wait.id: "approve"})
    assert bank.paid == [ADA_PAID]


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


def test_a_schema_that_cannot_be_used_refuses_edits_alone() -> None:
    rule = {"allowed_decisions": ["approve", "edit"], "args_schema": {"$ref": "#/$defs/none"}}
    bank = Bank(ADA, FINISH, approvals={"pay": rule})
    bank.ask()
    with pytest.raises(BadAnswer, match="schema"):
        bank.answer(EDIT)
    bank.answer("approve")
    assert bank.paid == [ADA_PAID]


async def later(*_: Any) -> bool:
    return False


MAY: Args = {"allowed_decisions": ["approve", "reject"]}
UNREADABLE: dict[str, tuple[Any, str]] = {
    # What of it the error names.
    "a slip in a key": ({**MAY, "descripton": "x"}, "'descripton'"),
    "a key of LangChain's that means nothing here": (
        {**MAY, "rejection_response": "x"},
        "'rejection_response'",
    ),
    "a key that is no text": ({**MAY, 7: "x"}, "7"),
    "a slip in the main key": ({"allowed_decision": ["approve"]}, "'allowed_decision'"),
    "no decisions": ({"when": lambda request: True}, "allowed_decisions"),
    "an empty list of decisions": ({"allowed_decisions": []}, "approve, edit"),
    "a slip in a decision": (["aprove"], "'aprove'"),
    "nothing": (None, "'pay'"),
    "a word": ("approve", "'approve'"),
    "a condition that is none": ({**MAY, "when": True}, "when"),
    "a condition of nothing": ({**MAY, "when": lambda: True}, "when"),
    "a condition that comes later": ({**MAY, "when": later}, "when"),
    "a description that is a number": ({**MAY, "description": 7}, "description"),
    "a description of the call alone": ({**MAY, "description": lambda call: "x"}, "description"),
    "a description that comes later": ({**MAY, "description": later}, "description"),
    "a schema that is a class": ({**MAY, "args_schema": dict}, "args_schema"),
    "a schema that cannot be saved": ({**MAY, "args_schema": {"enum": {1}}}, "args_schema"),
    "a schema that is none": ({**MAY, "args_schema": {"type": "text"}}, "args_schema"),
    "a function that comes later": (later, "'pay'"),
    "a function of two": (lambda name, args: True, "'pay'"),
}
UNREADABLE_POLICIES: dict[str, tuple[Any, str]] = {
    "a function that comes later": (later, "approvals"),
    "a function of one": (lambda args: True, "approvals"),
    "a kind that nobody decides on": ({"control": True}, "'control'"),
    "a tool that does not exist": ({"pya": True}, "'pya'"),
    "a bare yes": (True, "approvals"),
}
ALL_UNREADABLE = {
    **{name: ({"pay": rule}, named) for name, (rule, named) in UNREADABLE.items()},
    **{f"for all: {name}": case for name, case in UNREADABLE_POLICIES.items()},
}


@pytest.mark.parametrize("name", ALL_UNREADABLE)
def test_a_rule_that_cannot_be_read_is_refused_when_the_graph_is_built(name: str) -> None:
    approvals, named = ALL_UNREADABLE[name]
    with pytest.raises(SetupError, match=named):
        Bank(approvals=approvals)


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


def test_a_stop_comes_before_an_approval() -> None:
    bank = Bank(ADA)
    bank.ask()
    assert outcome_of(bank.graph.invoke(stop(), THREAD)).reason == "cancelled"
    assert bank.paid == []


def test_the_journal_is_bound_to_the_arguments() -> None:
    """A fork from before the call, with other arguments under the same ids."""
    bank = Bank(ADA, FINISH, FINISH, approvals={})
    bank.graph.invoke(GO, THREAD)
    before = next(state for state in bank.graph.get_state_history(THREAD) if state.next == ("execute",))
    reply = before.values["messages"][-1]
    changed = reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": B_ARGS}]})
    update = {"messages": [changed], "event": "work"}
    fork = bank.graph.update_state(before.config, update, as_node="route_tools")
    assert results(bank.graph.invoke(None, fork), "pay") == ["paid 7 to bob"]
    assert bank.paid == [ADA_PAID, BOB_PAID]


class CutShort:
    """A payment whose process is interrupted in it the first time."""

    def __init__(self, approvals: Any = None, unknown_outcomes: str = "tell") -> None:
        self.paid: list[int] = []
        self.saved = saved()
        policy = {"texts": TEXTS, "unknown_outcomes": unknown_outcomes}
        model = ScriptedModel([call("pay", amount=5), FINISH])
        self.graph = build_graph(model, [self.pay], approvals=approvals, policy=policy, **self.saved)

    def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        if len(self.paid) == 1:
            interrupt_process()
        return f"paid {amount}"

    def cut(self, given: Any = GO) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.graph.invoke(given, THREAD)


def test_an_unknown_outcome_names_the_arguments_that_ran() -> None:
    bank = CutShort({"pay": True})
    bank.graph.invoke(GO, THREAD)
    bank.cut(Command(resume=[{"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 500}}}]))
    (told,) = results(bank.graph.invoke(None, THREAD), "pay")
    assert told.startswith('<edited> {"amount": 500} <unknown_outcome> pay')


def test_a_message_while_an_unknown_outcome_is_asked_about_is_the_answer() -> None:
    bank = CutShort(unknown_outcomes="ask")
    bank.cut()
    assert bank.graph.invoke(None, THREAD)["__interrupt__"]
    result = bank.graph.invoke({"messages": [("user", "It went through.")]}, THREAD)
    assert results(result, "pay")[0].endswith("It went through.")
    assert [task.status for task in read_ended(bank.saved["store"])] == ["success"]


def test_to_ask_about_an_unknown_outcome_allows_no_more_than_the_rule() -> None:
    bank = CutShort({"pay": ["approve", "reject"]}, "ask")
    bank.graph.invoke(GO, THREAD)
    bank.cut(Command(resume=["approve"]))
    (wait,) = bank.graph.invoke(None, THREAD)["__interrupt__"]
    assert wait.value["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]


def test_a_call_that_waited_in_the_middle_is_not_told_as_not_run() -> None:
    paid: list[str] = []

    def pay() -> str:
        """Pay, and ask for the receipt."""
        paid.append("pay")
        return str(interrupt("the receipt?"))

    graph = build_graph(ScriptedModel([call("pay"), FINISH]), [pay], policy={"texts": TEXTS}, **saved())
    graph.invoke(GO, THREAD)
    result = graph.invoke({"messages": [("user", "never mind")]}, THREAD)
    (told,) = results(result, "pay")
    assert (paid, told.split()[0]) == (["pay"], "<unknown_outcome>")
