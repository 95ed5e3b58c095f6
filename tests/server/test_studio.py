"""The graph for a server without one: what the environment sets, what is shown, and the model of a run."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import SecretStr

from signoff import Graph, Session, SetupError, build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, TaggedText, call
from signoff.studio import compose
from signoff.tools import workspace_tools
from tests.support.benches.cli import CLEAN
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call
from tests.support.servers.studio_model import QUESTION
from tests.support.sources import REPOSITORY

STUDIO = REPOSITORY / "graph" / "studio.py"
MODEL = Path(__file__).parents[1] / "support" / "servers" / "studio_model.py"
GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}


def served(folder: Path, **env: str) -> Graph:
    """The graph of a server, with a checkpointer as the server brings one."""
    graph = compose({"SIGNOFF_MODEL": f"scripted:{MODEL}", "SIGNOFF_WORKSPACE": str(folder), **env})
    return graph.copy(update={"checkpointer": InMemorySaver(), "store": InMemoryStore()})


@pytest.mark.parametrize(
    ("model", "named", "context"),
    [("scripted:nowhere.py", "nowhere.py", {}), ("gpt-5", "OPENAI_API_KEY", {"model": "second"})],
)
def test_without_its_model_the_graph_is_drawn_and_a_task_says_what_is_missing(
    model: str, named: str, context: dict[str, Any]
) -> None:
    graph = compose({"SIGNOFF_MODEL": model})
    assert "decide" in graph.get_graph().nodes
    result = graph.invoke(GO, context=context)
    assert (result["outcome"]["reason"], named in result["outcome"]["error"]) == ("model_error", True)
    assert (result["decision"]["rule"], named in result["decision"]["why"]) == ("model_error", True)


CONTROLS = {"finish_task", "ask_user", "think"}
FILES = {"edit_file", "list_files", "read_file", "search_files", "write_file"}
# What the environment says, and the tools that a provider is then told of; none by text.
ENVIRONMENTS: list[tuple[dict[str, str], set[str]]] = [
    ({}, FILES | CONTROLS),
    ({"SIGNOFF_TOOLS": "shell"}, {"run_shell", *CONTROLS}),
    ({"SIGNOFF_PROTOCOL": "tagged"}, set()),
]


def test_tools_protocol_and_approvals_are_those_of_the_environment(
    provider: FakeProvider, tmp_path: Path
) -> None:
    for env, names in ENVIRONMENTS:
        provider.plays(Reply("<PLAN>All is done. [FINALIZE]</PLAN>") if "SIGNOFF_PROTOCOL" in env else FINISH)
        graph = served(tmp_path, **env, SIGNOFF_MODEL="first", OPENAI_BASE_URL=provider.url)
        assert outcome_of(graph.invoke(GO, THREAD)).status == "success"
        assert {tool["function"]["name"] for tool in provider.requests[0].body.get("tools", ())} == names
    graph = served(tmp_path, SIGNOFF_APPROVE="write")
    result = graph.invoke({"messages": [("user", "work a.txt")]}, THREAD)
    assert result["__interrupt__"][0].value["type"] == "approval"


WRONG = {
    "SIGNOFF_TOOLS": "hammer",
    "SIGNOFF_APPROVE": "hammer",
    "SIGNOFF_PROTOCOL": "morse",
    "SIGNOFF_CONSTITUTION": "none.txt",
    "SIGNOFF_WORKSPACE": "nowhere",
}


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for name, value in WRONG.items():
        with pytest.raises(SetupError):
            served(tmp_path, **{name: value})


def test_the_module_imports_without_a_key_and_its_graph_has_no_saver_and_no_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    graph = runpy.run_path(str(STUDIO))["graph"]
    assert (graph.checkpointer, graph.store) == (None, None)


async def test_a_run_never_blocks_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question, every working tool, a folded history, results too long to be shown, an outcome."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def long_result() -> str:
        """Return more than is shown."""
        return "long " * 10_000

    async def long_error() -> str:
        """Fail with more than is shown."""
        raise ValueError("long " * 10_000)

    steps: list[Any] = [
        call("ask_user", question=QUESTION),
        call("write_file", path="a.txt", content="one\n"),
        [call("read_file", path="a.txt"), call("list_files"), call("search_files", pattern="one")],
        call("edit_file", path="a.txt", old="one", new="two"),
        call("long_result"),
        call("long_error"),
        "Just talk.",
        call("finish_task", summary="All done."),
    ]
    tools: list[Any] = [*workspace_tools(tmp_path), long_result, long_error]
    saved: Any = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    graph = build_graph(ScriptedModel(steps), tools, policy={"prompt_tokens": 2_000}, **saved)
    with blockbuster_ctx():
        await graph.ainvoke(GO, THREAD)
        result = await graph.ainvoke(Command(resume="yes"), THREAD)
        values = (await graph.aget_state(THREAD)).values
    assert result["outcome"]["status"] == "success"
    assert values["digest"]["lines"]
    results = {message.name: message.text for message in result["messages"] if message.type == "tool"}
    assert all(str(tmp_path) in results[name] for name in ("long_result", "long_error"))
    assert [text for text in results.values() if "Blocking" in text] == []


# --- the model's name in the context of a run: another model of the same provider, for this run alone ---

FINISH = Reply(calls=[tool_call("finish_task", summary="Done.")])


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


def chat(provider: FakeProvider) -> ChatOpenAI:
    return ChatOpenAI(model="first", base_url=provider.url, api_key=SecretStr("k"), max_retries=0)


def asked(provider: FakeProvider) -> list[str]:
    """The model that each request named."""
    return [request.body["model"] for request in provider.requests]


NAMES = {"second": "second", " third ": "third", "": "first", None: "first"}


def test_the_context_names_the_model_of_each_run(provider: FakeProvider) -> None:
    provider.script += [FINISH] * len(NAMES)
    model = chat(provider)
    graph = build_graph(model)
    for name in NAMES:
        graph.invoke(GO, context={"model": name})
    assert asked(provider) == [*NAMES.values()]
    assert model.model_name == "first"
    # Under each name it has the same tools.
    tools = [{tool["function"]["name"] for tool in request.body["tools"]} for request in provider.requests]
    assert all(names == CONTROLS for names in tools)


def test_a_resume_uses_the_name_of_its_own_context(provider: FakeProvider, tmp_path: Path) -> None:
    provider.script += [Reply(calls=[tool_call("ask_user", question=QUESTION)]), FINISH]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(chat(provider), storage=storage)
        Session(graph, "t", context={"model": "second"}).run("go")
        Session(graph, "t", context={"model": "third"}).resume("80")
    assert asked(provider) == ["second", "third"]


def test_the_model_behind_the_text_protocol_is_renamed(provider: FakeProvider) -> None:
    provider.script += [Reply("<PLAN>All is done. [FINALIZE]</PLAN>")]
    build_graph(TaggedText(chat(provider))).invoke(GO, context={"model": "second"})
    assert asked(provider) == ["second"]


def note(text: str) -> str:
    """Take a note."""
    return f"noted {text}"


def test_summaries_are_by_the_model_that_the_run_names(provider: FakeProvider) -> None:
    provider.script += [Reply(calls=[tool_call("note", text=f"{at} " + "x" * 800)]) for at in range(40)]
    graph = build_graph(chat(provider), [note], policy={"compaction": "model", "prompt_tokens": 3_000})
    graph.invoke(GO, context={"model": "second", "turns": 20})
    assert set(asked(provider)) == {"second"}
    assert len(provider.requests) > 20


def test_a_model_without_a_name_to_change_is_told_so() -> None:
    options: Any = {"azure_endpoint": "http://127.0.0.1:9", "api_version": "2024-06-01"}
    graph = build_graph(AzureChatOpenAI(azure_deployment="ours", api_key=SecretStr("k"), **options))
    with pytest.raises(SetupError, match="model"):
        graph.invoke(GO, context={"model": "second"})
