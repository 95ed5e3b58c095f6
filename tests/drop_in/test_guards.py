"""`Guards` in `create_agent`: the task ends as the rules say, and no effect takes place twice."""

import asyncio
import os
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    before_agent,
    before_model,
    hook_config,
    wrap_tool_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from packaging.requirements import Requirement
from pydantic import BaseModel

from signoff import (
    Limits,
    SetupError,
    ThreadBusy,
    ThreadError,
    build_graph,
    current_outcome,
    delegate,
    extend,
    outcome_of,
    retry,
    sqlite_storage,
    standard_controls,
)
from signoff.graph.errors import JournalWarning
from signoff.graph.messages import marks
from signoff.guards import Guards, guarded
from signoff.guards.versions import BELOW, LOWEST
from signoff.models.scripted import ScriptedModel, call, reply
from tests.support.guarded import tools

CONFIG: Any = {"configurable": {"thread_id": "one"}}
DONE = call("finish_task", summary="All of it.")
GO: Any = {"messages": [("user", "do it")]}
INVALID = AIMessage("", invalid_tool_calls=[{"name": "save", "args": "{bad", "id": "i1", "error": "no JSON"}])


def agent(*script: Any, saved: bool = False, **rules: Any) -> Any:
    storage: dict[str, Any] = {"checkpointer": InMemorySaver() if saved else None, "store": InMemoryStore()}
    return create_agent(ScriptedModel(script), tools(), middleware=[Guards(**rules)], **storage)


def ways() -> list[Callable[[Any, Any], Any]]:
    return [
        lambda agent, given: agent.invoke(given, CONFIG),
        lambda agent, given: asyncio.run(agent.ainvoke(given, CONFIG)),
    ]


@pytest.mark.parametrize("way", ways(), ids=["sync", "async"])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
@pytest.mark.parametrize(
    ("script", "rules", "status", "reason", "turns"),
    [
        ([DONE], {}, "success", "finish_task", 1),
        (["I am done.", DONE], {}, "success", "finish_task", 2),
        (["only words"] * 5, {}, "limit", "talk_turns", 5),
        ([reply("")] * 2 + [DONE], {}, "success", "finish_task", 3),
        ([reply("", finish_reason="content_filter")] * 2, {}, "error", "content_filter", 2),
        ([call("look", name="a")] * 3, {"limits": {"turns": 3}}, "limit", "turns", 3),
        ([call("look", name="a")] * 5, {}, "limit", "repeats", 5),
        ([[call("look", name="bad"), DONE], DONE], {}, "success", "finish_task", 2),
        ([RuntimeError("down")], {}, "error", "model_error", 0),
        # Each call of the reply has its answer before LangChain's loop comes to run it.
        ([call("nobody_has_this"), DONE], {}, "success", "finish_task", 2),
        ([call("think", thought="hm"), DONE], {}, "success", "finish_task", 2),
        ([call("look", wrong=1), DONE], {}, "success", "finish_task", 2),
        ([INVALID, DONE], {}, "success", "finish_task", 2),
    ],
)
def test_a_task_ends_as_the_rules_say(
    script: list[Any], rules: Any, status: str, reason: str, turns: int, saved: bool, way: Any
) -> None:
    found = way(agent(*script, saved=saved, **rules), GO)
    outcome = outcome_of(found)
    assert (outcome.status, outcome.reason, outcome.turns) == (status, reason, turns)
    assert current_outcome(found) == found["outcome"]


def test_checks_that_refuse_every_finish_end_the_task() -> None:
    outcome = outcome_of(agent(DONE, DONE, checks=[lambda: False]).invoke(GO))
    assert (outcome.status, outcome.reason) == ("limit", "review_deadlock")


def test_a_call_after_the_finish_is_never_run() -> None:
    found = agent([call("save", name="a"), DONE, call("save", name="b")]).invoke(GO)
    results = {m.tool_call_id: m.text for m in found["messages"] if m.type == "tool"}
    assert [text.partition(":")[0] for text in results.values()].count("Not run") == 1
    assert outcome_of(found).tool_calls == 1


def test_the_result_has_its_type() -> None:
    class City(BaseModel):
        name: str

    model = agent(call("finish_task", summary="Found.", result={"name": "Bern"}), response_format=City)
    assert outcome_of(model.invoke(GO), City).result == City(name="Bern")


