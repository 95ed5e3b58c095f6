"""`Guards` beside other middleware, before it and after it, in `create_agent` and in deepagents."""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent, middleware
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelFallbackMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    after_agent,
    after_model,
    hook_config,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from packaging.version import Version

from signoff import current_outcome, extend, outcome_of, retry, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from tests.support.guarded import tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
DONE = call("finish_task", summary="All of it.")
GO: Any = {"messages": [("user", "do it")]}
CALL_OF_SAVE = {"name": "save", "args": {"name": "x"}, "id": "s1", "type": "tool_call"}
ORDERS = pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])


def agent(other: Any, *script: Any, first: bool, **rules: Any) -> Any:
    guards = Guards(**rules)
    return create_agent(
        ScriptedModel(script),
        tools(),
        middleware=[guards, other] if first else [other, guards],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )


@ORDERS
@pytest.mark.parametrize(
    ("decision", "results"),
    [
        ({"type": "approve"}, ("seen a", "saved x")),
        ({"type": "reject", "message": "Not this."}, ("Not this.", "seen a")),
        (
            {"type": "edit", "edited_action": {"name": "save", "args": {"name": "y"}}},
            ("seen a", "saved y"),
        ),
    ],
    ids=["approve", "reject", "edit"],
)
def test_a_person_decides_on_a_call_beside_a_finish(
    first: bool, decision: dict[str, Any], results: tuple[str, str]
) -> None:
    asks = HumanInTheLoopMiddleware(interrupt_on={"save": True})
    asking = agent(asks, [call("look", name="a"), call("save", name="x"), DONE], DONE, first=first)
    assert asking.invoke(GO, CONFIG)["__interrupt__"]
    found = asking.invoke(Command(resume={"decisions": [decision]}), CONFIG)
    told = [m.text for m in found["messages"] if m.type == "tool"]
    assert [part in text for part, text in zip(results, told, strict=False)] == [True, True]
    outcome = outcome_of(found)
    # A rejected call is a failed sibling: the finish beside it does not stand.
    assert (outcome.succeeded, outcome.turns) == (True, 2 if decision["type"] == "reject" else 1)


def asked_by(agent: Any, answers: Mapping[str, Any]) -> list[str]:
    """What a person is asked until the task ends, by kind; each kind has one answer."""
    kinds, found = list[str](), agent.invoke(GO, CONFIG)
    while waiting := found.get("__interrupt__"):
        kinds.append(waiting[0].value.get("type", "approval"))
        found = agent.invoke(Command(resume=answers[kinds[-1]]), CONFIG)
    return kinds


class CountsReplies(AgentMiddleware[Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__()
        self.seen = list[str]()

    def after_model(self, state: Any, runtime: Any) -> None:
        self.seen.append(next(m.id for m in reversed(state["messages"]) if m.type == "ai"))


@ORDERS
@pytest.mark.parametrize(
    "beside",
    [call("ask_user", question="Which?"), [call("look", name="a"), call("ask_user", question="Which?")]],
    ids=["a question", "a read and a question"],
)
def test_a_call_beside_a_question_is_approved_once(first: bool, beside: Any) -> None:
    approve = {"decisions": [{"type": "approve"}]}
    asks = HumanInTheLoopMiddleware(interrupt_on={"save": True})
    reply = [call("save", name="x"), *(beside if isinstance(beside, list) else [beside])]
    kinds = asked_by(agent(asks, reply, DONE, first=first), {"approval": approve, "question": "The red one."})
    assert kinds == ["approval", "question"]


@ORDERS
def test_a_question_shows_no_reply_a_second_time(first: bool) -> None:
    counts = CountsReplies()
    asked_by(
        agent(counts, call("ask_user", question="Which?"), DONE, first=first), {"question": "The red one."}
    )
    assert len(counts.seen) == len(set(counts.seen))


@ORDERS
def test_limits_count_what_a_summary_has_taken_out_of_the_history(first: bool) -> None:
    summary = ScriptedModel(lambda seen: "It looked around.")
    short = SummarizationMiddleware(summary, trigger=("messages", 6), keep=("messages", 3))
    names = iter(range(100))
    looks = [call("look", name=f"n{number}") for number in names]
    found = agent(short, *looks, first=first, limits={"turns": 12}).invoke(GO, CONFIG)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns, outcome.tool_calls) == ("turns", 12, 12)
    assert len(found["messages"]) < 12


def test_limits_count_over_a_summary_in_another_process() -> None:
    saver, summary = InMemorySaver(), ScriptedModel(lambda seen: "It looked around.")
    asks = HumanInTheLoopMiddleware(interrupt_on={"save": True})

    def built(*script: Any) -> Any:
        short = SummarizationMiddleware(summary, trigger=("messages", 6), keep=("messages", 2))
        around = [Guards(limits={"turns": 5}), asks, short]
        return create_agent(
            ScriptedModel(script), tools(), middleware=around, checkpointer=saver, store=InMemoryStore()
        )

    looks = [call("look", name=name) for name in "ab"]
    assert built(*looks, call("save", name="x")).invoke(GO, CONFIG)["__interrupt__"]
    # What this one has read is nothing before the summary, but the call that it runs first.
    later = built(*[call("look", name=name) for name in "cdefg"])
    found = later.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns) == ("turns", 5)


