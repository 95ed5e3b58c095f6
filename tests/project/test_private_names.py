"""Private names of other packages: gathered in one file, and none of them is needed."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, PrivateAttr
from typing_extensions import TypedDict

from signoff.graph.inside import private
from signoff.graph.inside.nodes import Lean, lean
from signoff.graph.messages import slim
from signoff.nodes.tool_calls import inject
from tests.support.sources import sources

ROOT = Path(__file__).parents[2]
PACKAGES = ("langgraph", "langchain", "langsmith", "pydantic")
LAST_PARTS = {path.rpartition(".")[2] for _, path in private.NAMES.values()}
# Most files need not be parsed.
LIKELY = re.compile(
    rf"\b({'|'.join(PACKAGES)})[\w.]*\._|import (\([^)]*)?[^\n]*\b_|__p\w+_|{'|'.join(LAST_PARTS)}"
)
# What a tool that is called directly needs.
OF_PLAIN = {"format_output", "config_param", "to_args"}


def test_the_installed_versions_have_every_name() -> None:
    # Else all would still be well, but slower, and nobody would see it.
    assert [name for name in private.NAMES if not private.has(name)] == []


def test_what_has_no_name_is_asked_for_in_vain() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PREGELNODE'"):
        private.PREGELNODE  # noqa: B018


def test_no_other_file_knows_one() -> None:
    texts = {module: path.read_text("utf-8") for module, path in sources().items()}
    likely = {module: ast.parse(text) for module, text in texts.items() if LIKELY.search(text)}
    assert [module for module, tree in likely.items() if list(private_names(tree))] == [
        "signoff.graph.inside.private"
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from langgraph._internal._constants import CONF", True),
        ("from langgraph.pregel._read import ChannelRead", True),
        ("from langchain_core.tools.base import _format_output", True),
        ("import langgraph.pregel._write", True),
        ("given.get('__pregel_runtime')", True),
        ("setattr(model, '__pydantic_private__', 1)", True),
        ("model.__pydantic_private__", True),
        ("node._inject_tool_args(call)", True),
        ("from langgraph.graph import StateGraph", False),
        ("from signoff.graph.compiled.graph import _held", False),
        ("super()._stream(messages)", False),
    ],
)
def test_what_a_private_name_is(source: str, found: bool) -> None:
    assert LIKELY.search(source) or not found
    assert bool(list(private_names(ast.parse(source)))) is found


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGES):
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
            yield from (name for name in names if name.startswith("_"))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith(PACKAGES)]
            yield from (name for name in names if "._" in name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith(("__pregel_", "__pydantic_")):
                yield node.value
        elif isinstance(node, ast.Attribute) and (
            node.attr.startswith("__pydantic_") or (node.attr.startswith("_") and node.attr in LAST_PARTS)
        ):
            yield node.attr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_without_any_one_of_them_a_thread_runs_crashes_and_ends_as_with_all(tmp_path: Path) -> None:
    # One program for all: the libraries are imported once.
    command = [sys.executable, "-m", "tests.support.without_private_names", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    whole, *others = map(json.loads, done.stdout.splitlines())
    assert (whole["killed"], whole["gone"], whole["outcome"]["status"]) == (True, [], "success")
    assert whole["asked"].count("'one'") == whole["asked"].count("approve'") == 1
    assert whole["effects"] == ["paid", "5", "blown"]
    assert sum(text.startswith("Outcome unknown") for _, text, *_ in whole["messages"]) == 1
    expected = [
        {
            **whole,
            "name": name,
            "gone": [name],
            "lean": name not in private.LEAN,
            "plain": name not in OF_PLAIN,
        }
        for name in private.NAMES
    ]
    assert others == expected


@tool
def all_of_it(
    what: str,
    runtime: ToolRuntime,
    messages: Annotated[list[Any], InjectedState("messages")],
    store: Annotated[BaseStore, InjectedStore()],
) -> str:
    """Ask for all there is."""
    return what


@tool
def absent(event: Annotated[str, InjectedState("no_such_channel")]) -> str:
    """Ask for what is not there."""
    return event


@tool
def hidden(what: str, secret: Annotated[str, InjectedToolArg]) -> str:
    """Ask for nothing that LangGraph injects."""
    return what + secret


@tool
def plain(what: str) -> str:
    """Ask for nothing."""
    return what


@pytest.mark.parametrize("gone", ["inject", "injected_args"])
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("one", "args"),
    [
        (all_of_it, {"what": "x"}),
        (all_of_it, {"what": "x", "messages": ["forged"], "store": 1, "runtime": 2}),
        (absent, {"event": "forged"}),
        (absent, {}),
        (hidden, {"what": "x", "secret": "forged"}),
        (plain, {"what": "x"}),
        (plain, {"what": "x", "more": None}),
    ],
)
def test_injected_arguments_by_the_public_way_are_the_same(
    one: BaseTool, args: dict[str, Any], stored: bool, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: Any = {"messages": [AIMessage("hm")]}
    runtime: Runtime[Any] = Runtime(context=7, store=InMemoryStore() if stored else None)
    config = RunnableConfig(configurable={str(private.RUNTIME): runtime}, tags=["own"])
    call = ToolCall(name=one.name, args=args, id="call_1", type="tool_call")

    def filled() -> Any:
        try:
            found = inject.Injector([one]).filled(call, state, config, lambda: None)
        except Exception as error:  # noqa: BLE001  it is to be the same
            return repr(error)
        told = found["args"].pop("runtime", None) if one is all_of_it else None
        return found, told and (told.state, told.context, told.config, told.store, told.tool_call_id)

    before = filled()
    monkeypatch.setattr(private, gone, None)
    assert filled() == before


class Noting(BaseModel):
    name: str = "a"
    _noted: list[str] = PrivateAttr(default_factory=list)
    _count: int = PrivateAttr(default=0)


@pytest.mark.parametrize("known", [True, False])
def test_a_copy_shares_what_is_noted_in_private(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setitem(vars(private), "PRIVATE", None)
    model = Noting()
    twin = model.model_copy()
    private.share_private(twin, model)
    twin._noted.append("by the copy")
    twin._count += 1
    model._count += 1
    twin.name = "b"
    assert (model._noted, model._count, twin._count) == (["by the copy"], 2, 2)
    assert (model.name, twin.name, type(twin).__name__) == ("a", "b", "Noting")
    del twin._count
    with pytest.raises(AttributeError):
        model._count  # noqa: B018
    with pytest.raises(AttributeError):
        twin.nothing  # type: ignore[attr-defined]  # noqa: B018  that is it


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        AIMessage("x", tool_calls=[ToolCall(name="a", args={}, id="1", type="tool_call")], more="extra"),
        ToolMessage("x", tool_call_id="1", artifact=object()),
    ],
)
def test_a_message_records_one_set_of_fields(
    message: BaseMessage, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setitem(vars(private), "FIELDS_SET", None)
    first, second = slim(message.model_copy()), slim(message.model_copy())
    assert first == second == message
    assert first.model_fields_set is second.model_fields_set
    assert set(type(message).model_fields) == first.model_fields_set
    assert (type(first), first.model_extra) == (type(message), message.model_extra)


def test_a_graph_that_langgraph_compiles_otherwise_is_left_as_it_is() -> None:
    class State(TypedDict):
        event: str

    def otherwise(_: Any) -> str:
        return "off"

    graph: Any = StateGraph(State)
    for name in ("first", "second"):
        graph.add_node(name, lambda _: {"event": "x"})
        graph.add_conditional_edges(name, lambda _: "on", {"on": "__end__"})
    graph.add_conditional_edges("second", otherwise, {"off": "__end__"})
    graph.add_edge(START, "first")
    compiled = graph.compile()
    before = {name: (node, list(node.writers)) for name, node in compiled.nodes.items()}
    lean(compiled)
    assert {name: (node, list(node.writers)) for name, node in compiled.nodes.items()} == before
    assert not any(isinstance(node, Lean) for node in compiled.nodes.values())
    assert compiled.invoke({"event": ""}) == {"event": "x"}
