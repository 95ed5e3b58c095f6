"""The graph for `langgraph dev`: set up by the environment, and fit for a server's event loop."""

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import SetupError, build_graph
from signoff.graph.build import Graph
from signoff.graph.studio import SHOWN, TOLD
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step
from signoff.session.status import deps_of
from signoff.studio import compose
from signoff.tools.files import workspace_tools

SCRIPT = 'from signoff.models import call\nscript = [call("finish_task", summary="All done.")]\n'


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-5", "set OPENAI_API_KEY"),
        ("scripted:nowhere.py", "nowhere.py with a scripted model"),
    ],
)
def test_without_its_model_the_graph_is_drawn_and_a_task_says_what_is_missing(model: str, says: str) -> None:
    graph = compose({"SIGNOFF_MODEL": model})
    assert "decide" in graph.get_graph().nodes
    outcome = graph.invoke({"messages": [("user", "hi")]})["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "model_error")
    assert says in outcome["error"]


def test_a_key_or_an_address_is_enough_for_a_named_model() -> None:
    for env in ({"OPENAI_API_KEY": "key"}, {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}):
        assert "decide" in compose({"SIGNOFF_MODEL": "gpt-5", **env}).get_graph().nodes


def test_the_model_and_the_workspace_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    graph = compose({"SIGNOFF_MODEL": f"scripted:{file}", "SIGNOFF_WORKSPACE": str(tmp_path)})
    outcome = graph.invoke({"messages": [("user", "hi")]})["outcome"]
    assert outcome["summary"] == "All done."


def test_a_workspace_that_does_not_exist_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nowhere"):
        compose({"SIGNOFF_WORKSPACE": str(tmp_path / "nowhere")})


def served_by(model: str, tmp_path: Path, **env: str) -> Graph:
    """The graph of a server, with a checkpointer as the server brings one. model: the file of a script."""
    file = tmp_path / "script.py"
    file.write_text(model)
    graph = compose({"SIGNOFF_MODEL": f"scripted:{file}", "SIGNOFF_WORKSPACE": str(tmp_path), **env})
    return graph.copy(update={"checkpointer": InMemorySaver(), "store": InMemoryStore()})


ASKS = """from signoff.models import call
script = [call("ask_user", question="Which?"), call("finish_task", summary="All done.")]
"""
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


async def streamed(graph: Graph, given: Any) -> list[tuple[str, Any]]:
    """What a run of the server tells."""
    modes: Any = ["updates", "values"]
    run: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": str(uuid.uuid4())}}
    return [item async for item in graph.astream(given, run, stream_mode=modes, output_keys=[*TOLD])]


async def test_a_user_sees_the_decisions_and_no_update_that_changes_nothing(tmp_path: Path) -> None:
    graph = served_by(ASKS, tmp_path)
    first = await streamed(graph, {"messages": [("user", "hi")]})
    last = await streamed(graph, Command(resume=[{"type": "response", "args": "blue"}]))
    updates = [data for mode, data in first + last if mode == "updates"]
    assert [data for data in updates if not any(data.values())] == []
    decided = [data["decide"]["decision"]["rule"] for data in updates if "decide" in data]
    assert decided == ["think", "asked", "think", "claimed"]
    end = last[-1][1]
    assert (end["outcome"]["status"], end["decision"]["rule"]) == ("success", "claimed")


async def test_the_machines_own_channels_are_private(tmp_path: Path) -> None:
    graph = served_by(ASKS, tmp_path)
    await streamed(graph, {"messages": [("user", "hi")]})
    seen = await graph.aget_state(THREAD)
    assert set(seen.values) <= set(SHOWN)
    assert {"task", "event", "machine"} <= set((await graph.aget_whole_state(THREAD)).values)
    assert {name async for found in graph.aget_state_history(THREAD) for name in found.values} <= set(SHOWN)
    with pytest.raises(Exception, match="nothing would be delivered"):
        await streamed(graph, Command(resume=None))
    again = await streamed(graph, Command(resume="blue"))
    assert again[-1][1]["outcome"]["status"] == "success"


def test_the_last_decision_says_why_a_task_ended_also_where_another_state_knew() -> None:
    graph = compose({"SIGNOFF_MODEL": "gpt-5"}).copy(update={"checkpointer": InMemorySaver()})
    decided = graph.invoke({"messages": [("user", "hi")]}, THREAD)["decision"]
    assert (decided["rule"], decided["event"]) == ("model_error", "failed")
    assert "OPENAI_API_KEY" in decided["why"]


SETTINGS: dict[str, tuple[dict[str, str], list[str]]] = {
    "by default": ({}, ["edit_file", "list_files", "read_file", "search_files", "write_file"]),
    "a shell": ({"SIGNOFF_TOOLS": "shell"}, ["run_shell"]),
    "none": ({"SIGNOFF_TOOLS": "none"}, []),
    "the tagged protocol": ({"SIGNOFF_PROTOCOL": "tagged", "SIGNOFF_TOOLS": "python"}, ["run_python"]),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_tools_and_protocol_are_those_of_the_environment(case: str, tmp_path: Path) -> None:
    env, names = SETTINGS[case]
    deps = deps_of(served_by(SCRIPT, tmp_path, **env))
    assert sorted(deps.toolbox.run_tools) == names
    assert (deps.keeper is not None) == ("SIGNOFF_PROTOCOL" in env)


async def test_approvals_are_those_of_the_environment(tmp_path: Path) -> None:
    writes = 'from signoff.models import call\nscript = [call("write_file", path="a", content="b")]\n'
    graph = served_by(writes, tmp_path, SIGNOFF_APPROVE="write")
    first = await streamed(graph, {"messages": [("user", "hi")]})
    assert first[-1][1]["__interrupt__"][0].value["type"] == "approval"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"SIGNOFF_TOOLS": "hammer"}, "names 'hammer'"),
        ({"SIGNOFF_APPROVE": "hammer"}, "names 'hammer'"),
        ({"SIGNOFF_PROTOCOL": "morse"}, "is 'morse'"),
        ({"SIGNOFF_CONSTITUTION": "none.txt"}, "add --protocol tagged"),
    ],
)
def test_settings_that_cannot_be_are_said_so(env: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=says):
        served_by(SCRIPT, tmp_path, **env)