EDITED = {**CALL_OF_SAVE, "args": {"name": "good"}}
ADDED = {**CALL_OF_SAVE, "args": {"name": "more"}, "id": "more"}


@ORDERS
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "as a copy"])
@pytest.mark.parametrize(
    ("change", "saved", "summary", "turns"),
    [
        (lambda calls: [EDITED, calls[1]], ["saved good"], "All of it.", 1),
        (lambda calls: [*calls[:1], ADDED, calls[1]], ["saved x", "saved more"], "All of it.", 1),
        (lambda calls: [calls[0], {**calls[1], "args": {"summary": "Edited."}}], ["saved x"], "Edited.", 1),
        (lambda calls: calls[:1], ["saved x"], "All of it.", 2),
    ],
    ids=["edits", "adds", "edits the finish", "drops the finish"],
)
def test_what_another_middleware_makes_of_a_reply_is_what_counts(
    change: Any, saved: list[str], summary: str, turns: int, in_place: bool, first: bool
) -> None:
    class Changes(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            said = next(m for m in reversed(state["messages"]) if m.type == "ai")
            if len(said.tool_calls) != 2:
                return None
            if in_place:
                said.tool_calls = change(said.tool_calls)
                return {"messages": [said]}
            return {"messages": [said.model_copy(update={"tool_calls": change(said.tool_calls)})]}

    found = agent(Changes(), [call("save", id="s1", name="x"), DONE], DONE, first=first).invoke(GO, CONFIG)
    outcome = outcome_of(found)
    assert (outcome.summary, outcome.turns, outcome.tool_calls) == (summary, turns, len(saved))
    assert [m.text for m in found["messages"] if m.type == "tool" and m.name == "save"] == saved


@ORDERS
def test_todos_are_written_and_say_nothing_of_the_end(first: bool) -> None:
    todo = call("write_todos", todos=[{"content": "look", "status": "completed"}])
    found = agent(TodoListMiddleware(), todo, "All todos are done.", DONE, first=first).invoke(GO, CONFIG)
    assert found["todos"] == [{"content": "look", "status": "completed"}]
    assert outcome_of(found).turns == 3


@pytest.mark.parametrize(("first", "status"), [(True, "success"), (False, "error")])
def test_a_fallback_is_asked_where_guards_stand_around_it(first: bool, status: str) -> None:
    fallback = ModelFallbackMiddleware(ScriptedModel([DONE]))
    found = agent(fallback, RuntimeError("down"), first=first).invoke(GO, CONFIG)
    assert outcome_of(found).status == status


class ShortensAndAsksAgain(AgentMiddleware[Any, Any, Any]):
    """What deepagents' summaries do where a prompt is too long for the model."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ContextOverflowError:
            return handler(request.override(messages=request.messages[-1:]))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except ContextOverflowError:
            return await handler(request.override(messages=request.messages[-1:]))


def run(agent: Any, given: Any, way: str) -> Any:
    return agent.invoke(given, CONFIG) if way == "sync" else asyncio.run(agent.ainvoke(given, CONFIG))


TOO_LONG: dict[str, Any] = {
    "an error": ContextOverflowError("too long"),
    "a reply of Claude": AIMessage("I", response_metadata={"finish_reason": "model_context_window_exceeded"}),
    "a reply of Mistral": AIMessage("", response_metadata={"finish_reason": "model_length"}),
}
too_long = pytest.mark.parametrize("too_long", TOO_LONG.values(), ids=TOO_LONG)


@too_long
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_prompt_that_is_too_long_is_shortened_by_who_stands_around(way: str, too_long: Any) -> None:
    script = [call("look", name="a"), too_long, DONE]
    found = run(agent(ShortensAndAsksAgain(), *script, first=False), GO, way)
    assert (outcome_of(found).succeeded, outcome_of(found).turns) == (True, 2)


# The one that langchain 1.4.0 allows shortens the prompt a second time.
SHORTENS = pytest.mark.skipif(
    Version(version("deepagents")) < Version("0.7.32"), reason="this deepagents shortens it itself"
)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("create", [create_agent, pytest.param(create_deep_agent, marks=SHORTENS)])
@too_long
@pytest.mark.filterwarnings("ignore:Nothing guards the sub-agents")
def test_a_prompt_that_nobody_shortens_ends_the_task(
    create: Any, way: str, too_long: Any, tmp_path: Path
) -> None:
    # deepagents writes a file before it gives up, which LangGraph takes for the model's reply.
    script: list[Any] = [call("look", name="a"), too_long, DONE]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
        asked = guarded(create(ScriptedModel(script), tools(), middleware=[Guards()], **saved))
        outcome = outcome_of(run(asked, GO, way))
        assert (outcome.status, outcome.reason, outcome.turns) == ("error", "model_error", 1)
        assert "larger than the model's context" in (outcome.error or "")
        found = run(asked, retry(asked.get_state(CONFIG).values), way)
    assert (outcome_of(found).succeeded, outcome_of(found).turns) == (True, 2)


@too_long
@pytest.mark.parametrize("saved", [True, False])
def test_a_prompt_that_nobody_shortens_is_raised_where_nothing_could_end_the_task(
    saved: bool, too_long: Any
) -> None:
    model = ScriptedModel([too_long, DONE])
    plain = create_agent(model, middleware=[Guards()], checkpointer=InMemorySaver() if saved else None)
    with pytest.raises(ContextOverflowError):
        (plain if saved else guarded(plain)).invoke(GO, CONFIG)
    if saved:
        assert outcome_of(plain.invoke(None, CONFIG)).succeeded


class Selects(ScriptedModel):
    """The model that selects tools: always `look` alone."""

    def with_structured_output(self, schema: Any, **more: Any) -> Any:
        return RunnableLambda(lambda asked: {"tools": ["look"]})


@pytest.mark.parametrize(
    ("first", "kept"), [(False, []), (True, ["finish_task", "ask_user", "think"])], ids=["last", "first"]
)
def test_the_tools_by_which_a_task_ends_are_always_offered(first: bool, kept: list[str]) -> None:
    chooser: Any = Selects(["look"])  # type: ignore[call-arg]  # ScriptedModel takes its steps by place
    selects = LLMToolSelectorMiddleware(model=chooser, max_tools=1, always_include=kept)
    model = ScriptedModel([DONE])
    around: list[Any] = [Guards(), selects] if first else [selects, Guards()]
    create_agent(model, tools(), middleware=around).invoke(GO)
    assert set(model.seen[0].tool_names) == {"look", "finish_task", "ask_user", "think"}


class AddsATool(AgentMiddleware[Any, Any, Any]):
    """Offers and runs a tool that `create_agent` was not given."""

    def __init__(self) -> None:
        super().__init__()
        self.tool = StructuredTool.from_function(
            lambda name: f"added {name}", name="added", description="Add."
        )

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, self.tool]))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        own = request.tool_call["name"] == "added"
        return handler(request.override(tool=self.tool) if own else request)


@pytest.mark.parametrize(("first", "told"), [(False, "added a"), (True, "There is no tool 'added'")])
def test_a_tool_of_another_middleware_is_known_where_it_stands_before(first: bool, told: str) -> None:
    found = agent(AddsATool(), call("added", name="a"), DONE, first=first).invoke(GO, CONFIG)
    assert told in next(m.text for m in found["messages"] if m.type == "tool")


class HoldsASession(AgentMiddleware[Any, Any, Any]):
    """As LangChain's ShellToolMiddleware: it closes what it holds when the agent ends."""

    def __init__(self) -> None:
        super().__init__()
        self.closed_after = list[str]()

    def after_agent(self, state: Any, runtime: Any) -> None:
        self.closed_after.append(next(m.text for m in reversed(state["messages"]) if m.type == "ai"))


@pytest.mark.parametrize(
    ("first", "closed_after"),
    [(False, ["All of it."]), (True, ["It is set.", "All of it."])],
    ids=["guards last", "guards first"],
)
def test_what_closes_something_at_the_end_stands_before_the_guards(
    first: bool, closed_after: list[str]
) -> None:
    session = HoldsASession()
    agent(session, "It is set.", call("look", name="a"), DONE, first=first).invoke(GO, CONFIG)
    assert session.closed_after == closed_after


@ORDERS
def test_a_person_rejects_a_finish(first: bool) -> None:
    asks = HumanInTheLoopMiddleware(
        interrupt_on={"finish_task": {"allowed_decisions": ["approve", "reject"]}}
    )
    asking = agent(asks, DONE, call("finish_task", summary="Now all."), first=first)
    asking.invoke(GO, CONFIG)
    no: Command[Any] = Command(resume={"decisions": [{"type": "reject", "message": "Not yet."}]})
    assert asking.invoke(no, CONFIG)["__interrupt__"]
    found = asking.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert (outcome_of(found).summary, outcome_of(found).turns) == ("Now all.", 2)


def deep(*script: Any, rules: dict[str, Any] | None = None, **more: Any) -> Any:
    return create_deep_agent(
        ScriptedModel(script),
        tools(),
        middleware=[Guards(**(rules or {}))],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
        **more,
    )


def test_a_deep_agent_ends_only_by_a_finish() -> None:
    written = call("write_file", file_path="/a.txt", content="hi")
    found = deep(written, "It is written.", DONE).invoke(GO, CONFIG)
    assert outcome_of(found).turns == 3
    assert "/a.txt" in found["files"]


@pytest.mark.parametrize(("middleware", "told"), [([Guards()], "The door is red."), ([], "I will look.")])
def test_the_general_sub_agent_has_the_guards_that_it_is_given(middleware: list[Any], told: str) -> None:
    found = call("finish_task", summary="The door is red.")
    child = ScriptedModel(["I will look.", found])
    general = {"name": "general-purpose", "description": "Helps.", "system_prompt": "Help.", "model": child}
    asked = call("task", description="Look at the door.", subagent_type="general-purpose")
    result = deep(asked, DONE, subagents=[{**general, "middleware": middleware}]).invoke(GO, CONFIG)
    assert next(m.text for m in result["messages"] if m.type == "tool") == told


CHILDS_ENDS = pytest.mark.parametrize(
    ("script", "told", "status"),
    [
        ([call("finish_task", summary="The door is red.")], "The door is red.", "success"),
        ([call("finish_task", outcome="blocked", summary="No key.")], "blocked", "error"),
        (["only words"] * 5, "The work is not finished.", "error"),
        ([RuntimeError("down")], "The work is not finished.", "error"),
    ],
    ids=["done", "blocked", "a limit", "an error"],
)


def deep_with_helper(script: list[Any], *parents: Any) -> Any:
    """A deep agent with a guarded sub-agent, which says what is in the script, up to two times."""
    child = {
        "name": "helper",
        "description": "Helps.",
        "system_prompt": "Help.",
        "model": ScriptedModel(script * 2),
        "middleware": [Guards()],
    }
    return deep(*parents, subagents=[child])


TASK = call("task", description="Look at the door.", subagent_type="helper")


@CHILDS_ENDS
def test_a_childs_outcome_goes_up_as_it_is(script: list[Any], told: str, status: str) -> None:
    found = deep_with_helper(script, [TASK, TASK], DONE).invoke(GO, CONFIG)
    results = [m for m in found["messages"] if m.type == "tool"][:2]
    assert [told.lower() in one.text.lower() for one in results] == [True, True]
    assert [one.status for one in results] == [status, status]
    outcome = outcome_of(found)
    assert (outcome.succeeded, outcome.turns, outcome.summary) == (True, 2, "All of it.")


@CHILDS_ENDS
def test_a_child_that_has_not_done_its_work_voids_the_finish_beside_it(
    script: list[Any], told: str, status: str
) -> None:
    outcome = outcome_of(deep_with_helper(script, [TASK, DONE], DONE).invoke(GO, CONFIG))
    assert (outcome.succeeded, outcome.turns) == (True, 1 if status == "success" else 2)


@after_model
def says_after_the_model(state: Any, runtime: Any) -> dict[str, Any] | None:
    return {"messages": [AIMessage("By the way.")]} if state.get("outcome") else None


@after_agent
def says_at_the_end(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("Good bye.")]}


