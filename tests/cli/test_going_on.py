"""`resume`, `extend` and `retry`: going on from wherever a thread stands, and what they refuse."""

from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.session.status import config_of, reading_graph
from tests.support.benches.cli import Bench, offered, one_sentence, steps, words_of

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
ASK = 'call("ask_user", question="Which?")'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
CONFIRM = 'call("finish_task", summary="All done.", requires_user_confirmation=True)'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def left_behind(bench: Bench, node: str = "__start__") -> None:
    """A thread whose process was killed just after this node."""
    with sqlite_storage(bench.database) as storage:
        graph, saved = reading_graph(storage), {"messages": [("user", "the first")], "event": "nudged"}
        graph.update_state(config_of("t1"), saved, as_node=node)
        assert bool(graph.get_state(config_of("t1")).next) == (node != "finish")


class TestResume:
    def test_a_question_without_a_terminal_then_its_answer(self, bench: Bench) -> None:
        asked = bench.json("run", "Change it", "-t", "t1", "-w", str(bench.workspace))
        assert asked["question"] == {"question": "Which port?", "options": ["8080", "9090"]}
        again = bench.json("resume", "t1")
        assert (again["status"], again["question"]) == ("waiting", asked["question"])
        *rest, answer = words_of(asked["resume"])
        assert answer == "your answer"
        ended = bench(*rest, "8080")
        assert ended.exit_code == 0, ended.output
        assert bench.config.read_text() == "PORT = 8080\n"

    def test_a_number_is_an_option(self, bench: Bench) -> None:
        bench.run()
        assert bench("resume", "t1", "2").exit_code == 0
        assert bench.config.read_text() == "PORT = 9090\n"

    @pytest.mark.parametrize("answer", ["", "None", "{}", "-8080", "[bold]x[/bold]", "é\n日本"])
    def test_any_text_is_an_answer(self, bench: Bench, answer: str) -> None:
        bench.model(steps(ASK, SAY))
        bench.run()
        found = bench.json("resume", "t1", "--", answer)
        assert found["outcome"]["summary"] == (answer or "(the user gave an empty answer)")

    @pytest.mark.parametrize("node", ["__start__", "finish", "nudge"])
    def test_a_thread_with_work_left_goes_on_wherever_it_was_left(self, bench: Bench, node: str) -> None:
        """After `finish`, LangGraph names no next state although the task has no outcome."""
        bench.model(steps(DONE))
        left_behind(bench, node)
        result = bench("resume", "t1", "-w", str(bench.workspace))
        assert result.exit_code == 0, result.output


class TestAnotherTask:
    def test_a_message_to_a_thread_that_waits_is_the_answer(self, bench: Bench) -> None:
        bench.run()
        result = bench("run", "9090", "--thread", "t1")
        assert result.exit_code == 0
        assert "your message is the answer" in result.stdout
        assert bench.config.read_text() == "PORT = 9090\n"

    def test_a_thread_takes_one_task_after_another_in_its_own_workspace(self, bench: Bench) -> None:
        bench.model(steps(DONE, LOOK, DONE))
        bench.run()
        second = bench("run", "And look", "--thread", "t1", SIGNOFF_MODEL="gpt-none")
        assert second.exit_code == 0, second.output
        assert f"t1 · {bench.workspace} · scripted:" in second.stdout
        assert "PORT = 3000" in second.stdout

    def test_a_new_task_ends_an_unfinished_one(self, bench: Bench) -> None:
        bench.model(steps(DONE))
        left_behind(bench)
        result = bench.run("the second")
        assert result.exit_code == 0
        assert "unfinished task ends here" in result.stdout

    def test_a_new_thread_has_a_short_id_that_no_other_has(self, bench: Bench) -> None:
        bench.model(steps(DONE))
        ids = {bench.json("run", "x", "-w", str(bench.workspace))["thread_id"] for _ in range(3)}
        assert len(ids) == 3
        assert all(len(thread_id) < 20 and thread_id.count("-") == 2 for thread_id in ids)


EXTENSIONS: dict[str, tuple[list[list[str]], tuple[int, str, int]]] = {
    "enough": ([["3"]], (0, "finish_task", 5)),
    "ten by default": ([[]], (0, "finish_task", 5)),
    "just enough: a finish on the last turn": ([["2"], ["1"]], (0, "finish_task", 5)),
    "too few": ([["1"]], (3, "turns", 3)),
    "too few, twice": ([["1"], ["1"]], (3, "turns", 4)),
}


