"""A graph as a tool of another one: what it is given, what comes back, what the caller may claim then; and
limits, which hold over the tree, however many run beside each other, wait, are copied, or go on."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from signoff import (
    Graph,
    Limits,
    Prices,
    Session,
    SetupError,
    Storage,
    build_graph,
    delegate,
    go_on,
    outcome_of,
    standard_controls,
)
from signoff.models import ScriptedModel, call, reply
from signoff.outcome import TreeUse
from signoff.session import expire
from tests.support.ends import to_the_end
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

PARTIAL = call("finish_task", summary="Half.", outcome="partial", pending_issues=["the rest"])
CAUSE = "401: your API key was revoked"


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
    raise ConnectionError(CAUSE)


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
        lambda: graph_of([call("think", thought="Hm."), ConnectionError(CAUSE)], **ONCE),
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


def test_the_cause_reaches_every_level_and_the_outcome() -> None:
    graph, leads = graph_of([RuntimeError(CAUSE)], **ONCE), list[ScriptedModel]()
    for _ in range(4):
        leads.append(ScriptedModel([hand_to("helper"), BLOCKED]))
        graph = graph_of(leads[-1], [helper(graph)])
    points = outcome_of(graph.invoke(GO)).open_points
    assert [CAUSE in lead.seen[-1].messages[-1].text for lead in leads] == [True] * 4
    assert [CAUSE in point for point in points] == [True]


SECRET = "refused: (Bearer sk-0123456789abcdef)"


def leaking() -> Any:
    raise RuntimeError(SECRET)


LEAKS = [
    pytest.param(graph_of([RuntimeError(SECRET)], **ONCE), id="by its model"),
    pytest.param(leaking, id="by a function that makes it"),
]


@pytest.mark.parametrize("below", LEAKS)
def test_no_key_is_told_above(below: Any) -> None:
    values = graph_of([hand_to("helper"), BLOCKED], [helper(below)]).invoke(GO)
    told = json.dumps([values["messages"], values["outcome"]], default=str)
    assert ("refused" in told, "0123456789abcdef" in told) == (True, False)


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


def test_a_finish_beside_a_delegate_that_fails_is_void() -> None:
    both = [call("helper", task="Go."), DONE]
    values = graph_of([both, BLOCKED], [helper(graph_of([BLOCKED]))]).invoke(GO)
    assert refusals(values) == [True, False]
    assert "helper" in results(values, "finish_task")[0].text
    assert outcome_of(values).claim == "blocked"


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
        until = time.monotonic() + 60
        while max(most) < expected and time.monotonic() < until:
            time.sleep(0.01)
        # One more than expected would come meanwhile.
        time.sleep(0.05)
        now.pop()
        return "done"

    below = graph_of(by_turn(call("busy", n=1), DONE), [busy])
    values = graph_of([hand_to(*["helper"] * 3), DONE], [helper(below, parallel=parallel)]).invoke(GO)
    assert [one.status for one in results(values)] == ["success"] * 3
    assert max(most) == expected


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


PRICES = Prices(input=10_000, output=10_000)
"""A reply of 100 tokens costs 1."""


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


FINISH = paid(call("finish_task", summary="Done."))
GIVES_UP = paid(call("finish_task", summary="x", outcome="blocked"))


def task_of(messages: list[BaseMessage]) -> str:
    return next(one.text for one in messages if isinstance(one, HumanMessage))


def endless(messages: list[BaseMessage]) -> Any:
    """Works without an end."""
    return paid(call("look", n=turns_of(messages)))


def tree_of(values: Any) -> TreeUse:
    tree = outcome_of(values).tree
    assert tree is not None
    return tree


# One delegate.


def worker(looks: int = 9, **limits: Any) -> Graph:
    """Looks so often, and is done."""
    steps = [paid(call("look", n=n)) for n in range(looks)]
    return graph_of([*steps, FINISH], [look], limits=Limits(**limits))


BELOW: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    # What the delegate may use, what its caller may, and how many turns the delegate had.
    "tokens of the caller": ({}, {"tokens": 450}, 4),
    "tool calls of the caller": ({}, {"tool_calls": 3}, 3),
    "cost of the caller": ({"prices": PRICES}, {"cost": 4.5, "prices": PRICES}, 4),
    "turns of its own": ({"turns": 3}, {"turns": 9}, 3),
    "turns of the caller are not its": ({}, {"turns": 3}, 10),
}


@pytest.mark.parametrize("name", BELOW)
def test_a_delegate_gets_what_is_left_above_or_its_own_limit(name: str) -> None:
    own, above, turns = BELOW[name]
    graph = graph_of([paid(*hand_to("helper")), GIVES_UP], [helper(worker(**own))], limits=Limits(**above))
    values = graph.invoke(GO)
    assert (results(values)[0].status == "success") is (turns == 10)
    tree, outcome = tree_of(values), outcome_of(values)
    assert tree.turns == outcome.turns + turns
    assert tree.total_tokens == 100 * tree.turns
    assert (outcome.usage.total_tokens, outcome.tool_calls) == (100 * outcome.turns, 1)


@pytest.mark.parametrize("limits", [{"tokens": 350}, {"cost": 3.5, "prices": PRICES}], ids=["tokens", "cost"])
def test_what_a_delegate_has_used_ends_its_caller_and_both_go_on(
    limits: dict[str, Any], storage: Storage
) -> None:
    below = worker(prices=PRICES)
    graph = graph_of(
        [paid(*hand_to("helper")), GIVES_UP], [helper(below)], limits=Limits(**limits), storage=storage
    )
    outcome = outcome_of(graph.invoke(GO, THREAD))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", next(iter(limits)), 1)
    assert outcome.tree is not None
    # At most one reply above the limit, of the one that ran.
    assert outcome.tree.total_tokens == 400
    # More grants the whole amount once more, counted from now on, and the delegate goes on.
    for _ in range(2):
        values = graph.invoke(go_on(turns=5), THREAD)
    assert outcome_of(values).claim == "blocked"
    assert (tree_of(values).turns, tree_of(values).delegates) == (1 + 10 + 1, 1)


@pytest.mark.parametrize("limits", [Limits(tokens=100), Limits(tree_turns=1)], ids=["tokens", "tree_turns"])
def test_a_delegate_is_not_begun_when_nothing_is_left(limits: Limits) -> None:
    below = ScriptedModel([FINISH])
    graph = graph_of([paid(*hand_to("helper"))], [helper(graph_of(below))], limits=limits)
    values = graph.invoke(GO)
    assert (results(values)[0].status, below.seen) == ("error", [])
    assert (outcome_of(values).status, outcome_of(values).tree) == ("limit", None)


@pytest.mark.parametrize(("depth", "turns"), [(1, 2 + 1), (2, 2 + 2 + 1), (3, 2 + 2 + 2 + 1)])
def test_a_graph_that_delegates_to_itself_is_bounded_by_depth(depth: int, turns: int) -> None:
    def itself() -> Graph:
        return graph_of(by_turn(hand_to("helper"), GIVES_UP), [helper(itself)])

    graph = graph_of(by_turn(hand_to("helper"), GIVES_UP), [helper(itself)], limits=Limits(depth=depth))
    values = graph.invoke(GO)
    assert (outcome_of(values).claim, tree_of(values).turns) == ("blocked", turns)
    assert "depth" in results(values)[0].text


def test_a_task_has_at_most_so_many_delegates() -> None:
    team = [helper(graph_of(by_turn(FINISH)))]
    graph = graph_of([hand_to("helper", "helper"), hand_to("helper")], team, limits=Limits(children=2))
    values = graph.invoke(GO)
    assert (outcome_of(values).status, outcome_of(values).reason) == ("limit", "children")
    assert tree_of(values).delegates == 2


# Many beside each other.


def several(limits: Limits, below: Any = endless, beside: int = 4, **options: Any) -> Graph:
    """A graph that calls a delegate several times in one reply."""
    child = graph_of(ScriptedModel(below), [look], limits=Limits(turns=60, repeats=None, prices=PRICES))
    calls = paid(*[call("helper", task=f"{n}") for n in range(beside)])
    lead = ScriptedModel(lambda messages: GIVES_UP if turns_of(messages) else calls)
    return build_graph(lead, [helper(child)], limits=limits, **options)


# A limit of the tree, how the task ends, and what all have used: at least and at most.
BOUNDED: dict[str, tuple[Limits, str, str, int, int]] = {
    "turns": (Limits(tree_turns=17), "tree_turns", "turns", 17, 17),
    "tool calls": (Limits(tool_calls=11), "finish_task", "tool_calls", 11, 11),
    # Each of four may be in a reply when the limit is reached.
    "tokens": (Limits(tokens=1_500), "tokens", "total_tokens", 1_500, 1_500 + 4 * 100),
    "cost": (Limits(cost=15, prices=PRICES), "cost", "total_tokens", 1_500, 1_500 + 4 * 100),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_limit_holds_for_all_that_run_beside_each_other(name: str, storage: Storage) -> None:
    limits, reason, used, least, most = BOUNDED[name]
    values = several(limits, storage=storage).invoke(GO, THREAD)
    assert outcome_of(values).reason == reason
    assert least <= getattr(tree_of(values), used) <= most


def test_each_limit_above_holds_for_what_stands_below_it(storage: Storage) -> None:
    middle = several(Limits(tree_turns=6))
    graph = graph_of(
        [hand_to("one", "two"), GIVES_UP],
        [helper(middle, "one"), helper(middle, "two")],
        limits=Limits(tree_turns=11),
        storage=storage,
    )
    assert tree_of(graph.invoke(GO, THREAD)).turns == 11
    alone = graph_of([hand_to("one"), GIVES_UP], [helper(middle, "one")], limits=Limits(tree_turns=11))
    assert tree_of(alone.invoke(GO)).turns == 2 + 6


def test_what_one_leaves_is_there_for_those_beside_it(storage: Storage) -> None:
    def some(messages: list[BaseMessage]) -> Any:
        return FINISH if task_of(messages) != "0" or turns_of(messages) == 9 else endless(messages)

    values = several(Limits(tree_turns=15), some, storage=storage).invoke(GO, THREAD)
    # An equal share would have cut the long one short.
    assert (outcome_of(values).reason, tree_of(values).turns) == ("finish_task", 1 + 10 + 3 + 1)


# Those that wait, are copied, or go on.


def asking(after: int) -> Callable[[list[BaseMessage]], Any]:
    """Pays so often, asks, and pays on without an end. One that asks at once can be answered by the clock."""
    by_clock: dict[str, Any] = {} if after else {"default_answer": "yes", "deadline_seconds": 60}
    question = call("ask_user", question="Go on?", **by_clock)
    return lambda messages: (
        question if turns_of(messages) == after else call("pay", to=f"{turns_of(messages)}")
    )


def by_task(messages: list[BaseMessage]) -> Any:
    return asking(0 if task_of(messages) == "early" else 3)(messages)


def asker(shop: Shop) -> Graph:
    controls = standard_controls(deadlines=True)
    limits = Limits(repeats=None)
    return graph_of(ScriptedModel(by_task), [shop.pay], limits=limits, control_tools=controls)


def two_that_ask(shop: Shop, limits: Limits, **options: Any) -> Graph:
    """A graph with two delegates beside each other: one asks at once, the other after it has paid thrice."""
    both = [call("helper", task="early"), call("helper", task="late")]
    return graph_of(by_turn(both, GIVES_UP, GIVES_UP), [helper(asker(shop))], limits=limits, **options)


def stopped(session: Session) -> Session:
    session.stop()
    session.go_on()
    return session


def copied(session: Session) -> Session:
    copy = session.fork(thread_id="copy")
    copy.run()
    return copy


def expired(session: Session) -> Session:
    assert expire(session.graph, "t", now=9e12)
    session.run()
    return session


MEANWHILE: dict[str, Callable[[Session], Session]] = {
    "nothing": lambda session: session,
    "it was stopped, and went on": stopped,
    "it was copied: the copy": copied,
    "a question has expired": expired,
}


def answered(session: Session) -> TreeUse:
    """The one that has used nothing yet goes on first; that of the other must be known to it."""
    tree = to_the_end(session).tree
    assert tree is not None
    return tree


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_waits_keeps_its_part_whatever_happens_to_the_thread(
    meanwhile: str, shop: Shop, storage: Storage
) -> None:
    session = Session(two_that_ask(shop, Limits(tree_turns=9), storage=storage), "t")
    session.run("go")
    assert answered(MEANWHILE[meanwhile](session)).turns == 9