@pytest.mark.parametrize(
    "around",
    [
        [Guards(), says_after_the_model],
        [says_after_the_model, Guards()],
        [Guards(), says_at_the_end],
    ],
    ids=["after the model", "after the model, guards last", "at the end"],
)
def test_a_message_after_the_end_hides_no_outcome(around: Any) -> None:
    saved = create_agent(ScriptedModel([DONE, DONE]), middleware=around, checkpointer=InMemorySaver())
    for _ in range(2):
        found = saved.invoke(GO, CONFIG)
        outcome = current_outcome(found)
        assert outcome is not None
        assert (outcome["status"], outcome["turns"]) == ("success", 1)


class SendsBack(AgentMiddleware[Any, Any, Any]):
    """As deepagents' RubricMiddleware: what ends is sent back to the model, some times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self.left -= 1
        return {"jump_to": "model", "messages": [HumanMessage("Not yet.")]} if self.left >= 0 else None


@ORDERS
def test_what_is_sent_back_after_the_end_is_a_task_of_its_own(first: bool) -> None:
    around = [Guards(), SendsBack()] if first else [SendsBack(), Guards()]
    found = create_agent(ScriptedModel([DONE] * 3), middleware=around).invoke(GO)
    assert [m.text for m in found["messages"] if m.type == "human"][1:] == ["Not yet."] * 2
    outcome = current_outcome(found)
    assert outcome is not None
    assert (outcome["status"], outcome["turns"]) == ("success", 1)


SINCE_1_5 = pytest.mark.skipif(not hasattr(middleware, "AutoModeMiddleware"), reason="LangChain 1.4")


def auto_mode(*tools: str, risky: str = "bad") -> Any:
    from tests.support.judge import Judge, risk_of

    return middleware.AutoModeMiddleware(tools=tools, classifier=Judge(answer=risk_of(risky)))


@SINCE_1_5
@ORDERS
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", ["save", "Save", "functions.save"])
def test_a_blocked_call_voids_the_finish_beside_it(name: str, way: str, first: bool) -> None:
    asked = agent(auto_mode("save"), [call(name, name="bad"), DONE], DONE, first=first)
    found = run(asked, GO, way)
    told = [m.text for m in found["messages"] if m.type == "tool"]
    assert "was blocked because it was classified as risky" in told[0]
    assert told[1].startswith("Refused: save in the same reply did not succeed")
    assert (outcome_of(found).succeeded, outcome_of(found).turns) == (True, 2)


@SINCE_1_5
@pytest.mark.parametrize(("first", "turns"), [(True, 1), (False, 2)], ids=["guards first", "guards last"])
def test_a_finish_is_judged_by_who_stands_before_the_guards(first: bool, turns: int) -> None:
    judges = auto_mode("finish_task", risky="All of it.")
    asked = agent(judges, DONE, call("finish_task", summary="Half of it."), first=first)
    assert outcome_of(asked.invoke(GO, CONFIG)).turns == turns


@SINCE_1_5
@ORDERS
def test_a_call_that_cannot_be_judged_does_not_run(first: bool) -> None:
    from tests.support.judge import no_answer

    judges = auto_mode("save")
    judges.classifier.answer = no_answer
    asked = agent(judges, call("save", name="x"), DONE, first=first)
    if not first:
        with pytest.raises(ConnectionError, match="down"):
            asked.invoke(GO, CONFIG)
        assert [m.type for m in asked.get_state(CONFIG).values["messages"]] == ["human", "ai"]
        return
    found = asked.invoke(GO, CONFIG)
    assert next(m.text for m in found["messages"] if m.type == "tool") == "ConnectionError: down"


REFUSAL = AIMessage(
    "", additional_kwargs={"refusal": "I will not."}, response_metadata={"model_provider": "openai"}
)


@SINCE_1_5
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_refusal_after_the_guards_ends_the_task(way: str) -> None:
    refuses = middleware.ModelRefusalMiddleware()
    outcome = outcome_of(run(agent(refuses, REFUSAL, DONE, first=True), GO, way))
    assert (outcome.status, outcome.reason) == ("error", "model_error")
    assert "The model refuses this task" in (outcome.error or "")


@SINCE_1_5
def test_a_refusal_before_the_guards_leaves_the_run() -> None:
    from langchain_core.exceptions import ModelRefusalError

    asked = agent(middleware.ModelRefusalMiddleware(), REFUSAL, DONE, first=False)
    with pytest.raises(ModelRefusalError, match="I will not"):
        asked.invoke(GO, CONFIG)
    outcome = outcome_of(asked.invoke(None, CONFIG))
    assert (outcome.succeeded, outcome.turns) == (True, 1)


@SINCE_1_5
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_fallback_is_asked_after_a_refusal(way: str) -> None:
    fallback = ModelFallbackMiddleware(ScriptedModel([DONE]))
    around = [Guards(), fallback, middleware.ModelRefusalMiddleware()]
    asked = create_agent(ScriptedModel([REFUSAL]), tools(), middleware=around, checkpointer=InMemorySaver())
    assert outcome_of(run(asked, GO, way)).succeeded


def routed(storage: Any, steps: list[Any], judge: Any, *, first: bool, **rules: Any) -> Any:
    """A guarded agent whose hard tasks are done by the model of these steps; the easy ones by one that
    finishes at once."""
    choices = {
        "easy": middleware.ModelChoice(ScriptedModel([DONE]), "Small."),
        "hard": middleware.ModelChoice(ScriptedModel(steps), "Large."),
    }
    router = middleware.ModelRouterMiddleware(choices=choices, instructions="Which?", classifier=judge)
    around: list[Any] = [Guards(**rules), router] if first else [router, Guards(**rules)]
    saved: dict[str, Any] = {"checkpointer": storage.checkpointer, "store": storage.store}
    return guarded(create_agent(ScriptedModel([]), tools(), middleware=around, **saved))


LARGE: Any = {"messages": [("user", "A large task.")]}
BETA = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


@SINCE_1_5
@BETA
@ORDERS
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_route_holds_in_another_process(first: bool, way: str, tmp_path: Path) -> None:
    from tests.support.judge import Judge, route_by

    judge = Judge(answer=route_by("large"))
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        asking = routed(storage, [call("ask_user", question="Which?")], judge, first=first)
        assert run(asking, LARGE, way)["__interrupt__"]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        found = run(routed(storage, [DONE], judge, first=first), Command(resume="The red one."), way)
    assert (outcome_of(found).succeeded, found["model_route"].choice, len(judge.seen)) == (True, "hard", 1)


@SINCE_1_5
@BETA
@ORDERS
def test_an_extended_task_is_routed_by_the_reminder(first: bool, tmp_path: Path) -> None:
    from tests.support.judge import Judge, route_by

    judge = Judge(answer=route_by("large"))
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        asked = routed(storage, [call("look", name="a")], judge, first=first, limits={"turns": 1})
        asked.invoke(LARGE, CONFIG)
        found = asked.invoke(extend(asked.get_state(CONFIG).values, turns=5), CONFIG)
    assert (outcome_of(found).succeeded, found["model_route"].choice) == (True, "easy")
    assert [one.text for one in judge.seen] == [
        "A large task.",
        "The task goes on. Continue where it stopped.",
    ]
