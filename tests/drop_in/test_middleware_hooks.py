"""The node hooks of LangChain's middleware: when they run, what they write, where they jump to."""

import asyncio
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    after_agent,
    after_model,
    before_agent,
    before_model,
    hook_config,
)
from langchain.agents.middleware.types import OmitFromInput, PrivateStateAttr
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Overwrite, interrupt

from signoff import Limits, Session, SetupError, build_graph, retry
from signoff.graph.build import Graph
from signoff.graph.errors import MiddlewareWarning
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from signoff.session.replay import replay

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
HOOKS: dict[str, Any] = {
    "before_agent": before_agent,
    "before_model": before_model,
    "after_model": after_model,
    "after_agent": after_agent,
}


@tool
def look() -> str:
    """Look."""
    return "seen"


look.metadata = {"kind": "read"}
PAID: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def hook(name: str, does: Callable[[dict[str, Any]], Any], *jumps: str, whose: str = "") -> Any:
    """A middleware with one hook, made by LangChain's own decorator."""

    def body(state: Any, runtime: Any) -> Any:
        return does(state)

    body.__name__ = whose or f"my_{name}"
    return HOOKS[name](can_jump_to=list(jumps) or None)(body)


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def graph(steps: Sequence[Step], *given: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel(steps), [look, pay], middleware=list(given), **options)


def run(built: Graph, given: Any = GO, way: str = "sync") -> dict[str, Any]:
    config = THREAD if built.checkpointer else None
    if way == "sync":
        return dict(built.invoke(given, config))
    return dict(asyncio.run(built.ainvoke(given, config)))


def ended(found: dict[str, Any]) -> tuple[str, str]:
    return found["outcome"]["status"], found["outcome"]["reason"]


def results(found: dict[str, Any]) -> list[str]:
    return [message.text for message in found["messages"] if message.type == "tool"]


