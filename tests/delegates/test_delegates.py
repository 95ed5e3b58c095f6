"""A graph as a tool of another one: what it is given, what comes back, what the caller may claim then."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from signoff import (
    Limits,
    Prices,
    SetupError,
    Storage,
    delegate,
    go_on,
    outcome_of,
)
from signoff.models import ScriptedModel, call, reply
from tests.support.interrupting import interrupt_process
from tests.support.trees import (
    ASK,
    BLOCKED,
    DONE,
    DOWN,
    GO,
    ONCE,
    THREAD,
    Shop,
    by_turn,
    graph_of,
    hand_to,
    helper,
    look,
    results,
    turns_of,
)
from tests.support.waiting import until

PARTIAL = call("finish_task", summary="Half.", outcome="partial", pending_issues=["the rest"])
CAUSE = "401: your API key was revoked"
REFUSED = ConnectionError(f"{CAUSE} (Bearer sk-0123456789abcdef)")


# What it is given.


def test_it_is_given_the_task_alone_and_all_that_it_used_counts_in_the_tree(shop: Shop) -> None:
    below = by_turn(call("pay", to="ada"), DONE)
    graph = graph_of([hand_to("helper", task="Find it."), DONE], [helper(graph_of(below, [shop.pay]))])
    values = graph.invoke({"messages": [("user", "A secret of the caller.")]})
    said = [one.text for one in below.seen[0].messages if isinstance(one, HumanMessage)]
    assert (said, shop.paid) == (["Find it."], ["ada"])
    outcome = outcome_of(values)
    assert (outcome.status, outcome.turns, outcome.tool_calls) == ("success", 2, 1)
    assert outcome.tree is not None
    assert (outcome.tree.delegates, outcome.tree.turns, outcome.tree.tool_calls) == (1, 4, 2)
    assert outcome.tree.total_tokens > outcome.usage.total_tokens


@dataclass
class ContextAbove:
    user: str


@dataclass
class ContextBelow:
    user: str
    tenant: str


@pytest.mark.parametrize("form", [ContextAbove, ContextBelow])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_has_the_context_of_the_caller_where_that_has_all_that_it_needs(
    form: type, storage: Storage, shop: Shop
) -> None:
    seen = list[Any]()

    def policy(args: Mapping[str, Any], context: Any) -> bool:
        seen.append(context)
        return False

    below = graph_of([call("pay", to="x"), DONE], [shop.pay], context_schema=form, approvals={"pay": policy})
    graph = graph_of([hand_to("helper"), DONE], [helper(below)], context_schema=ContextAbove, storage=storage)
    assert graph.invoke(GO, THREAD, context=ContextAbove("Ada"))["outcome"]["status"] == "success"
    assert seen
    assert {isinstance(one, ContextAbove) for one in seen} == {form is ContextAbove}


def test_limits_and_a_prompt_that_a_run_of_the_caller_gets_are_not_its_own() -> None:
    below = ScriptedModel([*[call("think", thought=f"{n}") for n in range(4)], DONE])
    graph = graph_of([hand_to("helper"), DONE], [helper(graph_of(below, system_prompt="Look things up."))])
    values = graph.invoke(GO, context={"turns": 2, "system_prompt": "Lead."})
    assert results(values)[0].status == "success"
    prompts = [one.text for seen in below.seen for one in seen.messages if one.type == "system"]
    assert [text.startswith("Look things up.") for text in prompts] == [True] * 5


# What comes back.


class Answer(BaseModel):
    number: int


def failing(*_: Any) -> Any:
    raise REFUSED


def foreign() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("work", lambda _: {})
    return builder.add_edge(START, "work").compile()


@dataclass
class Ends:
    """How the delegate ends: words in the result of its call, and whether that is a success."""

    below: Callable[[], Any]
    words: tuple[str, ...]
    ok: bool = False


ENDS = {
    "done": Ends(lambda: graph_of([DONE]), ("asserted", "Found it."), ok=True),
    "done, and a check has seen it": Ends(
        lambda: graph_of([DONE], checks=[lambda: True]), ("verified", "Found it."), ok=True
    ),
    "a typed result": Ends(
        lambda: graph_of(
            [call("finish_task", summary="It is 42.", result={"number": 42})], response_format=Answer
        ),
        ('{"number": 42}',),
        ok=True,
    ),
    "partly done": Ends(lambda: graph_of([PARTIAL]), ("partial", "Half.", "the rest")),
    "blocked": Ends(lambda: graph_of([BLOCKED]), ("blocked", "No key.")),
    "at a limit": Ends(
        lambda: graph_of([reply("Hm.", call("think", thought="?"))], limits={"turns": 1}), ("limit", "Hm.")
    ),
    "its model fails": Ends(
        lambda: graph_of([call("think", thought="Hm."), REFUSED], **ONCE),
        ("error", "ConnectionError", CAUSE),
    ),
    "it asks, and nobody can answer": Ends(lambda: graph_of([ASK]), ("error", "Which one?")),
    "a function that makes its graph raises": Ends(lambda: failing, ("ConnectionError", CAUSE)),
    "a function that ends the process": Ends(lambda: exit, ("SystemExit",)),
    "a function that makes nothing": Ends(lambda: lambda: None, ("'helper'", "NoneType")),
    "a function that makes a graph with storage": Ends(
        lambda: lambda: graph_of([DONE], checkpointer=InMemorySaver()), ("'helper'", "storage")
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_result_says_how_the_delegate_ended_and_why(name: str) -> None:
    case = ENDS[name]
    values = graph_of([hand_to("helper"), DONE if case.ok else BLOCKED], [helper(case.below())]).invoke(GO)
    (result,) = results(values)
    assert result.status == ("success" if case.ok else "error")
    assert [word for word in case.words if word not in result.text] == []
    if name == "a typed result":
        assert result.artifact == {"number": 42}
    points = outcome_of(values).open_points
    assert [point.startswith("helper") for point in points] == [] if case.ok else [True]
    assert CAUSE not in case.words or CAUSE in points[0]
    # The key that the error repeats is told nobody above.
    assert "0123456789abcdef" not in json.dumps([values["messages"], values["outcome"]], default=str)


def test_the_cause_reaches_every_level_and_the_outcome() -> None:
    graph, leads = graph_of([RuntimeError(CAUSE)], **ONCE), list[ScriptedModel]()
    for _ in range(4):
        leads.append(ScriptedModel([hand_to("helper"), BLOCKED]))
        graph = graph_of(leads[-1], [helper(graph)])
    points = outcome_of(graph.invoke(GO)).open_points
    assert [CAUSE in lead.seen[-1].messages[-1].text for lead in leads] == [True] * 4
    assert [CAUSE in point for point in points] == [True]


def test_a_function_that_made_no_graph_is_asked_again_when_the_thread_goes_on(storage: Storage) -> None:
    makes: list[Callable[[], Any]] = [failing]
    graph = graph_of([hand_to("helper"), DOWN, DONE], [helper(lambda: makes[-1]())], storage=storage, **ONCE)
    (result,) = results(graph.invoke(GO, THREAD))
    assert result.status == "error"
    makes.append(lambda: graph_of([DONE]))
    values = graph.invoke(go_on(), THREAD)
    assert [one.status for one in results(values)] == ["success"]
    assert values["outcome"]["status"] == "success"


# What the caller may claim then.


def refusals(values: Any) -> list[bool]:
    """Of each finish, in order, whether it was refused; the one that counted is the last."""
    return [one.status == "error" for one in results(values, "finish_task")]


@dataclass
class Claims:
    """What the caller does after its delegate has failed, and whether each finish is refused; the claim that
    counts, and whether the failure stands in the outcome. second: how the delegate ends when called again."""

    then: Sequence[Any]
    refused: list[bool]
    claim: str = "done"
    is_open: bool = False
    second: Any = BLOCKED


CLAIMS = {
    "it says done twice: the outcome lists it": Claims([DONE, DONE], [True, False], is_open=True),
    "it has it done": Claims([DONE, *hand_to("helper"), DONE], [True, False], second=DONE),
    "it looks first": Claims([call("look", n=1), DONE], [False]),
    "it only thinks first": Claims([call("think", thought="Hm."), DONE, DONE], [True, False], is_open=True),
    "it fails again: it is told again": Claims(
        [DONE, *hand_to("helper"), DONE, BLOCKED], [True, True, False], "blocked", is_open=True
    ),
}


@pytest.mark.parametrize("case", CLAIMS.values(), ids=CLAIMS)
def test_done_is_refused_once_over_a_delegate_that_failed(case: Claims) -> None:
    team = [helper(graph_of([BLOCKED, case.second])), look]
    values = graph_of([hand_to("helper"), *case.then], team).invoke(GO)
    assert refusals(values) == case.refused
    outcome = outcome_of(values)
    assert outcome.claim == case.claim
    assert [point.startswith("helper") for point in outcome.open_points] == [True] * case.is_open


@pytest.mark.parametrize("order", [(BLOCKED, DONE), (DONE, BLOCKED)], ids=["failure first", "success first"])
def test_a_success_beside_it_makes_up_for_no_failure(order: tuple[Any, Any]) -> None:
    """The calls of a reply are different parts of the work; only a later reply has one done again."""
    by_task = {"One.": order[0], "Another.": order[1], "Again.": DONE}
    below = graph_of(ScriptedModel(lambda messages: by_task[messages[-1].text]))
    both = [call("helper", task="One."), call("helper", task="Another.")]
    values = graph_of([both, DONE, call("helper", task="Again."), DONE], [helper(below)]).invoke(GO)
    assert refusals(values) == [True, False]
    assert outcome_of(values).open_points == []


@pytest.mark.parametrize(
    ("middle", "top", "is_open"),
    [
        pytest.param([DONE, DONE], [DONE], True, id="the middle says done all the same"),
        pytest.param([*hand_to("other"), DONE], [DONE], False, id="the middle has it done"),
        pytest.param([DONE, DONE, DONE], [*hand_to("middle"), DONE], False, id="the middle is called again"),
    ],
)
def test_a_failure_further_below_is_in_every_outcome_above_that_says_done(
    middle: list[Any], top: list[Any], is_open: bool
) -> None:
    team = [helper(graph_of([BLOCKED]), "deep"), helper(graph_of([DONE]), "other")]
    below = helper(graph_of([hand_to("deep"), *middle], team), "middle")
    values = graph_of([hand_to("middle"), *top], [below]).invoke(GO)
    assert results(values, "middle")[0].status == "success"
    points = outcome_of(values).open_points
    assert [point.startswith("middle / deep") for point in points] == [True] * is_open


# Several at once.


@pytest.mark.parametrize(("parallel", "expected"), [(None, 3), (2, 2)])
def test_several_in_one_reply_run_beside_each_other(parallel: int | None, expected: int) -> None:
    now, most = list[int](), list[int]()

    @tool
    def busy(n: int) -> str:
        """Takes a while."""
        now.append(n)
        most.append(len(now))
        until(lambda: max(most) >= expected)
        # One more than expected would come meanwhile.
        time.sleep(0.05)
        now.pop()
        return "done"

    below = graph_of(by_turn(call("busy", n=1), DONE), [busy])
    values = graph_of([hand_to(*["helper"] * 3), DONE], [helper(below, parallel=parallel)]).invoke(GO)
    assert [one.status for one in results(values)] == ["success"] * 3
    assert max(most) == expected


def test_all_below_stop_at_their_step_when_the_run_is_interrupted(shop: Shop, storage: Storage) -> None:
    at_work, interrupted, most = threading.Barrier(2), threading.Event(), 20

    @tool
    def pay(to: str) -> str:
        """Pay."""
        if not interrupted.is_set():
            at_work.wait(timeout=10)
            interrupted.set()
            interrupt_process()
        shop.paid.append(to)
        return "paid"

    def script(messages: Any) -> Any:
        task = next(one.text for one in messages if isinstance(one, HumanMessage))
        return call("pay", to=f"{task} {turns_of(messages)}") if turns_of(messages) < most else DONE

    below = graph_of(ScriptedModel(script), [pay], limits={"turns": most + 1})
    both = [call("helper", task="one"), call("helper", task="two")]
    graph = graph_of(by_turn(both, DONE), [helper(below)], storage=storage)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    # Nobody works on after the run has given its thread back.
    assert len(shop.paid) < most
    assert outcome_of(graph.invoke(None, THREAD)).status == "success"
    assert len(shop.paid) == len(set(shop.paid)) == 2 * most


# What cannot work is refused when the graph is built, or before the delegate has begun.


def spender() -> Any:
    @tool
    def spend(to: str) -> str:
        """Spend."""
        return to

    return graph_of([call("spend", to="x"), DONE], [spend])


MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    # What is built, and what the error names.
    "a graph with a checkpointer": (
        lambda: helper(graph_of([DONE], checkpointer=InMemorySaver())),
        ("'helper'", "storage"),
    ),
    "a graph with a thread": (
        lambda: helper(graph_of([DONE]).with_config(configurable={"thread_id": "mine"})),
        ("'helper'", "thread"),
    ),
    "no graph": (lambda: helper("researcher"), ("'helper'", "str", "build_graph")),
    "another graph": (lambda: helper(foreign()), ("'helper'", "build_graph")),
    "no description": (
        lambda: delegate("helper", graph_of([DONE]), description=" "),
        ("'helper'", "description"),
    ),
    "two of one name": (
        lambda: graph_of([DONE], [helper(graph_of([DONE])), helper(graph_of([DONE]))]),
        ("'helper'",),
    ),
    "a limit of cost without prices below": (
        lambda: graph_of(
            [DONE], [helper(graph_of([DONE]))], limits=Limits(cost=1, prices=Prices(input=1, output=1))
        ),
        ("'helper'", "prices"),
    ),
    "approvals name a tool of a graph that a function makes further below": (
        lambda: graph_of(
            [DONE], [helper(graph_of([DONE], [helper(spender, "deep")]))], approvals={"spend": True}
        ),
        ("approvals", "'spend'", "'helper'"),
    ),
    "it is called without a graph above": (
        lambda: helper(graph_of([DONE])).invoke({"task": "x"}),
        ("helper", "build_graph"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_work_is_refused_when_it_is_built(name: str) -> None:
    build, named = MISTAKES[name]
    with pytest.raises(SetupError) as error:
        build()
    assert [word for word in named if word not in str(error.value)] == []
