"""The application: what a person sees, and what their keys do to a thread."""

from pathlib import Path

import pytest

from signoff.front.settings import Given
from signoff.front.work import Models, Work
from signoff.graph.machine import State
from signoff.session.decisions import Action
from signoff.session.path import steps
from signoff.tools.pty.shell import ShellResult
from signoff.ui.app import Editor, Help, Threads
from tests.support.benches.ui import UiBench

pytestmark = pytest.mark.slow

ALL = """[
    call("think", thought="First I look.", approach="small steps", status="Working"),
    reply("I look.", call("read_file", path="config.py")),
    "That may be all.",
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("edit_file", path="config.py", old="3000", new="8080"),
    call("run_shell", command="echo the port is $(cat config.py)"),
    call("finish_task", summary="The port is 8080.", pending_issues=["The README is old."]),
]"""
ASKS = '[call("ask_user", question="Which port?"), call("finish_task", summary="Done.")]'
SHELL = '[call("run_shell", command="echo run by the model"), call("finish_task", summary="Done.")]'
DONE = '[call("finish_task", summary="Done.")]'
LOOKS = """[*[call("write_file", path=f"{n}.md", content="x") for n in range(9)],
          call("finish_task", summary="Done.")]"""


@pytest.fixture
def bench(tmp_path: Path) -> UiBench:
    return UiBench(tmp_path)


async def test_a_whole_run(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(ALL), approve="terminal") as opened:
        assert opened.word == "ready"
        await opened.send("Change the port")
        await opened.rests(at="answer")
        assert opened.word == "waits for your answer"
        assert "Which port?" in opened.screen()
        assert opened.desk.machine.at is State.ASK_USER
        await opened.press("1")
        await opened.rests(at="approval")
        assert "echo the port is" in opened.screen()
        await opened.press("a")
        await opened.rests(at="confirmation")
        assert "the port is PORT = 8080" in opened.screen()
        await opened.press("y")
        await opened.rests()
        assert opened.word == "Asserted: done"
        said = opened.said()
        for words in (
            "change the port",
            "first i look.",
            "i look.",
            "read_file",
            "text only",
            "8080",
            "the port is 8080.",
        ):
            assert words in said, words
        assert (opened.outcome["status"], opened.outcome["pending_issues"]) == (
            "success",
            ["The README is old."],
        )
        assert bench.config.read_text() == "PORT = 8080\n"


@pytest.mark.thorough
async def test_the_picture_counts_the_edges_that_the_path_shows(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(LOOKS)) as opened:
        await opened.send("Look")
        await opened.rests()
        live, at = dict(opened.desk.machine.taken), opened.desk.machine.at
        path = [step.state for step in steps(opened.desk.storage.checkpointer, "t1") if step.state]
    async with bench.opened() as opened:
        assert (dict(opened.desk.machine.taken), opened.desk.machine.at) == (live, at)
    assert sum(live.values()) == len(path) - 1
    assert at is State.FINISH


DECISIONS = {
    "a key approves": (["a"], None, "ran"),
    "a word approves": ([], "approve", "ran"),
    "a key asks for the reason": (["r"], "reject: too dear", "too dear"),
    "a word rejects": ([], "reject: too dear", "too dear"),
    "an answer in its place": (["w"], "respond: it says hello", "it says hello"),
    "an edit in words": ([], 'edit: {"command": "echo edited"}', "edited"),
}


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.sample(2)
async def test_decisions(bench: UiBench, name: str) -> None:
    keys, typed, told = DECISIONS[name]
    async with bench.opened(
        model=bench.model(SHELL.replace("run by the model", "ran")), approve="terminal"
    ) as opened:
        await opened.send("Go")
        await opened.rests(at="approval")
        if keys:
            await opened.press(*keys)
        if typed:
            await opened.send(typed)
        await opened.rests()
        assert told in opened.said()