@pytest.mark.slow
def test_the_module_imports_without_a_key_and_its_graph_has_no_saver_and_no_store(tmp_path: Path) -> None:
    program = "from signoff.graph.studio import graph; print(graph.checkpointer, graph.store)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("None None\n", "")


async def test_an_async_run_never_blocks_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question, every working tool, a folded history, results too long to be shown, an outcome."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()

    def long_result() -> str:
        """Returns more than is shown."""
        return "long " * 10_000

    async def long_error() -> str:
        """Fails with more than is shown."""
        raise ValueError("long " * 10_000)

    steps: list[Step] = [
        call("ask_user", question="Go on?"),
        call("write_file", path="a.txt", content="one\n"),
        [call("read_file", path="a.txt"), call("list_files"), call("search_files", pattern="one")],
        call("edit_file", path="a.txt", old="one", new="two"),
        call("long_result"),
        call("long_error"),
        "Just talk.",
        call("finish_task", summary="All done."),
    ]
    with ScriptedModel(steps) as model:
        tools: list[Any] = [*workspace_tools(work), long_result, long_error]
        graph = build_graph(
            model, tools, checkpointer=InMemorySaver(), store=InMemoryStore(), policy={"prompt_tokens": 2_000}
        )
        config: RunnableConfig = {"configurable": {"thread_id": "one"}}
        with blockbuster_ctx():
            await graph.ainvoke({"messages": [("user", "Work.")]}, config)
            state = await graph.ainvoke(Command(resume="yes"), config)
            saved = await graph.aget_state(config)
    assert state["outcome"]["status"] == "success"
    assert saved.values["digest"]["lines"]
    results = {message.name: message.text for message in state["messages"] if message.type == "tool"}
    for name in ("long_result", "long_error"):
        assert f"the full text is in {tmp_path}" in results[name]
    assert [text for text in results.values() if "Blocking" in text] == []
