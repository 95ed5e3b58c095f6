"""Approvals: who is asked, what is asked, how an answer is read, and what runs."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import (
    Approval,
    Finished,
    Session,
    SetupError,
    ThreadBusy,
    ThreadError,
    build_graph,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.errors import ApprovalWarning
from signoff.graph.kinds import Kind
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.approvals import DECISIONS, Approvals, read_answer

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "pay them")]}
FINISH = call("finish_task", summary="x")
BOB_ARGS: dict[str, Any] = {"to": "bob", "amount": 7}
ADA, BOB = call("pay", to="ada", amount=5), call("pay", **BOB_ARGS)


class Bank:
    """Notes every payment that really happened."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, to: str, amount: int) -> str:
        """Pay."""
        self.paid.append((to, amount))
        return f"paid {amount} to {to}"

    def look(self) -> str:
        """Look."""
        return "looked"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def bank_graph(storage: SqliteStorage, *script: Any, **settings: Any) -> tuple[Graph, Bank]:
    bank = Bank()
    settings.setdefault("approvals", {"pay": True})
    return build_graph(ScriptedModel(script), [bank.pay, bank.look], storage=storage, **settings), bank


def results(values: dict[str, Any]) -> list[str]:
    return [str(m.text) for m in values["messages"] if isinstance(m, ToolMessage)][:-1]


APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "too much"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "ada", "amount": 1}}}
RESPOND = {"type": "respond", "message": "already paid yesterday"}
EDITED = '(The user changed the arguments to {"to": "ada", "amount": 1}.)\npaid 1 to ada'
REJECTED = "Not run: the user rejected this call. too much"

