"""A call whose arguments do not fit is not run, and counts like one of a tool that does not exist."""

from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, field_validator

from signoff import Limits, build_graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "pay")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="All of it.")
UNKNOWN, MANY, ONE = call("spend", n=1), call("pay", n="many"), call("pay", n=1)
RAN: list[Any] = []


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("it is even")
        return value


def pay(n: int) -> str:
    """Pay."""
    RAN.append(n)
    return "paid"


def with_id(n: int, made: Annotated[str, InjectedToolCallId]) -> str:
    """Pay."""
    RAN.append(n)
    return "paid"


class Own(BaseTool):
    name: str = "pay"
    description: str = "Pay."
    args_schema: Any = Even

    def _run(self, n: int) -> str:
        RAN.append(n)
        return "paid"


TOOLS: dict[str, BaseTool] = {
    "a function": tool("pay")(pay),
    "with a schema": StructuredTool.from_function(pay, args_schema=Even),
    "with something injected": StructuredTool.from_function(with_id, name="pay"),
    "a class": Own(),
    "handles it": StructuredTool.from_function(pay, handle_validation_error="A whole number, please."),
    "handles it by a function": StructuredTool.from_function(pay, handle_validation_error=lambda _: "No."),
}


def memory() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def run(*script: Any, made: BaseTool = TOOLS["a function"], **limits: Any) -> tuple[Any, list[Any]]:
    """The outcome, and why each call of `pay` was not run."""
    with ScriptedModel(list(script)) as model:
        result = build_graph(model, [made], limits=Limits(**limits)).invoke(GO)
    results = [m for m in result["messages"] if isinstance(m, ToolMessage) and m.name != "finish_task"]
    return result["outcome"], [marks(found).get("not_run") for found in results]


@pytest.mark.parametrize("kind", TOOLS)
def test_it_is_not_run_whatever_the_tool(kind: str) -> None:
    outcome, why = run(MANY, ONE, FINISH, made=TOOLS[kind], tool_calls=1)
    assert (outcome["status"], outcome["tool_calls"], why, RAN) == ("success", 1, ["invalid", None], [1])


@pytest.mark.parametrize("kind", ["with a schema", "a class"])
def test_validators_of_the_schema_count(kind: str) -> None:
    outcome, why = run(call("pay", n=2), ONE, FINISH, made=TOOLS[kind], tool_calls=1)
    assert (outcome["tool_calls"], why, RAN) == (1, ["invalid", None], [1])


class Panic(BaseException):
    """What an extension in Rust raises when it panics."""


class Panicky(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _panics(cls, value: int) -> int:
        raise Panic(f"index {value} out of bounds")


def test_a_validator_that_panics_is_an_error_of_its_tool() -> None:
    made = StructuredTool.from_function(pay, args_schema=Panicky)
    with ScriptedModel([ONE, FINISH]) as model:
        messages = build_graph(model, [made]).invoke(GO)["messages"]
    assert "Panic: index 1 out of bounds" in [message.text for message in messages]


def test_the_tool_says_what_the_model_is_told() -> None:
    with ScriptedModel([MANY, FINISH]) as model:
        messages = build_graph(model, [TOOLS["handles it"]]).invoke(GO)["messages"]
    assert "A whole number, please." in [message.text for message in messages]


@pytest.mark.parametrize("bad", [UNKNOWN, MANY], ids=["unknown", "does not fit"])
class TestLikeAnUnknownTool:
    def test_it_uses_up_no_call(self, bad: Any) -> None:
        outcome, _ = run(bad, ONE, FINISH, tool_calls=1)
        assert (outcome["status"], outcome["tool_calls"], RAN) == ("success", 1, [1])

    def test_nor_the_place_of_another_call_of_its_reply(self, bad: Any) -> None:
        outcome, why = run([bad, ONE], FINISH, tool_calls=1)
        assert (outcome["status"], why[1], RAN) == ("success", None, [1])

    def test_it_is_no_work_between_refused_finishes(self, bad: Any) -> None:
        outcome, _ = run([bad, FINISH], [bad, FINISH])
        assert (outcome["status"], outcome["reason"]) == ("limit", "review_deadlock")

    def test_nobody_is_asked_about_it(self, bad: Any) -> None:
        with ScriptedModel([bad, FINISH]) as model:
            graph = build_graph(
                model,
                [TOOLS["a function"]],
                approvals={"pay": True},
                checkpointer=InMemorySaver(),
                store=InMemoryStore(),
            )
            assert "__interrupt__" not in graph.invoke(GO, THREAD)

    def test_nor_is_it_handed_over(self, bad: Any) -> None:
        with ScriptedModel([bad, FINISH]) as model:
            graph = build_graph(
                model,
                [TOOLS["a function"]],
                hand_over=["pay"],
                checkpointer=InMemorySaver(),
                store=InMemoryStore(),
            )
            assert "__interrupt__" not in graph.invoke(GO, THREAD)


def test_an_error_of_the_same_kind_in_the_tool_itself_is_work_that_ran() -> None:
    def broken(n: int) -> str:
        """Pay."""
        RAN.append(n)
        return str(Even(n="what came back"))

    outcome, why = run(ONE, FINISH, made=StructuredTool.from_function(broken, name="pay"))
    assert (outcome["tool_calls"], why, RAN) == (1, [None], [1])
