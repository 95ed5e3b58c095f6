"""What the model is offered: tools of its provider, and of the graph's own those that a function picks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from signoff import Limits, SetupError, build_graph, sqlite_storage
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call
from signoff.models.tagged import TaggedText
from signoff.session.replay import replay
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
SEARCH = {"type": "web_search"}
CONTROLS = ["finish_task", "ask_user", "think"]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def look() -> str:
    """Look."""
    return "seen"


def pay() -> str:
    """Pay."""
    return "paid"


def offers(model: ScriptedModel) -> list[list[str]]:
    """The names of the tools that each call of the model was offered."""
    return [[_name(tool) for tool in seen.tools] for seen in model.seen]


def _name(tool: dict[str, Any]) -> str:
    if "function" in tool:
        return str(tool["function"]["name"])
    return str(tool.get("name") or tool["type"])


def results(result: Any) -> list[str]:
    return [m.text for m in result["messages"] if isinstance(m, ToolMessage)]


class TestToolsOfTheProvider:
    @pytest.mark.parametrize(
        "given", [SEARCH, {"type": "web_search_20250305", "name": "web_search"}, {"google_search": {}}]
    )
    def test_the_model_is_told_of_them_as_they_are(self, given: dict[str, Any]) -> None:
        model = ScriptedModel([FINISH])
        build_graph(model, [look, given]).invoke(GO)
        assert model.seen[0].tools[1] == given
        assert [_name(tool) for tool in model.seen[0].tools[2:]] == CONTROLS

    def test_what_they_found_is_kept_and_shown_again(self, storage: SqliteStorage) -> None:
        found: list[Any] = [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "X"}]},
            {"type": "text", "text": "It is x."},
        ]
        said = AIMessage(found, tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
        model = ScriptedModel([said, FINISH])
        result = build_graph(model, [look, SEARCH], storage=storage).invoke(GO, THREAD)
        shown = [m.content for m in model.seen[1].messages if isinstance(m, AIMessage)]
        assert shown == [found] == [result["messages"][1].content]
        assert results(result) == ["seen", "Accepted. The task has ended."]
        assert result["outcome"]["tool_calls"] == 1

    def test_a_call_of_one_is_not_run_here(self) -> None:
        result = build_graph(ScriptedModel([call("web_search", query="x"), FINISH]), [SEARCH]).invoke(GO)
        assert results(result)[0] == "Not run: web_search is run by your provider, and cannot be called here."
        assert (result["outcome"]["status"], result["outcome"]["tool_calls"]) == ("success", 0)

    @pytest.mark.parametrize(
        ("tools", "told"),
        [
            ([{"type": "function", "function": {"name": "f"}}], "cannot be a tool: nothing runs it"),
            ([{"name": "f", "input_schema": {}}], "cannot be a tool: nothing runs it"),
            ([{}], "cannot be a tool: nothing runs it"),
            ([SEARCH, SEARCH], "Two tools are named 'web_search'"),
            ([look, {"type": "x", "name": "look"}], "Two tools are named 'look'"),
            ([{"type": "x", "name": "think"}], "Two tools are named 'think'"),
            (SEARCH, "not a list"),
        ],
    )
    def test_what_cannot_be_one_is_told(self, tools: Any, told: str) -> None:
        with pytest.raises(SetupError, match=told):
            build_graph(ScriptedModel([]), tools)

    def test_a_model_that_has_no_place_for_one_says_so(self) -> None:
        with pytest.raises(SetupError, match="TaggedText does not take what tools= names of a provider"):
            build_graph(TaggedText(ScriptedModel([])), [SEARCH])


class TestPickedTools:
    def test_by_the_state_and_the_context(self, storage: SqliteStorage) -> None:
        """First only to look; to pay when something was seen; in the order of the graph."""

        def pick(state: Any, context: Any) -> list[str]:
            seen = any(isinstance(m, ToolMessage) for m in state["messages"])
            return ["pay", "look"] if seen and context.turns == 9 else ["look"]

        model = ScriptedModel([call("look"), call("pay"), FINISH])
        graph = build_graph(model, [look, pay, SEARCH], select_tools=pick, storage=storage)
        result = graph.invoke(GO, THREAD, context={"turns": 9})
        assert offers(model) == [["look", *CONTROLS], *[["look", "pay", *CONTROLS]] * 2]
        # The same choice is the same, byte by byte.
        assert repr(model.seen[1].tools) == repr(model.seen[2].tools)
        assert results(result)[:2] == ["seen", "paid"]
        assert [marks(m).get("offered") for m in result["messages"] if "at" in marks(m)] == [
            ["look"],
            ["look", "pay"],
            ["look", "pay"],
        ]

    def test_a_context_of_the_users_own_is_what_it_gets(self) -> None:
        @dataclass
        class Account:
            admin: bool = False

        model = ScriptedModel([FINISH, FINISH])
        graph = build_graph(
            model,
            [look, pay],
            context_schema=Account,
            select_tools=lambda _, account: None if account.admin else ["look"],
        )
        graph.invoke(GO, context={"admin": True, "turns": 3})
        graph.invoke(GO, context=Account())
        assert offers(model) == [["look", "pay", *CONTROLS], ["look", *CONTROLS]]

    def test_a_call_of_what_was_not_offered_is_not_run(self, storage: SqliteStorage) -> None:
        ran = list[str]()

        def pay_now() -> str:
            """Pay."""
            ran.append("paid")
            return "paid"

        model = ScriptedModel([call("pay_now"), FINISH])
        graph = build_graph(
            model, [look, pay_now], select_tools=lambda state, context: ["look"], storage=storage,
            approvals={"pay_now": True},
        )  # fmt: skip
        result = graph.invoke(GO, THREAD)
        told, _ = results(result)
        assert told.startswith("pay_now cannot be called now. Nothing was run. The tools are: look, finish")
        assert (ran, result["outcome"]["status"]) == ([], "success")
        assert replay(graph, "t").differences == ()

    def test_none_is_all_and_controls_are_always_there(self) -> None:
        picks: list[Any] = [None, [], [pay], [SEARCH, "finish_task"]]
        model = ScriptedModel([call("think", thought="x")] * 3 + [FINISH])
        build_graph(model, [look, pay, SEARCH], select_tools=lambda *_: picks.pop(0)).invoke(GO)
        assert offers(model) == [
            ["look", "pay", "web_search", *CONTROLS],
            CONTROLS,
            ["pay", *CONTROLS],
            ["web_search", *CONTROLS],
        ]

    def test_the_ladder_of_talk_keeps_the_choice(self) -> None:
        model = ScriptedModel(["a", "b", "c", "d", FINISH])
        build_graph(model, [look, pay], select_tools=lambda *_: ["pay"], limits=Limits(talk_turns=9)).invoke(
            GO
        )
        assert offers(model) == [["pay", *CONTROLS]] * 5
        assert [seen.tool_choice for seen in model.seen] == [None, None, None, "required", "required"]

    @pytest.mark.parametrize("given", ["look", list, lambda state: [], print.__class__])
    def test_what_is_no_such_function_is_told(self, given: Any) -> None:
        with pytest.raises(SetupError, match="select_tools="):
            build_graph(ScriptedModel([]), [look], select_tools=given)
