"""`signoff run`: how a run ends and what it prints, for people and as JSON; its tools and limits."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from signoff import SetupError
from signoff.text import WAITS, heading
from tests.support.benches.cli import Bench, bare, first_offered, one_sentence, steps, words_of
from tests.support.process_table import runs
from tests.support.servers.fake_provider import FakeProvider, Reply, error, tool_call
from tests.support.servers.hostile_server import HostileServer, silent
from tests.support.tagged_replies import DONE as TAGGED_DONE

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
ASK = 'call("ask_user", question="Which?")'
CLAIM = 'call("finish_task", summary="Half.", outcome="{}")'
CONFIRM = 'call("finish_task", summary="All done.", requires_user_confirmation=True)'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# The script, options of run; the exit code, the status, the command that goes on; what --quiet begins with.
Ending = tuple[str, list[str], int, str, list[str] | None, str]
ENDINGS: dict[str, Ending] = {
    "done": (steps(DONE), [], 0, "success", None, "All done.\n"),
    "partial": (steps(CLAIM.format("partial")), [], 5, "success", None, "Half.\n"),
    "blocked": (steps(CLAIM.format("blocked")), [], 5, "success", None, "Half.\n"),
    "impossible": (steps(CLAIM.format("impossible")), [], 5, "success", None, "Half.\n"),
    "no turns left": (f"[{LOOK}] * 9", ["--turns", "2"], 3, "limit", ["resume", "t1"], "Turn limit"),
    "only talk": ('["Hm."] * 9', ["--talk-turns", "2"], 3, "limit", ["resume", "t1"], "Stopped"),
    "the same again": (f"[{LOOK}] * 9", [], 3, "limit", ["resume", "t1"], "Stopped"),
    "no tokens left": (f"[{LOOK}] * 9", ["--tokens", "9"], 3, "limit", ["resume", "t1"], "Token limit"),
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


# A reply of the model, and the lines that tell it.
LINES: dict[str, tuple[str, list[str]]] = {
    "words beside a call": (f'["Let me look.", {LOOK}]', ["1 Let me look.", "✓ read_file  config.py"]),
    "a long result": (LOOK, ["1|LINE_0 = 0", "… 49 more lines"]),
    "a call that failed": ('call("read_file", path="no.py")', ["1 ✗ read_file  no.py"]),
    "any arguments": (
        'call("frob", n=3, deep={"a": [1]}, old="a\\nb", path="x.py", content="x" * 100)',
        ['1 ✗ frob  x.py  n=3  deep={"a": [1]}  old="a b"  content="xxx'],
    ),
    "words alone": ('"So."', ["1 So.", "↻ reminded: "]),
    "a thought": ('call("think", thought="First.", status="s")', ["1 think:", "First.", "status: s"]),
    "a command": (
        'call("run_shell", command="seq 9; (exit 3)")',
        ["1 ✗ $ seq 9; (exit 3)", "… 3 lines before", "9", "exit code 3 · "],
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_each_reply_is_told_in_short(bench: Bench, case: str) -> None:
    reply, lines = LINES[case]
    bench.config.write_text("".join(f"LINE_{n} = {n}\n" for n in range(50)))
    bench.model(steps(reply, DONE))
    shown = [line.strip() for line in bench.run("Look").stdout.splitlines()]
    assert [line for line in lines if not any(one.startswith(line) for one in shown)] == []
    assert max(map(len, shown)) < 200


EVIL = r"\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202egnp.exe\x9b31m"
HOSTILE = {
    "a summary": f'call("finish_task", summary="{EVIL}", outcome="partial", pending_issues=["{EVIL}"])',
    "words and calls": f'["{EVIL}", call("read_file", path="{EVIL}"), call("{EVIL}", x="{EVIL}")]',
    "a thought": f'call("think", thought="{EVIL}", approach="{EVIL}", status="{EVIL}")',
    "a question": f'call("ask_user", question="{EVIL}", options=["{EVIL}"])',
    "a command": f"call(\"run_shell\", command=\"printf '%s' '{EVIL}'\")",
    "an error": f'ValueError("{EVIL}")',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_of_a_model_or_a_user_steers_the_terminal_and_markup_in_it_is_text(
    bench: Bench, case: str
) -> None:
    evil = EVIL.encode().decode("unicode_escape")
    bench.model(steps(HOSTILE[case], '"Hm."'))
    full = bench.run(evil, "--turns", "1", thread=evil).output + bench("threads").output
    full += bench("show", "--", evil).output
    quiet = bench.run(evil, "--turns", "1", "--quiet", thread="t2").output
    assert not [one for one in full + quiet if not one.isprintable() and one != "\n"]
    assert "[red]x[/red]" in full


UNSEEN = {
    "a\tb": "a    b",
    "a\r\nb": "a\nb",
    "\x07\x7f": "␇␡",
    "real\rfake": "real␍fake",
    "\x9b31m": "⟨U+009B⟩31m",
    "a\u2028b": "a⟨U+2028⟩b",
    "a\ud800b": "a\ufffdb",
    "é 日本 👩‍💻": "é 日本 👩‍💻",
}


def test_what_cannot_be_seen_is_shown_by_its_name(bench: Bench) -> None:
    bench.model(steps(f"[{chr(10).join(UNSEEN)!a}, {DONE}]"))
    shown = bench.run("x").stdout.replace("\n    ", "\n")
    assert [safe for safe in UNSEEN.values() if safe not in shown] == []


def test_a_shell_reads_the_printed_command_as_it_was_meant(bench: Bench) -> None:
    threads = ["it's", "$HOME `id` \\", "a\nb'c\\d", "-x \x1b[31m", "é\u202e", '"q"; --', "t" * 500]
    commands = []
    for thread in threads:
        bench.run(thread=thread)
        (command,) = (
            line.removeprefix("Answer: ")
            for line in bench("show", "--", thread).stdout.splitlines()
            if line.startswith("Answer: ")
        )
        assert command.isprintable()
        commands.append(command)
    program = "\n".join(["signoff() { printf '%s\\0' \"${@: -2:1}\"; }", *commands])
    read = subprocess.run(["bash", "-c", program], capture_output=True, check=True).stdout
    assert read.decode().split("\0")[:-1] == threads


def test_a_task_from_stdin(bench: Bench) -> None:
    bench.model(steps(SAY))
    result = bench("run", "-", "-w", str(bench.workspace), "--json", stdin="Do\nthis\n")
    assert json.loads(result.stdout)["outcome"]["summary"] == "Do\nthis"


@pytest.mark.parametrize("way", ["as text", "in a file"])
def test_a_system_prompt_is_shown_to_the_model_and_remembered(bench: Bench, way: str) -> None:
    (bench.folder / "real").write_bytes(b"Speak Latin.\r\nAlways.")
    (bench.folder / "prompt").symlink_to("real")
    bench.model('[lambda m: call("finish_task", summary=m[0].text[:12])] * 2')
    prompt = "Speak Latin." if way == "as text" else f"@{bench.folder / 'prompt'}"
    assert bench.run("x", "--system-prompt", prompt, "-q").stdout == "Speak Latin.\n"
    assert bench.run("y", "-q").stdout == "Speak Latin.\n"


def test_a_new_thread_has_a_short_id_that_no_other_has(bench: Bench) -> None:
    bench.model(steps(DONE))
    names = {bench.json("run", "x", "-w", str(bench.workspace))["thread_id"] for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) < 20 and name.count("-") == 2 for name in names)


def test_a_thread_takes_one_task_after_another_with_its_limits(bench: Bench) -> None:
    look, cheap = f"reply({LOOK}, usage=(90, 10))", f"reply({DONE}, usage=(9, 1))"
    bench.model(steps(cheap, look, 'reply(call("think", thought="hm"), usage=(90, 10))', cheap))
    assert bench.run("Look", "--tokens", "200", "--seconds", "60").exit_code == 0
    found = bench.json("run", "Look again", "-t", "t1", SIGNOFF_MODEL="gpt-none")
    assert (found["exit_code"], found["outcome"]["reason"], found["outcome"]["turns"]) == (3, "tokens", 2)
    assert bench(*words_of(found["resume"])).exit_code == 0


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
        body = server.requests[0].body
        offered = {tool["function"]["name"] for tool in body["tools"]}
        assert (body["model"], body["stream"], {"finish_task", "edit_file"} <= offered) == ("m", True, True)
        saved = [file.read_bytes() for file in bench.folder.glob("threads.sqlite*") if file.is_file()]
        assert b"sk-secret" not in b"".join(saved)

    def test_what_it_refuses_is_told_with_what_to_do_and_can_be_tried_again(self, bench: Bench) -> None:
        finish = Reply(calls=[tool_call("finish_task", summary="x")])
        with FakeProvider([error(401, "Incorrect key provided"), finish]) as server:
            result = bench.run("Do it", "--model", "m", "--base-url", server.url)
            assert bench("resume", "t1").exit_code == 0
        assert (result.exit_code, result.stderr) == (1, "")
        for part in ("Incorrect key provided", "OPENAI_API_KEY"):
            assert part in " ".join(result.stdout.split())

    SILENT: Mapping[str, tuple[list[str], int, str]] = {
        "too long for the model": (["--model-seconds", "0.4"], 1, "error"),
        "too long for the task": (["--seconds", "0.4"], 3, "limit"),
        "a person interrupts": ([], 4, "stopped"),
    }

    @pytest.mark.parametrize("case", SILENT)
    def test_a_silent_one_does_not_hold_the_run(self, bench: Bench, case: str) -> None:
        words, code, status = self.SILENT[case]

        def interrupt() -> None:
            if server.asked.wait(20) and not words:
                os.kill(os.getpid(), signal.SIGINT)

        with HostileServer(silent) as server:
            person = threading.Thread(target=interrupt)
            person.start()
            address = ("--model", "m", "--base-url", server.url)
            found = bench.json("run", "x", "-t", "t1", *address, *words, OPENAI_API_KEY="none")
            person.join()
        assert (found["exit_code"], found["status"]) == (code, status)
        assert bench.json("show", "t1")["status"] == status
        # One that was silent is asked once more, unless a person has had enough.
        assert words or len(server.requests) == 1


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
        ("tools", "names"),
        [
            ("files", FILES),
            ("shell", {"run_shell"}),
            (" shell, files,shell", FILES | {"run_shell"}),
            ("", FILES | {"run_shell"}),
            ("none", set()),
        ],
    )
    def test_the_model_has_those_that_are_named_and_the_thread_remembers_them(
        self, bench: Bench, tools: str, names: set[str]
    ) -> None:
        assert self.named(bench, *(["--tools", tools] if tools else [])) == names
        assert self.named(bench) == names

    PYTHON: Mapping[str, tuple[list[str], bool | None]] = {
        "read-only": (["--tools", "python"], False),
        "may write": (["--tools", "python-write"], True),
        "the text protocol": (["--protocol", "tagged"], True),
        "the text protocol with it": (["--protocol", "tagged", "--tools", "python"], True),
        "the text protocol without it": (["--protocol", "tagged", "--tools", "files"], None),
    }

    @pytest.mark.parametrize("case", PYTHON)
    def test_python_changes_the_workspace_only_where_that_is_said(self, bench: Bench, case: str) -> None:
        options, writes = self.PYTHON[case]
        code = "print(6 * 7); open('made.txt', 'w').write('x')"
        status = "<STATE_UPDATE>\nStatus: Working\n</STATE_UPDATE>"
        tagged = [f"<PLAN>p</PLAN>\n```python\n{code}\n```\n{status}", TAGGED_DONE]
        called = steps(f'call("run_python", code="{code}")', SAY)
        bench.model(repr(tagged) if "tagged" in options else called)
        shown = bench.run("x", *options).stdout
        assert (bench.workspace / "made.txt").exists() is bool(writes)
        assert ("Python may change" in shown) is bool(writes)
        assert ("      42\n" in shown) is (writes is not None)

    @pytest.mark.parametrize("tools", ["shell", "python"])
    def test_one_that_this_host_cannot_have_is_refused_before_anything_begins(
        self, bench: Bench, tools: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if tools == "python":
            monkeypatch.setattr("signoff.tools.choose_sandbox", _no_sandbox)
        one_sentence(bench.run("x", "--tools", tools, PATH="/nowhere"), "bash" if tools == "shell" else tools)
        one_sentence(bench("show", "t1"), "t1")

    def test_the_shell_has_no_secrets_and_ends_with_the_run(self, bench: Bench) -> None:
        bench.model(steps('call("run_shell", command="sleep 500 & echo $!; env")', SAY))
        found = json.loads(bench.run("x", "--json", OPENAI_API_KEY="hunter2").stdout)
        pid, _, environment = found["outcome"]["summary"].partition("\n")
        assert "hunter2" not in environment
        assert not runs(int(pid.split()[-1]))

    @pytest.mark.parametrize("words", [["--json"], ["--quiet"]])
    def test_what_a_command_writes_is_not_on_stdout(self, bench: Bench, words: list[str]) -> None:
        bench.model(steps('call("run_shell", command="echo live")', DONE))
        assert "live\n" not in bench.run("x", *words).stdout

    PYTHONS: Mapping[str, tuple[dict[str, str], str, bool]] = {
        "that of signoff": ({}, "{bin}/signoff", True),
        "not of an application": ({}, "/home/me/.local/bin/signoff", False),
        "not beside an environment": ({"VIRTUAL_ENV": "/mine"}, "{bin}/signoff", False),
    }

    @pytest.mark.parametrize("case", PYTHONS)
    def test_which_python_the_shell_finds(
        self, bench: Bench, case: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        env, program, is_first = self.PYTHONS[case]
        own = str(Path(sys.executable).parent)
        monkeypatch.setattr(sys, "argv", [program.format(bin=own)])
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        bench.model(steps('call("run_shell", command="echo $PATH")', SAY))
        found = json.loads(bench.run("x", "--json", **env).stdout)["outcome"]["summary"]
        assert found.startswith(f"{own}:/usr/bin") is is_first


def _no_sandbox(*_: object, **__: object) -> None:
    raise SetupError("There is no sandbox for python here.")
