"""Which sandbox a host gets, Monty, and how output is bounded."""

import re
import sys
from pathlib import Path

import pytest

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.sandbox import MontySandbox, Sandbox, UnsafeSandbox, choose_sandbox
from signoff.tools.sandbox.base import Captured


def test_what_cannot_be_had_is_a_setup_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="offers no protection"):
        UnsafeSandbox(unsafe=False)
    with pytest.raises(SetupError, match="not an existing folder"):
        choose_sandbox(workspace=tmp_path / "missing")
    with pytest.raises(SetupError, match="use auto, linux, landlock, monty or unsafe"):
        choose_sandbox("docker")  # type: ignore[arg-type]  # what a user may type
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(SetupError, match=re.escape(install_hint("monty"))):
        choose_sandbox("monty")


def test_without_any_sandbox_auto_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(SetupError, match="choose the sandbox `unsafe`"):
        choose_sandbox()
    unsafe = choose_sandbox("unsafe")
    assert unsafe.run("6 * 7").value == "42"
    unsafe.close()


def test_elsewhere_auto_takes_monty(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_monty")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    sandbox = choose_sandbox()
    assert isinstance(sandbox, MontySandbox)
    sandbox.close()


def test_monty_keeps_variables_and_ends_what_takes_too_long(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_monty")
    sandbox: Sandbox = MontySandbox(tmp_path)
    assert sandbox.run("x = 1\nprint('hi')", thread="a").stdout == "hi\n"
    assert sandbox.run("x", thread="a", timeout=0.5).value == "1"
    assert "NameError" in sandbox.run("x").stderr
    assert sandbox.run("1 / 0", thread="a").exit == "error"
    assert sandbox.run("x = 'x' * 10**10", thread="a").exit == "memory"
    late = sandbox.run("while True: pass", timeout=0.5, thread="a")
    assert (late.exit, late.note) == ("timeout", "The time limit was reached.")
    sandbox.run("open('out.txt', 'w').write('done')")
    assert (tmp_path / "out.txt").read_text() == "done"
    sandbox.close()


@pytest.mark.parametrize("sizes", [[10], [3, 3, 3, 1], [1] * 10, [100], [7] * 50])
def test_captured_output_keeps_both_ends(sizes: list[int]) -> None:
    data = bytes(ord("a") + number % 26 for number in range(sum(sizes)))
    captured, at = Captured(10), 0
    for size in sizes:
        captured.add(data[at : at + size])
        at += size
    assert captured.total == len(data)
    assert captured.truncated == (len(data) > 10)
    text = captured.text()
    assert text == data.decode() if len(data) <= 10 else text.startswith(data[:5].decode() + "\n")
    assert text.endswith(data[-5:].decode())