ANSWERS: dict[str, tuple[Any, list[tuple[str, int]], str]] = {
    "approve": ({"decisions": [APPROVE]}, [("ada", 5)], "paid 5 to ada"),
    "edit": ({"decisions": [EDIT]}, [("ada", 1)], EDITED),
    "reject": ({"decisions": [REJECT]}, [], REJECTED),
    "respond": ({"decisions": [RESPOND]}, [], "already paid yesterday"),
    "a list": ([APPROVE], [("ada", 5)], "paid 5 to ada"),
    "one decision": (APPROVE, [("ada", 5)], "paid 5 to ada"),
    "a word": ("yes", [("ada", 5)], "paid 5 to ada"),
    "a yes": (True, [("ada", 5)], "paid 5 to ada"),
    "other words are a reason to reject": ("too much", [], REJECTED),
    "an inbox accepts": ([{"type": "accept", "args": None}], [("ada", 5)], "paid 5 to ada"),
    "an inbox ignores": ([{"type": "ignore"}], [], "Not run: the user rejected this call."),
    "an inbox responds": ([{"type": "response", "args": "too late"}], [], "too late"),
    "an inbox edits": (
        [{"type": "edit", "args": {"action": "pay", "args": {"to": "ada", "amount": 1}}}],
        [("ada", 1)],
        EDITED,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_decides(name: str, storage: SqliteStorage) -> None:
    answer, paid, told = ANSWERS[name]
    graph, bank = bank_graph(storage, ADA, FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert bank.paid == []
    assert pending.value == {
        "type": "approval",
        "call_ids": ["call_1"],
        "action_requests": [
            {"name": "pay", "args": {"to": "ada", "amount": 5}, "description": "pay waits for approval."}
        ],
        "review_configs": [{"action_name": "pay", "allowed_decisions": list(DECISIONS)}],
    }
    result = graph.invoke(Command(resume={pending.id: answer}), THREAD)
    assert bank.paid == paid
    assert results(result) == [told]
    assert result["outcome"]["status"] == "success"


def test_one_question_for_all_calls_of_a_reply(storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, [call("look"), ADA, BOB], FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert pending.value["call_ids"] == ["call_2", "call_3"]
    result = graph.invoke(Command(resume={"decisions": [REJECT, APPROVE]}), THREAD)
    assert bank.paid == [("bob", 7)]
    assert sorted(results(result)) == sorted([REJECTED, "looked", "paid 7 to bob"])


BAD: dict[str, tuple[Any, str]] = {
    "too few": ({"decisions": [APPROVE]}, "1 decisions for 2 calls"),
    "too many": ([APPROVE] * 3, "3 decisions for 2 calls"),
    "none": ([], "0 decisions for 2 calls"),
    "a number": (7, "one decision for each of the 2 calls"),
    "nothing": (None, "one decision for each of the 2 calls"),
    "no type": ([{}, {}], "is not a decision"),
    "an unknown type": ([{"type": "maybe"}, APPROVE], "'maybe' is not a decision"),
    "an edit without arguments": ([{"type": "edit"}, APPROVE], "edit needs edited_action"),
    "an edit that changes the tool": (
        [{"type": "edit", "edited_action": {"name": "look", "args": {}}}, APPROVE],
        "not the tool",
    ),
    "a response without words": ([{"type": "respond"}, APPROVE], "respond needs a message"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_runs_nothing_and_asks_again_with_the_reason(name: str, storage: SqliteStorage) -> None:
    answer, reason = BAD[name]
    graph, bank = bank_graph(storage, [ADA, BOB], FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    (again,) = graph.invoke(Command(resume={pending.id: answer}), THREAD)["__interrupt__"]
    assert bank.paid == []
    assert again.id != pending.id
    assert reason in again.value["problem"]
    result = graph.invoke(Command(resume={again.id: [APPROVE, APPROVE]}), THREAD)
    assert bank.paid == [("ada", 5), ("bob", 7)]
    assert result["outcome"]["status"] == "success"


A, B = "call_1", "call_2"
BY_ID: dict[str, tuple[Any, list[tuple[str, int]]]] = {
    "in order": ([APPROVE | {"call_id": A}, REJECT | {"call_id": B}], [("ada", 5)]),
    "in another order": ([REJECT | {"call_id": B}, APPROVE | {"call_id": A}], [("ada", 5)]),
    "as a tool message names it": (
        [REJECT | {"tool_call_id": B}, APPROVE | {"tool_call_id": A}],
        [("ada", 5)],
    ),
    "as JavaScript names it": (
        [REJECT | {"toolCallId": B}, APPROVE | {"callId": A}],
        [("ada", 5)],
    ),
    "as a tool call names it": ([REJECT | {"id": B}, APPROVE | {"id": A}], [("ada", 5)]),
    "in a list beside them": ({"call_ids": [B, A], "decisions": [REJECT, APPROVE]}, [("ada", 5)]),
    "an edit": (
        [REJECT | {"call_id": B}, {**EDIT, "edited_action": {**EDIT["edited_action"], "id": A}}],
        [("ada", 1)],
    ),
    "none has one": ([REJECT, APPROVE], [("bob", 7)]),
    "none has one, in so many words": (
        [REJECT | {"call_id": None}, APPROVE | {"call_id": None}],
        [("bob", 7)],
    ),
}


@pytest.mark.parametrize("name", BY_ID)
def test_decisions_that_name_their_calls_count_for_these(name: str, storage: SqliteStorage) -> None:
    answer, paid = BY_ID[name]
    for number, given in enumerate([answer, answer if "call_ids" in answer else {"decisions": answer}]):
        graph, bank = bank_graph(storage, [ADA, BOB], FINISH)
        thread: Any = {"configurable": {"thread_id": f"t{number}"}}
        (pending,) = graph.invoke(GO, thread)["__interrupt__"]
        assert graph.invoke(Command(resume={pending.id: given}), thread)["outcome"]["status"] == "success"
        assert bank.paid == paid


MISNAMED: dict[str, tuple[Any, str]] = {
    "doubled": ([APPROVE | {"call_id": A}, APPROVE | {"call_id": A}], "decided on twice"),
    "unknown": ([APPROVE | {"call_id": A}, APPROVE | {"call_id": "call_9"}], "no call 'call_9' waits"),
    "no text": ([APPROVE | {"call_id": 1}, APPROVE | {"call_id": 2}], "no call '1' waits"),
    "empty": ([APPROVE | {"call_id": ""}, APPROVE | {"call_id": ""}], "no call '' waits"),
    "only some": ([APPROVE | {"call_id": A}, APPROVE], "only some"),
    "only some, and words": (["approve", APPROVE | {"call_id": B}], "only some"),
    "one is missing": ([APPROVE | {"call_id": B}], "no decision for the call 'call_1'"),
    "too many": ([APPROVE | {"call_id": one} for one in (A, B, "call_3")], "no call 'call_3' waits"),
    "two names": ([APPROVE | {"call_id": A, "id": B}, APPROVE | {"call_id": B}], "names two calls"),
    "beside them, for one": ({"call_ids": [A], "decisions": "approve"}, "no decision for the call 'call_2'"),
    "beside them, too few": ({"call_ids": [A], "decisions": [APPROVE, APPROVE]}, "call_ids must name one"),
    "beside them, others": (
        {"call_ids": [B, A], "decisions": [APPROVE | {"call_id": A}, REJECT | {"call_id": B}]},
        "name different calls",
    ),
    "words in a list for others": (["approve@000000"] * 2, "is not the id of what waits now"),
    "words for others": ("approve@000000", "is not the id of what waits now"),
    "one decision for others": ({"decisions": {**APPROVE, "shown": "000000"}}, "is not the id of what waits"),
    "decisions for others": ({"shown": "000000", "decisions": [APPROVE] * 2}, "is not the id of what waits"),
    "a decision for others": ([APPROVE, APPROVE | {"shown": "000000"}], "is not the id of what waits now"),
}


@pytest.mark.parametrize("name", MISNAMED)
def test_decisions_for_other_calls_are_refused(name: str, storage: SqliteStorage) -> None:
    answer, reason = MISNAMED[name]
    graph, bank = bank_graph(storage, [ADA, BOB], FINISH)
    session = Session(graph, "t")
    asked = session.run("pay them")
    with pytest.raises(ThreadError, match=reason):
        session.resume(answer)
    assert session.run() == asked
    (again,) = graph.invoke(Command(resume=answer), THREAD)["__interrupt__"]
    assert bank.paid == []
    assert reason in again.value["problem"]


@pytest.mark.parametrize("shape", ["approve@{}", " Yes@{} ", {"shown": "{}", "decisions": [APPROVE]}])
def test_an_answer_may_name_what_was_shown(shape: Any, storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, ADA, ADA, FINISH)
    session = Session(graph, "t")

    def answer(asked: Any) -> Any:
        return shape.format(asked.shown) if isinstance(shape, str) else {**shape, "shown": asked.shown}

    asked = session.run("pay them")
    then = session.resume(answer(asked))
    with pytest.raises(ThreadError, match="is not the id of what waits now"):
        session.resume(answer(asked))
    assert bank.paid == [("ada", 5)]
    # The node reads it the same way.
    assert graph.invoke(Command(resume=answer(then)), THREAD)["outcome"]["status"] == "success"
    assert bank.paid == [("ada", 5)] * 2


def test_words_stay_enough_where_the_answer_is_bound(storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, ADA, ADA, FINISH)
    session = Session(graph, "t")
    (asked,) = graph.invoke(GO, THREAD)["__interrupt__"]
    graph.invoke(Command(resume={asked.id: "approve"}), THREAD)
    assert isinstance(session.resume("approve"), Finished)
    assert bank.paid == [("ada", 5)] * 2


def test_a_decision_that_is_not_allowed_asks_again(storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, ADA, FINISH, approvals={"pay": ["approve", "reject"]})
    graph.invoke(GO, THREAD)
    (again,) = graph.invoke(Command(resume=[EDIT]), THREAD)["__interrupt__"]
    assert again.value["problem"] == "'edit' is not allowed for pay; allowed: approve, reject"
    assert bank.paid == []


def test_a_message_while_an_approval_waits_rejects_with_its_words(storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, [ADA, BOB], FINISH)
    task = graph.invoke(GO, THREAD) and graph.get_state(THREAD).values["task"]
    result = graph.invoke({"messages": [("user", "pay nobody today")]}, THREAD)
    assert bank.paid == []
    assert results(result) == ["Not run: the user rejected this call. pay nobody today"] * 2
    assert (result["outcome"]["status"], result["outcome"]["task"]) == ("success", task)


def test_a_late_second_answer_changes_nothing(storage: SqliteStorage) -> None:
    graph, bank = bank_graph(storage, ADA, FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    for _ in range(2):
        result = graph.invoke(Command(resume={pending.id: [APPROVE]}), THREAD)
    assert bank.paid == [("ada", 5)]
    assert result["outcome"]["status"] == "success"


@pytest.mark.parametrize("round_", range(10))
def test_two_answers_at_the_same_moment_pay_once(round_: int, tmp_path: Path) -> None:
    """Each from a connection of its own, as two processes would."""
    bank, start = Bank(), Barrier(2)
    file = tmp_path / "threads.sqlite"

    def answer() -> None:
        with sqlite_storage(file) as storage:
            model = ScriptedModel(lambda messages: [ADA, FINISH][len(messages) > 2])
            graph = build_graph(model, [bank.pay], approvals={"pay": True}, storage=storage)
            (pending,) = graph.get_state(THREAD).interrupts
            start.wait()
            # On a busy machine the first one may take longer than the second one waits.
            with suppress(ThreadBusy):
                graph.invoke(Command(resume={pending.id: [APPROVE]}), THREAD)

    with sqlite_storage(file) as storage:
        graph = build_graph(ScriptedModel([ADA]), [bank.pay], approvals={"pay": True}, storage=storage)
        graph.invoke(GO, THREAD)
    both = [Thread(target=answer) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert bank.paid == [("ada", 5)]


def test_arguments_changed_after_the_approval_do_not_run(storage: SqliteStorage) -> None:
    """Somebody edits the reply between the decision and the execution."""
    graph, bank = bank_graph(storage, ADA, FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    graph.invoke(Command(resume={pending.id: [APPROVE]}), THREAD, interrupt_before=["execute"])
    reply = graph.get_state(THREAD).values["messages"][1]
    changed = {**reply.tool_calls[0], "args": {"to": "eve", "amount": 500}}
    graph.update_state(
        THREAD, {"messages": [reply.model_copy(update={"tool_calls": [changed]})]}, as_node="route_tools"
    )
    graph.update_state(THREAD, {"event": "work"}, as_node="route_tools")
    result = graph.invoke(None, THREAD)
    assert bank.paid == []
    assert "needs a person's approval" in results(result)[0]


def test_a_rejected_call_voids_a_finish_beside_it(storage: SqliteStorage) -> None:
    graph, _ = bank_graph(storage, [ADA, FINISH], FINISH)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert graph.invoke(Command(resume={pending.id: [REJECT]}), THREAD)["outcome"]["refusals"] == 1


def test_without_a_checkpointer_nobody_can_be_asked() -> None:
    bank = Bank()
    with pytest.warns(ApprovalWarning, match="needs a checkpointer to wait for a person") as caught:
        graph = build_graph(ScriptedModel([ADA, FINISH]), [bank.pay], approvals={"pay": True})
    assert caught[0].filename == __file__
    result = graph.invoke(GO)
    assert bank.paid == []
    assert "needs a person's approval, and this run cannot wait" in results(result)[0]


@pytest.mark.parametrize("policy", [None, {}, {"pay": False}])
def test_a_policy_that_asks_about_nothing_needs_no_checkpointer(policy: Any) -> None:
    build_graph(ScriptedModel([]), [Bank().pay], approvals=policy)


def fails(_: Any) -> bool:
    raise RuntimeError("policy down")


KINDS = {"pay": Kind.WRITE, "look": Kind.READ}
POLICIES: dict[str, tuple[Any, tuple[bool, bool, bool]]] = {
    "none": (None, (False, False, False)),
    "by name": ({"pay": True}, (True, True, False)),
    "by kind": ({"write": True}, (True, True, False)),
    "a name counts before a kind": ({"write": True, "pay": False}, (False, False, False)),
    "by the arguments": ({"pay": lambda args: args["amount"] > 100}, (False, True, False)),
    "one function": (lambda name, args: name == "look", (False, False, True)),
    "a function that fails asks": ({"pay": fails}, (True, True, False)),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str) -> None:
    policy, asked = POLICIES[name]
    approvals = Approvals(policy, KINDS)
    small, large = {"to": "ada", "amount": 5}, {"to": "ada", "amount": 500}
    found = [approvals.allowed("pay", small), approvals.allowed("pay", large), approvals.allowed("look", {})]
    assert tuple(bool(may) for may in found) == asked


def test_a_policy_for_a_tool_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SetupError, match="neither a tool of this graph nor a kind"):
        build_graph(ScriptedModel([]), approvals={"pya": True})


EDITABLE = ("approve", "edit", "reject")
LARGE: dict[str, Any] = {
    "allowed_decisions": EDITABLE,
    "when": lambda request: request.tool_call["args"]["amount"] > 6,
}
AT_MOST_TEN: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 10}},
}
DESCRIPTIONS: dict[str, tuple[Any, str]] = {
    "text": ("Look\nclosely.", "Look\nclosely."),
    "a function": (
        lambda call, state, runtime: f"{call['id']} {len(state['messages'])} {runtime.context is None}",
        "call_1 2 True",
    ),
    "no text": (lambda call, state, runtime: 7, "7"),
    "half a character": (lambda call, state, runtime: "half \ud800", "half \ufffd"),
    "nothing": (lambda call, state, runtime: None, "pay waits for approval."),
    "one that fails": (
        lambda call, state, runtime: call["no"],
        "pay waits for approval. (its description failed: KeyError: 'no')",
    ),
}


class TestInterruptOnConfig:
    """The keys of LangChain's `InterruptOnConfig`."""

    @pytest.mark.parametrize("named", ["pay", "write"])
    def test_when_says_which_calls_wait(self, named: str, storage: SqliteStorage) -> None:
        graph, bank = bank_graph(storage, [ADA, BOB], FINISH, approvals={named: LARGE})
        (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
        (action,) = pending.value["action_requests"]
        assert action == {"name": "pay", "args": BOB_ARGS, "description": "pay waits for approval."}
        graph.invoke(Command(resume={pending.id: "approve"}), THREAD)
        assert bank.paid == [("ada", 5), ("bob", 7)]

    def test_when_sees_the_call(self) -> None:
        seen: list[Any] = []
        rule = {"allowed_decisions": ["approve"], "when": seen.append}
        assert Approvals({"pay": rule}, KINDS).allowed("pay", {"amount": 5}) == ()
        assert seen[0].tool_call == {"name": "pay", "args": {"amount": 5}, "id": None, "type": "tool_call"}
        assert seen[0].tool is None

    @pytest.mark.parametrize(
        ("when", "why"),
        [
            (lambda request: request.tool_call["args"]["sum"] > 6, "KeyError: 'sum'"),
            (lambda request: bool(request.state), "gets the tool call alone"),
            (lambda request: "messages" in request.state, "gets the tool call alone"),
            (lambda request: request.state["messages"], "gets the tool call alone"),
            (lambda request: request.runtime.context.trusted, "gets the tool call alone"),
        ],
    )
    def test_a_when_that_fails_asks_and_says_why(self, when: Any, why: str, storage: SqliteStorage) -> None:
        rule = {"allowed_decisions": ["approve"], "when": when}
        graph, bank = bank_graph(storage, ADA, FINISH, approvals={"pay": rule})
        (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
        assert pending.value["review_configs"] == [{"action_name": "pay", "allowed_decisions": ["approve"]}]
        assert why in pending.value["action_requests"][0]["description"]
        assert bank.paid == []

    @pytest.mark.parametrize("name", DESCRIPTIONS)
    def test_what_a_person_is_told(self, name: str, storage: SqliteStorage) -> None:
        description, told = DESCRIPTIONS[name]
        rule = {"allowed_decisions": ["approve"], "description": description}
        graph, bank = bank_graph(storage, ADA, FINISH, approvals={"pay": rule})
        (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
        assert pending.value["action_requests"][0]["description"] == told
        graph.invoke(Command(resume={pending.id: "approve"}), THREAD)
        assert bank.paid == [("ada", 5)]

    async def test_what_a_person_is_told_in_an_async_run(self) -> None:
        seen: list[Any] = []

        def describe(*given: Any) -> str:
            seen.extend(given)
            return "Look."

        rule = {"allowed_decisions": ["approve"], "description": describe}
        saver, store = InMemorySaver(), InMemoryStore()
        model = ScriptedModel([ADA, FINISH])
        graph = build_graph(model, [Bank().pay], approvals={"pay": rule}, checkpointer=saver, store=store)
        (pending,) = (await graph.ainvoke(GO, THREAD))["__interrupt__"]
        assert pending.value["action_requests"][0]["description"] == "Look."
        assert seen[2].store is store

    def test_edited_arguments_fit_their_schema(self, storage: SqliteStorage) -> None:
        rule = {"allowed_decisions": EDITABLE, "args_schema": AT_MOST_TEN}
        graph, bank = bank_graph(storage, ADA, FINISH, approvals={"pay": rule})
        session = Session(graph, "t")
        asked = session.run("pay them")
        assert isinstance(asked, Approval)
        (config,) = asked.payload["review_configs"]
        assert config == {
            "action_name": "pay",
            "allowed_decisions": list(EDITABLE),
            "args_schema": AT_MOST_TEN,
        }
        large = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "ada", "amount": 11}}}
        with pytest.raises(ThreadError, match="do not fit: amount: 11 is greater than the maximum of 10"):
            session.resume(large)
        (again,) = graph.invoke(Command(resume=large), THREAD)["__interrupt__"]
        assert "amount: 11 is greater" in again.value["problem"]
        assert isinstance(session.resume(EDIT), Finished)
        assert bank.paid == [("ada", 1)]

    def test_a_reference_that_leads_nowhere_is_no_endless_error(self, storage: SqliteStorage) -> None:
        rule = {"allowed_decisions": EDITABLE, "args_schema": {"$ref": "#/$defs/none"}}
        graph, bank = bank_graph(storage, ADA, FINISH, approvals={"pay": rule})
        graph.invoke(GO, THREAD)
        (again,) = graph.invoke(Command(resume=EDIT), THREAD)["__interrupt__"]
        assert "their schema cannot be used" in again.value["problem"]
        graph.invoke(Command(resume={again.id: "approve"}), THREAD)
        assert bank.paid == [("ada", 5)]

    def test_a_rule_may_be_made_for_each_call(self) -> None:
        approvals = Approvals({"pay": lambda args: {**LARGE, "description": "Look."}}, KINDS)
        assert approvals.allowed("pay", {"amount": 5}) == ()
        assert approvals.review("pay", {"amount": 7}).description == "Look."
        typo = Approvals({"pay": lambda args: {"allowed_decision": ["approve"]}}, KINDS)
        assert typo.allowed("pay", {"amount": 5}) == DECISIONS


async def later(*_: Any) -> bool:
    return False


MAY: dict[str, Any] = {"allowed_decisions": ["approve", "reject"]}
UNREADABLE: dict[str, tuple[Any, str]] = {
    "a typo in a key": ({**MAY, "descripton": "x"}, r"has the key 'descripton'; the keys are: allowed_dec"),
    "a key that means nothing here": ({**MAY, "rejection_response": "x"}, "has the key 'rejection_response'"),
    "a key that is no text": ({**MAY, 7: "x"}, "has the key 7"),
    "a typo in the main key": (
        {"allowed_decision": ["approve"]},
        "has the key 'allowed_decision'",
    ),
    "no decisions": ({"when": lambda request: True}, "a mapping with such a list as allowed_decisions"),
    "empty": ({"allowed_decisions": []}, "a list of: approve, edit"),
    "a typo in a decision": (["aprove"], "lists 'aprove'; the decisions are: approve, edit"),
    "nothing": (None, "pass True, False"),
    "a word": ("approve", "pass True, False"),
    "when is no function": (
        {**MAY, "when": True},
        "when .* for 'pay' is True; pass a function",
    ),
    "when of nothing": ({**MAY, "when": lambda: True}, "when .* must accept 1 arguments"),
    "when later": ({**MAY, "when": later}, "when .* is an async function"),
    "a description that is a number": ({**MAY, "description": 7}, "description .* is 7; pass text"),
    "a description of the call": ({**MAY, "description": lambda call: "x"}, "must accept 3 arguments"),
    "a description later": ({**MAY, "description": later}, "description .* is an async function"),
    "a schema that is a class": ({**MAY, "args_schema": dict}, "args_schema .* pass a JSON schema"),
    "a schema that cannot be saved": ({**MAY, "args_schema": {"enum": {1}}}, "pass a JSON schema"),
    "a schema that is none": ({**MAY, "args_schema": {"type": "text"}}, "is not a valid JSON schema"),
    "a rule later": (later, "approvals for 'pay' is an async function"),
    "a rule of two": (lambda name, args: True, "approvals for 'pay' must accept 1 arguments"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_rule_that_cannot_be_read_is_refused_when_the_graph_is_built(name: str) -> None:
    rule, why = UNREADABLE[name]
    with pytest.raises(SetupError, match=why):
        build_graph(ScriptedModel([]), [Bank().pay], approvals={"pay": rule})


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (later, "approvals is an async function"),
        (lambda args: True, "approvals must accept 2 arguments"),
        ({"control": True}, r"nor a kind \(read, write, terminal, delegate\)"),
        ({"finish_task": True}, "neither a tool of this graph nor a kind"),
        (True, "pass a mapping of tool names or kinds, or a function"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused_when_the_graph_is_built(policy: Any, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        build_graph(ScriptedModel([]), [Bank().pay], approvals=policy)


@pytest.mark.parametrize("answer", [[APPROVE], {"decisions": [APPROVE]}, "approve", True])
def test_reading_is_the_same_for_all_shapes(answer: Any) -> None:
    (decision,) = read_answer(answer, [("pay", {})], [DECISIONS])
    assert decision.type == "approve"
