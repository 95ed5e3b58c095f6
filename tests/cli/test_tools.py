"""`--tools`: what a run works with, and what it leaves behind."""

import json
from pathlib import Path

import pytest

from signoff.front.settings import Given, settle
from signoff.front.working import shell_path
from tests.support.benches.cli import Bench, one_sentence, steps
from tests.support.process_table import runs
from tests.support.tagged_replies import DONE as TAGGED_DONE

DONE = 'call("finish_task", summary="All done.")'
TOOLS = 'lambda m: call("nothing")'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
FILES = {"list_files", "read_file", "write_file", "edit_file", "search_files"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def offered(bench: Bench, *words: str, thread: str = "t1") -> set[str]:
    """The working tools that the model is told of."""
    bench.model(f"[{TOOLS}, {SAY}] * 9")
    found = json.loads(bench.run("x", "--json", *words, thread=thread).stdout)
    named = found["outcome"]["summary"].rpartition(":")[2]
    return {name.strip(" .") for name in named.split(",")} - {"finish_task", "ask_user", "think"}


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ("files", FILES),
        ("shell", {"run_shell"}),
        (" shell, files,shell", FILES | {"run_shell"}),
        (None, FILES | {"run_shell"}),
        ("none", set()),
    ],
)
def test_which_tools_the_model_has(bench: Bench, tools: str | None, names: set[str]) -> None:
    assert offered(bench, *(("--tools", tools) if tools else ())) == names
    assert offered(bench) == names, "the thread remembers them"


def test_python_runs_in_the_sandbox(bench: Bench) -> None:
    bench.model(steps('call("run_python", code="print(6 * 7)")', SAY))
    result = bench.run("x", "--tools", "python")
    assert result.exit_code == 0, result.output
    for part in ("✓ run_python\n", "> print(6 * 7)\n", "      42\n"):
        assert part in result.stdout


@pytest.mark.parametrize(
    ("options", "writes"),
    [
        (("--tools", "python"), False),
        (("--tools", "python-write"), True),
        (("--protocol", "tagged"), True),
        (("--protocol", "tagged", "--tools", "python"), True),
        (("--protocol", "tagged", "--tools", "files"), None),
    ],
)
def test_python_changes_the_workspace_only_where_that_is_said(
    bench: Bench, options: tuple[str, ...], writes: bool | None
) -> None:
    code = "open('made.txt', 'w').write('x')"
    working = "<STATE_UPDATE>\nStatus: Working\n</STATE_UPDATE>"
    tagged = [f"<PLAN>p</PLAN>\n```python\n{code}\n```\n{working}", TAGGED_DONE]
    bench.model(repr(tagged) if "tagged" in options else steps(f'call("run_python", code="{code}")', SAY))
    result = bench.run("x", *options)
    assert ("Python may change this workspace" in result.stdout) is bool(writes)
    assert (bench.workspace / "made.txt").exists() is bool(writes), result.output
    if writes is False:
        assert "its own folder" in result.stdout


def test_the_default_of_the_embedded_model_is_files_only() -> None:
    assert settle(Given(model="local"), None, {}).tools == ("files",)
    assert settle(Given(model="gpt-x"), None, {}).tools == ("files", "shell")
    before = settle(Given(model="gpt-x", tools="files,python"), None, {})
    assert settle(Given(model="local"), before, {}).tools == ("files", "python")


@pytest.mark.parametrize(
    ("tools", "told"), [("files,frob", "names 'frob'; use files, shell, python, python-write"), ("", "empty")]
)
def test_unknown_tools(bench: Bench, tools: str, told: str) -> None:
    one_sentence(bench.run("x", "--tools", tools), "--tools", told)


@pytest.mark.parametrize(
    ("tools", "missing"), [("shell", "bash was not found"), ("python", "no sandbox for Python")]
)
def test_tools_that_this_host_cannot_have(
    bench: Bench, tools: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tools == "python":
        monkeypatch.setattr("signoff.tools.sandbox.tool._best", _no_sandbox)
    one_sentence(bench.run("x", "--tools", tools, PATH="/nowhere"), missing)
    one_sentence(bench("show", "t1"), "no thread")


def _no_sandbox(*_: object) -> None:
    from signoff import SetupError

    raise SetupError("There is no sandbox for Python on this host.")


def test_the_shell_is_shown_with_its_exit_code(bench: Bench) -> None:
    bench.model(
        steps('call("run_shell", command="seq 9; (exit 3)")', 'call("run_shell", command="echo hi")', DONE)
    )
    shown = bench.run("x").stdout
    assert "  1 ✗ $ seq 9; (exit 3)\n      … 3 lines before\n      4\n" in shown
    assert "      exit code 3 · " in shown
    assert "  2 ✓ $ echo hi\n      hi\n      exit code 0 · " in shown


def test_the_shell_has_no_secrets_and_ends_with_the_run(bench: Bench) -> None:
    bench.model(steps('call("run_shell", command="sleep 500 & echo $!; env")', SAY))
    found = json.loads(bench.run("x", "--json", OPENAI_API_KEY="hunter2").stdout)
    pid, _, environment = found["outcome"]["summary"].partition("\n")
    assert "hunter2" not in environment
    assert not runs(int(pid.split()[-1]))


@pytest.mark.parametrize("words", [["--json"], ["--quiet"]])
def test_what_a_command_writes_is_not_on_stdout(bench: Bench, words: list[str]) -> None:
    bench.model(steps('call("run_shell", command="echo live")', DONE))
    # The document names the call and the end of its result.
    assert "live\n" not in bench.run("x", *words).stdout


@pytest.mark.parametrize(
    ("env", "program", "first"),
    [
        ({}, "/v/bin/signoff", True),
        ({}, "/repo/signoff/cli/__main__.py", True),
        ({}, "/home/me/.local/bin/signoff", False),
        ({"VIRTUAL_ENV": "/mine"}, "/v/bin/signoff", False),
        ({"CONDA_PREFIX": "/mine"}, "/v/bin/signoff", False),
    ],
)
def test_which_python_the_shell_finds(env: dict[str, str], program: str, first: bool) -> None:
    path = shell_path({**env, "PATH": "/usr/bin"}, Path("/v/bin/python"), Path(program))
    assert path == ("/v/bin:/usr/bin" if first else "/usr/bin")


def test_the_sandbox_command_is_there(bench: Bench) -> None:
    assert "selftest" in bench("sandbox", "--help").stdout
