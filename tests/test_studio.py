"""The graph for `langgraph dev`: set up by the environment, and fit for a server's event loop."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import SetupError, build_graph
from signoff.graph.studio import compose
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step
from signoff.tools.files import workspace_tools

SCRIPT = 'from signoff.models import call\nscript = [call("finish_task", summary="All done.")]\n'


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-5", "set OPENAI_API_KEY"),
        ("scripted:nowhere.py", "There is no file nowhere.py"),
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
            model, tools, checkpointer=InMemorySaver(), store=InMemoryStore(), view_tokens=2_000
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
