"""A process that died: a call that may have run is told as unknown, and what was saved is taken up, once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Overwrite

from signoff import (
    ControlTool,
    Graph,
    Session,
    SetupError,
    ThreadError,
    build_graph,
    delegate,
    go_on,
    outcome_of,
    sqlite_storage,
    standard_controls,
    stop,
    undo,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from signoff.session import Condition
from tests.support.interrupting import interrupt_process
from tests.support.plays import FINISH, GO, TEXTS, THINK, THREAD, results, saved

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

    @property
    def tools(self) -> list[BaseTool]:
        def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return self.work(to)

        def look(at: str) -> str:
            """Look at something."""
            return self.work(at)

        return [
            StructuredTool.from_function(pay),
            StructuredTool.from_function(look, metadata={"kind": "read"}),
        ]


def in_memory(*, store: bool) -> dict[str, Any]:
    return saved() if store else {"checkpointer": InMemorySaver()}


def machine(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Any:
    return build_graph(ScriptedModel(script), list(tools), policy=POLICY, **options)


def plain_guards(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Any:
    return create_agent(
        ScriptedModel(script), list(tools), middleware=[Guards(policy={"texts": TEXTS})], **options
    )


def guarded_agent(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Any:
    return guarded(plain_guards(script, tools, **options))


def cut_short(graph: Any, given: Any = GO) -> None:
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(given, THREAD)


def came(values: Mapping[str, Any]) -> list[str]:
    """What the model reads of each call of the first task."""
    found = [m for m in values["messages"] if isinstance(m, ToolMessage) and m.name != "finish_task"]
    return [_came(message.text) for message in found]


def _came(text: str) -> str:
    label = text.split()[0]
    if label in ("<unknown_outcome>", "<maybe_run>"):
        return UNKNOWN
    return NOT_RUN if label.startswith("<") else text


EVE, BOB = call("pay", to="eve"), call("pay", to="bob")
READS = [call("look", at="ann"), call("look", at="eve"), BOB]
CALLS: dict[str, tuple[Callable[..., Any], bool, Any, list[str]]] = {
    "one": (machine, False, EVE, [UNKNOWN]),
    "the next batch has not begun": (machine, False, [EVE, BOB], [UNKNOWN, NOT_RUN]),
    "what came before has its result": (machine, False, [BOB, EVE, BOB], ["ok bob", UNKNOWN, NOT_RUN]),
    "reads run side by side": (machine, False, READS, [UNKNOWN] * 2 + [NOT_RUN]),
    "a journal tells": (machine, True, [EVE, BOB], [UNKNOWN, NOT_RUN]),
    "LangChain runs all of them": (plain_guards, False, [EVE, BOB], [UNKNOWN, UNKNOWN]),
    "guarded, too": (guarded_agent, False, [EVE, BOB], [UNKNOWN, UNKNOWN]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_new_task_closes_what_was_cut_short(name: str) -> None:
    make, store, reply, expected = CALLS[name]
    graph = make([reply, PARTIAL], Shop().tools, **in_memory(store=store))
    cut_short(graph)
    assert came(graph.invoke(NEXT, THREAD)) == expected


with_and_without = pytest.mark.parametrize("store", [False, True], ids=["no journal", "a journal"])


@with_and_without
def test_a_stop_and_a_fork_say_the_same(store: bool) -> None:
    graph = machine([[EVE, BOB], PARTIAL], Shop().tools, **in_memory(store=store))
    cut_short(graph)
    Session(graph, "t").fork(None, "u")
    ended = graph.invoke(stop(), THREAD)
    assert came(ended) == [UNKNOWN, NOT_RUN]
    outcome = outcome_of(ended)
    assert [(change.call, change.came) for change in outcome.changes] == [("pay(to='eve')", UNKNOWN)]
    assert outcome.open_work == ["pay({'to': 'bob'})"]
    assert came(graph.invoke(NEXT, {"configurable": {"thread_id": "u"}})) == [UNKNOWN, NOT_RUN]


@with_and_without
def test_what_waits_for_an_approval_has_not_run(store: bool) -> None:
    graph = machine([EVE, PARTIAL], Shop().tools, approvals={"pay": True}, **in_memory(store=store))
    graph.invoke(GO, THREAD)
    Session(graph, "t", on_pending="supersede").run("Were they paid?")
    assert came(graph.get_state(THREAD).values) == [NOT_RUN]


CHANGED: dict[str, Callable[[Shop], dict[str, Any]]] = {
    "without the tool": lambda shop: {"tools": shop.tools[1:]},
    "with an approval": lambda shop: {"tools": shop.tools, "approvals": {"pay": True}},
}


@with_and_without
@pytest.mark.parametrize("change", CHANGED)
def test_a_graph_that_was_built_anew_says_it(change: str, store: bool) -> None:
    shop, given = Shop(), in_memory(store=store)
    cut_short(machine([EVE], shop.tools, **given))
    assert came(machine([PARTIAL], **CHANGED[change](shop), **given).invoke(None, THREAD)) == [UNKNOWN]
    assert shop.paid == ["eve"]


def test_a_finishing_tool_and_a_call_below_may_have_run() -> None:
    hand_in = StructuredTool.from_function(Shop().work, name="hand_in", description="Hand in.")
    controls = [*standard_controls(), ControlTool(hand_in, "finish")]
    graph = machine(
        [call("hand_in", name="eve"), PARTIAL], [], control_tools=controls, **in_memory(store=False)
    )
    cut_short(graph)
    assert came(graph.invoke(NEXT, THREAD)) == [UNKNOWN]
    below = delegate("helper", machine([[EVE, BOB]], Shop().tools), description="Pays.")
    graph = machine([call("helper", task="Pay them."), PARTIAL], [below], **in_memory(store=False))
    cut_short(graph)
    ended = graph.invoke(stop(), THREAD)
    assert [(change.call, change.came) for change in outcome_of(ended).changes][-1] == (
        "helper / pay(to='eve')",
        UNKNOWN,
    )


@pytest.mark.parametrize("make", [machine, guarded_agent])
@with_and_without
def test_the_calls_of_an_import_may_have_run_elsewhere(make: Any, store: bool) -> None:
    calls: Any = [{"name": "pay", "args": {"to": name}, "id": name} for name in ("ann", "bob")]
    calls.append({"name": "of_another_program", "args": {}, "id": "x"})
    history: Any = [HumanMessage("Pay them."), AIMessage("", tool_calls=calls), HumanMessage("Were they?")]
    shop = Shop()
    values = make([PARTIAL], shop.tools, **in_memory(store=store)).invoke({"messages": history}, THREAD)
    assert (came(values), shop.paid) == ([UNKNOWN] * 3, [])
    assert outcome_of(values).status == "success"


def test_effects_without_a_journal_warn_once() -> None:
    with pytest.warns(UserWarning, match="pay") as caught:
        machine([], Shop().tools, **in_memory(store=False))
    assert len(caught) == 1


# A call that ends its process each time: what it declares, how often it may, and what is told.
DEADLY: dict[str, tuple[dict[str, Any], int]] = {
    "a read": ({"kind": "read"}, 2),
    "an idempotent one": ({"kind": "write", "idempotent": True}, 2),
    "an effect": ({"kind": "write"}, 1),
}


@pytest.mark.parametrize("unknown_outcomes", ["tell", "ask"])
@pytest.mark.parametrize("name", DEADLY)
def test_a_call_that_ends_its_process(name: str, unknown_outcomes: str, tmp_path: Path) -> None:
    metadata, times = DEADLY[name]
    work = StructuredTool.from_function(interrupt_process, name="work", description="x", metadata=metadata)
    look = StructuredTool.from_function(
        lambda: "looked", name="look", description="x", metadata={"kind": "read"}
    )
    policy = {**POLICY, "unknown_outcomes": unknown_outcomes}
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        model = ScriptedModel([[call("look"), call("work")], PARTIAL])
        graph = build_graph(model, [work, look], storage=storage, policy=policy)
        for number in range(times):
            cut_short(graph, go_on() if number else GO)
        values = graph.invoke(go_on(), THREAD)
    if (name, unknown_outcomes) == ("an effect", "ask"):
        assert values["__interrupt__"]
    else:
        assert came(values) == ["looked", UNKNOWN]
        assert outcome_of(values).status == "success"


def test_a_call_that_may_run_again_does_once_it_was_cut_short() -> None:
    for metadata in ({"kind": "read"}, {"kind": "write", "idempotent": True}):
        work = StructuredTool.from_function(Shop().work, name="work", description="x", metadata=metadata)
        graph = machine([call("work", name="eve"), FINISH], [work], **saved())
        cut_short(graph)
        assert came(graph.invoke(None, THREAD)) == ["ok eve"]


# What was saved when the process died, and not yet taken up: LangGraph lets the next input take its place.


class Died(BaseException):
    """The process is gone: no code of ours may catch this."""


class Mortal(InMemorySaver):
    """Dies, once, where it would save a checkpoint; what was written before stays.

    dies_at: of the checkpoint, whether it dies there; and whether it is saved before it does.
    """

    dies_at: Callable[[Any, Any], bool] | None = None
    saves = False

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.dies_at is None or not self.dies_at(config, checkpoint):
            return super().put(config, checkpoint, metadata, new_versions)
        if self.saves:
            super().put(config, checkpoint, metadata, new_versions)
        self.dies_at = lambda *_: True
        raise Died

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        # What runs on beside a checkpoint that is still to be saved dies, too.
        if self.saves and self.dies_at is not None:
            raise Died
        super().put_writes(config, writes, task_id, task_path)

    def dies(self, graph: Any, given: Any, at: Callable[[Any, Any], bool], *, saves: bool = False) -> None:
        self.dies_at, self.saves = at, saves
        with pytest.raises(Died):
            graph.invoke(given, THREAD)
        self.dies_at, self.saves = None, False


def always(*_: Any) -> bool:
    return True


def is_end(_: Any, checkpoint: Any) -> bool:
    return bool(checkpoint["channel_values"].get("outcome"))


def is_below(config: Any, _: Any) -> bool:
    return bool(config["configurable"]["checkpoint_ns"])


def values_of(graph: Any) -> dict[str, Any]:
    found: dict[str, Any] = graph.get_state(THREAD).values
    return found


def ids(values: Mapping[str, Any]) -> list[str]:
    return [message.id for message in values["messages"]]


def users(graph: Any) -> list[str]:
    return [message.text for message in values_of(graph)["messages"] if isinstance(message, HumanMessage)]


def by_words(messages: Sequence[BaseMessage]) -> Any:
    """The reply to the newest message of the user, by its words."""
    asked = [message.text for message in messages if isinstance(message, HumanMessage)][-1]
    if asked == "first: error":
        raise ConnectionError("no network")
    return THINK if asked == "first: limit" else FINISH


def mortal(model: Any, tools: Sequence[Any] = (), **options: Any) -> tuple[Mortal, Graph]:
    saver = Mortal()
    storage: Any = {"checkpointer": saver, "store": InMemoryStore()}
    return saver, build_graph(model, tools, policy=POLICY, **storage, **options)


def updated(graph: Graph, text: str) -> None:
    graph.update_state(THREAD, {"messages": [HumanMessage(text)]})
    graph.invoke(go_on(), THREAD)


# The end was written, and its checkpoint was not saved: whatever comes next, the end stays in the history.
AFTER_AN_END: dict[str, tuple[str, Callable[[Graph], Any]]] = {
    "a message": ("success", lambda graph: graph.invoke(NEXT, THREAD)),
    "a message, async": ("success", lambda graph: asyncio.run(graph.ainvoke(NEXT, THREAD))),
    "a message by stream": ("limit", lambda graph: list(graph.stream(NEXT, THREAD))),
    "a message by a session": ("error", lambda graph: Session(graph, "t").run("Were they paid?")),
    "more turns": ("limit", lambda graph: graph.invoke(go_on(turns=3), THREAD)),
    "another try": ("error", lambda graph: graph.invoke(go_on(), THREAD)),
    "a change by hand": ("success", lambda graph: updated(graph, "Were they paid?")),
}


@pytest.mark.parametrize("name", AFTER_AN_END)
def test_an_end_stays_in_the_history(name: str) -> None:
    end, goes_on = AFTER_AN_END[name]
    saver, graph = mortal(ScriptedModel(by_words), limits={"turns": 1})
    saver.dies(graph, {"messages": [("user", f"first: {end}")]}, is_end)
    before = values_of(graph)
    assert before["outcome"]["status"] == end
    goes_on(graph)
    after = values_of(graph)
    assert ids(after)[: len(ids(before))] == ids(before)
    assert len(ids(after)) > len(ids(before))
    assert after["outcome"]["status"] == "success"
    assert users(graph).count("Were they paid?") == (name not in ("more turns", "another try"))


# A command was saved, and not the first step that takes it up.


def killed_while_it_went_on(end: str) -> tuple[Mortal, Graph]:
    model = ScriptedModel([RuntimeError("no") if end == "error" else THINK, FINISH])
    saver, graph = mortal(model, limits={"turns": 1})
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == end
    saver.dies(graph, go_on() if end == "error" else go_on(1), always)
    return saver, graph


AFTER_A_COMMAND: dict[str, Callable[[Graph], Any]] = {
    "nothing": lambda graph: graph.invoke(None, THREAD),
    "go_on": lambda graph: graph.invoke(go_on(), THREAD),
    "go_on in a loop": lambda graph: asyncio.run(graph.ainvoke(go_on(), THREAD)),
    "a session": lambda graph: Session(graph, "t").run(),
    "the message once more": lambda graph: graph.invoke(GO, THREAD),
    "another message": lambda graph: graph.invoke(NEXT, THREAD),
}


@pytest.mark.parametrize("end", ["limit", "error"])
@pytest.mark.parametrize("name", AFTER_A_COMMAND)
def test_whatever_comes_next_the_thread_goes_on(name: str, end: str) -> None:
    _, graph = killed_while_it_went_on(end)
    AFTER_A_COMMAND[name](graph)
    values = values_of(graph)
    assert outcome_of(values).status == "success"
    assert len(set(ids(values))) == len(ids(values))


@pytest.mark.parametrize("end", ["limit", "error"])
def test_another_command_is_refused_and_nothing_is_lost(end: str) -> None:
    _, graph = killed_while_it_went_on(end)
    with pytest.raises(ThreadError, match="'t'"):
        graph.invoke(Command(goto="compress", update={"event": "fork"}), THREAD)
    assert graph.invoke(None, THREAD)["outcome"]["status"] == "success"


@pytest.mark.parametrize("end", ["limit", "error"])
def test_a_thread_that_was_killed_while_it_went_on_can_be_stopped(end: str) -> None:
    _, graph = killed_while_it_went_on(end)
    Session(graph, "t").stop()
    Session(graph, "t").run()
    assert outcome_of(values_of(graph)).reason == "cancelled"


def test_an_agent_with_guards_goes_on() -> None:
    saver = Mortal()
    guards = Guards(limits={"turns": 1})
    graph: Any = guarded(
        create_agent(ScriptedModel([THINK, FINISH]), [], middleware=[guards], checkpointer=saver)
    )
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "limit"
    saver.dies(graph, go_on(1), always)
    assert graph.invoke(go_on(), THREAD)["outcome"]["status"] == "success"


def test_a_delegate_goes_on() -> None:
    child = build_graph(ScriptedModel([THINK, FINISH]), [], limits={"turns": 1})
    above = ScriptedModel([call("clerk", task="look"), FINISH])
    saver, graph = mortal(above, [delegate("clerk", child, description="Looks.")], limits={"turns": 1})
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "limit"
    saver.dies(graph, go_on(1), is_below)
    ended = graph.invoke(go_on(), THREAD)
    assert ended["outcome"]["status"] == "success"
    assert "All of it." in results(ended, "clerk")[0]


# A message was saved, and the history does not hold it yet: it is answered once, whatever comes next.

ONE, TWO = "message-one", "message-two"


def by_names(messages: Sequence[BaseMessage]) -> Any:
    """The model finishes with the names of the messages that it has not answered yet."""
    ends = [at for at, one in enumerate(messages) if isinstance(one, AIMessage) and one.tool_calls]
    news = messages[ends[-1] + 1 if ends else 0 :]
    heard = " ".join(message.text for message in news if isinstance(message, HumanMessage))
    names = [name for name in ("message-zero", ONE, TWO) if name in heard]
    return call("finish_task", summary=f"answered: {', '.join(names)}")


def answered(values: Mapping[str, Any]) -> list[str]:
    """What each finish but the first says."""
    replies = [message for message in values["messages"] if isinstance(message, AIMessage)]
    finishes = [one["args"]["summary"] for message in replies for one in message.tool_calls]
    return [summary.removeprefix("answered: ") for summary in finishes][1:]


def lost(*given: Any) -> Graph:
    """On a thread that has ended, and was given this by a process that has died."""
    saver, graph = mortal(ScriptedModel(by_names))
    graph.invoke({"messages": [("user", "message-zero")]}, THREAD)
    saver.dies(graph, {"messages": given[0] if len(given) == 1 else list(given)}, always, saves=True)
    assert graph.get_state(THREAD).next == ("__start__",)
    return graph


def one(text: str) -> Any:
    return {"messages": [("user", text)]}


BOTH = f"{ONE}, {TWO}"
# What comes next, and what is answered then.
AFTER_A_MESSAGE: dict[str, tuple[Callable[[Graph], Any], list[str]]] = {
    "go_on": (lambda graph: graph.invoke(go_on(), THREAD), [ONE]),
    "a session": (lambda graph: Session(graph, "t").run(), [ONE]),
    "the same by invoke": (lambda graph: graph.invoke(one(ONE), THREAD), [ONE]),
    "the same by batch": (lambda graph: graph.batch([one(ONE)], THREAD), [ONE]),
    "the same by stream": (lambda graph: list(graph.stream({"messages": ONE}, THREAD)), [ONE]),
    "the same by a session": (lambda graph: Session(graph, "t").run(ONE), [ONE]),
    "the same, superseding": (lambda graph: Session(graph, "t", on_pending="supersede").run(ONE), [ONE]),
    "the same, if nothing waits": (lambda graph: Session(graph, "t", on_pending="refuse").run(ONE), [ONE]),
    "another by invoke": (lambda graph: graph.invoke(one(TWO), THREAD), [BOTH]),
    "another in a loop": (lambda graph: asyncio.run(graph.ainvoke(one(TWO), THREAD)), [BOTH]),
    "another by a session": (lambda graph: Session(graph, "t").run(TWO), [BOTH]),
    "another in the state": (lambda graph: updated(graph, TWO), [BOTH]),
    "another in a command": (
        lambda graph: graph.invoke(
            Command(goto="compress", update={"messages": [HumanMessage(TWO)]}), THREAD
        ),
        [BOTH],
    ),
    "a stop": (lambda graph: Session(graph, "t").stop(), []),
}


@pytest.mark.parametrize("name", AFTER_A_MESSAGE)
def test_a_message_is_answered_once(name: str) -> None:
    does, replies = AFTER_A_MESSAGE[name]
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


def test_a_fork_takes_it_along() -> None:
    graph = lost(("user", ONE))
    Session(graph, "t").fork(thread_id="fork").run()
    forked = graph.get_state({"configurable": {"thread_id": "fork"}}).values
    assert ([message.text for message in forked["messages"]].count(ONE), answered(forked)) == (1, [ONE])
    assert answered(values_of(graph)) == []


# What was lost, what is sent, and how many messages stand then: the same by its words and kind, or by its id.
SAME = {
    "words": (("user", "message"), ("user", "message"), 1),
    "another form": (("user", "message"), HumanMessage("message"), 1),
    "other words": (("user", "message"), ("user", "message!"), 2),
    "an id": (HumanMessage("message", id="a"), HumanMessage("message", id="a"), 1),
    "an id, sent without": (HumanMessage("message", id="a"), ("user", "message"), 1),
    "another id": (HumanMessage("message", id="a"), HumanMessage("message", id="b"), 2),
    "an id, lost without": (("user", "message"), HumanMessage("message", id="b"), 2),
    "another name": (HumanMessage("message", name="ann"), HumanMessage("message", name="ben"), 2),
}


@pytest.mark.parametrize("name", SAME)
def test_what_the_same_message_is(name: str) -> None:
    before, after, stand = SAME[name]
    graph = lost(before)
    graph.invoke({"messages": [after]}, THREAD)
    assert len(users(graph)) == 1 + stand


def test_several_messages_are_the_same_only_together_and_until_they_are_answered() -> None:
    both: Any = [("user", ONE), ("user", TWO)]
    graph = lost(*both)
    graph.invoke({"messages": both}, THREAD)
    assert users(graph)[1:] == [ONE, TWO]
    graph.invoke({"messages": both[1:]}, THREAD)
    assert users(graph)[1:] == [ONE, TWO, TWO]


FORMS: dict[str, Any] = {
    "text": "message",
    "a list of text": ["message"],
    "a pair": ("user", "message"),
    "a message": HumanMessage("message"),
    "a message with an empty id": [HumanMessage("message", id="")],
    "as OpenAI has it": {"role": "user", "content": "message"},
    "as LangChain has it": [{"type": "human", "content": "message"}],
}


@pytest.mark.parametrize("name", FORMS)
def test_whatever_its_form_it_has_its_id_from_the_beginning(name: str) -> None:
    graph = lost(FORMS[name])
    shown = ids(values_of(graph))
    graph.invoke(go_on(), THREAD)
    assert ids(values_of(graph))[: len(shown)] == shown
    assert users(graph)[1:] == ["message"]


def test_a_history_that_is_replaced_is_left_alone_and_what_is_no_message_is_refused() -> None:
    graph = lost(("user", ONE))
    before = graph.get_state(THREAD)
    with pytest.raises(SetupError, match="nonsense"):
        graph.invoke({"messages": [{"nonsense": 1}]}, THREAD)
    assert graph.get_state(THREAD) == before
    graph.invoke({"messages": Overwrite([HumanMessage(TWO, id="a")])}, THREAD)
    assert users(graph) == [TWO]
