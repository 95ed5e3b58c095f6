"""A process that died: a call that may have run is told as unknown, and what was saved is taken up, once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Graph, Session, ThreadError, build_graph, go_on, outcome_of, stop, undo
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.session import Condition
from tests.support.interrupting import interrupt_process
from tests.support.plays import GO, TEXTS, THREAD, saved

NEXT: Any = {"messages": [("user", "Were they paid?")]}
PARTIAL = call("finish_task", summary="I do not know.", outcome="partial")
UNKNOWN, NOT_RUN = "unknown", "not run"
POLICY: Any = {"texts": TEXTS, "model_retries": None}
# Of a graph without a journal.
pytestmark = pytest.mark.filterwarnings("ignore:.*store:UserWarning")


class Shop:
    """Tools during which the process is interrupted, the first time that they are called for Eve."""

    def __init__(self) -> None:
        self.is_cut, self.paid = False, list[str]()

    def work(self, name: str) -> str:
        if name == "eve" and not self.is_cut:
            self.is_cut = True
            interrupt_process()
        return f"ok {name}"

    def pay(self, to: str) -> str:
        """Pay somebody."""
        self.paid.append(to)
        return self.work(to)

    def look(self, at: str) -> str:
        """Look at something."""
        return self.work(at)

    @property
    def tools(self) -> list[BaseTool]:
        reading = StructuredTool.from_function(self.look, metadata={"kind": "read"})
        return [StructuredTool.from_function(self.pay), reading]


def storage_with(journal: bool) -> dict[str, Any]:
    return saved() if journal else {"checkpointer": InMemorySaver()}


def machine(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Any:
    return build_graph(ScriptedModel(script), list(tools), policy=POLICY, **options)


def plain_guards(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Any:
    middleware = [Guards(policy={"texts": TEXTS})]
    return create_agent(ScriptedModel(script), list(tools), middleware=middleware, **options)


def cut_short(graph: Any, given: Any = GO) -> None:
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(given, THREAD)


def came(values: Mapping[str, Any]) -> list[str]:
    """What the model reads of each call but the finish."""
    messages = [m for m in values["messages"] if isinstance(m, ToolMessage) and m.name != "finish_task"]
    return [_came(message.text) for message in messages]


def _came(text: str) -> str:
    label = text.split()[0]
    if label in ("<unknown_outcome>", "<maybe_run>"):
        return UNKNOWN
    return NOT_RUN if label.startswith("<") else text


EVE, BOB = call("pay", to="eve"), call("pay", to="bob")
READS = [call("look", at="ann"), call("look", at="eve"), BOB]
CALLS: dict[str, tuple[Callable[..., Any], bool, Any, list[str]]] = {
    # Who runs it, whether with a journal, the calls, and what came of each.
    "one after the other": (machine, False, [BOB, EVE, BOB], ["ok bob", UNKNOWN, NOT_RUN]),
    "reads run side by side": (machine, False, READS, [UNKNOWN] * 2 + [NOT_RUN]),
    "a journal tells": (machine, True, [EVE, BOB], [UNKNOWN, NOT_RUN]),
    "LangChain runs all of them": (plain_guards, False, [EVE, BOB], [UNKNOWN, UNKNOWN]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_new_task_closes_what_was_cut_short(name: str) -> None:
    make, journal, reply, expected = CALLS[name]
    graph = make([reply, PARTIAL], Shop().tools, **storage_with(journal))
    cut_short(graph)
    assert came(graph.invoke(NEXT, THREAD)) == expected


with_and_without = pytest.mark.parametrize("journal", [False, True], ids=["no journal", "a journal"])


@with_and_without
def test_a_stop_and_a_fork_say_the_same(journal: bool) -> None:
    graph = machine([[EVE, BOB], PARTIAL], Shop().tools, **storage_with(journal))
    cut_short(graph)
    fork = Session(graph, "t").fork(None, "u")
    ended = graph.invoke(stop(), THREAD)
    assert came(ended) == [UNKNOWN, NOT_RUN]
    outcome = outcome_of(ended)
    assert [(change.call, change.came) for change in outcome.changes] == [("pay(to='eve')", UNKNOWN)]
    assert outcome.open_work == ["pay({'to': 'bob'})"]
    fork.run("Were they paid?")
    assert came(fork.status().values) == [UNKNOWN, NOT_RUN]


def test_the_calls_of_an_import_may_have_run_elsewhere() -> None:
    calls: Any = [{"name": name, "args": {"to": "x"}, "id": name} for name in ("pay", "of_another_program")]
    history: Any = [HumanMessage("Pay."), AIMessage("", tool_calls=calls), HumanMessage("Were they?")]
    shop = Shop()
    values = machine([PARTIAL], shop.tools, **saved()).invoke({"messages": history}, THREAD)
    assert (came(values), shop.paid, outcome_of(values).status) == ([UNKNOWN] * 2, [], "success")


# What was saved when the process died, and not yet taken up: LangGraph lets the next input take its place.


class Died(BaseException):
    """The process is gone: no code of ours may catch this."""


class Mortal(InMemorySaver):
    """Dies once it has saved the first checkpoint."""

    is_dying = False

    def put(self, *checkpoint: Any) -> Any:
        config = super().put(*checkpoint)
        if self.is_dying:
            raise Died
        return config

    def put_writes(self, *writes: Any) -> None:
        # What runs on beside a checkpoint that is still to be saved dies, too.
        if self.is_dying:
            raise Died
        super().put_writes(*writes)


def values_of(graph: Any) -> dict[str, Any]:
    return dict(graph.get_state(THREAD).values)


def users(graph: Any) -> list[str]:
    return [message.text for message in values_of(graph)["messages"] if isinstance(message, HumanMessage)]


def updated(graph: Graph, text: str) -> None:
    graph.update_state(THREAD, {"messages": [HumanMessage(text)]})
    graph.invoke(go_on(), THREAD)


# A message was saved, and the history does not hold it yet: it is answered once, whatever comes next.

ONE, TWO = "message-one", "message-two"
BOTH = f"{ONE}, {TWO}"


def by_names(messages: Sequence[BaseMessage]) -> Any:
    """The model finishes with the names of the messages that it has not answered yet."""
    ends = [at for at, message in enumerate(messages) if isinstance(message, AIMessage)]
    news = [message.text for message in messages[ends[-1] if ends else 0 :] if message.type == "human"]
    names = [name for name in (ONE, TWO) if name in " ".join(news)]
    return call("finish_task", summary=f"answered: {', '.join(names)}")


def answered(values: Mapping[str, Any]) -> list[str]:
    """What each finish but the first says."""
    replies = [message for message in values["messages"] if isinstance(message, AIMessage)]
    finishes = [found["args"]["summary"] for message in replies for found in message.tool_calls]
    return [summary.removeprefix("answered: ") for summary in finishes][1:]


def lost(*messages: Any) -> Graph:
    """On a thread that has ended, and was given this by a process that has died."""
    saver = Mortal()
    options: Any = {"policy": POLICY, "checkpointer": saver, "store": InMemoryStore()}
    graph = build_graph(ScriptedModel(by_names), **options)
    graph.invoke(GO, THREAD)
    saver.is_dying = True
    with pytest.raises(Died):
        graph.invoke({"messages": list(messages)}, THREAD)
    saver.is_dying = False
    assert graph.get_state(THREAD).next == ("__start__",)
    return graph


def says(text: str) -> Any:
    return {"messages": [("user", text)]}


# What comes next, and what is answered then.
AFTER_A_MESSAGE: dict[str, tuple[Callable[[Graph], Any], list[str]]] = {
    "go_on": (lambda graph: graph.invoke(go_on(), THREAD), [ONE]),
    "a session": (lambda graph: Session(graph, "t").run(), [ONE]),
    "the same": (lambda graph: graph.invoke(says(ONE), THREAD), [ONE]),
    "another": (lambda graph: graph.invoke(says(TWO), THREAD), [BOTH]),
    "another by a session": (lambda graph: Session(graph, "t").run(TWO), [BOTH]),
    "another in the state": (lambda graph: updated(graph, TWO), [BOTH]),
    "a stop": (lambda graph: Session(graph, "t").stop(), []),
}


@pytest.mark.parametrize(("does", "replies"), AFTER_A_MESSAGE.values(), ids=AFTER_A_MESSAGE)
def test_a_message_is_answered_once(does: Callable[[Graph], Any], replies: list[str]) -> None:
    graph = lost(("user", ONE))
    status = Session(graph, "t").status()
    assert (status.condition, status.outcome, status.waits) == (Condition.STOPPED, None, ())
    does(graph)
    values = values_of(graph)
    assert (users(graph)[1:], answered(values)) == ([ONE, TWO] if replies == [BOTH] else [ONE], replies)
    assert outcome_of(values).reason == ("finish_task" if replies else "cancelled")


def test_what_needs_an_end_or_a_question_does_nothing() -> None:
    graph = lost(("user", ONE))
    for needs in (lambda: graph.invoke(undo(), THREAD), lambda: Session(graph, "t").resume("x")):
        with pytest.raises(ThreadError):
            needs()
    assert (users(graph)[1:], answered(values_of(graph))) == ([ONE], [])