def test_a_question_waits_and_its_answer_goes_on() -> None:
    asking = agent([call("look", name="a"), call("ask_user", question="Which?")], DONE, saved=True)
    waiting = asking.invoke(GO, CONFIG)
    assert [one.value["question"] for one in waiting["__interrupt__"]] == ["Which?"]
    found = asking.invoke(Command(resume="The red one."), CONFIG)
    assert [m.text for m in found["messages"] if m.type == "tool"][1] == "The red one."
    assert outcome_of(found).succeeded


def paying(storage: Any, log: Path, *, dies: bool) -> Any:
    """An agent whose payments are in the file `log`. dies: the process is killed in the second."""

    @tool
    def pay(name: str) -> str:
        """Pay."""
        log.write_text(log.read_text() + f"{name}\n")
        if dies and name == "n4":
            os._exit(9)
        return "paid"

    model = ScriptedModel(lambda seen: call("pay", name=f"n{len(seen)}"))
    around = [Guards(limits={"turns": 3})]
    saved = {"checkpointer": storage.checkpointer, "store": storage.store}
    return guarded(create_agent(model, [pay], middleware=around, **saved))


def test_a_killed_process_pays_nothing_twice_and_its_turns_count(tmp_path: Path) -> None:
    path, log = tmp_path / "threads.sqlite", tmp_path / "log"
    log.write_text("")
    child = os.fork()
    if child == 0:
        with sqlite_storage(path) as storage:
            paying(storage, log, dies=True).invoke(GO, CONFIG)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with sqlite_storage(path) as storage:
        found = paying(storage, log, dies=False).invoke(None, CONFIG)
    outcome = outcome_of(found)
    assert (outcome.reason, outcome.turns) == ("turns", 3)
    paid = log.read_text().split()
    assert len(paid) == len(set(paid)) == 3
    told = [marks(m).get("unknown", False) for m in found["messages"] if m.type == "tool"]
    assert told == [False, True, False]


def test_an_effect_whose_run_was_cancelled_is_told_as_unknown() -> None:
    paid = list[str]()

    @tool
    async def pay(name: str) -> str:
        """Pay."""
        paid.append(name)
        await asyncio.sleep(60)
        return "paid"

    model = ScriptedModel([call("pay", name="a"), DONE])
    held = create_agent(
        model, [pay], middleware=[Guards()], checkpointer=InMemorySaver(), store=InMemoryStore()
    )

    async def cancelled_and_resumed() -> Any:
        run = asyncio.create_task(held.ainvoke(GO, CONFIG))
        while not paid:
            await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.wait([run])
        return await held.ainvoke(None, CONFIG)

    found = asyncio.run(cancelled_and_resumed())
    told = [marks(m).get("unknown", False) for m in found["messages"] if m.type == "tool"]
    assert (paid, told[0]) == (["a"], True)


def test_without_a_store_a_person_is_told_that_there_is_no_journal() -> None:
    script = ScriptedModel([call("save", name="a"), call("save", name="b"), DONE])
    bare = create_agent(script, tools(), middleware=[Guards()], checkpointer=InMemorySaver())
    with pytest.warns(JournalWarning, match="Pass store= to create_agent") as told:
        bare.invoke(GO, CONFIG)
    assert len(told) == 1


@pytest.mark.parametrize("way", ways(), ids=["sync", "async"])
@pytest.mark.parametrize("build", [guarded, lambda plain: plain], ids=["guarded", "plain"])
def test_an_agent_goes_on_by_extend_and_retry(build: Any, way: Any) -> None:
    script = [call("look", name="a"), call("look", name="b"), RuntimeError("down"), DONE]
    held = build(agent(*script, saved=True, limits={"turns": 1}))
    way(held, GO)
    assert outcome_of(held.get_state(CONFIG)).reason == "turns"
    way(held, extend(held.get_state(CONFIG), turns=5))
    assert outcome_of(held.get_state(CONFIG)).reason == "model_error"
    way(held, retry(held.get_state(CONFIG)))
    outcome = outcome_of(held.get_state(CONFIG))
    assert (outcome.succeeded, outcome.turns) == (True, 3)