async def test_all_that_would_run_can_be_scrolled_to(bench: UiBench) -> None:
    lines = [f"step {number}." for number in range(450)]
    command = "\\n".join([*lines, "x" * 45_000 + "end"])
    steps = f'[call("run_shell", command="{command}"), {DONE[1:]}'
    async with bench.opened(model=bench.model(steps), approve="terminal") as opened:
        await opened.send("Go")
        await opened.rests(at="approval")
        place, seen = opened.app.screen.query_one("#asked"), opened.screen()
        for top in range(0, place.max_scroll_y + 1, place.size.height - 1):
            place.scroll_to(y=top, animate=False)
            await opened.pilot.pause()
            seen += opened.screen()
        assert [line for line in lines if line not in seen] == []
        place.focus()
        await opened.pilot.press("end")
        await opened.until(lambda: "xend" in opened.screen())


@pytest.mark.thorough
async def test_arguments_are_edited_in_an_editor(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(SHELL), approve="terminal") as opened:
        await opened.send("Go")
        await opened.rests(at="approval")
        await opened.press("e")
        editor = opened.app.screen
        assert isinstance(editor, Editor)
        area = editor.query_one("TextArea")
        assert '"echo run by the model"' in area.text  # type: ignore[attr-defined]  # a TextArea
        area.load_text('{"command": "echo edited"}')  # type: ignore[attr-defined]  # as above
        await opened.pilot.press("ctrl+s")
        await opened.rests()
        assert "\nedited" in opened.said()


async def test_what_does_not_fit_is_told_and_changes_nothing(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(SHELL), approve="terminal") as opened:
        await opened.send("Go")
        await opened.rests(at="approval")
        await opened.send("maybe")
        assert opened.desk.prompt.value == "maybe"
        assert opened.desk.asking.waiting is not None
        assert "This is not a decision; use one of" in opened.noted()


async def test_several_calls_are_decided_one_by_one(bench: UiBench) -> None:
    two = '[reply(call("run_shell", command="echo one"), call("run_shell", command="echo two")), ' + DONE[1:]
    async with bench.opened(model=bench.model(two), approve="terminal") as opened:
        await opened.send("Go")
        await opened.rests(at="approval")
        assert "1 of 2" in opened.screen()
        await opened.press("a")
        assert "2 of 2" in opened.screen()
        await opened.send("reject: one is enough")
        await opened.rests()
        assert "} one\n[exit code 0" in opened.said()
        assert "one is enough" in opened.said()


async def test_pause_and_go_on(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(LOOKS, delay=0.2)) as opened:
        await opened.send("Look")
        await opened.until(lambda: opened.desk.status.facts.turn >= 2)
        await opened.press("p")
        await opened.rests()
        assert opened.word == "paused"
        assert opened.outcome == {}
        await opened.press("p")
        await opened.rests()
        assert (opened.word, opened.outcome["turns"]) == ("Asserted: done", 10)


@pytest.mark.thorough
async def test_a_pause_while_a_command_runs_comes_after_it(bench: UiBench) -> None:
    slow = SHELL.replace("echo run by", "until [ -e go ]; do sleep 0.05; done; echo run by")
    async with bench.opened(model=bench.model(slow)) as opened:
        await opened.send("Go")
        await opened.until(lambda: opened.desk.pane and opened.desk.pane.running)
        await opened.press("p")
        (bench.workspace / "go").touch()
        await opened.rests()
        assert opened.word == "paused"
        await opened.press("p")
        await opened.rests()
        assert opened.outcome["tool_calls"] == 1
        assert "} run by the model\n[exit code 0" in opened.said()


async def test_stop_ends_the_task_and_interrupts_its_command(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(SHELL.replace("echo", "sleep 30; echo"))) as opened:
        await opened.send("Go")
        await opened.until(lambda: opened.desk.pane and opened.desk.pane.running)
        await opened.pilot.pause(0.3)
        await opened.press("s")
        await opened.rests()
        assert (opened.outcome["status"], opened.outcome["reason"]) == ("error", "cancelled")


@pytest.mark.thorough
async def test_a_waiting_task_can_be_stopped(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(ASKS)) as opened:
        await opened.send("Go")
        await opened.rests(at="answer")
        await opened.press("s")
        await opened.rests()
        assert opened.outcome["reason"] == "cancelled"


