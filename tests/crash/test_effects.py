"""Effects at most once: the journal, on its own and under SIGKILL."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from signoff import build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.errors import JournalWarning
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.adapted import adapted
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "pay")]}
FINISH = call("finish_task", summary="x")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


class Payments:
    """A tool that is cut short the first time, after its effect."""

    def __init__(self, **metadata: Any) -> None:
        self.paid = 0
        self.tool = StructuredTool.from_function(self.pay, metadata={"kind": "write", **metadata})

    def pay(self) -> str:
        """Pay."""
        self.paid += 1
        if self.paid == 1:
            interrupt_process()
        return f"paid {self.paid}"


def cut_short(payments: Payments, storage: SqliteStorage, **settings: Any) -> Graph:
    script = [call("pay"), FINISH, FINISH]
    graph = build_graph(ScriptedModel(script), [payments.tool], storage=storage, **adapted(**settings))
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    return graph


def result_of(values: dict[str, Any]) -> ToolMessage:
    return next(message for message in values["messages"] if isinstance(message, ToolMessage))


def test_a_call_cut_short_is_not_run_again_and_the_model_is_told(storage: SqliteStorage) -> None:
    payments = Payments()
    result = cut_short(payments, storage).invoke(None, THREAD)
    assert payments.paid == 1
    assert "Outcome unknown: pay was started" in result_of(result).text
    assert result["outcome"]["status"] == "success"


def test_an_idempotent_tool_is_run_again(storage: SqliteStorage) -> None:
    payments = Payments(idempotent=True)
    result = cut_short(payments, storage).invoke(None, THREAD)
    assert result_of(result).text == "paid 2"


ASKED = {
    "run it again": ("approve", 2, "paid 2"),
    "do not": ("reject", 1, "The user decided against another run."),
    "it is known": ({"type": "respond", "message": "it was paid"}, 1, "it was paid"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_person_can_be_asked_about_an_unknown_outcome(name: str, storage: SqliteStorage) -> None:
    answer, paid, told = ASKED[name]
    payments = Payments()
    graph = cut_short(payments, storage, unknown_outcomes="ask")
    (pending,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert "Outcome unknown" in pending.value["action_requests"][0]["description"]
    result = graph.invoke(Command(resume={pending.id: answer}), THREAD)
    assert payments.paid == paid
    text = result_of(result).text
    assert (told in text, "Not run" in text) == (True, False)
    # A person has been asked about it: nobody is asked again.
    assert [result["outcome"][name] for name in ("status", "open_points", "refusals")] == ["success", [], 0]


def test_a_message_after_a_crash_closes_a_started_call_as_unknown(storage: SqliteStorage) -> None:
    payments = Payments()
    result = cut_short(payments, storage).invoke({"messages": [("user", "what now?")]}, THREAD)
    assert payments.paid == 1
    assert result_of(result).text.startswith("Outcome unknown")


def test_a_tool_that_pauses_by_its_own_interrupt_runs_again(storage: SqliteStorage) -> None:
    def pay() -> str:
        """Pay."""
        return f"paid with {interrupt('which card?')}"

    graph = build_graph(ScriptedModel([call("pay"), FINISH]), [pay], storage=storage)
    assert graph.invoke(GO, THREAD)["__interrupt__"][0].value == "which card?"
    assert result_of(graph.invoke(Command(resume="the blue one"), THREAD)).text == "paid with the blue one"


def test_effects_without_a_store_warn_once() -> None:
    with pytest.warns(JournalWarning, match="pay may change something") as caught:
        build_graph(ScriptedModel([]), [Payments().tool], checkpointer=InMemorySaver())
    assert len(caught) == 1


def injected(
    what: str,
    runtime: ToolRuntime,
    messages: Annotated[list[Any], InjectedState("messages")],
    store: Annotated[BaseStore, InjectedStore()],
    call_id: Annotated[str, InjectedToolCallId],
) -> str:
    """Look at what is injected."""
    return f"{what} {runtime.tool_call_id} {len(messages)} {store is not None} {call_id}"


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_langchains_injected_arguments(mode: str, storage: SqliteStorage) -> None:
    script = [call("injected", what="see", messages=["forged"]), FINISH]
    graph = build_graph(ScriptedModel(script), [injected], storage=storage)
    result = graph.invoke(GO, THREAD) if mode == "sync" else await graph.ainvoke(GO, THREAD)
    assert result_of(result).text == "see call_1 2 True call_1"


def test_a_partial_is_a_tool_like_any_other() -> None:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    work = partial(injected_nothing, "x")
    act = StructuredTool(name="act", description="Act.", args_schema=schema, func=work)
    result = build_graph(ScriptedModel([call("act", what="y"), FINISH]), [act]).invoke(GO)
    assert result_of(result).text == "x y"


def injected_nothing(first: str, what: str) -> str:
    return f"{first} {what}"


def test_injected_arguments_are_not_shown_to_the_model() -> None:
    with ScriptedModel([FINISH]) as model:
        build_graph(model, [injected]).invoke(GO)
    assert list(model.seen[0].tools[0]["function"]["parameters"]["properties"]) == ["what"]


def updating(update: Any, **more: Any) -> Any:
    @tool
    def act(call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Act."""
        return Command(update=update(call_id), **more)

    return act


def test_a_command_that_only_updates_the_history() -> None:
    act = updating(
        lambda key: {"messages": [ToolMessage("done", tool_call_id=key), HumanMessage("by the way")]}
    )
    result = build_graph(ScriptedModel([call("act"), FINISH]), [act]).invoke(GO)
    assert result_of(result).text == "done"
    assert "by the way" in [message.text for message in result["messages"]]


COMMANDS = {
    "goes somewhere": (lambda key: {"messages": [ToolMessage("x", tool_call_id=key)]}, {"goto": "finish"}),
    "writes what belongs to the machine": (lambda key: {"outcome": {"status": "success"}}, {}),
    "has no result": (lambda key: {"messages": [HumanMessage("x")]}, {}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_does_more_is_an_error(name: str) -> None:
    update, more = COMMANDS[name]
    result = build_graph(ScriptedModel([call("act"), FINISH]), [updating(update, **more)]).invoke(GO)
    assert result_of(result).status == "error"
    assert "cannot apply" in result_of(result).text
    assert result["outcome"]["turns"] == 2


def test_a_thousand_calls_in_one_reply_are_all_answered() -> None:
    ran: list[int] = []

    def act(at: int) -> str:
        """Act."""
        ran.append(at)
        return str(at)

    model = ScriptedModel([[call("act", at=i) for i in range(1000)], FINISH])
    result = build_graph(model, [act]).invoke(GO)
    assert ran == list(range(32))
    answers = [message for message in result["messages"] if isinstance(message, ToolMessage)]
    assert len(answers) == 1001
    assert sum("at most 32 calls" in message.text for message in answers) == 968
    assert result["outcome"]["status"] == "success"


def test_ten_megabytes_of_arguments_reach_the_tool(storage: SqliteStorage) -> None:
    def act(text: str) -> str:
        """Act."""
        return f"{len(text)} characters"

    large = {"name": "act", "id": "1", "args": {"text": "x" * 10_000_000}}
    graph = build_graph(ScriptedModel([FINISH]), [act], storage=storage)
    result = graph.invoke({"messages": [("user", "go"), AIMessage("", tool_calls=[large])]}, THREAD)
    assert result_of(result).text == "10000000 characters"
    assert result["outcome"]["status"] == "success"
