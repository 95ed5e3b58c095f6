"""`signoff run`: how a run ends and what it prints, for people and as JSON; its tools and limits."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from signoff.text import WAITS, heading
from tests.support.benches.cli import Bench, bare, first_offered, one_sentence, steps, words_of
from tests.support.benches.cli_steps import ASK, CONFIRM, DONE, LOOK, SAY
from tests.support.process_table import runs
from tests.support.servers.fake_provider import FakeProvider, Reply, error, tool_call

CLAIM = 'call("finish_task", summary="Half.", outcome="{}")'


# The script, options of run; the exit code, the status, the command that goes on; what --quiet begins with.
Ending = tuple[str, list[str], int, str, list[str] | None, str]
ENDINGS: dict[str, Ending] = {
    "done": (steps(DONE), [], 0, "success", None, "All done.\n"),
    "blocked": (steps(CLAIM.format("blocked")), [], 5, "success", None, "Half.\n"),
    "no turns left": (f"[{LOOK}] * 9", ["--turns", "2"], 3, "limit", ["resume", "t1"], "Turn limit"),
    "the model fails": (steps('OSError("gone")'), [], 1, "error", ["resume", "t1"], "The model failed"),
    "a question": (steps(ASK), [], 4, "waiting", ["resume", "t1", "your answer"], "Which?\nAnswer: "),
    "a confirmation": (steps(CONFIRM), [], 4, "waiting", ["resume", "t1", "yes"], "All done.\nConfirm: "),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_every_end_has_an_exit_code_a_card_and_the_command_that_goes_on(bench: Bench, case: str) -> None:
    script, words, code, status, command, quiet = ENDINGS[case]
    bench.model(script)
    result = bench.run("Do it", *words, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["exit_code"], found["status"], result.stderr) == (code, code, status, "")
    assert (found["resume"] and bare(words_of(found["resume"]))) == command
    waits = found["question"] or found["approval"]
    assert (found["outcome"] is None) == (waits is not None) == (status == "waiting")
    for thread, only in (("t2", []), ("t3", ["--quiet"])):
        shown = bench.run("Do it", *words, *only, thread=thread)
        assert (shown.exit_code, shown.stderr) == (code, "")
        assert first_offered(shown.stdout, thread) == command
        title = WAITS[waits["waits_for"]].title if waits else heading(found["outcome"]).title
        assert shown.stdout.startswith(quiet) if only else f"\n{title}" in shown.stdout


# Replies of the model, and the lines that tell them.
LINES: Mapping[str, Sequence[str]] = {
    f'["Let me look.", {LOOK}]': [
        "Let me look.",
        "✓ read_file  config.py",
        "1|LINE_0 = 0",
        "… 49 more lines",
    ],
    'call("frob", n=3, deep={"a": [1]}, old="a\\nb", path="x.py", content="x" * 100)': [
        '✗ frob  x.py  n=3  deep={"a": [1]}  old="a b"  content="xxx',
    ],
    'call("think", thought="First.", status="s")': ["think:", "First.", "status: s"],
    'call("run_shell", command="seq 9; (exit 3)")': [
        "✗ $ seq 9; (exit 3)",
        "… 3 lines before",
        "9",
        "exit code 3 · ",
    ],
}


def test_each_reply_is_told_in_short(bench: Bench) -> None:
    bench.config.write_text("".join(f"LINE_{n} = {n}\n" for n in range(50)))
    bench.model(steps(*LINES, DONE))
    shown = [re.sub(r"^\d+ +", "", line.strip()) for line in bench.run("Look").stdout.splitlines()]
    for reply, lines in LINES.items():
        missing = [line for line in lines if not any(part.startswith(line) for part in shown)]
        assert missing == [], reply
    assert max(map(len, shown)) < 200


EVIL = r"\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202egnp.exe\x9b31m"


HOSTILE = (
    f'["{EVIL}", call("read_file", path="{EVIL}"), call("{EVIL}", x="{EVIL}")]',
    f'call("think", thought="{EVIL}", approach="{EVIL}", status="{EVIL}")',
    f'call("ask_user", question="{EVIL}", options=["{EVIL}"])',
)
ENDS_HOSTILE = (
    [f'call("finish_task", summary="{EVIL}", outcome="partial", pending_issues=["{EVIL}"])'],
    [f'ValueError("{EVIL}")'],
)


@pytest.mark.parametrize("script", [HOSTILE, *ENDS_HOSTILE], ids=["work", "a finish", "an error"])
def test_nothing_of_a_model_or_a_user_steers_the_terminal_and_markup_in_it_is_text(
    bench: Bench, script: Sequence[str]
) -> None:
    evil = EVIL.encode().decode("unicode_escape")
    bench.model(steps(*script))
    results = [bench.run(evil, thread=evil), bench("threads"), bench("show", "--", evil)]
    shown = "".join(result.output for result in (*results, bench.run(evil, "--quiet", thread="t2")))
    assert not [character for character in shown if not character.isprintable() and character != "\n"]
    assert "[red]x[/red]" in shown


def test_a_shell_reads_the_printed_command_as_it_was_meant(bench: Bench) -> None:
    threads = ["it's $HOME `id` \\", "-x \x1b[31m a\nb'c\\d", 'é\u202e "q"; --']
    commands = []
    for thread in threads:
        bench.run(thread=thread)
        (line,) = re.findall("^Answer: (.*)", bench("show", "--", thread).stdout, re.M)
        assert line.isprintable()
        commands.append(line)
    program = "\n".join(["signoff() { printf '%s\\0' \"${@: -2:1}\"; }", *commands])
    read = subprocess.run(["bash", "-c", program], capture_output=True, check=True).stdout
    assert read.decode().split("\0")[:-1] == threads


def test_a_task_from_stdin_begins_a_thread_with_a_short_id(bench: Bench) -> None:
    bench.model(steps(SAY))
    result = bench("run", "-", "-w", str(bench.workspace), "--json", stdin="Do\nthis\n")
    document = json.loads(result.stdout)
    assert document["outcome"]["summary"] == "Do\nthis"
    assert (len(document["thread_id"]) < 20, document["thread_id"].count("-")) == (True, 2)


def test_a_system_prompt_is_shown_to_the_model_and_remembered(bench: Bench) -> None:
    (bench.folder / "real").write_bytes(b"Speak Latin.\r\nAlways.")
    (bench.folder / "prompt").symlink_to("real")
    bench.model('[lambda m: call("finish_task", summary=m[0].text[:12])] * 2')
    for thread, prompt in (("t1", "Speak Latin."), ("t2", f"@{bench.folder / 'prompt'}")):
        told = bench.run("x", "--system-prompt", prompt, "-q", thread=thread).stdout
        assert told == bench.run("y", "-q", thread=thread).stdout == "Speak Latin.\n"


class TestProviders:
    """A model behind an address: over HTTP, on this machine."""

    def test_the_thread_remembers_model_and_address_but_no_key(self, bench: Bench) -> None:
        finish = Reply(calls=[tool_call("finish_task", summary="The server's.")])
        bench.env["SIGNOFF_MODEL"] = None
        with FakeProvider([finish, finish]) as server:
            env = {"SIGNOFF_MODEL": "m", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-secret"}
            assert "The server's." in bench.run("Do it", **env).stdout
            assert bench("run", "And this", "--thread", "t1").exit_code == 0
        keys = [request.headers["authorization"] for request in server.requests]
        assert keys == ["Bearer sk-secret", "Bearer not-needed"]
        assert server.requests[0].body["model"] == "m"
        assert b"sk-secret" not in bench.database.read_bytes()

    def test_what_it_refuses_is_told_with_what_to_do_and_can_be_tried_again(self, bench: Bench) -> None:
        finish = Reply(calls=[tool_call("finish_task", summary="x")])
        with FakeProvider([error(401, "Incorrect key provided"), finish]) as server:
            result = bench.run("Do it", "--model", "m", "--base-url", server.url)
            assert bench("resume", "t1").exit_code == 0
        assert (result.exit_code, result.stderr) == (1, "")
        for part in ("Incorrect key provided", "OPENAI_API_KEY"):
            assert part in " ".join(result.stdout.split())


FILES = {"list_files", "read_file", "write_file", "edit_file", "search_files"}


class TestTools:
    """`--tools`: what a run works with, and what it leaves behind."""

    def named(self, bench: Bench, *words: str, **env: str) -> Any:
        """What the model is told of a tool that it does not have: those that it has."""
        bench.model('[lambda m: call("nothing"), lambda m: call("finish_task", summary=m[-1].text)] * 9')
        told = json.loads(bench.run("x", "--json", *words, **env).stdout)["outcome"]["summary"]
        names = {name.strip(" .") for name in told.rpartition(":")[2].split(",")}
        return names - {"finish_task", "ask_user", "think"}

    @pytest.mark.parametrize(
        ("tools", "names"), [(" files,files", FILES), ("", FILES | {"run_shell"}), ("none", set())]
    )
    def test_the_model_has_those_that_are_named_and_the_thread_remembers_them(
        self, bench: Bench, tools: str, names: set[str]
    ) -> None:
        assert self.named(bench, *(["--tools", tools] if tools else [])) == names
        assert self.named(bench) == names

    @pytest.mark.parametrize(("tools", "writes"), [("python", False), ("python-write", True)])
    def test_python_changes_the_workspace_only_where_that_is_said(
        self, bench: Bench, tools: str, writes: bool
    ) -> None:
        code = "print(6 * 7); open('made.txt', 'w').write('x')"
        bench.model(steps(f'call("run_python", code="{code}")', SAY))
        shown = bench.run("x", "--tools", tools).stdout
        assert "      42\n" in shown
        assert (bench.workspace / "made.txt").exists() is ("Python may change" in shown) is writes

    def test_one_that_this_host_cannot_have_is_refused_before_anything_begins(self, bench: Bench) -> None:
        one_sentence(bench.run("x", "--tools", "shell", PATH="/nowhere"), "bash")
        one_sentence(bench("show", "t1"), "t1")

    def test_the_shell_has_no_secrets_and_ends_with_the_run(self, bench: Bench) -> None:
        bench.model(steps('call("run_shell", command="sleep 500 & echo $!; env")', SAY))
        found = json.loads(bench.run("x", "--json", OPENAI_API_KEY="hunter2").stdout)
        pid, _, environment = found["outcome"]["summary"].partition("\n")
        assert "hunter2" not in environment
        assert not runs(int(pid.split()[-1]))

    @pytest.mark.parametrize("is_own", [True, False])
    def test_the_shell_finds_the_python_of_signoff_but_not_that_of_an_application(
        self, bench: Bench, is_own: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = str(Path(sys.executable).parent)
        monkeypatch.setattr(sys, "argv", [f"{own if is_own else '/home/me/.local/bin'}/signoff"])
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        bench.model(steps('call("run_shell", command="echo $PATH")', SAY))
        found = json.loads(bench.run("x", "--json").stdout)["outcome"]["summary"]
        assert found.startswith(f"{own}:/usr/bin") is is_own