class TestExtend:
    @pytest.mark.parametrize("case", EXTENSIONS)
    def test_more_turns_after_a_limit(self, bench: Bench, case: str) -> None:
        given, (code, reason, turns) = EXTENSIONS[case]
        bench.model(steps(LOOK, LOOK, LOOK, LOOK, DONE))
        assert bench.run("Look", "--turns", "2").exit_code == 3
        for words in given:
            found = bench.json("extend", "t1", *words)
        outcome = found["outcome"]
        assert (found["exit_code"], outcome["reason"], outcome["turns"]) == (code, reason, turns)

    def test_the_printed_command_extends(self, bench: Bench) -> None:
        bench.model(steps(LOOK, LOOK, DONE))
        words = offered(bench.run("Look", "--turns", "2").stdout)["Continue with more turns"]
        assert bench(*words).exit_code == 0

    def test_after_talk_only_the_count_begins_anew(self, bench: Bench) -> None:
        bench.model(steps('"a"', '"b"', '"c"', DONE))
        assert bench.run("x", "--talk-turns", "2").exit_code == 3
        assert bench("extend", "t1", "5").exit_code == 0

    def test_the_next_task_has_its_own_limit_again(self, bench: Bench) -> None:
        bench.model(steps(LOOK, LOOK, DONE, LOOK, LOOK))
        bench.run("Look", "--turns", "2")
        assert bench("extend", "t1", "9").exit_code == 0
        assert bench.json("run", "Look again", "-t", "t1")["outcome"]["turns"] == 2


class TestRetry:
    def test_another_try_after_an_error(self, bench: Bench) -> None:
        bench.model(steps(LOOK, 'RuntimeError("gone")'))
        words = offered(bench.run().stdout)["Try again"]
        assert bench(*words).exit_code == 1, "the same model fails again"
        found = bench.json("retry", "t1", "--model", bench.model(steps(LOOK, SAY)))
        assert (found["exit_code"], found["outcome"]["turns"]) == (0, 2)

    def test_a_first_turn_that_failed(self, bench: Bench) -> None:
        bench.model(steps('RuntimeError("gone")'))
        bench.run()
        assert bench.json("retry", "t1", "--model", bench.model(steps(DONE)))["exit_code"] == 0


LIMIT, ERROR = "['a'] * 9", steps("ValueError()")
REFUSED: dict[str, tuple[str, list[str], list[str]]] = {
    "resume a success": (steps(DONE), ["resume", "t1"], ["has ended (success, done)", "signoff run"]),
    "answer to a success": (steps(DONE), ["resume", "t1", "blue"], ["nothing waits", "signoff run"]),
    "extend a success": (steps(DONE), ["extend", "t1"], ["has ended (success, done)", "signoff run"]),
    "retry a success": (steps(DONE), ["retry", "t1"], ["has ended (success, done)", "signoff run"]),
    "resume after a limit": (LIMIT, ["resume", "t1"], ["(limit, turns)", "signoff extend"]),
    "answer after a limit": (LIMIT, ["resume", "t1", "blue"], ["nothing waits"]),
    "retry after a limit": (LIMIT, ["retry", "t1"], ["(limit, turns)", "signoff extend"]),
    "resume after an error": (ERROR, ["resume", "t1"], ["(error, model_error)", "signoff retry"]),
    "extend after an error": (ERROR, ["extend", "t1"], ["(error, model_error)", "signoff retry"]),
    "extend a question": (steps(ASK), ["extend", "t1", "1"], ["has not ended", "a limit", "signoff resume"]),
    "retry a question": (steps(ASK), ["retry", "t1"], ["has not ended", "an error", "signoff resume"]),
    "extend a confirmation": (steps(CONFIRM), ["extend", "t1"], ["has not ended", "signoff resume"]),
    "pause what has ended": (steps(DONE), ["pause", "t1"], ["not running", "nothing to pause"]),
    "pause what waits": (steps(ASK), ["pause", "t1"], ["not running", "nothing to pause"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_the_command_that_does(bench: Bench, case: str) -> None:
    script, words, parts = REFUSED[case]
    bench.model(script)
    bench.run("Do it", "--turns", "2")
    before = bench.json("show", "t1")
    one_sentence(bench(*words), *parts)
    assert bench.json("show", "t1") == before


@pytest.mark.parametrize(
    ("words", "told"), [(["resume", "t1", "blue"], "nothing waits"), (["extend", "t1"], "has not ended"),
                        (["retry", "t1"], "has not ended"), (["pause", "t1"], "not running")]
)  # fmt: skip
def test_what_does_not_fit_a_thread_that_was_killed(bench: Bench, words: list[str], told: str) -> None:
    left_behind(bench)
    one_sentence(bench(*words), told)
