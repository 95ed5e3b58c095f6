"""The command line: what each command prints, how it ends, and what it says to wrong usage."""

import json
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.cli.standing import config_of, reading_graph
from tests.cli_bench import Bench, steps, words_of

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'


ENDINGS: dict[str, tuple[str, list[str], int, str, str | None]] = {
    "done": (steps(DONE), [], 0, "Done:", None),
    "partial": (
        steps('call("finish_task", summary="Half.", outcome="partial")'),
        [],
        5,
        "Partly done:",
        None,
    ),
    "blocked": (steps('call("finish_task", summary="No.", outcome="blocked")'), [], 5, "Blocked:", None),
    "impossible": (
        steps('call("finish_task", summary="No.", outcome="impossible")'),
        [],
        5,
        "Not possible:",
        None,
    ),
    "turns": (f"[{LOOK}] * 9", ["--turns", "2"], 3, "Turn limit reached:", "resume --turns 10"),
    "talk": ('["Hm."] * 9', ["--talk-turns", "2"], 3, "Stopped: it only talked:", "resume --turns 10"),
    "model": (steps('ConnectionError("gone")'), [], 1, "The model failed:", "resume --retry"),
    "question": (steps('call("ask_user", question="Which?")'), [], 4, "The model asks:", "'your answer'"),
}