async def test_more_turns_after_a_limit(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(LOOKS), turns=3) as opened:
        await opened.send("Look")
        await opened.rests()
        assert (opened.word, opened.outcome["reason"]) == ("Turn limit reached", "turns")
        assert "f4 gives it 10 more turns." in opened.said()
        await opened.press("x")
        await opened.rests()
        assert (opened.word, opened.outcome["turns"]) == ("Asserted: done", 10)


async def test_another_try_after_an_error(bench: UiBench) -> None:
    broken = bench.model("[ValueError('no such model')]")
    async with bench.opened(model=broken) as opened:
        await opened.send("Go")
        await opened.rests()
        assert opened.word == "The model failed"
        assert "no such model" in opened.screen()
        Path(broken.removeprefix("scripted:")).write_text(
            Path(bench.model(DONE).removeprefix("scripted:")).read_text()
        )
        opened.desk.models.close()
        await opened.press("x")
        await opened.rests()
        assert opened.word == "Asserted: done"


@pytest.mark.thorough
async def test_a_second_task_follows_in_the_same_thread(bench: UiBench) -> None:
    two = '[call("finish_task", summary="The first."), call("finish_task", summary="The second.")]'
    async with bench.opened(model=bench.model(two)) as opened:
        for words in ("the first.", "the second."):
            await opened.send("Go")
            await opened.rests()
            assert words in opened.said()
        assert sum(opened.desk.machine.taken.values()) == 6


@pytest.mark.thorough
async def test_a_refused_setting_is_a_sentence(bench: UiBench) -> None:
    async with bench.opened(model="scripted:/nowhere.py") as opened:
        await opened.send("Go")
        await opened.rests()
        assert "there is no file /nowhere.py" in opened.said()


@pytest.mark.thorough
@pytest.mark.thorough
async def test_search_goes_backwards_through_what_was_said(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(LOOKS)) as opened:
        await opened.send("Look for it")
        await opened.rests()
        await opened.press("slash")
        await opened.send("look for it")
        found = opened.desk.conversation.query(".found")
        assert [item.words for item in found] == ["look for it"]  # type: ignore[attr-defined]  # an Item
        await opened.send("no such words")
        assert "Not found." in opened.noted()
        await opened.pilot.press("escape")
        assert opened.desk.prompt.placeholder == "describe a task; Enter sends it"


@pytest.mark.thorough
async def test_the_command_that_goes_on_is_copied(bench: UiBench) -> None:
    async with bench.opened(thread="it's mine", model=bench.model(DONE)) as opened:
        await opened.press("c")
        assert opened.app.clipboard == f"signoff resume --database {bench.database} 'it'\"'\"'s mine'"


@pytest.mark.thorough
async def test_the_list_of_threads_opens_another_one(bench: UiBench) -> None:
    for thread in ("first", "second"):
        async with bench.opened(thread=thread, model=bench.model(DONE)) as opened:
            await opened.send(f"Do the {thread}")
            await opened.rests()
    async with bench.opened(thread="second") as opened:
        await opened.press("t")
        assert isinstance(opened.app.screen, Threads)
        assert "Do the first" in opened.screen()
        await opened.pilot.press("down", "enter")
        await opened.until(lambda: opened.desk.thread_id == "first")
        assert "do the first" in opened.said()
        await opened.press("t")
        await opened.pilot.press("n")
        await opened.until(lambda: opened.desk.thread_id not in ("first", "second"))
        assert opened.word == "ready"


@pytest.mark.thorough
async def test_the_keys_are_told(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(DONE)) as opened:
        await opened.press("question_mark")
        assert isinstance(opened.app.screen, Help)
        assert "pause at the next state" in opened.screen()


def test_a_command_that_is_run_once_more_tells_how_long_it_took(bench: UiBench) -> None:
    """Nobody handed it out in this process, so that no session has measured it."""
    took = ShellResult(
        0, "made", timed_out=False, waiting_for=None, restarted=False, seconds=3.0, truncated=0
    )
    with bench.database.open() as storage:
        given = Given(workspace=bench.workspace, tools="shell")
        work = Work(storage, "t1", given, Models(), lambda _: None, lambda *_: took)
        answer = work.act(Action("i", "run_shell", {"command": "make"}, "terminal"), work.settings())
    assert isinstance(answer, dict)
    assert (answer["seconds"], answer["output"].splitlines()[0]) == (3.0, "made")
