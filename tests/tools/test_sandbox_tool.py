"""run_python: what the model reads of a call, and under which thread its variables stay."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.tools import MontySandbox, Sandbox, UnsafeSandbox, choose_sandbox, python_tool
from tests.support.plays import FINISH, GO, results

# In each of them the folder of its own has another name.
SANDBOXES: dict[str, tuple[str, Callable[[], Sandbox]]] = {
    "auto": ("__import__('tempfile').gettempdir()", choose_sandbox),
    "monty": ("'/own'", MontySandbox),
    "unsafe": ("__import__('tempfile').gettempdir()", lambda: UnsafeSandbox(unsafe=True)),
}


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[tuple[str, Sandbox]]:
    if request.param == "monty":
        pytest.importorskip("pydantic_monty")
    own, make = SANDBOXES[request.param]
    sandbox = make()
    yield own, sandbox
    sandbox.close()


def text_of(tool: BaseTool, code: str, thread: str = "one") -> str:
    """What the model reads, and whether it is an error."""
    try:
        return str(tool.invoke({"code": code}, {"configurable": {"thread_id": thread}}))
    except ToolException as error:
        return f"failed: {error}"


def test_what_the_model_reads(sandbox: tuple[str, Sandbox]) -> None:
    own, chosen = sandbox
    tool = python_tool(chosen, timeout=0.5)
    assert (tool.name, (tool.metadata or {})["kind"], list(tool.args)) == ("run_python", "write", ["code"])
    assert ("0.5" in tool.description, own.split("'")[1] in tool.description) == (True, True)
    # A call that says nothing is answered with something.
    assert text_of(tool, "x = 6").strip() != ""
    assert text_of(tool, "print('hi')\nx * 7") == "hi\n42"
    assert "x (1,234 bytes)" in text_of(tool, f"open({own} + '/x', 'w').write('1' * 1234)")
    assert text_of(tool, "import sys\nprint('out')\nprint('err', file=sys.stderr)").split() == [
        "out",
        "stderr:",
        "err",
    ]
    for code, error in (("x", "NameError"), ("1 +", "SyntaxError"), ("while True: pass", " s.")):
        text = text_of(tool, code, "two")
        assert (text.startswith("failed: "), error in text) == (True, True), text
    assert text_of(tool, "x") == "6"
    # Without a thread nothing is kept.
    assert tool.invoke({"code": "6 * 7"}) == "42"


def test_the_variables_of_a_graph_stay_in_its_thread_of_its_database(tmp_path: Path) -> None:
    script = [call("run_python", code="x = globals().get('x', 0) + 1; x"), FINISH]
    sandbox = choose_sandbox()
    values = []
    for name, threads in (("first", "aab"), ("second", "a")):
        with sqlite_storage(tmp_path / name) as storage:
            graph = build_graph(ScriptedModel(script * 3), [python_tool(sandbox)], storage=storage)
            for thread in threads:
                state = graph.invoke(GO, {"configurable": {"thread_id": thread}})
                values.append(results(state, "run_python")[-1])
    assert values == ["1", "2", "1", "1"]
    sandbox.close()


def test_long_output_is_kept_in_the_workspace(tmp_path: Path) -> None:
    text = text_of(python_tool(workspace=tmp_path), "print('x' * 50_000)")
    [kept] = tmp_path.glob(".signoff/outputs/*.txt")
    assert (kept.stat().st_size, len(text) < 21_000, kept.name in text) == (50_000, True, True)
