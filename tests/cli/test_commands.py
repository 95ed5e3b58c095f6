"""The command line: what each command prints, how it ends, and what it says to wrong usage."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from signoff.cli.app import COMMANDS
from tests.support.benches.cli import Bench, bare, offered, steps, words_of

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
ASK = 'call("ask_user", question="Which?")'
CLAIM = 'call("finish_task", summary="Half.", outcome="{}")'
CONFIRM = 'call("finish_task", summary="All done.", requires_user_confirmation=True)'


ENDINGS: dict[str, tuple[str, list[str], int, str, list[str] | None]] = {
    "done": (steps(DONE), [], 0, "Asserted: done", None),
    "partial": (steps(CLAIM.format("partial")), [], 5, "Asserted: partly done", None),
    "blocked": (steps(CLAIM.format("blocked")), [], 5, "Asserted: blocked", None),
    "impossible": (steps(CLAIM.format("impossible")), [], 5, "Asserted: not possible", None),
    "turns": (f"[{LOOK}] * 9", ["--turns", "2"], 3, "Turn limit reached:", ["extend", "t1", "10"]),
    "talk": ('["Hm."] * 9', ["--talk-turns", "2"], 3, "Stopped: it only talked", ["extend", "t1", "10"]),
    "model": (steps('RuntimeError("gone")'), [], 1, "The model failed:", ["retry", "t1"]),
    "question": (steps(ASK), [], 4, "The model asks:", ["resume", "t1", "your answer"]),
    "confirmation": (steps(CONFIRM), [], 4, "Finished? Please confirm:", ["resume", "t1", "yes"]),
}

QUIET: dict[str, str] = {
    "done": "All done.\n",
    "partial": "Half.\n",
    "turns": "Turn limit reached.",
    "model": "The model failed. RuntimeError: gone.",
    "question": "Which?\nAnswer: signoff resume",
    "confirmation": "All done.\nConfirm: signoff resume",
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class TestEndings:
    """Exit codes, cards, and the command that goes on."""

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_exit_code_card_and_next_command(self, bench: Bench, ending: str) -> None:
        script, words, code, card, command = ENDINGS[ending]
        bench.model(script)
        result = bench.run("Do it", *words)
        assert result.exit_code == code, result.output
        assert f"\n{card}\n" in result.stdout
        assert next((bare(words) for words in offered(result.stdout).values()), None) == command
        assert result.stderr == ""

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_json_is_one_document_that_says_the_same(self, bench: Bench, ending: str) -> None:
        script, words, code, _, command = ENDINGS[ending]
        bench.model(script)
        result = bench.run("Do it", *words, "--json")
        found = json.loads(result.stdout)
        status = {0: "success", 1: "error", 3: "limit", 4: "waiting", 5: "success"}[code]
        assert (result.exit_code, found["exit_code"], found["status"]) == (code, code, status)
        assert (found["thread_id"], result.stderr) == ("t1", "")
        assert (found["resume"] and bare(words_of(found["resume"]))) == command
        assert (found["outcome"] is None) == (status == "waiting")
        assert found["question"] == ({"question": "Which?", "options": []} if ending == "question" else None)
        assert (found["confirmation"] is None) == (ending != "confirmation")

    @pytest.mark.parametrize("ending", QUIET)
    def test_quiet_prints_the_summary_or_the_question_only(self, bench: Bench, ending: str) -> None:
        script, words, code, _, _ = ENDINGS[ending]
        bench.model(script)
        result = bench.run("Do it", *words, "--quiet")
        assert result.exit_code == code
        assert result.stdout.startswith(QUIET[ending])

    def test_each_call_and_its_result_in_short(self, bench: Bench) -> None:
        bench.config.write_text("".join(f"LINE_{n} = {n}\n" for n in range(50)))
        bench.model(steps(f'["Let me look.", {LOOK}, call("read_file", path="no.py")]', '"So."', DONE))
        assert bench.run("Look").stdout.splitlines()[2:-5] == [
            "  1 Let me look.",
            "    ✓ read_file  config.py",
            "      config.py, lines 1 to 50 of 50:",
            "      1|LINE_0 = 0",
            "      … 49 more lines",
            "    ✗ read_file  no.py",
            "      There is no no.py; call list_files to see what is there.",
            "  2 So.",
            "    ↻ reminded: it answered with text only",
        ]

    def test_a_thought_is_a_card(self, bench: Bench) -> None:
        bench.model(steps('call("think", thought="First the port.", status="planning")', DONE))
        assert "  1 think:\n      First the port.\n      status: planning\n" in bench.run("Think").stdout


class TestHarmless:
    """What a model, a tool or a user wrote cannot steer the terminal, and markup in it is text."""

    EVIL = r"\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202egnp.exe\x9b31m"

    @pytest.mark.parametrize("words", [[], ["--quiet"]])
    @pytest.mark.parametrize(
        "script",
        [
            f'call("finish_task", summary="{EVIL}", outcome="partial", pending_issues=["{EVIL}"])',
            f'["{EVIL}", call("read_file", path="{EVIL}"), call("{EVIL}", x="{EVIL}")]',
            f'call("think", thought="{EVIL}", approach="{EVIL}", status="{EVIL}")',
            f'call("ask_user", question="{EVIL}", options=["{EVIL}"])',
            f'ValueError("{EVIL}")',
            f'"{EVIL}"',
        ],
    )
    def test_output(self, bench: Bench, script: str, words: list[str]) -> None:
        evil = self.EVIL.encode().decode("unicode_escape")
        bench.model(steps(script, '"Hm."'))
        result = bench.run(evil, "--turns", "1", *words, thread=evil)
        assert result.exit_code in (1, 3, 4, 5)
        shown = result.output + bench("threads").output + bench("show", "--", evil).output
        assert not [character for character in shown if not character.isprintable() and character != "\n"]
        assert "[red]x[/red]" in shown or words

    def test_the_printed_command_names_the_thread_exactly(self, bench: Bench) -> None:
        thread = "-a 'b' \x1b[31m é$HOME\n"
        bench.run(thread=thread)
        shown = bench("show", "--", thread).stdout.splitlines()[-1].removeprefix("Answer: ")
        assert shown.isprintable()
        assert r"$'-a \x27b\x27 \x1b[31m \xc3\xa9$HOME\x0a'" in shown


class TestInput:
    def test_a_task_from_stdin(self, bench: Bench) -> None:
        bench.model(steps('lambda m: call("finish_task", summary=m[-1].text)'))
        result = bench("run", "-", "-w", str(bench.workspace), "--json", stdin="Do\nthis\n")
        assert json.loads(result.stdout)["outcome"]["summary"] == "Do\nthis"

    @pytest.mark.parametrize("by_file", [False, True])
    def test_a_system_prompt_is_shown_to_the_model_and_remembered(
        self, bench: Bench, tmp_path: Path, by_file: bool
    ) -> None:
        bench.model('[lambda m: call("finish_task", summary=m[0].text[:12])] * 2')
        (tmp_path / "prompt").write_text("Speak Latin.\nAlways.")
        prompt = f"@{tmp_path / 'prompt'}" if by_file else "Speak Latin."
        assert bench.run("x", "--system-prompt", prompt, "-q").stdout == "Speak Latin.\n"
        assert bench.run("y", "-q").stdout == "Speak Latin.\n"


def test_version(bench: Bench) -> None:
    result = bench("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "signoff")


def test_the_version_is_said_without_importing_what_only_commands_need() -> None:
    program = (
        "import atexit, sys; from signoff.cli import main; sys.argv[1:] = ['--version']; "
        "atexit.register(lambda: print(*sys.modules)); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    version, modules = done.stdout.splitlines()
    assert version.startswith("signoff ")
    packages = {name.split(".")[0] for name in modules.split()}
    assert "typer" in packages
    assert packages & {"langgraph", "langchain_core", "pydantic", "rich"} == set()


def test_every_command_of_the_table_is_there(bench: Bench) -> None:
    shown = bench("--help").stdout
    assert [name for name in COMMANDS if f" {name} " not in shown] == []
    assert (
        bench("thraeds").stderr == "No such command 'thraeds'. Did you mean 'threads'? See: signoff --help\n"
    )


def test_the_other_commands_are_there(bench: Bench) -> None:
    assert bench("diagram").stdout.startswith(("---", "graph", "flowchart", "stateDiagram"))
    assert "install" in bench("model", "--help").stdout
