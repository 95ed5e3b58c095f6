"""`Guards` in `create_agent`: a task ends as the rules say, and agents that share something stay apart.

The rules are the machine's own, which test_guards_like_the_machine.py compares; here is what a middleware has
to see to, since LangChain's loop runs the calls.
"""

import asyncio
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    after_agent,
    hook_config,
    wrap_model_call,
    wrap_tool_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from packaging.requirements import Requirement
from pydantic import BaseModel

from signoff import (
    SetupError,
    ThreadBusy,
    ThreadError,
    build_graph,
    delegate,
    go_on,
    outcome_of,
    sqlite_storage,
    standard_controls,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call, reply
from tests.drop_in.guarding import (
    ANSWER,
    ASKS,
    DONE,
    LOOK,
    ORDERS,
    agent,
    killed,
    looks,
    used,
)
from tests.drop_in.playing import ACCEPTED, GO, THREAD, ended, memory, play, results, texts, warned
from tests.support.guarded import tools


def langchain_bounds() -> dict[str, str]:
    """Those of the extra that has LangChain, by operator."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    (asked,) = project["optional-dependencies"]["langchain"]
    return {each.operator: each.version for each in Requirement(asked).specifier}


BOUNDS = langchain_bounds()


class TestAlone:
    INVALID = AIMessage(
        "", invalid_tool_calls=[{"name": "save", "args": "{bad", "id": "i1", "error": "no JSON"}]
    )
    ENDS: Mapping[str, tuple[list[Any], dict[str, Any], str, str, int]] = {
        "a finish": ([DONE], {}, "success", "finish_task", 1),
        "words, then a finish": (["I am done.", DONE], {}, "success", "finish_task", 2),
        "words for ever": (["only words"] * 5, {}, "limit", "talk_turns", 5),
        "nothing, then a finish": ([reply("")] * 2 + [DONE], {}, "success", "finish_task", 3),
        "filtered": ([reply("", finish_reason="content_filter")] * 2, {}, "error", "content_filter", 2),
        "looks for ever": ([LOOK] * 3, {"limits": {"turns": 3}}, "limit", "turns", 3),
        "the same for ever": ([LOOK] * 5, {}, "limit", "repeats", 5),
        "a finish beside a failure": (
            [[call("look", name="bad"), DONE], DONE],
            {},
            "success",
            "finish_task",
            2,
        ),
        "an error of the model": ([RuntimeError("down")], {}, "error", "model_error", 0),
        "a call of no tool": ([call("nobody_has_this"), DONE], {}, "success", "finish_task", 2),
        "a thought": ([call("think", thought="hm"), DONE], {}, "success", "finish_task", 2),
        "arguments that do not fit": ([call("look", wrong=1), DONE], {}, "success", "finish_task", 2),
        "a call that cannot be read": ([INVALID, DONE], {}, "success", "finish_task", 2),
    }

    @pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
    @pytest.mark.parametrize("case", ENDS)
    def test_a_task_ends_as_the_rules_say(self, case: str, saved: bool) -> None:
        script, rules, status, *use = self.ENDS[case]
        found = play(agent(script, saved=None if saved else {"store": InMemoryStore()}, **rules))
        assert (found["outcome"]["status"], *used(found)) == (status, *use)

    def test_checks_that_refuse_every_finish_end_the_task_where_nobody_can_confirm_it(self) -> None:
        refusing: dict[str, Any] = {"checks": [lambda: False]}
        assert used(play(agent([DONE, DONE], saved={}, **refusing))) == ("review_deadlock", 2)
        assert play(agent([DONE, DONE], **refusing))["__interrupt__"]

    def test_a_call_after_the_finish_is_never_run(self) -> None:
        found = play(agent([[call("save", name="a"), DONE, call("save", name="b")]]))
        assert sorted(text.partition(":")[0] for text in results(found, "save")) == ["Not run", "saved a"]
        assert outcome_of(found).tool_calls == 1

    def test_the_result_has_its_type(self) -> None:
        class City(BaseModel):
            name: str

        found = play(agent([call("finish_task", summary="x", result={"name": "Bern"})], response_format=City))
        assert outcome_of(found, City).result == City(name="Bern")

    def test_a_question_waits_and_its_answer_goes_on(self) -> None:
        asking = agent([[LOOK, ASKS], DONE])
        assert [one.value["question"] for one in play(asking)["__interrupt__"]] == ["Which?"]
        found = play(asking, ANSWER)
        assert (results(found, "ask_user"), ended(found)) == (["The red one."], ACCEPTED)

    def test_two_inputs_are_two_tasks(self) -> None:
        asked = agent([DONE, call("finish_task", outcome="blocked", summary="No key.")])
        first, second = (outcome_of(play(asked)) for _ in range(2))
        assert (first.claim, second.claim, first.task == second.task) == ("done", "blocked", False)

    def test_the_model_is_told_how_to_finish_and_of_no_answer_before(self) -> None:
        model = ScriptedModel([DONE, DONE])
        asked = create_agent(model, tools(), middleware=[Guards()], system_prompt="Be kind.", **memory())
        play(asked)
        play(asked)
        system, *seen = model.seen[-1].messages
        assert (system.text.startswith("Be kind."), "finish_task" in system.text) == (True, True)
        assert [message.type for message in seen] == ["human", "ai", "tool", "ai", "human"]

    def test_a_streamed_reply_is_closed_after_its_finish(self) -> None:
        model = ScriptedModel([[LOOK, DONE, call("finish_task", summary="Once more. " * 200)]])
        *_, (_, found) = agent(model).stream(GO, THREAD, stream_mode=["messages", "values"])
        said = next(message for message in found["messages"] if message.type == "ai")
        assert [one["name"] for one in said.tool_calls] == ["look", "finish_task"]
        assert outcome_of(found).succeeded

    def test_what_a_killed_process_paid_is_not_paid_again_and_its_turns_count(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.touch()

        def paid(given: Any, *, dies: bool) -> Any:
            @tool
            def pay(name: str) -> str:
                """Pay."""
                log.write_text(log.read_text() + f"{name}\n")
                if dies and name == "n4":
                    os._exit(9)
                return "paid"

            model = ScriptedModel(lambda seen: call("pay", name=f"n{len(seen)}"))
            with sqlite_storage(tmp_path / "threads.sqlite") as storage:
                saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
                return play(guarded(agent(model, more=[pay], saved=saved, limits={"turns": 3})), given)

        killed(lambda: paid(GO, dies=True))
        found = paid(None, dies=False)
        assert used(found) == ("turns", 3)
        assert len(set(log.read_text().split())) == len(log.read_text().split()) == 3
        assert [text.startswith("Outcome unknown") for text in results(found)] == [False, True, False]

    def test_an_effect_whose_run_was_cancelled_is_unknown(self) -> None:
        paid = list[str]()

        @tool
        async def pay(name: str) -> str:
            """Pay."""
            paid.append(name)
            await asyncio.sleep(600)
            return "paid"

        held = agent([call("pay", name="a"), DONE], more=[pay])

        async def cancelled_and_resumed() -> Any:
            run = asyncio.create_task(held.ainvoke(GO, THREAD))
            while not paid:
                await asyncio.sleep(0.01)
            run.cancel()
            await asyncio.wait([run])
            return await held.ainvoke(None, THREAD)

        found = asyncio.run(cancelled_and_resumed())
        assert (paid, results(found)[0].startswith("Outcome unknown")) == (["a"], True)

    class Structured(BaseModel):
        answer: str

    class SecondGuards(Guards):
        pass

    @staticmethod
    def finish_task(summary: str) -> str:
        """Finish."""
        return summary

    OF_OPENAI: Mapping[str, Any] = {"type": "function", "function": {"name": "finish_task", "parameters": {}}}
    HELPER = delegate("helper", build_graph(ScriptedModel([])), description="Helps.")
    MISTAKES: Mapping[str, tuple[Callable[..., Any], str]] = {
        "a tool with the name of a control tool": (
            lambda build: build([TestAlone.finish_task]),
            "finish_task",
        ),
        "one of OpenAI's": (lambda build: build([TestAlone.OF_OPENAI]), "finish_task"),
        "one of another kind": (
            lambda build: build([{"type": "custom", "name": "finish_task"}]),
            "finish_task",
        ),
        "a second Guards": (lambda build: build([], TestAlone.SecondGuards()), "second Guards"),
        "a second Guards of other names": (
            lambda build: build(
                [], TestAlone.SecondGuards(control_tools=standard_controls(finish="done")[:1])
            ),
            "'done'",
        ),
        "a delegate": (lambda build: build([TestAlone.HELPER]), "'helper'"),
        "a format of the agent": (
            lambda build: build([], response_format=ToolStrategy(TestAlone.Structured)),
            "Guards(response_format=",
        ),
        "an unknown limit": (lambda _: Guards(limits={"turn": 3}), "'turn'"),
        "a cost without prices": (lambda _: Guards(limits={"cost": 3}), "prices"),
        "an unknown talk": (lambda _: Guards(policy={"talk": "loud"}), "talk"),
        "guarded without guards": (lambda _: guarded(create_agent(ScriptedModel([DONE]))), "guards"),
        "guarded of no agent": (lambda _: guarded(Guards()), "guards"),
    }

    @pytest.mark.parametrize("case", MISTAKES)
    def test_a_mistake_is_told(self, case: str) -> None:
        def build(given: Any, *others: Any, **options: Any) -> Any:
            return create_agent(ScriptedModel([DONE]), given, middleware=[Guards(), *others], **options)

        make, name = self.MISTAKES[case]
        with pytest.raises(SetupError) as raised:
            make(build).invoke(GO)
        assert name in str(raised.value)

    @pytest.mark.parametrize("version", ["1.3.99", BOUNDS["<"]], ids=["older", "newer"])
    def test_a_version_of_langchain_that_the_extra_leaves_out_is_told(
        self, version: str, tmp_path: Path
    ) -> None:
        # One with nothing in it: such a version need not have what Guards imports.
        folder, known = tmp_path / "langchain", tmp_path / f"langchain-{version}.dist-info"
        folder.mkdir()
        known.mkdir()
        (folder / "__init__.py").touch()
        (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: langchain\nVersion: {version}\n")
        path = os.pathsep.join([str(tmp_path), *sys.path])
        command = [sys.executable, "-c", "import signoff.guards"]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        assert done.returncode != 0
        assert all(f" {each}" in done.stderr for each in (version, *BOUNDS.values()))


class TestGuarded:
    def test_it_goes_on_after_a_limit_and_an_error(self) -> None:
        script = [LOOK, call("look", name="b"), RuntimeError("down"), DONE]
        held = guarded(agent(script, limits={"turns": 1}))
        came = [used(play(held, given)) for given in (GO, go_on(turns=5), go_on())]
        assert came == [("turns", 1), ("model_error", 2), ("finish_task", 3)]

    def test_turns_are_granted_beyond_those_used(self) -> None:
        held = guarded(agent([ASKS, *[call("look", name=name) for name in "abcd"]], limits={"turns": 1}))
        play(held)
        assert [used(play(held, given)) for given in (ANSWER, go_on(turns=2))] == [("turns", 2), ("turns", 4)]

    @pytest.mark.parametrize("answer", [None, {}])
    def test_an_answer_that_says_nothing_is_refused_and_can_be_given_again(self, answer: Any) -> None:
        held = guarded(agent([ASKS, DONE]))
        play(held)
        with pytest.raises(ThreadError):
            play(held, Command(resume=answer))
        assert ended(play(held, ANSWER)) == ACCEPTED

    def test_another_answer_at_a_point_that_was_answered_is_refused(self) -> None:
        held = guarded(agent([ASKS, DONE, DONE]))
        play(held)
        before = held.get_state(THREAD).config
        play(held, ANSWER)
        with pytest.raises(ThreadError):
            held.invoke(Command(resume="The blue one."), before)
        assert results(held.invoke(ANSWER, before), "ask_user") == ["The red one."]

    def test_it_has_one_runner_and_no_limit_of_steps(self) -> None:
        model = ScriptedModel(lambda seen: looks(seen) if len(seen) < 80 else DONE)
        held = guarded(agent(model, limits={"turns": 500}).with_config(recursion_limit=20))
        stream = held.stream(GO, THREAD)
        next(stream)
        with pytest.raises(ThreadBusy):
            play(held)
        assert len(list(stream)) > 20
        assert outcome_of(held.get_state(THREAD)).succeeded

    def test_it_warns_of_a_sub_agent_without_guards(self) -> None:
        def deep(*within: Any) -> Any:
            helper = {"name": "general-purpose", "description": "Helps.", "system_prompt": "Help."}
            subagents: Any = [{**helper, "middleware": list(within)}]
            return create_deep_agent(ScriptedModel([DONE]), middleware=[Guards()], subagents=subagents)

        with warned():
            guarded(deep(Guards()))
        with warned("MiddlewareWarning") as told:
            guarded(deep())
        assert "general-purpose" in str(told[0].message)


class Jumps(AgentMiddleware[Any, Any, Any]):
    """A hook that jumps where it is told to."""

    def __init__(
        self, to: str, messages: Sequence[Any] = (), *, when: Callable[[Any], bool] = lambda _: True
    ) -> None:
        super().__init__()
        self.to, self.messages, self.when = to, messages, when

    def jump(self, state: Any) -> Any:
        return {"messages": list(self.messages), "jump_to": self.to} if self.when(state) else None


class BeforeAgent(Jumps):
    @hook_config(can_jump_to=["end", "model", "tools"])
    def before_agent(self, state: Any, runtime: Any) -> Any:
        return self.jump(state)


class BeforeModel(Jumps):
    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> Any:
        return self.jump(state)


class AfterModel(Jumps):
    @hook_config(can_jump_to=["end", "model"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return self.jump(state)


@tool(return_direct=True)
def returns(name: str) -> str:
    """Return directly."""
    return name


@wrap_tool_call
def answers_another_call(request: Any, handler: Any) -> ToolMessage:
    return ToolMessage("seen", tool_call_id="of another")


class TestJumpsOfOthers:
    PAST: Mapping[str, Callable[[], Any]] = {
        "to the end after the model": lambda: AfterModel("end"),
        "to the end before the model": lambda: BeforeModel("end", [AIMessage("That is enough.")]),
        "back over the calls of a reply": lambda: AfterModel(
            "model", when=lambda s: s["messages"][-1].tool_calls
        ),
    }

    @ORDERS
    @pytest.mark.parametrize("case", PAST)
    def test_what_goes_past_the_guards_is_an_error_and_no_success(self, case: str, first: bool) -> None:
        found = play(guarded(agent([[LOOK, DONE]] * 2, self.PAST[case](), first=first)))
        assert ended(found) == ("error", "middleware")

    @pytest.mark.parametrize(("first", "status"), [(True, "success"), (False, "error")])
    def test_a_result_of_another_call_is_an_error_where_the_guards_do_not_see_it(
        self, first: bool, status: str
    ) -> None:
        found = play(guarded(agent([LOOK, DONE], answers_another_call, first=first)))
        assert found["outcome"]["status"] == status

    def test_a_tool_that_returns_directly_ends_no_task(self) -> None:
        assert ended(play(agent([call("returns", name="a")], more=[returns]))) == ("error", "middleware")

    @ORDERS
    def test_what_goes_back_to_the_model_for_ever_is_a_mistake(self, first: bool) -> None:
        with pytest.raises(SetupError):
            play(guarded(agent([LOOK], AfterModel("model"), first=first)))

    MADE = AIMessage("", tool_calls=[{"name": "save", "args": {"name": "made"}, "id": "made"}])
    WHERE: Mapping[str, tuple[Sequence[Any], tuple[str, str]]] = {
        "end": ([AIMessage("I cannot do that.")], ("error", "middleware")),
        "model": ([], ACCEPTED),
        "tools": ([MADE], ACCEPTED),
    }

    @ORDERS
    @pytest.mark.parametrize("task", [1, 2], ids=["first task", "second task"])
    @pytest.mark.parametrize("to", WHERE)
    def test_a_jump_where_a_task_begins_leaves_it_an_outcome_of_its_own(
        self, to: str, task: int, first: bool
    ) -> None:
        messages, ends = self.WHERE[to]
        jumps = BeforeAgent(to, messages, when=lambda state: len(texts(state)) == task)
        asked = agent([DONE] * 3, jumps, first=first)
        states = [play(asked) for _ in range(2)]
        assert (ended(states[task - 1]), ended(states[2 - task])) == (ends, ACCEPTED)
        assert states[0]["outcome"]["task"] != states[1]["outcome"]["task"]

    @ORDERS
    @pytest.mark.parametrize("looks_on", [True, False])
    def test_one_that_refuses_the_input_is_not_overruled(self, first: bool, looks_on: bool) -> None:
        model = ScriptedModel([DONE])
        others = [after_agent(lambda state, runtime: None)] if looks_on else []
        refuses = BeforeAgent("end", [AIMessage("I cannot do that.")])
        assert ended(play(agent(model, *others, refuses, first=first))) == ("error", "middleware")
        assert model.seen == []


class TestShared:
    @staticmethod
    def named(name: str, told: list[str], says: str, **metadata: Any) -> Any:
        def run(name: str) -> str:
            told.append(says)
            return says

        return StructuredTool.from_function(run, name=name, description="Do it.", metadata=metadata)

    @staticmethod
    @wrap_model_call
    def answers(request: Any, handler: Any) -> AIMessage:
        """In place of the model, without ids of messages, and with the same id for each call."""
        if request.messages[-1].type != "human":
            return AIMessage(
                "", tool_calls=[{"name": "finish_task", "args": {"summary": "Paid."}, "id": "f"}]
            )
        return AIMessage("", tool_calls=[{"name": "pay", "args": {"name": "x"}, "id": "p"}])

    @pytest.mark.parametrize("build", [create_agent, build_graph])
    def test_runs_without_a_thread_share_no_journal(self, build: Any) -> None:
        told = list[str]()
        within = [Guards(), self.answers] if build is create_agent else [self.answers]
        paying = build(
            ScriptedModel([]), [self.named("pay", told, "paid")], middleware=within, store=InMemoryStore()
        )
        for _ in range(2):
            assert ended(play(paying)) == ACCEPTED
        assert told == ["paid", "paid"]

    def test_a_reply_without_an_id_gets_one_that_no_reply_had_before(self) -> None:
        told = list[str]()
        paying = agent([], self.answers, more=[self.named("pay", told, "paid")])
        for _ in range(4):
            assert ended(play(paying)) == ACCEPTED
            # So that the replies of the next task stand where those of this one did.
            paying.update_state(THREAD, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
        assert told == ["paid"] * 4

    def test_agents_beside_each_other_answer_each_call_of_their_own(self) -> None:
        node = guarded(create_agent(ScriptedModel([DONE, DONE]), middleware=[Guards()]))
        outer: Any = StateGraph(MessagesState)
        for name in ("left", "right"):
            outer.add_node(name, node).add_edge(START, name)
        found = play(outer.compile(checkpointer=InMemorySaver()))
        calls = [one["id"] for m in found["messages"] if m.type == "ai" for one in m.tool_calls]
        assert len(calls) == 2
        assert sorted(calls) == sorted(m.tool_call_id for m in found["messages"] if m.type == "tool")

    @pytest.mark.parametrize("name", ["act", "Act"], ids=["its name", "a name that is written wrong"])
    def test_agents_with_the_same_guards_keep_their_own_tools(self, name: str) -> None:
        told, both, saved = list[str](), Guards(), memory()

        def built(tool: Any) -> Any:
            model = ScriptedModel([call(name, name="a"), DONE])
            return create_agent(model, [tool], middleware=[both], **saved)

        reads = built(self.named("act", told, "read", kind="read"))
        writes = built(self.named("act", told, "written"))
        play(writes, interrupt_before=["tools"])
        read = reads.invoke(GO, {"configurable": {"thread_id": "other"}})
        found = play(writes, None)
        assert told == ["read", "written"]
        assert [len(state["outcome"]["changes"]) for state in (read, found)] == [0, 1]

    class WithTask(AgentState[Any]):
        task: str

    class WithList(AgentState[Any]):
        task: Annotated[list[str], list.__add__]

    @pytest.mark.parametrize("schema", [WithTask, WithList])
    @pytest.mark.parametrize("where", ["the agent", "a middleware"])
    def test_a_channel_with_a_name_of_the_guards_is_told(self, schema: Any, where: str) -> None:
        brings = type("Brings", (AgentMiddleware,), {"state_schema": schema})()
        options: Any = {"state_schema": schema} if where == "the agent" else {}
        within = [Guards(), *([] if options else [brings])]
        asked = create_agent(ScriptedModel([DONE]), tools(), middleware=within, **options)
        with pytest.raises(SetupError, match="'task'"):
            guarded(asked)
        with pytest.raises(SetupError, match="'task'"):
            asked.invoke({**GO, "task": "mine"} if schema is self.WithTask else GO)

    def test_a_thread_of_the_machine_is_not_taken_up(self) -> None:
        saved = memory()
        play(build_graph(ScriptedModel([DONE]), **saved))
        with pytest.raises(SetupError):
            play(agent([DONE], saved=saved))

    def test_a_call_of_a_providers_own_tool_is_not_run(self) -> None:
        found = play(agent([call("web_search", query="a"), DONE], more=[{"type": "web_search"}]))
        assert (results(found)[0].startswith("Not run: web_search"), ended(found)) == (True, ACCEPTED)