QUIET: dict[str, str] = {
    "done": "All done.\n",
    "partial": "Half.\n",
    "turns": "Turn limit reached.",
    "model": "The model failed. ConnectionError: gone.",
    "question": "Which?\nAnswer: signoff resume",
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
        assert ("signoff resume" in result.stdout) == (command is not None)
        assert command is None or command in result.stdout
        assert result.stderr == ""

    @pytest.mark.parametrize("ending", ENDINGS)
    def test_json_is_one_document_that_says_the_same(self, bench: Bench, ending: str) -> None:
        script, words, code, _, command = ENDINGS[ending]
        bench.model(script)
        result = bench.run("Do it", *words, "--json")
        found = json.loads(result.stdout)
        status = {0: "finished", 1: "error", 3: "finished", 4: "paused", 5: "finished"}[code]
        assert (result.exit_code, found["exit_code"], found["status"]) == (code, code, status)
        assert (found["thread_id"], result.stderr) == ("t1", "")
        assert (found["resume"] is not None) == (command is not None)
        assert (found["outcome"] is None) == (ending == "question")
        assert found["question"] == ({"question": "Which?", "options": []} if ending == "question" else None)

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
        assert bench.run("Look").stdout.splitlines()[2:-4] == [
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


class TestGoingOn:
    """`resume`, from wherever a thread stands."""

    def test_a_question_without_a_terminal_then_its_answer(self, bench: Bench) -> None:
        asked = bench.json("run", "Change it", "-t", "t1", "-w", str(bench.workspace))
        assert asked["question"] == {"question": "Which port?", "options": ["8080", "9090"]}
        again = bench.json("resume", "t1")
        assert (again["status"], again["question"]) == ("paused", asked["question"])
        *rest, answer = words_of(asked["resume"])
        assert answer == "your answer"
        ended = bench(*rest, "8080")
        assert ended.exit_code == 0, ended.output
        assert bench.config.read_text() == "PORT = 8080\n"

    @pytest.mark.parametrize("answer", ["", "None", "{}", "-8080", "[bold]x[/bold]", "é\n日本"])
    def test_any_text_is_an_answer(self, bench: Bench, answer: str) -> None:
        bench.model(
            steps('call("ask_user", question="Which?")', 'lambda m: call("finish_task", summary=m[-1].text)')
        )
        bench.run()
        found = bench.json("resume", "t1", "--", answer)
        assert found["outcome"]["summary"] == (answer or "(the user gave an empty answer)")

    def test_a_message_to_a_thread_that_waits_is_the_answer(self, bench: Bench) -> None:
        bench.run()
        result = bench("run", "9090", "--thread", "t1")
        assert result.exit_code == 0
        assert "your message is the answer" in result.stdout
        assert bench.config.read_text() == "PORT = 9090\n"

    def test_more_turns_after_a_limit(self, bench: Bench) -> None:
        bench.model(steps(LOOK, LOOK, LOOK, DONE))
        limit = bench.json("run", "Look", "-t", "t1", "-w", str(bench.workspace), "--turns", "2")
        assert (limit["outcome"]["reason"], limit["outcome"]["turns"]) == ("turns", 2)
        ended = bench.json("resume", "t1", "--turns", "2")
        assert (ended["outcome"]["status"], ended["outcome"]["turns"]) == ("success", 4)

    def test_another_try_after_an_error(self, bench: Bench) -> None:
        bench.model(steps('ConnectionError("gone")'))
        bench.run()
        assert bench.json("resume", "t1", "--retry", "--model", bench.model(steps(DONE)))["exit_code"] == 0

    def test_a_thread_takes_one_task_after_another_in_its_own_workspace(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        bench.model(steps(DONE, LOOK, DONE))
        bench.run()
        second = bench("run", "And look", "--thread", "t1", SIGNOFF_MODEL="gpt-none")
        assert second.exit_code == 0, second.output
        assert f"t1 · {bench.workspace} · scripted:" in second.stdout
        assert "PORT = 3000" in second.stdout

    def test_a_new_task_ends_an_unfinished_one(self, bench: Bench) -> None:
        bench.model(steps(DONE))
        with sqlite_storage(bench.database) as storage:
            values = {"messages": [("user", "the first")]}
            reading_graph(storage).update_state(config_of("t1"), values, as_node="__start__")
        result = bench.run("the second")
        assert result.exit_code == 0
        assert "unfinished task ends here" in result.stdout

    @pytest.mark.parametrize("node", ["__start__", "finish", "nudge"])
    def test_a_thread_with_work_left_goes_on_wherever_it_was_left(self, bench: Bench, node: str) -> None:
        """After `finish`, LangGraph names no next state although the task has no outcome."""
        bench.model(steps(DONE))
        with sqlite_storage(bench.database) as storage:
            graph, saved = reading_graph(storage), {"messages": [("user", "do it")], "event": "nudged"}
            graph.update_state(config_of("t1"), saved, as_node=node)
            assert bool(graph.get_state(config_of("t1")).next) == (node != "finish")
        result = bench("resume", "t1", "-w", str(bench.workspace))
        assert result.exit_code == 0, result.output

    def test_a_new_thread_has_a_short_id_that_no_other_has(self, bench: Bench) -> None:
        bench.model(steps(DONE))
        ids = {bench.json("run", "x", "-w", str(bench.workspace))["thread_id"] for _ in range(3)}
        assert len(ids) == 3
        assert all(len(thread_id) < 20 and thread_id.count("-") == 2 for thread_id in ids)


class TestLooking:
    """`threads`, `show`, `--version`."""

    def test_threads_says_how_each_stands(self, bench: Bench) -> None:
        bench.run("Ask me")
        for name, script in {
            "done": steps(DONE),
            "half": steps('call("finish_task", summary="x", outcome="partial")'),
            "broken": steps("ValueError()"),
        }.items():
            bench.model(script)
            bench.run(f"Task {name}", thread=name)
        found = json.loads(bench("threads", "--json").stdout)
        kept = [(row["thread_id"], row["status"], row["claim"], row["turns"], row["task"]) for row in found]
        assert kept == [
            ("broken", "error", None, 0, "Task broken"),
            ("half", "success", "partial", 1, "Task half"),
            ("done", "success", "done", 1, "Task done"),
            ("t1", "waiting", None, 2, "Ask me"),
        ]
        assert len(json.loads(bench("threads", "--json", "--limit", "2").stdout)) == 2
        table = bench("threads").stdout
        for part in (
            "error (model_error)",
            "success (partial)",
            "waiting for an answer",
            "Task done",
            " s ago",
        ):
            assert part in table

    def test_no_threads_yet(self, bench: Bench) -> None:
        result = bench("threads")
        assert (result.exit_code, "No threads" in result.stdout) == (0, True)
        assert json.loads(bench("threads", "--json").stdout) == []
        assert not bench.database.exists()

    def test_show_tells_the_tasks_of_a_thread_in_order(self, bench: Bench) -> None:
        bench.run("Change it")
        bench("resume", "t1", "8080")
        bench("run", "And more", "--thread", "t1")
        kinds = [(entry["kind"], entry.get("turn")) for entry in bench.json("show", "t1")["timeline"]]
        assert kinds == [
            ("user", None),
            ("call", 1),
            ("question", 2),
            ("call", 3),
            ("outcome", None),
            ("user", None),
            ("outcome", None),
        ]
        lines = bench("show", "t1").stdout.splitlines()
        told = ["you Change it", "  2 ? Which port?", "      8080", "Done:", "you And more", "Done:"]
        assert [line for line in lines if line in told] == told

    def test_show_of_a_waiting_thread_ends_with_the_question(self, bench: Bench) -> None:
        bench.run()
        found = bench.json("show", "t1")
        assert (found["status"], found["outcome"], found["question"]["question"]) == (
            "waiting",
            None,
            "Which port?",
        )
        assert found["settings"]["workspace"] == str(bench.workspace)
        assert bench("show", "t1").stdout.splitlines()[-1].startswith("Answer: signoff resume")

    def test_version(self, bench: Bench) -> None:
        result = bench("--version")
        assert (result.exit_code, result.stdout.split()[0]) == (0, "signoff")

    def test_the_other_commands_are_there(self, bench: Bench) -> None:
        assert bench("diagram").stdout.startswith(("---", "graph", "flowchart", "stateDiagram"))
        assert "install" in bench("model", "--help").stdout


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