@pytest.mark.parametrize("way", ways(), ids=["sync", "async"])
def test_an_extension_adds_to_the_turns_used_beyond_the_limit(way: Any) -> None:
    script = [call("ask_user", question="Which?"), *[call("look", name=name) for name in "abcd"]]
    held = guarded(agent(*script, saved=True, limits={"turns": 1}))
    way(held, GO)
    way(held, Command(resume="The red one."))
    assert (outcome_of(held.get_state(CONFIG)).reason, outcome_of(held.get_state(CONFIG)).turns) == (
        "turns",
        2,
    )
    way(held, extend(held.get_state(CONFIG), turns=2))
    assert (outcome_of(held.get_state(CONFIG)).reason, outcome_of(held.get_state(CONFIG)).turns) == (
        "turns",
        4,
    )


@pytest.mark.parametrize("way", ways(), ids=["sync", "async"])
@pytest.mark.parametrize("answer", [None, {}])
def test_an_answer_that_says_nothing_is_told_and_can_be_given_again(answer: Any, way: Any) -> None:
    held = guarded(agent(call("ask_user", question="Which?"), DONE, saved=True))
    way(held, GO)
    with pytest.raises(ThreadError, match="nothing would be delivered"):
        way(held, Command(resume=answer))
    way(held, Command(resume="The red one."))
    assert outcome_of(held.get_state(CONFIG)).succeeded


@pytest.mark.parametrize("way", ["sync", "async"])
def test_another_answer_at_a_point_that_was_answered_is_told(way: str) -> None:
    held = guarded(agent(call("ask_user", question="Which?"), DONE, DONE, saved=True))
    held.invoke(GO, CONFIG)
    before = held.get_state(CONFIG).config
    held.invoke(Command(resume="The red one."), CONFIG)

    def answered(answer: str) -> Any:
        given: Any = Command(resume=answer)
        return held.invoke(given, before) if way == "sync" else asyncio.run(held.ainvoke(given, before))

    with pytest.raises(ThreadError, match="already answered"):
        answered("The blue one.")
    found = answered("The red one.")
    assert next(m.text for m in found["messages"] if m.type == "tool") == "The red one."


def test_a_guarded_agent_has_one_runner_and_no_limit_of_steps() -> None:
    model = ScriptedModel(lambda seen: call("look", name=f"n{len(seen)}") if len(seen) < 200 else DONE)
    storage: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    saved = create_agent(model, tools(), middleware=[Guards(Limits(turns=500))], **storage)
    held = guarded(saved.with_config(recursion_limit=20))
    stream = held.stream(GO, CONFIG)
    next(stream)
    with pytest.raises(ThreadBusy):
        held.invoke(GO, CONFIG)
    assert len(list(stream)) > 20
    assert outcome_of(held.get_state(CONFIG)).succeeded


def finish_task(summary: str) -> str:
    """Finish."""
    return summary


OF_OPENAI = {"type": "function", "function": {"name": "finish_task", "parameters": {}}}
CUSTOM = {"type": "custom", "name": "finish_task"}


OTHER_FINISH = standard_controls(finish="done")[0]


class SecondGuards(Guards):
    pass


