"""The application with what is hostile, huge or tiny: nothing of it gets through, and nothing breaks."""

import time
from pathlib import Path

import pytest

from signoff import Limits, Session, build_graph
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from tests.support.benches.ui import UiBench
from tests.ui.test_threads import ASKS, DONE

pytestmark = pytest.mark.slow

HOSTILE = (
    "[/bold] [red]red[/red] [@click=app.quit]x[/] \x1b[31m\x1b]52;c;aGFja2Vk\x07 \x1b]0;title\x07 "
    "\u202egnp.exe\u2066 \u200b\u200d <script>alert(1)</script> &amp; \x00\x07\x08 {oops} %s $(id) "
)


@pytest.fixture
def bench(tmp_path: Path) -> UiBench:
    return UiBench(tmp_path)


def hostile(bench: UiBench) -> None:
    """A thread in which everything is hostile."""

    def act(text: str) -> str:
        """Act."""
        return HOSTILE + text

    script: list[Step] = [
        call("think", thought=HOSTILE, approach=HOSTILE, status=HOSTILE),
        reply(HOSTILE, call("act", text=HOSTILE)),
        HOSTILE,
        call(HOSTILE, x=HOSTILE),
        call("ask_user", question=HOSTILE, options=[HOSTILE, "b"]),
        call("finish_task", summary=HOSTILE, pending_issues=[HOSTILE], outcome="partial"),
    ]
    with bench.database.open() as storage:
        session = Session(build_graph(ScriptedModel(script), [act], storage=storage), "t1")
        session.run(HOSTILE.replace("\x00", ""))


async def test_hostile_text_is_text(bench: UiBench) -> None:
    hostile(bench)
    async with bench.opened() as opened:
        assert "\u202e" not in opened.screen()
        for _ in range(3):
            for item in opened.desk.conversation.query("Foldable"):
                item.action_fold()  # type: ignore[attr-defined]  # a Foldable
            await opened.pilot.pause()
            screen = opened.screen()
            assert not {character for character in screen if ord(character) < 32 and character != "\n"}
            assert not {"\u202e", "\u2066", "\x7f"} & set(screen)
        assert "[/bold]" in opened.screen()
        await opened.press("t")
        await opened.press("escape")
        assert opened.app.is_running


@pytest.mark.thorough
async def test_a_reply_of_10_mb_opens_and_is_cut(bench: UiBench) -> None:
    with bench.database.open() as storage:
        script = [reply("word-" * 2_000_000, call("finish_task", summary="Long."))]
        model = ScriptedModel(script, chunk_size=1_000_000)
        Session(build_graph(model, storage=storage), "t1").run("Say much")
    began = time.monotonic()
    async with bench.opened() as opened:
        item = opened.desk.conversation.query("Foldable").first()
        item.action_fold()  # type: ignore[attr-defined]  # a Foldable
        await opened.pilot.pause()
        assert len(item.words) <= 40_000  # type: ignore[attr-defined]  # as above
    assert time.monotonic() - began < 15


@pytest.mark.thorough
async def test_a_long_thread_shows_its_newest_part(bench: UiBench) -> None:
    with bench.database.open() as storage:
        thoughts = [call("think", thought=f"step {n}") for n in range(400)]
        model = ScriptedModel([*thoughts, call("finish_task", summary="End.")])
        graph = build_graph(model, storage=storage, limits=Limits(turns=500, repeats=None))
        Session(graph, "t1").run("Think")
    async with bench.opened() as opened:
        assert "earlier entries" in opened.said()
        assert "step 399" in opened.said()
        assert "step 9\n" not in opened.said()


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (300, 80), (20, 5)])
@pytest.mark.sample(1)
async def test_every_size_shows_what_matters(bench: UiBench, size: tuple[int, int]) -> None:
    async with bench.opened(model=bench.model(ASKS), size=size) as opened:
        await opened.send("Go")
        await opened.rests(at="answer")
        await opened.send("8080")
        await opened.rests()
        assert opened.word == "Asserted: done"
        if size[0] >= 40:
            assert "done" in opened.screen()


async def test_the_size_changes_while_a_full_screen_program_runs(bench: UiBench) -> None:
    steps = '[call("run_shell", command="stty -echo -icanon; tput smcup; sleep 1; tput rmcup"), ' + DONE[1:]
    async with bench.opened(model=bench.model(steps)) as opened:
        await opened.send("Go")
        await opened.until(lambda: opened.desk.pane and opened.desk.pane.running)
        for size in ((40, 10), (300, 80), (100, 30)):
            await opened.pilot.resize_terminal(*size)
            await opened.pilot.pause(0.1)
        await opened.rests()
        assert opened.outcome["status"] == "success"


async def test_a_password_is_typed_by_the_person(bench: UiBench) -> None:
    steps = '[call("run_shell", command="read -rs -p Password: word; echo; echo got ${#word}"), ' + DONE[1:]
    async with bench.opened(model=bench.model(steps)) as opened:
        await opened.send("Go")
        await opened.until(lambda: "asks" in opened.screen() or "password" in opened.screen().lower())
        await opened.pilot.press("f6")
        await opened.pilot.pause(0.2)
        await opened.pilot.press(*"secret", "enter")
        await opened.rests()
        assert "} got 6\n" in opened.said() or "got 6" in opened.said()
        assert "secret" not in opened.said()
