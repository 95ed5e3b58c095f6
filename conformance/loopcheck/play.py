"""Runs one task under one fault on one subject, and reports the result."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loopcheck.bench import Bench, Seat
from loopcheck.driver import NEEDS_A_COMMAND, read_report
from loopcheck.faults import ELSEWHERE, ENDS, KILLS, NOTHING, REPLIES, Fault, has_questions
from loopcheck.observed import Report
from loopcheck.player import Player
from loopcheck.process import Dead, NoAnswer
from loopcheck.sources.task import Ask, Task, Turn
from loopcheck.stage import Server, Stage
from loopcheck.world import TaskWorld

AGAIN = 2
"""How often a run is continued after its process died or it ended with an error."""
GO_ON = "Go on."
ONCE_MORE = "Say once more what came of it."


@dataclass
class TaskRun:
    """The result of a run. claimed: whether the subject claims what the fault needs; if not, `why` says what.

    ended: whether the run reported success. solved: by the source's own checker, and the model had said so,
    too. twice, lost: effects that took place more often, or less often, than in the solution. calls: model
    calls. processes: how many the run used.
    """

    subject: str
    source: str
    task: str
    seed: int
    fault: str
    claimed: bool = True
    ended: bool = False
    solved: bool = False
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    calls: int = 0
    processes: int = 0
    why: str = ""

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What was played: the same for all subjects."""
        return self.source, self.seed, self.fault, self.task

    @property
    def right(self) -> bool:
        return self.ended and self.solved and not self.twice and not self.lost

    @property
    def wrongly(self) -> bool:
        """Whether it reported success although the task was not solved."""
        return self.claimed and self.ended and not self.right

    def document(self) -> dict[str, Any]:
        return asdict(self)


def find_unclaimed(fault: Fault, task: Task, lacks: Mapping[str, str]) -> str:
    """Returns what the fault needs and the subject does not claim; empty if it claims everything."""
    asked: list[str] = []
    without = _no_call(fault, task, lacks)
    if fault.name in KILLS:
        asked.append("crash")
    elif fault.name == ENDS[1] and without:
        asked.append(without)
    elif fault.name == REPLIES[1] and without:
        return f"words end a run there: {lacks[without]}"
    elif fault.name == ELSEWHERE:
        asked.append("durable_wait" if has_questions(task) and "ask" not in lacks else "memory")
    return next((f"{one}: {lacks[one]}" for one in asked if one in lacks), "")


def _no_call(fault: Fault, task: Task, lacks: Mapping[str, str]) -> str:
    """Returns the missing feature because of which the model ends with text; empty if it ends with a call."""
    more = len(task.turns) > 1 or (fault.name == ELSEWHERE and not has_questions(task))
    in_words = has_questions(task) and "ask" in lacks
    asked = ["finish_call", *(["finish_again"] if more or in_words else [])]
    return next((one for one in asked if one in lacks), "")


def play(bench: Bench, subject: str, task: Task, fault: Fault, seed: int) -> TaskRun:
    """Runs the task. Nothing that the subject does raises an error: it is part of the result."""
    found = TaskRun(subject, task.source, task.name, seed, fault.name)
    found.why = find_unclaimed(fault, task, bench.hello.lacks)
    if not found.why and not bench.killable and fault.name in (*KILLS, ELSEWHERE):
        found.why = NEEDS_A_COMMAND
    if found.why:
        found.claimed = False
        return found
    _Game(bench, task, fault, found).play()
    return found