class Structured(BaseModel):
    answer: str


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: create_agent(ScriptedModel([DONE]), [finish_task], middleware=[Guards()]),
            "name of a control",
        ),
        (lambda: create_agent(ScriptedModel([DONE]), middleware=[Guards(), SecondGuards()]), "second Guards"),
        (
            lambda: create_agent(
                ScriptedModel([DONE]), middleware=[Guards(), SecondGuards(controls=[OTHER_FINISH])]
            ),
            "'done' is of kind control; pass it in controls= of Guards, or leave the second Guards out",
        ),
        (
            lambda: create_agent(
                ScriptedModel([DONE]),
                [delegate("helper", build_graph(ScriptedModel([DONE])), description="Helps.")],
                middleware=[Guards()],
            ),
            "'helper' is a delegate, which only a graph of build_graph can run",
        ),
        (
            lambda: create_agent(
                ScriptedModel([DONE]), middleware=[Guards()], response_format=ToolStrategy(Structured)
            ),
            r"write Guards\(response_format=",
        ),
        (
            lambda: create_agent(ScriptedModel([DONE]), [OF_OPENAI], middleware=[Guards()]),
            "name of a control",
        ),
        (lambda: create_agent(ScriptedModel([DONE]), [CUSTOM], middleware=[Guards()]), "name of a control"),
        (lambda: Guards(limits={"turn": 3}), "there is no 'turn'"),
        (lambda: Guards(limits={"cost": 3}), "needs prices"),
        (lambda: Guards(talk="loud"), "talk"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: guarded(create_agent(ScriptedModel([DONE]))), "takes an agent with guards"),
        (lambda: guarded(Guards()), "takes an agent with guards"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        build().invoke(GO)


def test_langchain_itself_refuses_the_same_middleware_twice() -> None:
    with pytest.raises(AssertionError, match="remove duplicate middleware"):
        create_agent(ScriptedModel([DONE]), middleware=[Guards(), Guards()])


@pytest.mark.parametrize("version", ["1.3.5", "1.0.0", "0.3.27", "2.0.0"])
def test_a_version_of_langchain_that_is_not_tested_is_told(version: str, tmp_path: Path) -> None:
    # One with nothing in it: none of these has all that Guards imports.
    folder, known = tmp_path / "langchain", tmp_path / f"langchain-{version}.dist-info"
    folder.mkdir()
    known.mkdir()
    (folder / "__init__.py").write_text("")
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: langchain\nVersion: {version}\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    told = subprocess.run(
        [sys.executable, "-c", "import signoff.guards"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert f"tested with langchain 1.4 up to, but not including, 2; this is {version}." in told.stderr


def test_the_extra_asks_for_the_versions_that_are_tested() -> None:
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        (asked,) = tomllib.load(file)["project"]["optional-dependencies"]["langchain"]
    bounds = Requirement(asked).specifier
    assert {str(one) for one in bounds} == {f">={_dotted(LOWEST)}", f"<{_dotted(BELOW)}"}


def _dotted(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))


class EndsAfterModel(AgentMiddleware[Any, Any, Any]):
    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"jump_to": "end"}


@before_model(can_jump_to=["end"])
def ends_before_model(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("That is enough.")], "jump_to": "end"}


@tool(return_direct=True)
def returns(name: str) -> str:
    """Return directly."""
    return name


@pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
@pytest.mark.parametrize("past", [EndsAfterModel(), ends_before_model], ids=["after", "before"])
def test_what_jumps_past_the_guards_is_an_error_and_no_success(past: Any, first: bool) -> None:
    around = [Guards(), past] if first else [past, Guards()]
    model = ScriptedModel([[call("look", name="a"), DONE]] * 2)
    outcome = outcome_of(create_agent(model, tools(), middleware=around).invoke(GO))
    assert (outcome.status, outcome.reason) == ("error", "middleware")


@before_agent(can_jump_to=["end"])
def refuses(state: Any, runtime: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("I cannot do that.")], "jump_to": "end"}


@before_agent(can_jump_to=["model"])
def to_the_model(state: Any, runtime: Any) -> dict[str, Any]:
    return {"jump_to": "model"}


@before_agent(can_jump_to=["tools"])
def to_the_tools(state: Any, runtime: Any) -> dict[str, Any]:
    made = ToolCall(name="save", args={"name": "made"}, id="made", type="tool_call")
    return {"messages": [AIMessage("", tool_calls=[made])], "jump_to": "tools"}


@pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
@pytest.mark.parametrize("task", [1, 2], ids=["first task", "second task"])
@pytest.mark.parametrize(
    ("past", "status", "reason"),
    [
        (refuses, "error", "middleware"),
        (to_the_model, "success", "finish_task"),
        (to_the_tools, "success", "finish_task"),
    ],
    ids=["end", "model", "tools"],
)
def test_what_jumps_where_a_task_begins_gives_it_an_outcome_of_its_own(
    past: Any, status: str, reason: str, task: int, first: bool
) -> None:
    class Jumps(AgentMiddleware[Any, Any, Any]):
        @hook_config(can_jump_to=["end", "model", "tools"])
        def before_agent(self, state: Any, runtime: Any) -> Any:
            words = [m.text for m in state["messages"] if m.type == "human"]
            return past.before_agent(state, runtime) if len(words) == task else None

    around = [Guards(), Jumps()] if first else [Jumps(), Guards()]
    storage: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    jumping = create_agent(ScriptedModel([DONE] * 3), tools(), middleware=around, **storage)
    outcomes = [outcome_of(jumping.invoke(GO, CONFIG)) for _ in range(2)]
    assert (outcomes[task - 1].status, outcomes[task - 1].reason) == (status, reason)
    assert outcomes[0].task != outcomes[1].task
    assert outcomes[2 - task].succeeded


