"""Which sandbox a host gets, Monty, and how output is bounded."""

import re
import sys
from pathlib import Path

import pytest

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.sandbox import MontySandbox, Sandbox, UnsafeSandbox, choose_sandbox, folder
from signoff.tools.sandbox.folder import OwnFolders


def test_what_cannot_be_had_is_a_setup_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="offers no protection"):
        UnsafeSandbox(unsafe=False)
    with pytest.raises(SetupError, match="not an existing folder"):
        choose_sandbox(workspace=tmp_path / "missing")
    with pytest.raises(SetupError, match="use auto, linux, monty or unsafe"):
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
    assert (late.exit, "The time limit was reached." in late.note) == ("timeout", True)
    sandbox.close()


def test_monty_reads_the_workspace_and_writes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_monty")
    work = tmp_path / "work"
    work.mkdir()
    (work / "in.txt").write_text("hello")
    sandbox = MontySandbox(work)
    assert sandbox.run("open('in.txt').read()", thread="a").value == "'hello'"
    refused = sandbox.run("open('out.txt', 'w')", thread="a")
    assert (refused.exit, "/own" in refused.note) == ("error", True)
    result = sandbox.run("open('/own/out.txt', 'w').write('done')", thread="a")
    [(name, size)] = result.files.items()
    assert (Path(name).read_text(), size) == ("done", 4)
    assert sandbox.run("open('/own/out.txt').read()", thread="a").value == "'done'"
    assert sandbox.run("open('/own/out.txt').read()", thread="b").exit == "error"
    sandbox.close()
    assert not Path(name).exists()
    open_workspace = MontySandbox(work, writable=True)
    assert open_workspace.run("open('out.txt', 'w').write('x')", thread="a").exit == "ok"
    open_workspace.close()
    (work / ".git").mkdir()
    enforced = MontySandbox(work, writable=True).enforced()
    assert (enforced["workspace"], enforced["protected"]) == ("read-only", ".git")


# Other systems than Linux, as far as they differ.


def test_without_programs_that_delete_the_folder_goes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_PROGRAMS", "/nowhere")
    folders = OwnFolders()
    own = folders.of("a")
    (Path(own.path) / "x").touch()
    assert folders.of("a").path == own.path
    folders.close("a")
    assert not Path(own.path).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the unsafe sandbox does not exist there")
def test_the_interrupt_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = UnsafeSandbox(unsafe=True)
    sandbox.run("x = 1", thread="a")
    monkeypatch.setattr(sys, "platform", "darwin")
    result = sandbox.run("import time; time.sleep(60)", thread="a", timeout=0.3)
    monkeypatch.undo()
    assert (result.exit, sandbox.run("x", thread="a").value) == ("timeout", "1")
    sandbox.close()