class _Game:
    def __init__(self, bench: Bench, task: Task, fault: Fault, found: TaskRun) -> None:
        self._task, self._fault, self._found = task, fault, found
        self._manner, lacks = bench.hello.manner, bench.hello.lacks
        self._folder = bench.new_folder()
        self._bench = bench
        self._seat: Seat | None = None
        self._left = AGAIN
        self._elsewhere = fault.name == ELSEWHERE
        self._turns = [*task.turns]
        if self._elsewhere and len(task.turns) == 1 and not has_questions(task):
            self._turns.append(Turn(ONCE_MORE, (), task.turns[-1].answer))
        self._world = TaskWorld(task, fault, self._kill)
        self._player = Player(
            task,
            self._turns,
            fault,
            self._world.took_place,
            finish="any" if _no_call(fault, task, lacks) else "call",
            can_ask="ask" not in lacks and self._manner.ask is not None,
            die=self._kill,
        )

    def play(self) -> None:
        found, answers = self._found, list[str]()
        with Stage(self._player, self._world, self._manner) as stage:
            given = make_setup(
                self._task, stage, self._folder, self._player.finish, asks=self._player.can_ask
            )
            self._seat = Seat(self._bench, given)
            try:
                for number, turn in enumerate(self._turns):
                    self._world.turn = number
                    told = self._turn(number, turn)
                    answers.append(str(told.final))
                    found.ended = told.status == "success"
                    found.why = f"{told.status}: {told.words}"[:200] if not found.ended else ""
                    if not found.ended:
                        break
            except NoAnswer as error:
                found.ended, found.why = False, str(error)
            if stage.capped:
                found.ended, found.why = False, "it does not end by itself"
            found.calls, found.processes = len(stage.seen), self._seat.taken
        self._judge(answers)

    def _judge(self, answers: Sequence[str]) -> None:
        found = self._found
        calls = [call for _, _, call in self._world.ran]
        keys = [key for _, key, _ in self._world.ran]
        found.twice, found.lost = self._task.twice(keys), self._task.lost(keys)
        remembered = answers[-1:] == [self._turns[-1].answer] or len(self._turns) == len(self._task.turns)
        # Some tasks require nothing, so a subject that does nothing would solve them.
        played = self._player.ended == set(range(len(self._turns)))
        found.solved = (
            found.ended
            and played
            and remembered
            and bool(self._task.solved(self._world.state, answers[: len(self._task.turns)], calls))
        )
        if self._player.forbade_talk and not found.right:
            found.claimed, found.why = False, "its request forbids the provider to reply with words alone"
        elif found.ended and not found.right:
            found.why = _wrong(found, played=played)
        elif found.right and not self._came():
            # The run says nothing about the promise, so it does not count.
            found.claimed, found.why = False, "what was to go wrong did not come about"

    def _came(self) -> bool:
        """Returns whether the fault took place."""
        if self._fault.name in (NOTHING, REPLIES[2]):
            return True
        return (
            self._player.came or self._world.killed or (self._fault.name == ELSEWHERE and not self._elsewhere)
        )

    def _kill(self) -> None:
        assert self._seat is not None
        self._seat.kill()

    def _turn(self, number: int, turn: Turn) -> Report:
        """Sends the user's message, and handles everything until the turn has ended."""
        fresh = self._elsewhere and number > 0 and not has_questions(self._task)
        self._elsewhere = self._elsewhere and not fresh
        told = self._step({"do": "say", "text": turn.say}, fresh=fresh)
        waits = [move for move in turn.moves if isinstance(move, Ask)]
        while True:
            told = self._mended(told, asked=bool(waits))
            words = self._player.asked_in_words
            if not waits or (told.status != "question" and not (told.status == "success" and words)):
                return told
            told = self._answer(waits.pop(0), "say" if words else "answer")

    def _answer(self, asked: Ask, do: str) -> Report:
        if asked.does is not None:
            asked.does(self._world.state)
        fresh, self._elsewhere = self._elsewhere, False
        self._player.asked_in_words = ""
        return self._step({"do": do, "text": asked.answer}, fresh=fresh)

    def _mended(self, told: Report, *, asked: bool) -> Report:
        """Continues after a kill, an error or a stall without a question, as a careful person
        would."""
        while (told.status == "error" or (told.status == "question" and not asked)) and self._left:
            self._left -= 1
            if told.status == "question":
                told = self._step({"do": "say", "text": GO_ON})
                continue
            told = self._step({"do": "resume"}, fresh=True)
            if told.status in ("refused", "error") and told.words != DIED:
                told = self._step({"do": "say", "text": GO_ON})
        return told

    def _step(self, order: Mapping[str, Any], *, fresh: bool = False) -> Report:
        assert self._seat is not None
        try:
            process = self._seat.ready(fresh=fresh)
            return read_report(process.ask("/step", order, self._bench.patience))
        except Dead:
            return Report("error", DIED)


def _wrong(found: TaskRun, *, played: bool) -> str:
    """Returns what was wrong with a run that reported success."""
    if found.twice:
        return "an effect took place too often"
    who = "is not" if played else "the model did not"
    return f"it said that it is done, and {who}"


DIED = "its process died"
TURNS = 60
"""The limit of every agent: some have low defaults."""


def make_setup(
    task: Task, server: Server, folder: Path, finish: str, *, asks: bool, turns: int = TURNS
) -> dict[str, Any]:
    """Returns the setup of a run of this task. asks: the framework lets the model ask questions."""
    tools = [
        {"name": one.name, "description": one.description, "parameters": one.parameters, "reads": one.reads}
        for one in task.tools.values()
    ]
    return {
        "model": server.url,
        "tools_url": server.tools_url,
        "tools": tools,
        "folder": str(folder),
        "thread": "bench",
        "system": task.system,
        "finish": finish,
        "approve": [],
        "turns": turns,
        "tool_calls": None,
        "gate": False,
        "asks": asks and has_questions(task),
        "helpers": [],
        "helper_turns": None,
        "tree_turns": None,
        "recursive": False,
    }