class JumpsOverCalls(AgentMiddleware[Any, Any, Any]):
    """Back to the model from a reply with calls; always: from every reply."""

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self._always = always

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return {"jump_to": "model"} if self._always or state["messages"][-1].tool_calls else None


@pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
@pytest.mark.parametrize("way", ways(), ids=["sync", "async"])
def test_what_jumps_back_over_the_calls_of_a_reply_is_an_error(first: bool, way: Any) -> None:
    past = JumpsOverCalls(always=False)
    around = [Guards(), past] if first else [past, Guards()]
    found = way(create_agent(ScriptedModel([call("save", name="a")]), tools(), middleware=around), GO)
    outcome = outcome_of(found)
    assert (outcome.status, outcome.reason) == ("error", "middleware")
    assert "have no result" in str(outcome.error)


@wrap_tool_call
def answers_another_call(request: Any, handler: Any) -> ToolMessage:
    return ToolMessage("seen", tool_call_id="of another")


def test_results_of_other_calls_are_an_error_and_no_endless_loop() -> None:
    model = ScriptedModel([call("look", name="a")])
    endless = guarded(create_agent(model, tools(), middleware=[answers_another_call, Guards()]))
    outcome = outcome_of(endless.invoke(GO))
    assert (outcome.status, outcome.reason, outcome.turns) == ("error", "middleware", 1)


@pytest.mark.parametrize("first", [True, False], ids=["guards first", "guards last"])
def test_what_goes_back_to_the_model_for_ever_is_told(first: bool) -> None:
    past = JumpsOverCalls(always=True)
    around = [Guards(), past] if first else [past, Guards()]
    endless = guarded(create_agent(ScriptedModel([call("look", name="a")]), tools(), middleware=around))
    with pytest.raises(SetupError, match="jumps back to the model after the task has ended"):
        endless.invoke(GO)


def test_a_tool_that_returns_directly_ends_no_task() -> None:
    model = ScriptedModel([call("returns", name="a")])
    outcome = outcome_of(create_agent(model, [returns], middleware=[Guards()]).invoke(GO))
    assert (outcome.status, outcome.reason) == ("error", "middleware")


def test_two_inputs_are_two_tasks_and_two_outcomes() -> None:
    saved = agent(DONE, call("finish_task", outcome="blocked", summary="No key."), saved=True)
    first, second = (outcome_of(saved.invoke(GO, CONFIG)) for _ in range(2))
    assert (first.claim, second.claim) == ("done", "blocked")
    assert first.task != second.task


def test_the_model_is_told_how_to_finish_and_of_no_answer_before() -> None:
    model = ScriptedModel([DONE, DONE])
    saved = create_agent(
        model, tools(), middleware=[Guards()], system_prompt="Be kind.", checkpointer=InMemorySaver()
    )
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JournalWarning)
            saved.invoke({"messages": [HumanMessage("do it")]}, CONFIG)
    system, *seen = model.seen[-1].messages
    assert system.text.startswith("Be kind.")
    assert "finish_task" in system.text
    assert [message.type for message in seen] == ["human", "ai", "tool", "ai", "human"]


def test_a_streamed_reply_is_closed_after_its_finish() -> None:
    more = [call("save", name="late"), call("finish_task", summary="Once more. " * 200)]
    streamed = agent([call("look", name="a"), DONE, *more])
    found: Any = None
    words = ""
    for kind, item in streamed.stream(GO, stream_mode=["messages", "values"]):
        if kind == "messages":
            words += "".join(part["args"] or "" for part in getattr(item[0], "tool_call_chunks", ()))
        else:
            found = item
    assert "Once more" not in words
    said = next(message for message in found["messages"] if message.type == "ai")
    assert [one["name"] for one in said.tool_calls] == ["look", "finish_task"]
    assert outcome_of(found).succeeded


def test_a_reply_streamed_in_an_event_loop_is_closed_after_its_finish() -> None:
    async def played() -> Any:
        streamed = agent([DONE, call("finish_task", summary="Once more.")])
        return [item async for item in streamed.astream(GO, stream_mode=["messages", "values"])]

    found = [item for kind, item in asyncio.run(played()) if kind == "values"][-1]
    assert [len(m.tool_calls) for m in found["messages"] if m.type == "ai"] == [1, 0]
