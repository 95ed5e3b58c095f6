"""Between the options and the report: the order of a run, and what a signal does at which moment."""

import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from signoff.cli.display import Display, LiveArea, Streamed
from signoff.cli.launch import SIGNALS, Stopped, launch, stopping, with_task
from signoff.front.database import database
from signoff.front.report import CommandReport
from signoff.front.settings import Given, Settings
from signoff.graph.machine import State
from signoff.models.local.weights import Progress, silent
from signoff.nodes.model.providers import READING
from signoff.session.decisions import Question, Waiting
from signoff.session.events import Entered, SessionEvent
from tests.support.benches.cli import ASKS, Bench


class Recorder(Display):
    """Writes down what it is told, and answers every question with 8080."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, thread_id: str, settings: Settings, note: str) -> None:
        self.told.append("begin")

    @contextmanager
    def loading(self) -> Iterator[Progress]:
        self.told.append("loading")
        yield silent
        self.told.append("loaded")

    @contextmanager
    def running(self, streamed: Streamed) -> Iterator[None]:
        self.told.append("running")
        yield
        self.told.append("stands")

    def show(self, event: SessionEvent) -> None:
        """The order is what counts here."""

    def ask(self, waiting: Waiting) -> str:
        assert isinstance(waiting, Question)
        self.told.append(f"ask {waiting.text}")
        return "8080"

    def end(self, report: CommandReport) -> None:
        raise AssertionError("whoever launches prints the report")


def test_the_model_is_loaded_before_anything_is_shown_and_questions_are_asked_between_runs(
    tmp_path: Path,
) -> None:
    bench, display = Bench(tmp_path), Recorder()
    given = Given(workspace=bench.workspace, model=bench.model(ASKS))
    report = launch("t1", database(str(bench.database), {}), given, with_task("Change it"), display)
    assert report.exit_code == 0
    told = ["loading", "loaded", "begin", "running", "stands", "ask Which port?", "running", "stands"]
    assert display.told == told


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping(), pytest.raises(Stopped):
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_while_the_thread_runs_the_first_signal_waits_and_the_second_does_not() -> None:
    waiting = []
    with stopping() as stopper:
        stopper.soon = lambda: waiting.append("soon")
        signal.raise_signal(signal.SIGINT)
        assert waiting == ["soon"]
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        stopper.done = True
        signal.raise_signal(signal.SIGINT)
    assert waiting == ["soon"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("told", "shown"),
    [((0, 200), "reads the prompt: 0 %"), ((80, 200), "reads the prompt: 40 %"), ((200, 200), None)],
)
def test_the_live_line_says_how_much_of_its_prompt_the_model_has_read(
    told: tuple[int, int], shown: str | None
) -> None:
    console = Console(file=io.StringIO(), width=100)
    live = LiveArea()
    live.streamed = Streamed()
    live.entered = Entered(State.CALL_LLM, 0, 30, 0, State.DECIDE)
    live.streamed.on_custom_event(READING, {"done": told[0], "total": told[1]})
    with console.capture() as captured:
        console.print(live)
    assert "turn 1 of 30" in captured.get()
    assert ("reads the prompt" in captured.get()) is (shown is not None)
    assert shown is None or shown in captured.get()
    live.streamed.on_custom_event(READING, {"done": 1, "total": 2})
    live.streamed.note_event(live.entered)
    with console.capture() as captured:
        console.print(live)
    assert "reads the prompt" not in captured.get()