class Loud(AgentMiddleware[Any, Any, Any]):
    """Notes each of its hooks."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__()
        self._name, self.log = name, log

    @property
    def name(self) -> str:
        return self._name

    def before_agent(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.name} before_agent")

    def before_model(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.name} before_model")

    def after_model(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.name} after_model")

    def after_agent(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.name} after_agent")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.name} model")
        found = handler(request)
        self.log.append(f"{self.name} model done")
        return found

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.name} tool")
        found = handler(request)
        self.log.append(f"{self.name} tool done")
        return found

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.name} model")
        found = await handler(request)
        self.log.append(f"{self.name} model done")
        return found

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.name} tool")
        found = await handler(request)
        self.log.append(f"{self.name} tool done")
        return found


@pytest.mark.parametrize("way", ["sync", "async"])
def test_all_hooks_run_in_the_order_of_create_agent(way: str) -> None:
    ours, theirs = list[str](), list[str]()
    built = graph([call("look"), FINISH], Loud("a", ours), Loud("b", ours))
    run(built, way=way)
    model = ScriptedModel([call("look"), "Done."])
    agent: Any = create_agent(model, [look], middleware=[Loud("a", theirs), Loud("b", theirs)])
    if way == "sync":
        agent.invoke(GO)
    else:
        asyncio.run(agent.ainvoke(GO))
    # The last model call is the finish here, and the text there.
    assert ours == theirs
    assert ours[:4] == ["a before_agent", "b before_agent", "a before_model", "b before_model"]
    assert ours[-2:] == ["b after_agent", "a after_agent"]


class Counting(AgentState[Any]):
    hooks: NotRequired[Annotated[list[str], operator.add]]
    hidden: NotRequired[Annotated[int, PrivateStateAttr]]
    shown: NotRequired[Annotated[int, OmitFromInput]]


class Counts(AgentMiddleware[Any, Any, Any]):
    """Each hook writes its name, and how many names it sees."""

    state_schema = Counting

    def _note(self, name: str, state: Any) -> dict[str, Any]:
        seen = len(state.get("hooks", ()))
        return {"hooks": [f"{name} {seen}"], "hidden": seen, "shown": seen}

    def before_agent(self, state: Any, runtime: Any) -> Any:
        return self._note("before_agent", state)

    def before_model(self, state: Any, runtime: Any) -> Any:
        return self._note("before_model", state)

    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return self._note("after_model", state)

    def after_model(self, state: Any, runtime: Any) -> Any:
        return Command(update=self._note("after_model", state))

    def after_agent(self, state: Any, runtime: Any) -> Any:
        return self._note("after_agent", state)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("ends", ["success", "limit"])
def test_what_a_hook_writes_is_seen_by_the_next(ends: str, way: str) -> None:
    """`before_agent` and `before_model` write in one step, as do `after_agent` and the end."""
    steps: list[Step] = [FINISH] if ends == "success" else [call("look")]
    built = graph(steps, Counts(), limits=Limits(turns=1), **saved())
    found = run(built, way=way)
    assert found["outcome"]["status"] == ends
    names = ["before_agent 0", "before_model 1", "after_model 2", "after_agent 3"]
    assert found["hooks"] == names
    assert (found["shown"], "hidden" in found) == (3, False)
    assert built.get_state(THREAD).values["hidden"] == 3
    assert "shown" not in built.get_input_jsonschema()["properties"]


def test_the_callers_schema_counts_before_that_of_a_middleware() -> None:
    class Mine(AgentState[Any]):
        shown: str
        mine: Annotated[list[int], operator.add]

    built = graph([FINISH], Counts(), state_schema=Mine)
    assert "shown" in built.get_input_jsonschema()["properties"]
    assert run(built, {**GO, "mine": [1]})["mine"] == [1]


def jump(to: str, *, once: bool = True, **more: Any) -> Callable[[Any], Any]:
    """A hook that jumps, the first time or always."""
    times: list[int] = []

    def does(_: Any) -> Any:
        times.append(1)
        return {"jump_to": to, **more} if len(times) == 1 or not once else None

    return does


# Hook, the script, how it ends after the jump to the end, replies by then; then it is retried.
ENDS: dict[str, tuple[str, list[Step], int]] = {
    "before the agent": ("before_agent", [FINISH], 0),
    "before the model": ("before_model", [FINISH], 0),
    "after a reply with work": ("after_model", [call("pay", amount=1), FINISH], 1),
    "after a reply with a finish": ("after_model", [FINISH, FINISH], 1),
    "after a reply of words": ("after_model", ["words", FINISH], 1),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", ENDS)
def test_a_jump_to_the_end_is_never_a_success_and_a_retry_goes_on(case: str, way: str) -> None:
    name, steps, replies = ENDS[case]
    said: dict[str, Any] = {"messages": [AIMessage("I stop here.")]} if name == "before_model" else {}
    built = graph(steps, hook(name, jump("end", **said), "end"), **saved())
    found = run(built, way=way)
    assert ended(found) == ("error", "middleware")
    assert f"{name} of the middleware my_{name} ended the task" in found["outcome"]["error"]
    assert (found["outcome"]["claim"], PAID) == (None, [])
    assert found["outcome"]["turns"] == replies + len(said)
    assert found["outcome"]["last_text"] == ("I stop here." if said else "words" if "words" in steps else "")
    assert built.get_state(THREAD).values["decision"]["rule"] == "middleware"
    again = run(built, retry(built.get_state(THREAD)), way)
    assert ended(again) == ("success", "finish_task")


def test_a_task_that_before_agent_stops_is_stopped_at_each_retry() -> None:
    """Else a retry would be the way around a guard."""
    built = graph([FINISH], hook("before_agent", jump("end", once=False), "end"), **saved())
    run(built)
    for _ in range(2):
        assert ended(run(built, retry(built.get_state(THREAD)))) == ("error", "middleware")


def test_before_agent_runs_once_for_a_task() -> None:
    log: list[str] = []
    steps: list[Step] = [call("look"), call("ask_user", question="?"), FINISH, FINISH]
    built = graph(
        steps, hook("before_agent", lambda state: log.append(state["messages"][-1].text)), **saved()
    )
    waiting = run(built)["__interrupt__"][0]
    run(built, Command(resume={waiting.id: "yes"}))
    assert log == ["go"]
    run(built, {"messages": [("user", "next")]})
    assert log == ["go", "next"]


def test_a_jump_after_an_accepted_finish_changes_nothing() -> None:
    assert ended(run(graph([FINISH], hook("after_agent", jump("end"), "end")))) == ("success", "finish_task")


def test_after_agent_that_goes_back_to_the_model_refuses_the_finish() -> None:
    back = jump("model", messages=[HumanMessage("Too short.")])
    found = run(graph([FINISH, call("finish_task", summary="Longer.")], hook("after_agent", back, "model")))
    assert ended(found) == ("success", "finish_task")
    assert results(found)[0] == "Refused: Too short."
    assert (found["outcome"]["refusals"], found["outcome"]["summary"]) == (1, "Longer.")


def test_after_agent_that_always_goes_back_is_bounded_like_a_review() -> None:
    back = hook("after_agent", jump("model", once=False), "model")
    found = run(graph([FINISH, FINISH], back))
    assert ended(found) == ("limit", "review_deadlock")
    others: list[Step] = [call("finish_task", summary=f"Done {n}.") for n in range(3)]
    found = run(graph(others, back, limits=Limits(refusals=3)))
    assert ended(found) == ("limit", "review_deadlock")


ENDINGS: dict[str, tuple[list[Step], str]] = {
    "a limit": ([call("look")], "limit"),
    "an error": ([ValueError("broken")], "error"),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_after_agent_cannot_undo_a_limit_or_an_error(case: str) -> None:
    steps, status = ENDINGS[case]
    built = graph(steps, hook("after_agent", jump("model"), "model"), limits=Limits(turns=1), **saved())
    with pytest.warns(MiddlewareWarning, match="jumps to 'model'; the task has ended"):
        assert run(built)["outcome"]["status"] == status


def test_a_jump_that_is_not_declared_is_told_and_ignored() -> None:
    """LangChain's edge after the last `after_model` looks at a jump, declared or not (in its factory,
    `_make_model_to_tools_edge`); every other edge is made where `hook_config` says so."""
    with pytest.warns(MiddlewareWarning, match=r"add @hook_config\(can_jump_to=\['end'\]\)"):
        assert ended(run(graph([FINISH], hook("before_model", jump("end"))))) == ("success", "finish_task")
    assert ended(run(graph([FINISH], hook("after_model", jump("end"))))) == ("error", "middleware")


def test_a_jump_skips_the_rest_of_its_chain() -> None:
    log: list[str] = []
    first = hook("before_model", jump("model", once=False), "model", whose="first")
    second = hook("before_model", lambda _: log.append("second"), whose="second")
    assert ended(run(graph([FINISH], first, second))) == ("success", "finish_task")
    assert log == []


def test_a_jump_to_the_model_sets_the_calls_of_the_reply_aside() -> None:
    steps: list[Step] = [[call("pay", amount=1), FINISH], FINISH]
    found = run(graph(steps, hook("after_model", jump("model"), "model")))
    assert ended(found) == ("success", "finish_task")
    assert (PAID, found["outcome"]["turns"]) == ([], 2)
    assert [text.partition(":")[0] for text in results(found)] == [
        "Not run",
        "Not run",
        "Accepted. The task has ended.",
    ]


def test_a_jump_to_the_tools_runs_the_calls_that_a_hook_wrote() -> None:
    asked = AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": 7}, "id": "mine"}])
    found = run(graph([FINISH], hook("before_model", jump("tools", messages=[asked]), "tools")))
    assert (PAID, ended(found)) == ([7], ("success", "finish_task"))


def replaced(state: Any, **update: Any) -> dict[str, Any]:
    last = state["messages"][-1]
    return {"messages": [last.model_copy(update=update)]}


def answered(state: Any) -> Any:
    calls = [one for one in state["messages"][-1].tool_calls if one["name"] == "pay"]
    return {"messages": [ToolMessage("forbidden", tool_call_id=one["id"], status="error") for one in calls]}


def cheaper(state: Any) -> Any:
    calls = [
        {**one, "args": {"amount": 1}} for one in state["messages"][-1].tool_calls if one["name"] == "pay"
    ]
    return replaced(state, tool_calls=calls) if calls else None


def made_anew(state: Any) -> Any:
    last = state["messages"][-1]
    return {"messages": [AIMessage(last.content, id=last.id, tool_calls=last.tool_calls)]}


def test_a_reply_that_was_cut_off_is_whole_in_no_copy_of_its_calls() -> None:
    cut = reply("I pay", call("pay", amount=9), finish_reason="length")
    found = run(graph([cut, FINISH], hook("after_model", made_anew)))
    assert (PAID, "the reply was cut off" in results(found)[0]) == ([], True)
    assert found["outcome"]["models"] == {"scripted": 2}


def test_calls_that_a_hook_puts_into_a_reply_that_was_cut_off_run() -> None:
    def instead(state: Any) -> Any:
        last = state["messages"][-1]
        calls = [{**one, "args": {"amount": 1}} for one in last.tool_calls if one["name"] == "pay"]
        return {"messages": [AIMessage("", id=last.id, tool_calls=calls)]} if calls else None

    cut = reply(call("pay", amount=9), finish_reason="length")
    found = run(graph([cut, FINISH], hook("after_model", instead)))
    assert (PAID, results(found)[0]) == ([1], "paid 1")


# What `after_model` does to a reply that pays 9; what is paid, and the first result.
REPLIES: dict[str, tuple[Callable[[Any], Any], list[int], str]] = {
    "it answers a call": (answered, [], "forbidden"),
    "it puts other arguments in": (cheaper, [1], "paid 1"),
    "it gives the history back as it is": (lambda state: {"messages": state["messages"]}, [9], "paid 9"),
    "it replaces the history by itself": (
        lambda state: {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"]]},
        [9],
        "paid 9",
    ),
    "it overwrites the history by itself": (
        lambda state: {"messages": Overwrite(state["messages"])},
        [9],
        "paid 9",
    ),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", REPLIES)
def test_what_after_model_makes_of_a_reply_counts(case: str, way: str) -> None:
    does, paid, result = REPLIES[case]
    built = graph([call("pay", amount=9), FINISH], hook("after_model", does), **saved())
    found = run(built, way=way)
    assert (PAID, results(found)[0], ended(found)) == (paid, result, ("success", "finish_task"))
    assert found["outcome"]["turns"] == 2
    assert sum(change["call"].startswith("pay") for change in found["outcome"]["changes"]) == len(paid)


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "it removes the last message": (
        lambda state: {"messages": [RemoveMessage(id=state["messages"][-1].id)]},
        "takes messages out of the history",
    ),
    "it keeps the last message alone": (
        lambda state: {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), state["messages"][-1]]},
        "takes messages out of the history",
    ),
    "it makes another message of one": (
        lambda state: {"messages": [HumanMessage("no", id=state["messages"][-1].id)]},
        "into the place of one of 'ai'",
    ),
    "it writes an unknown channel": (lambda _: {"typo": 1}, "the channel 'typo' cannot take"),
    "it writes the machine's": (
        lambda _: {"outcome": {"status": "success"}},
        "the channel 'outcome' cannot take",
    ),
    "it gives no dict": (lambda _: "done", "it returned a str"),
    "it goes elsewhere": (lambda _: Command(goto="finish"), "a Command with goto"),
    "it jumps nowhere": (lambda _: {"jump_to": "start"}, "it jumps to 'start'"),
    "it writes no message": (lambda _: {"messages": [object()]}, "its messages cannot be read"),
    "it raises": (lambda _: 1 / 0, "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", ["after_model", "after_agent"])
def test_what_cannot_be_written_is_an_error_that_names_the_hook(name: str, case: str) -> None:
    """After a finish that nothing stands against it is told, and does not undo what is done."""
    does, said = BAD[case]
    steps: list[Step] = [["Words.", FINISH], FINISH]
    if name == "after_agent":
        steps = steps[:1]
    built = graph(steps, hook(name, does), **saved())
    if name == "after_agent":
        with pytest.warns(MiddlewareWarning, match="the finish is judged without it"):
            assert ended(run(built)) == ("success", "finish_task")
        return
    found = run(built)
    assert ended(found) == ("error", "middleware")
    assert said in found["outcome"]["error"]
    assert "after_model of the middleware my_after_model failed" in found["outcome"]["error"]


def test_what_a_hook_says_as_a_person_is_no_new_task_and_no_answer() -> None:
    """It is shown to the model, and counts as a reminder does."""
    model = ScriptedModel([call("look"), FINISH])
    said = jump("", messages=[HumanMessage("Be quick."), SystemMessage("Be kind.")])
    built = build_graph(model, [look], middleware=[hook("before_model", said)], **saved())
    found = run(built)
    assert found["outcome"]["task"] == found["messages"][0].id
    (shown,) = model.seen[0].messages[1:]
    assert shown.content == [{"type": "text", "text": text} for text in ("go", "Be quick.")]
    assert "Be kind." in model.seen[0].messages[0].text
    assert found["outcome"]["nudges"] == 0


def test_a_message_keeps_what_signoff_has_noted_on_it() -> None:
    """A middleware that puts other words into old replies does not make the task forget what it has used."""

    def redacted(state: Any) -> Any:
        return {
            "messages": [
                AIMessage("hidden", id=m.id, tool_calls=m.tool_calls) if m.type == "ai" else m
                for m in state["messages"]
            ]
        }

    steps: list[Step] = [["secret", call("look")], ["secret", FINISH]]
    plain = run(graph(steps))["outcome"]["usage"]["total_tokens"]
    found = run(graph(steps, hook("after_model", redacted)))
    # The last message of all says how the task ended.
    assert {m.text for m in found["messages"][:-1] if m.type == "ai"} == {"hidden"}
    assert found["outcome"]["usage"]["total_tokens"] == plain
    assert found["outcome"]["seconds_active"] > 0


ASKS: dict[str, int] = {"before_agent": 0, "before_model": 0, "after_model": 1, "after_agent": 1}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", ASKS)
def test_a_pause_in_a_hook_never_asks_the_model_again(name: str, way: str) -> None:
    heard: list[Any] = []

    def asks(_: Any) -> None:
        heard.append(interrupt({"sure": name}))

    model = ScriptedModel([FINISH])
    built = build_graph(model, [look], middleware=[hook(name, asks)], **saved())
    (waiting,) = run(built, way=way)["__interrupt__"]
    assert (waiting.value, len(model.seen)) == ({"sure": name}, ASKS[name])
    assert ended(run(built, Command(resume={waiting.id: "yes"}), way)) == ("success", "finish_task")
    assert (heard, len(model.seen)) == (["yes"], 1)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("step", [call("pay", amount=9), FINISH, "words"], ids=["work", "finish", "words"])
def test_no_way_into_a_thread_leads_around_after_model(step: Step, way: str) -> None:
    """Its process was killed between the reply and its hooks, or between these and the end that they ask
    for; then it is entered by `compress`, as a fork is."""
    for stop in ("call_llm", "route_tools"):
        built = graph([step, FINISH], hook("after_model", jump("end"), "end"), **saved())
        built.invoke(GO, THREAD, interrupt_after=[stop])
        Session(built, "t").fork(thread_id="u")
        config: Any = {"configurable": {"thread_id": "u"}}
        found = built.invoke(None, config) if way == "sync" else asyncio.run(built.ainvoke(None, config))
        assert (ended(found), PAID) == (("error", "middleware"), [])
        assert ended(built.invoke(retry(built.get_state(config)), config)) == ("success", "finish_task")


def test_after_model_runs_once_for_a_reply_and_never_for_one_that_was_imported() -> None:
    log: list[str] = []
    built = graph(
        [[call("pay", amount=1), call("look")], FINISH],
        hook("after_model", lambda state: log.append(state["messages"][-1].type)),
        approvals={"pay": True},
        **saved(),
    )
    imported = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "theirs"}])
    waiting = run(built, {"messages": [("user", "go"), imported]})["__interrupt__"][0]
    assert log == ["ai"]
    found = run(built, Command(resume={waiting.id: {"decisions": [{"type": "approve"}]}}))
    assert (ended(found), PAID, log) == (("success", "finish_task"), [1], ["ai", "ai"])


def test_what_runs_before_a_model_call_is_saved_before_it() -> None:
    built = graph([FINISH], Counts(), **saved())
    built.invoke(GO, THREAD, interrupt_before=["call_llm"])
    assert built.get_state(THREAD).values["hooks"] == ["before_agent 0", "before_model 1"]
    assert run(built, None)["hooks"] == ["before_agent 0", "before_model 1", "after_model 2", "after_agent 3"]


def test_a_stored_thread_is_decided_again_as_it_was() -> None:
    """Steps in which hooks ran are taken as they are stored: their code may look at anything."""
    steps: list[Step] = [call("pay", amount=9), FINISH, FINISH]
    stop = hook("after_model", jump("end"), "end")
    built = graph(steps, Counts(), stop, hook("before_agent", lambda _: None), **saved())
    run(built)
    run(built, retry(built.get_state(THREAD)))
    found = replay(built, "t")
    assert found.differences == ()
    assert {step.name for step in found.taken} >= {"decide", "route_tools", "review"}


class AsyncOnly(AgentMiddleware[Any, Any, Any]):
    async def abefore_model(self, state: Any, runtime: Any) -> Any:
        return {"jump_to": None}

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return {"jump_to": "end"}


class AsyncWrap(AgentMiddleware[Any, Any, Any]):
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


class SyncWrap(AgentMiddleware[Any, Any, Any]):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


WRONG: dict[str, tuple[Any, str, str]] = {
    "hooks that are async alone": (AsyncOnly, "sync", "AsyncOnly has only abefore_model"),
    "an async wrapper alone": (AsyncWrap, "sync", "AsyncWrap has only awrap_model_call"),
    "a sync wrapper alone": (SyncWrap, "async", "SyncWrap has only wrap_tool_call"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_run_that_a_middleware_has_no_way_for_is_the_callers_mistake(case: str) -> None:
    """LangChain raises there, too (for a wrapper NotImplementedError, when a call comes to it)."""
    kind, way, said = WRONG[case]
    built = graph([FINISH], kind(), **saved())
    with pytest.raises(SetupError, match=said):
        run(built, way=way)
    other = "async" if way == "sync" else "sync"
    assert run(built, None, other)["outcome"]["reason"] in ("finish_task", "middleware")


def test_a_hook_gets_the_runtime_and_the_configuration_of_the_run() -> None:
    seen: list[Any] = []

    class Looks(AgentMiddleware[Any, Any, Any]):
        def before_model(self, state: Any, runtime: Any, config: Any) -> None:  # type: ignore[override]  # LangGraph fills it in
            seen.append((runtime.context, runtime.store, config["configurable"]["thread_id"]))

    class Who(AgentState[Any]):
        pass

    from dataclasses import dataclass

    @dataclass
    class Caller:
        name: str

    given = saved()
    built = graph([FINISH], Looks(), context_schema=Caller, **given)
    built.invoke(GO, THREAD, context={"name": "ann", "turns": 3})
    assert seen == [(Caller("ann"), given["store"], "t")]


def test_without_middleware_the_states_are_what_they_were() -> None:
    """Nothing stands around them, and the state has no channel more."""
    from signoff.graph.compiled.states import NODES, works_of

    plain = graph([FINISH])
    deps: Any = next(iter(plain.builder.nodes.values())).runnable
    assert works_of(deps.deps) is NODES
    assert "middleware" not in plain.channels


ALMOST = pytest.mark.parametrize("name", ["Pay", "functions.pay", "paypay"])


@ALMOST
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_misspelled_call_is_shown_under_the_name_of_its_tool(name: str, way: str) -> None:
    """Else a hook that denies `pay` would let it pass."""
    content: Any = [{"type": "tool_use", "id": "one", "name": name, "input": {"amount": 5}}]
    calls = [{"name": name, "args": {"amount": 5}, "id": "one", "type": "tool_call"}]
    said = AIMessage(content, tool_calls=calls)

    def deny(state: dict[str, Any]) -> Any:
        calls = [one for one in state["messages"][-1].tool_calls if one["name"] == "pay"]
        return {"messages": [ToolMessage("No.", tool_call_id=one["id"], status="error") for one in calls]}

    found = run(graph([said, FINISH], hook("after_model", deny)), way=way)
    assert (results(found)[0], PAID) == ("No.", [])
    written = found["messages"][1]
    assert (written.tool_calls[0]["name"], written.content[0]["name"]) == ("pay", "pay")
