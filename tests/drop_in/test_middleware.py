"""LangChain's middleware under `build_graph`: what the machine makes of what it leaves.

A reply is one turn whoever made it, a tool that may change something runs once whoever asks again, and
nothing but an accepted finish is a success. What LangChain itself shows is left to test_langchain_suite.py.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelResponse,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from signoff import Limits, Session, build_graph, go_on
from signoff.models import ScriptedModel, call, reply
from tests.drop_in.playing import (
    ACCEPTED,
    CONTROLS,
    FINISH,
    GO,
    POLICY,
    Bank,
    around,
    around_tools,
    ended,
    hook,
    jumps,
    labels,
    memory,
    play,
    results,
    scripted,
    warned,
)
from tests.support.interrupting import interrupt_process

PAYS = call("pay", amount=5)
Wrapper = Callable[[Any, Callable[[Any], Any]], Any]


def graph(model: Any, *middleware: Any, bank: Bank | None = None, policy: Any = (), **options: Any) -> Any:
    """A graph of a model, or of its script."""
    tools = (bank or Bank()).tools
    return build_graph(
        scripted(model), tools, middleware=middleware, policy={**POLICY, **dict(policy)}, **options
    )


def cut_off(*calls: Any) -> Any:
    return reply(*calls, finish_reason="length")


class TestAroundAModelCall:
    # What is put into the request, and what of the first model call then is what.
    OVERRIDES: Mapping[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Any], Any], Any]] = {
        "no tools": (lambda r: {"tools": []}, lambda seen: seen.tool_names, CONTROLS),
        "another prompt": (
            lambda r: {"system_message": SystemMessage("Be brief.")},
            lambda seen: [word in seen.messages[0].text for word in ("Be brief.", "Be kind.", *CONTROLS[:1])],
            [True, False, True],
        ),
    }

    @pytest.mark.parametrize("case", OVERRIDES)
    def test_what_is_put_into_a_request_is_sent_and_changes_no_history(self, case: str) -> None:
        """The rules of the loop and the control tools are told whatever it is, also to another model."""
        changes, looks, wanted = self.OVERRIDES[case]
        first, second = ScriptedModel([FINISH]), ScriptedModel([FINISH])
        given = around(lambda request, handler: handler(request.override(**changes(request))))
        switches = around(lambda request, handler: handler(request.override(model=second)), "switches")
        for model, within in ((first, [given]), (second, [given, switches])):
            found = play(graph(first, *within, system_prompt="Be kind."))
            assert looks(model.seen[0]) == wanted
            assert ended(found) == ACCEPTED
            assert [m.type for m in found["messages"]] == ["human", "ai", "tool", "ai"]
        assert len(first.seen) == 1

    # Each reply of the model costs 110 tokens. How many it gives, turns, and what is paid.
    REPLIES: Mapping[str, tuple[Wrapper, int, int, list[int]]] = {
        "asks twice, and the first counts": (lambda r, ask: [ask(r), ask(r)][0], 4, 2, [1]),
    }

    @pytest.mark.parametrize("case", REPLIES)
    def test_a_reply_is_one_turn_and_all_that_the_model_said_is_counted(self, case: str) -> None:
        does, replies, turns, paid = self.REPLIES[case]
        steps = [call("pay", amount=1), call("pay", amount=2), FINISH, FINISH][:replies]
        bank = Bank()
        script = [reply(step, usage=(100, 10)) for step in steps]
        outcome = play(graph(script, around(does), bank=bank, **memory()))["outcome"]
        assert (outcome["status"], outcome["turns"], bank.paid) == ("success", turns, paid)
        assert outcome["usage"]["total_tokens"] == 110 * replies

    def test_a_reply_that_nobody_was_asked_for_is_a_turn_and_costs_nothing(self) -> None:
        model, kept = ScriptedModel([FINISH]), [AIMessage("from the cache")]
        outcome = play(graph(model, around(lambda r, ask: kept.pop() if kept else ask(r))))["outcome"]
        alone = play(graph([FINISH]))["outcome"]["usage"]["output_tokens"]
        assert (outcome["turns"], len(model.seen), outcome["usage"]["output_tokens"]) == (2, 1, alone)

    def test_a_limit_of_tokens_bounds_what_is_asked_for_again(self) -> None:
        asks_on = around(lambda request, handler: [handler(request) for _ in range(50)][-1])
        found = play(graph(["word " * 100] * 60, asks_on, limits=Limits(tokens=1_000)))
        assert ended(found) == ("limit", "tokens")
        assert found["outcome"]["usage"]["output_tokens"] < 1_500

    BAD: Mapping[str, Wrapper] = {
        "no message": lambda r, ask: ModelResponse(result=[]),
        "a tool that nobody has": lambda r, ask: ask(r.override(tools=[tool(lambda: 1, description="x")])),
        "an error": lambda r, ask: 1 / 0,
        "the end of the program": lambda r, ask: sys.exit(3),
        "an error after the reply": lambda r, ask: [ask(r), int("x")],
    }

    @pytest.mark.parametrize("case", BAD)
    def test_what_cannot_be_is_a_model_error_that_can_be_gone_on_from(self, case: str) -> None:
        model, saved = ScriptedModel([FINISH, FINISH]), memory()
        found = play(graph(model, around(self.BAD[case]), **saved))
        assert ended(found) == ("error", "model_error")
        assert ended(play(graph(model, **saved), go_on())) == ACCEPTED

    def test_an_error_of_a_middleware_names_it_and_its_replies_are_paid_for(self) -> None:
        def judge(request: Any, handler: Any) -> Any:
            raise LookupError(handler(request).result[0].text)

        outcome = play(graph([reply("No.", usage=(100, 10))], around(judge, "judge")))["outcome"]
        assert (outcome["reason"], outcome["usage"]["total_tokens"]) == ("model_error", 110)
        assert "judge" in outcome["error"]
        assert "LookupError: No." in outcome["error"]


class TestAroundAToolCall:
    @staticmethod
    def cheaper(request: Any, handler: Any) -> Any:
        return handler(request.override(tool_call={**request.tool_call, "args": {"amount": 1}}))

    # What it does to a call that pays 2: what is paid, and how the result begins.
    CASES: Mapping[str, tuple[Wrapper, list[int], str]] = {
        "other arguments": (cheaper, [1], "paid 1"),
        "without a run": (lambda r, run: ToolMessage("kept", tool_call_id=r.tool_call["id"]), [], "kept"),
        "an error of its own": (lambda r, run: 1 / 0, [], "ZeroDivisionError"),
        "no result at all": (lambda r, run: 3, [], "<unsupported>"),
    }

    @pytest.mark.parametrize("case", CASES)
    def test_what_wraps_a_call_makes_its_result(self, case: str) -> None:
        does, paid, said = self.CASES[case]
        bank = Bank()
        found = play(graph([call("pay", amount=2), FINISH], around_tools(does), bank=bank, **memory()))
        assert (bank.paid, ended(found)) == (paid, ACCEPTED)
        assert results(found)[0].startswith(said)
        assert len(found["outcome"]["changes"]) == 1

    # Whether LangChain's middleware asks again, or one that repeats a success; the tool; how often it runs.
    AGAIN: Mapping[str, tuple[bool, dict[str, Any], int]] = {
        "a failure, it may change something": (True, {}, 1),
        "a failure, it reads": (True, {"kind": "read"}, 3),
        "a success, it changes something": (False, {"kind": "write"}, 1),
        "a success, it may be repeated": (False, {"kind": "write", "idempotent": True}, 3),
    }

    @pytest.mark.parametrize("case", AGAIN)
    def test_a_tool_runs_again_only_where_that_is_the_same_as_once(self, case: str) -> None:
        fails, metadata, runs = self.AGAIN[case]
        ran: list[int] = []

        @tool
        def work() -> str:
            """Work."""
            ran.append(1)
            if fails:
                raise ValueError("no luck")
            return "worked"

        work.metadata = metadata
        repeats = around_tools(lambda request, handler: [handler(request) for _ in range(3)][-1])
        given = ToolRetryMiddleware(initial_delay=0) if fails else repeats
        model = ScriptedModel([call("work"), FINISH])
        found = play(build_graph(model, [work], middleware=[given], policy=POLICY, **memory()))
        assert len(ran) == runs
        assert (labels(found)[0] == "<once>") is (runs == 1)

    def test_in_an_event_loop_it_is_the_same(self) -> None:
        class Insists(AgentMiddleware[Any, Any, Any]):
            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                return [await handler(request) for _ in range(2)][-1]

        bank = Bank()
        found = asyncio.run(graph([PAYS, FINISH], Insists(), bank=bank).ainvoke(GO))
        assert (bank.paid, labels(found)[0], ended(found)) == ([5], "<once>", ACCEPTED)

    def test_a_pause_before_the_call_runs_it_once(self) -> None:
        bank = Bank()
        asks = around_tools(lambda request, handler: interrupt("sure?") and handler(request))
        built = graph([call("pay", amount=1), FINISH], asks, bank=bank, **memory())
        (waiting,) = play(built)["__interrupt__"]
        assert (waiting.value, bank.paid) == ("sure?", [])
        found = play(built, Command(resume={waiting.id: "yes"}))
        assert (bank.paid, ended(found)) == ([1], ACCEPTED)

    def test_control_tools_pass_through_no_middleware(self) -> None:
        names: list[str] = []

        def notes(request: Any, handler: Any) -> Any:
            names.append(request.tool_call["name"])
            return handler(request)

        play(graph([call("look"), call("think", thought="hm"), FINISH], around_tools(notes)))
        assert names == ["look"]


HOOKS = ("before_agent", "before_model", "after_model", "after_agent")


def noting(name: str, note: Callable[[str], Any], times: int = 1) -> list[Any]:
    """Middleware that note each of their hooks, and ask the model so many times."""

    def asks(request: Any, handler: Any) -> Any:
        return [note(f"{name} asks") or handler(request) for _ in range(times)][-1]

    def wraps(request: Any, handler: Any) -> Any:
        note(f"{name} tool")
        found = handler(request)
        note(f"{name} tool done")
        return found

    def noted(place: str) -> Callable[[Any], Any]:
        return lambda _: note(f"{name} {place}")

    hooks = [hook(place, noted(place), whose=name + place) for place in HOOKS]
    return [*hooks, around(asks, f"{name}_asks"), around_tools(wraps, f"{name}_tool")]


class TestHooks:
    def test_all_run_in_the_order_of_create_agent(self) -> None:
        def by(build: Any, last: Any) -> list[str]:
            log = list[str]()
            within = [*noting("a", log.append, times=2), *noting("b", log.append)]
            model = ScriptedModel([*[call("look")] * 2, *[last] * 2])
            play(build(model, tools=Bank().tools, middleware=within))
            return log

        assert by(build_graph, FINISH) == by(create_agent, "Done.")

    def test_before_agent_runs_once_for_a_task(self) -> None:
        log: list[str] = []
        steps = [call("look"), call("ask_user", question="?"), FINISH, FINISH]
        built = graph(steps, hook("before_agent", lambda s: log.append(s["messages"][-1].text)), **memory())
        play(built)
        play(built, Command(resume="yes"))
        play(built, {"messages": [("user", "next")]})
        assert log == ["go", "next"]

    def test_after_model_runs_once_for_a_reply_and_never_for_one_that_was_imported(self) -> None:
        log: list[str] = []
        noting = hook("after_model", lambda state: log.append(state["messages"][-1].type))
        steps = [[call("pay", amount=1), call("look")], FINISH]
        bank = Bank()
        built = graph(steps, noting, bank=bank, approvals={"pay": True}, **memory())
        imported = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "theirs"}])
        play(built, {"messages": [("user", "go"), imported]})
        assert log == ["ai"]
        found = play(built, Command(resume={"decisions": [{"type": "approve"}]}))
        assert (ended(found), bank.paid, log) == (ACCEPTED, [1], ["ai", "ai"])

    @pytest.mark.parametrize("name", HOOKS)
    def test_a_pause_never_asks_the_model_again(self, name: str) -> None:
        heard: list[Any] = []
        model = ScriptedModel([FINISH])
        built = graph(model, hook(name, lambda _: heard.append(interrupt("sure?"))), **memory())
        (waiting,) = play(built)["__interrupt__"]
        assert (waiting.value, len(model.seen)) == ("sure?", int(name.startswith("after")))
        assert ended(play(built, Command(resume={waiting.id: "yes"}))) == ACCEPTED
        assert (heard, len(model.seen)) == (["yes"], 1)

    @staticmethod
    def answers(state: Any) -> Any:
        calls = [one for one in state["messages"][-1].tool_calls if one["name"] == "pay"]
        return {"messages": [ToolMessage("forbidden", tool_call_id=one["id"]) for one in calls]}

    @staticmethod
    def cheaper(state: Any) -> Any:
        last = state["messages"][-1]
        calls = [{**one, "args": {"amount": 1}} for one in last.tool_calls if one["name"] == "pay"]
        return {"messages": [AIMessage("", id=last.id, tool_calls=calls)]} if calls else None

    @staticmethod
    def same(state: Any) -> Any:
        last = state["messages"][-1]
        return {"messages": [AIMessage(last.content, id=last.id, tool_calls=last.tool_calls)]}

    # What the hook does to a reply with this step: what is paid, and how the result begins.
    REPLIES: Mapping[str, tuple[Callable[[Any], Any], Any, list[int], str]] = {
        "answers a call": (answers, PAYS, [], "forbidden"),
        "writes other arguments": (cheaper, PAYS, [1], "paid 1"),
        "copies a reply that was cut off": (same, cut_off(PAYS), [], "<truncated>"),
    }

    @pytest.mark.parametrize("case", REPLIES)
    def test_what_after_model_makes_of_a_reply_counts(self, case: str) -> None:
        does, step, paid, said = self.REPLIES[case]
        bank = Bank()
        found = play(graph([step, FINISH], hook("after_model", does), bank=bank, **memory()))
        assert (bank.paid, ended(found), found["outcome"]["turns"]) == (paid, ACCEPTED, 2)
        assert results(found)[0].startswith(said)
        assert len(found["outcome"]["changes"]) == len(paid)

    BAD: Mapping[str, Callable[[Any], Any]] = {
        "it removes the last message": lambda s: {"messages": [RemoveMessage(id=s["messages"][-1].id)]},
        "it writes an unknown channel": lambda _: {"typo": 1},
        "it writes the machine's": lambda _: {"outcome": {"status": "success"}},
        "it goes elsewhere": lambda _: Command(goto="finish"),
        "it raises": lambda _: 1 / 0,
    }

    @pytest.mark.parametrize("case", BAD)
    def test_what_cannot_be_written_is_an_error_that_names_the_hook(self, case: str) -> None:
        """After an accepted finish it is a warning: what is done stays done."""
        found = play(graph([["Words.", FINISH]], hook("after_model", self.BAD[case]), **memory()))
        assert ended(found) == ("error", "middleware")
        assert "my_after_model" in found["outcome"]["error"]
        with warned("MiddlewareWarning"):
            found = play(graph([FINISH], hook("after_agent", self.BAD[case]), **memory()))
        assert ended(found) == ACCEPTED

    def test_what_one_says_as_a_person_is_no_new_task_and_no_answer(self) -> None:
        said = [HumanMessage("Be quick."), SystemMessage("Be kind.")]
        model = ScriptedModel([call("look"), FINISH])
        found = play(graph(model, hook("before_model", jumps("", messages=said)), **memory()))
        assert (found["outcome"]["task"], found["outcome"]["nudges"]) == (found["messages"][0].id, 0)
        blocks: Any = model.seen[0].messages[1].content
        assert [block["text"] for block in blocks] == ["go", "Be quick."]
        assert "Be kind." in model.seen[0].messages[0].text


class TestJumps:
    # Hook, script, and the turns by the jump to the end.
    TO_THE_END: Mapping[str, tuple[str, list[Any], int]] = {
        "before the agent": ("before_agent", [FINISH], 0),
        "before the model": ("before_model", [FINISH], 0),
        "after a reply with work": ("after_model", [call("pay", amount=1), FINISH], 1),
        "after a reply with a finish": ("after_model", [FINISH, FINISH], 1),
    }

    @pytest.mark.parametrize("case", TO_THE_END)
    def test_a_jump_to_the_end_is_no_success_and_can_be_gone_on_from(self, case: str) -> None:
        name, steps, turns = self.TO_THE_END[case]
        bank = Bank()
        built = graph(steps, hook(name, jumps("end"), "end"), bank=bank, **memory())
        found = play(built)
        assert (ended(found), found["outcome"]["claim"], bank.paid) == (("error", "middleware"), None, [])
        assert f"my_{name}" in found["outcome"]["error"]
        assert found["outcome"]["turns"] == turns
        assert ended(play(built, go_on())) == ACCEPTED

    def test_going_on_is_no_way_around_what_stops_a_task_as_it_begins(self) -> None:
        built = graph([FINISH], hook("before_agent", jumps("end", once=False), "end"), **memory())
        for given in (GO, go_on(), go_on()):
            assert ended(play(built, given)) == ("error", "middleware")

    @pytest.mark.parametrize(("step", "stop"), [(PAYS, "call_llm"), (FINISH, "route_tools")])
    def test_no_way_into_a_thread_leads_around_after_model(self, step: Any, stop: str) -> None:
        """Its process ended between the reply and its hooks, or before the end that they ask for."""
        bank = Bank()
        built = graph([step, FINISH], hook("after_model", jumps("end"), "end"), bank=bank, **memory())
        play(built, interrupt_after=[stop])
        Session(built, "t").fork(thread_id="u")
        fork: Any = {"configurable": {"thread_id": "u"}}
        assert ended(built.invoke(None, fork)) == ("error", "middleware")
        assert bank.paid == []
        assert ended(built.invoke(go_on(), fork)) == ACCEPTED

    def test_after_agent_that_goes_back_refuses_the_finish(self) -> None:
        back = hook("after_agent", jumps("model", messages=[HumanMessage("Too short.")]), "model")
        found = play(graph([FINISH, call("finish_task", summary="Longer.")], back))
        assert results(found)[0].endswith("Too short.")
        assert (found["outcome"]["refusals"], found["outcome"]["summary"]) == (1, "Longer.")

    def test_after_agent_that_always_goes_back_is_bounded_like_a_review(self) -> None:
        back = hook("after_agent", jumps("model", once=False), "model")
        steps = [call("finish_task", summary=summary) for summary in ("One.", "Two.", "Three.")]
        assert ended(play(graph(steps, back, limits=Limits(refusals=3)))) == ("limit", "review_deadlock")

    @pytest.mark.parametrize(
        ("step", "status"), [(call("look"), "limit"), (ValueError("broken"), "error")], ids=["limit", "error"]
    )
    def test_after_agent_cannot_undo_a_limit_or_an_error(self, step: Any, status: str) -> None:
        back = hook("after_agent", jumps("model"), "model")
        with warned("MiddlewareWarning"):
            found = play(graph([step], back, limits=Limits(turns=1), **memory()))
        assert found["outcome"]["status"] == status

    def test_a_jump_that_is_not_declared_is_ignored(self) -> None:
        with warned("MiddlewareWarning"):
            assert ended(play(graph([FINISH], hook("before_model", jumps("end"))))) == ACCEPTED

    def test_a_jump_to_the_model_sets_the_calls_of_the_reply_aside(self) -> None:
        bank = Bank()
        steps = [[call("pay", amount=1), FINISH], FINISH]
        found = play(graph(steps, hook("after_model", jumps("model"), "model"), bank=bank))
        assert (ended(found), bank.paid, found["outcome"]["turns"]) == (ACCEPTED, [], 2)
        assert labels(found)[:2] == ["<middleware>", "<middleware>"]


def asks(*_: Any) -> Any:
    return interrupt("Which?")


class TestAskingWhereNobodyCanAnswer:
    """`interrupt()` in a run without a saver is told, and never an endless wait."""

    def test_at_a_model_call_it_is_an_error_that_says_what_to_pass(self) -> None:
        found = play(graph([FINISH], around(asks)))
        assert (ended(found), "__interrupt__" in found) == (("error", "model_error"), False)
        assert "storage=" in found["outcome"]["error"]

    def test_in_a_call_of_a_tool_it_is_a_result(self) -> None:
        ask = tool("ask", description="Ask a person.")(asks)
        with warned("ApprovalWarning"):
            found = play(build_graph(ScriptedModel([call("ask"), FINISH]), [ask]))
        result = next(m for m in found["messages"] if m.type == "tool")
        assert (result.status, ended(found), "__interrupt__" in found) == ("error", ACCEPTED, False)


# The hooks, and how often is paid in all when a run is cut short there.
PLACES = {"before_agent": 1, "asks": 1, "after_model": 1, "tool done": 1, "after_agent": 1}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_cut_short_in_a_hook_pays_at_most_once(place: str) -> None:
    log, saved = list[str](), memory()

    def run(deadly: str, given: Any) -> dict[str, Any]:
        def note(what: str) -> None:
            log.append(what)
            if what == f"x {deadly}":
                interrupt_process()

        pay = tool("pay", description="Pay.")(lambda: note("paid"))
        model = ScriptedModel(lambda seen: FINISH if any(m.type == "tool" for m in seen) else call("pay"))
        return play(build_graph(model, [pay], middleware=noting("x", note), policy=POLICY, **saved), given)

    with pytest.raises(KeyboardInterrupt):
        run(place, GO)
    found = run("", go_on())
    assert (ended(found), log.count("paid")) == (ACCEPTED, PLACES[place])
    assert log.count("x before_agent") == (2 if place == "before_agent" else 1)
    assert (labels(found)[0] == "<unknown_outcome>") is (place == "tool done")
