"""run_python: what the model reads, and under which thread its variables stay."""

from pathlib import Path

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff.graph.kinds import Kind, kind_of
from signoff.tools.sandbox import MontySandbox, PythonResult, UnsafeSandbox, choose_sandbox, python_tool
from signoff.tools.sandbox.tool import result_text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PythonResult("ok"), "Done, with no output. Print what you want to see."),
        (PythonResult("ok", "a\n", value="3"), "a\n3"),
        (PythonResult("ok", "a\n", "warned\n"), "a\nstderr:\nwarned"),
        (PythonResult("error", stderr="ValueError: no\n"), "ValueError: no"),
        (PythonResult("timeout", "a\n", seconds=2.04, note="Gone."), "a\nTimed out after 2.0 s.\nGone."),
        (PythonResult("killed", note="Gone."), "The interpreter has ended.\nGone."),
        (PythonResult("memory", stderr="MemoryError\n"), "MemoryError\nOut of memory."),
        (PythonResult("ok", files={"a/b.png": 1234}), "New files: a/b.png (1,234 bytes)"),
    ],
)
def test_what_the_model_reads(result: PythonResult, text: str) -> None:
    assert result_text(result) == text


def call(tool: BaseTool, code: str, thread: str = "one") -> str:
    answer = tool.invoke({"code": code}, {"configurable": {"thread_id": thread}})
    assert isinstance(answer, str)
    return answer


def test_the_tool_runs_code_in_the_thread_of_its_caller(tmp_path: Path) -> None:
    sandbox = choose_sandbox(workspace=tmp_path)
    tool = python_tool(sandbox, timeout=0.5)
    assert (tool.name, kind_of(tool), list(tool.args)) == ("run_python", Kind.WRITE, ["code"])
    assert "0.5 seconds" in tool.description
    call(tool, "x = 1", "one")
    assert call(tool, "print('hi')\nx", "one") == "hi\n1"
    for code, said in (
        ("x", "NameError"),
        ("while True: pass", r"Timed out after 0\.\d s"),
        ("1 +", "SyntaxError"),
    ):
        with pytest.raises(ToolException, match=said):
            call(tool, code, "two")
    assert tool.invoke({"code": "6 * 7"}) == "42"
    sandbox.close()


async def test_the_tool_runs_from_an_event_loop() -> None:
    sandbox = choose_sandbox()
    tool = python_tool(sandbox)
    await tool.ainvoke({"code": "x = 1"}, {"configurable": {"thread_id": "one"}})
    assert await tool.ainvoke({"code": "x"}, {"configurable": {"thread_id": "one"}}) == "1"
    sandbox.close()


def test_long_output_is_kept_in_the_workspace(tmp_path: Path) -> None:
    text = call(python_tool(workspace=tmp_path), "print('x' * 50_000)")
    assert len(text) < 21_000
    assert "the full text is in .signoff/outputs/run_python-" in text
    assert [file.stat().st_size for file in tmp_path.glob(".signoff/outputs/*.txt")] == [50_000]


@pytest.mark.parametrize("kind", ["unsafe", "monty"])
def test_any_sandbox_serves(kind: str) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    sandbox = MontySandbox() if kind == "monty" else UnsafeSandbox(unsafe=True)
    tool = python_tool(sandbox)
    own = "/own" if kind == "monty" else "tempfile.gettempdir()"
    assert own in tool.description
    folder = f"'{own}'" if kind == "monty" else f"__import__('tempfile').{own.removeprefix('tempfile.')}"
    assert "New files: " in call(tool, f"open({folder} + '/x', 'w').write('1')")
    assert call(tool, "x = 6") == "Done, with no output. Print what you want to see."
    assert call(tool, "print(x)\nx * 7") == "6\n42"
    sandbox.close()
