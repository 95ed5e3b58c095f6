"""`Guards` beside other middleware, before it and after it, in `create_agent` and in deepagents."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import middleware as chain
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage

from signoff import go_on
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.drop_in.guarding import ANSWER, ASKS, DONE, LOOK, ORDERS, SINCE_1_5, agent, used
from tests.drop_in.playing import around, hook, play, results, texts

EDITED: Mapping[str, Any] = {"name": "save", "args": {"name": "good"}, "id": "s1", "type": "tool_call"}
# What `after_model` makes of the calls of a reply: what is saved, the summary and the turns.
CHANGES: Mapping[str, tuple[Callable[[Any], Any], str, str, int]] = {
    "edits": (lambda c: [EDITED, c[1]], "saved good", "All of it.", 1),
    "edits the finish": (lambda c: [c[0], {**c[1], "args": {"summary": "Mine."}}], "saved x", "Mine.", 1),
    "edits both": (lambda c: [EDITED, {**c[1], "args": {"summary": "Mine."}}], "saved good", "Mine.", 1),
    "drops the finish": (lambda c: c[:1], "saved x", "All of it.", 2),
}


class TestChangedReplies:
    @ORDERS
    @pytest.mark.parametrize("case", CHANGES)
    def test_what_is_made_of_a_reply_is_what_counts(self, case: str, first: bool) -> None:
        change, saved, *ends = CHANGES[case]

        def changes(state: Any) -> Any:
            """In place."""
            said = next(m for m in reversed(state["messages"]) if m.type == "ai")
            if len(said.tool_calls) == 2:
                said.tool_calls = change(said.tool_calls)
                return {"messages": [said]}
            return None

        script = [[call("save", id="s1", name="x"), DONE], DONE]
        found = play(agent(script, hook("after_model", changes), first=first))
        assert [found["outcome"]["summary"], found["outcome"]["turns"]] == ends
        assert results(found, "save") == [saved]

    @ORDERS
    def test_a_question_shows_no_reply_to_others_a_second_time(self, first: bool) -> None:
        seen: list[Any] = []
        notes = hook("after_model", lambda state: seen.append(replies(state)[-1]))
        asking = agent([ASKS, DONE], notes, first=first)
        play(asking)
        play(asking, ANSWER)
        assert len(seen) == len(set(seen)) >= 2


def replies(state: Any) -> list[Any]:
    return [message.id for message in state["messages"] if message.type == "ai"]


class TestBesideOthers:
    """Where each of them has to stand, as the page of `Guards` says."""

    @pytest.mark.parametrize(("first", "status"), [(True, "success"), (False, "error")])
    def test_a_fallback_is_asked_where_guards_stand_around_it(self, first: bool, status: str) -> None:
        fallback = chain.ModelFallbackMiddleware(ScriptedModel([DONE]))
        assert play(agent([RuntimeError("down")], fallback, first=first))["outcome"]["status"] == status

    @pytest.mark.parametrize(
        ("first", "after"), [(False, ["All of it."]), (True, ["It is set.", "All of it."])]
    )
    def test_what_closes_something_at_the_end_stands_before(self, first: bool, after: list[str]) -> None:
        closed: list[str] = []
        closes = hook("after_agent", lambda state: closed.append(texts(state, "ai")[-1]))
        play(agent(["It is set.", LOOK, DONE], closes, first=first))
        assert closed == after

    @ORDERS
    def test_a_message_after_the_end_hides_no_outcome(self, first: bool) -> None:
        late = {"messages": [AIMessage("By the way.")]}
        says = [hook("after_model", lambda state: late if state.get("outcome") else None)]
        says += [hook("after_agent", lambda state: late)] * first
        asked = agent([DONE, DONE], *says, first=first)
        for _ in range(2):
            assert used(play(asked)) == ("finish_task", 1)

    @ORDERS
    def test_what_is_sent_back_after_the_end_is_a_task_of_its_own(self, first: bool) -> None:
        left = [HumanMessage("Not yet."), HumanMessage("Nor now.")]
        sends = hook(
            "after_agent",
            lambda state: {"jump_to": "model", "messages": [left.pop(0)]} if left else None,
            "model",
        )
        found = play(agent([DONE] * 3, sends, first=first, saved={}))
        assert (texts(found), used(found)) == (["go", "Not yet.", "Nor now."], ("finish_task", 1))


def auto_mode(*names: str, risky: str) -> Any:
    from tests.support.judge import Judge, risk_of

    return chain.AutoModeMiddleware(tools=names, classifier=Judge(answer=risk_of(risky)))


@SINCE_1_5
class TestDecisionModels:
    @ORDERS
    def test_a_blocked_call_voids_the_finish_beside_it(self, first: bool) -> None:
        judges = auto_mode("save", risky="bad")
        found = play(agent([[call("functions.save", name="bad"), DONE], DONE], judges, first=first))
        assert (used(found), found["outcome"]["refusals"]) == (("finish_task", 2), 1)
        assert "saved bad" not in results(found)

    @pytest.mark.parametrize(("first", "turns"), [(True, 1), (False, 2)], ids=["guards first", "guards last"])
    def test_a_finish_is_judged_by_who_stands_before_the_guards(self, first: bool, turns: int) -> None:
        judges = auto_mode("finish_task", risky="All of it.")
        found = play(agent([DONE, call("finish_task", summary="Half of it.")], judges, first=first))
        assert used(found) == ("finish_task", turns)


TOO_LONG: Mapping[str, Any] = {
    "a reply of Claude": AIMessage("I", response_metadata={"finish_reason": "model_context_window_exceeded"}),
}


@pytest.mark.parametrize("case", TOO_LONG)
class TestAPromptThatIsTooLong:
    def test_it_is_shortened_by_who_stands_around(self, case: str) -> None:
        def shortens(request: Any, handler: Any) -> Any:
            try:
                return handler(request)
            except ContextOverflowError:
                return handler(request.override(messages=request.messages[-1:]))

        asked = agent([LOOK, TOO_LONG[case], DONE], around(shortens), first=False)
        assert used(play(asked)) == ("finish_task", 2)

    @pytest.mark.filterwarnings("ignore::signoff.graph.errors.MiddlewareWarning")
    def test_where_nobody_does_the_task_ends_and_goes_on(self, case: str) -> None:
        asked = guarded(agent([LOOK, TOO_LONG[case], DONE], create=create_deep_agent))
        assert used(play(asked)) == ("model_error", 1)
        assert used(play(asked, go_on())) == ("finish_task", 2)


TASK = call("task", description="Look at the door.", subagent_type="helper")


def deep(*script: Any, helper: Any = None) -> Any:
    """A deep agent with guards, and a sub-agent of this script."""
    child: Any = {"name": "helper", "description": "Helps.", "system_prompt": "Help."}
    subagents: Any = [{**child, "middleware": [Guards()], "model": ScriptedModel(helper)}] if helper else None
    return agent(
        script, create=lambda *args, **options: create_deep_agent(*args, subagents=subagents, **options)
    )


class TestDeepAgents:
    def test_one_ends_only_by_a_finish(self) -> None:
        found = play(deep(call("write_file", file_path="/a.txt", content="hi"), "It is written.", DONE))
        assert (used(found), "/a.txt" in found["files"]) == (("finish_task", 3), True)

    CHILDREN: Mapping[str, tuple[list[Any], str, str]] = {
        "done": ([call("finish_task", summary="The door is red.")], "The door is red.", "success"),
        "blocked": ([call("finish_task", outcome="blocked", summary="No key.")], "No key.", "error"),
        "a limit": (["only words"] * 5, "", "error"),
    }

    @pytest.mark.parametrize("case", CHILDREN)
    def test_a_childs_outcome_goes_up_and_voids_a_finish_beside_it_unless_it_is_done(self, case: str) -> None:
        script, told, status = self.CHILDREN[case]
        found = play(deep([TASK, DONE], DONE, helper=script * 2))
        answers = [m for m in found["messages"] if m.type == "tool" and m.name == "task"]
        assert [(told in one.text, one.status) for one in answers] == [(True, status)]
        assert used(found) == ("finish_task", 1 if status == "success" else 2)
