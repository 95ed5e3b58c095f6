"""Faults, the model of a task, and the world in which it takes place: what each does, and when."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from loopcheck.faults import (
    ELSEWHERE,
    ENDS,
    FAULTS,
    KILLS,
    NOTHING,
    PROVIDER,
    REPLIES,
    Fault,
    draw_fault,
    plan,
)
from loopcheck.faults import sample as sampled
from loopcheck.play import find_unclaimed
from loopcheck.player import NO_TASK, TALK, Player
from loopcheck.replies import Ask as Question
from loopcheck.replies import Call as Says
from loopcheck.replies import Finish
from loopcheck.sources.task import Call, Key, Task, Turn
from loopcheck.stage import ModelRequest
from loopcheck.world import TaskWorld
from tests.conformance.tiny import LOOK, QUESTION, TASKS, TURNS

PAY_ADA, PAY_BOB = TURNS.calls[1], TURNS.calls[2]
Message = dict[str, Any]


# What is drawn.


def test_over_as_many_seeds_as_there_are_faults_a_task_meets_each_once() -> None:
    for begin in (0, 7, 2**31):
        met = [plan(TASKS, seed) for seed in range(begin, begin + len(FAULTS))]
        for at, task in enumerate(TASKS):
            assert Counter(planned[at][1].name for planned in met) == Counter(FAULTS), task.name


def test_a_task_without_a_place_for_a_fault_meets_another_one() -> None:
    silent = Task("tiny", "no calls", [Turn("Hello.", (), "Hello.")], {}, dict, lambda *_: True)
    has_places = {NOTHING, ENDS[1], ELSEWHERE}
    assert {name for name in FAULTS if draw_fault(name, silent, 1)} == has_places
    assert {plan([silent], seed)[0][1].name for seed in range(len(FAULTS))} == has_places


def test_a_kill_falls_around_an_effect_where_there_is_one() -> None:
    places = {draw_fault(name, TURNS, seed) for name in KILLS for seed in range(40)}
    assert {fault.at for fault in places if fault} == set(TURNS.effects()) == {1, 2, 3}
    assert draw_fault(KILLS[0], LOOK, 1) == Fault(KILLS[0], 0)


def test_a_sample_is_part_of_the_plan_with_each_fault_once() -> None:
    many = [TASKS[at % 3] for at in range(40)]
    planned = plan(many, 5)
    chosen = sampled(planned, 5)
    assert [fault.name for _, fault in chosen] == list(FAULTS)
    assert all(one in planned for one in chosen)
    # Tasks that change nothing say little about a kill, so they are not drawn for one.
    assert all(task.effects() for task, fault in chosen if fault.name in KILLS)


def test_the_same_seed_draws_the_same_everywhere() -> None:
    """What is written here was drawn once: another machine, or Python, has to draw it, too."""
    assert [(task.name, fault.name, fault.at) for task, fault in plan(TASKS, 3)] == [
        ("two turns", "killed after a call", 1),
        ("a question", "a cut reply", 0),
        ("a look", "words without a call", 0),
    ]
    assert plan(TASKS, 3) == plan(TASKS, 3) != plan(TASKS, 4)


@pytest.mark.parametrize(
    ("name", "task", "lacks", "needed"),
    [
        (NOTHING, TURNS, {"crash", "ask", "memory", "finish_call"}, ""),
        (KILLS[1], TURNS, {"crash"}, "crash: small"),
        (KILLS[1], TURNS, {"memory"}, ""),
        (ENDS[1], TURNS, {"finish_call"}, "finish_call: small"),
        (REPLIES[1], TURNS, {"finish_call"}, "words end a run there: small"),
        (ENDS[1], TURNS, {"finish_again"}, "finish_again: small"),
        (REPLIES[1], TURNS, {"finish_again"}, "words end a run there: small"),
        (REPLIES[1], QUESTION, {"finish_again"}, ""),
        (REPLIES[1], QUESTION, {"finish_again", "ask"}, "words end a run there: small"),
        (ELSEWHERE, TURNS, {"durable_wait"}, ""),
        (ELSEWHERE, TURNS, {"memory"}, "memory: small"),
        (ELSEWHERE, QUESTION, {"durable_wait"}, "durable_wait: small"),
        (ELSEWHERE, QUESTION, {"ask", "memory"}, "memory: small"),
    ],
)
def test_a_fault_is_left_out_where_what_it_needs_is_not_claimed(
    name: str, task: Task, lacks: set[str], needed: str
) -> None:
    assert find_unclaimed(Fault(name), task, dict.fromkeys(lacks, "small")) == needed


# The world.


@pytest.mark.parametrize(
    ("name", "args", "status", "told"),
    [
        ("pay", {"to": "ada", "amount": 5}, 200, {"result": "paid 5 to ada"}),
        ("pay", {"to": "ada"}, 422, {"error": "KeyError: 'amount'"}),
        ("steal", {}, 404, {"error": "There is no tool 'steal'."}),
    ],
)
def test_a_tool_answers_or_says_why_not(name: str, args: Mapping[str, Any], status: int, told: Any) -> None:
    world = TaskWorld(TURNS, Fault(NOTHING), lambda: None)
    assert world.call(name, args) == (status, told)
    assert sum(world.took_place(0).values()) == (status == 200)


@pytest.mark.parametrize(("name", "happened"), [(KILLS[0], 0), (KILLS[1], 1)])
def test_a_kill_comes_before_or_after_its_call_takes_place_and_once(name: str, happened: int) -> None:
    kills: list[str] = []
    world = TaskWorld(TURNS, Fault(name, at=1), lambda: kills.append("killed"))
    world.call("look", {"of": "ada"})
    with pytest.raises(ConnectionAbortedError):
        world.call("pay", {"to": "ada", "amount": 5.0})
    assert (len(kills), len(world.state["paid"])) == (1, happened)
    assert world.call("pay", {"to": "ada", "amount": 5})[0] == 200
    assert (len(kills), len(world.state["paid"])) == (1, happened + 1)


def test_what_took_place_twice_or_never_is_told() -> None:
    ran = [TURNS.key(one) for one in (*TURNS.calls, PAY_ADA) if one.name != "note"]
    assert (TURNS.twice(ran), TURNS.lost(ran)) == (["pay"], ["note"])
    # A second look harms nobody.
    assert LOOK.twice([LOOK.key(LOOK.calls[0])] * 3) == []


# The model of a task.


def player(task: Task, fault: Fault, *ran: Call, can_ask: bool = True) -> Player:
    """ran: what took place in the world, in the first turn."""

    def took_place(turn: int) -> Counter[Key]:
        return Counter(task.key(one) for one in ran) if turn == 0 else Counter()

    return Player(task, task.turns, fault, took_place, finish="call", can_ask=can_ask, die=lambda: None)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def made(one: Call, id: str = "a", **args: Any) -> Message:
    function = {"name": one.name, "arguments": json.dumps({**one.args, **args})}
    return {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id: str = "a", text: str = "yes") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def says(plays: Player, *messages: Message, **more: Any) -> list[str]:
    """What it says to these messages, in short."""
    said = plays.reply(ModelRequest({"messages": list(messages), **more}, (), 0))
    return [str(said.error)] if said.error is not None else [_short(part) for part in said.parts]


def _short(part: Any) -> str:
    match part:
        case Says(name=name, args=args, raw=raw):
            return f"{name} {raw or ' '.join(map(str, args.values()))}".strip()
        case Question(question=text) | Finish(text=text):
            return f"{type(part).__name__}: {text}"
    return str(part)


BEGIN, THEN = user(TURNS.turns[0].say), user(TURNS.turns[1].say)
LOOKED = [made(TURNS.calls[0]), result()]
PAID = [made(PAY_ADA, "b"), result("b")]


@pytest.mark.parametrize(
    ("shown", "ran", "said"),
    [
        ([], [], [f"Finish: {NO_TASK}"]),
        ([user("Go on.")], [], [f"Finish: {NO_TASK}"]),
        ([BEGIN], [], ["look ada"]),
        ([BEGIN, *LOOKED], [LOOK.calls[0]], ["pay ada 5"]),
        ([BEGIN, *LOOKED, *PAID], TURNS.calls[:2], ["Finish: Ada has it."]),
        # It has a result, and took place never: it looks, and calls again.
        ([BEGIN, *LOOKED, *PAID], [LOOK.calls[0]], ["pay ada 5"]),
        # It took place, and it is shown no result: it knows of nothing.
        ([BEGIN, *LOOKED, PAID[0]], TURNS.calls[:2], ["pay ada 5"]),
        # A framework may write 5 as 5.0.
        (
            [BEGIN, *LOOKED, made(PAY_ADA, "b", amount=5.0), PAID[1]],
            TURNS.calls[:2],
            ["Finish: Ada has it."],
        ),
        # Of a thread it knows what it is shown.
        ([BEGIN, *LOOKED, *PAID, THEN], TURNS.calls[:2], ["pay bob 7"]),
        ([THEN, *LOOKED, *PAID], TURNS.calls[:2], ["pay bob 7"]),
        ([THEN], TURNS.calls[:2], [f"Finish: {NO_TASK}"]),
    ],
)
def test_the_model_goes_by_what_it_is_shown(shown: list[Message], ran: list[Call], said: list[str]) -> None:
    assert says(player(TURNS, Fault(NOTHING), *ran), *shown) == said


def test_the_model_knows_its_calls_where_a_framework_writes_them_into_a_text() -> None:
    plays = player(TURNS, Fault(NOTHING), *TURNS.calls[:2])
    assert says(plays, BEGIN) == ["look ada"]
    written = [{"role": "assistant", "content": "I call {'id': 'call_t0', 'name': 'look'}"}, user("0")]
    assert says(plays, BEGIN, *written) == ["pay ada 5"]


def test_the_model_says_which_turns_have_ended() -> None:
    plays = player(TURNS, Fault(NOTHING), *TURNS.calls[:2])
    for shown in ([user("Go on.")], [BEGIN], [BEGIN, *LOOKED]):
        says(plays, *shown)
        assert plays.ended == set()
    says(plays, BEGIN, *LOOKED, *PAID)
    assert plays.ended == {0}


ASKED = [user(QUESTION.turns[0].say), made(QUESTION.calls[0]), result()]


@pytest.mark.parametrize(
    ("can_ask", "shown", "said", "in_words"),
    [
        (True, ASKED, ["Question: Whom?"], ""),
        (False, ASKED, ["Finish: Whom?"], "Cy, please."),
        (True, [*ASKED, user("Cy, please.")], ["pay cy 3"], ""),
    ],
)
def test_the_model_asks_the_user_by_a_call_or_in_words(
    can_ask: bool, shown: list[Message], said: list[str], in_words: str
) -> None:
    plays = player(QUESTION, Fault(NOTHING), QUESTION.calls[0], can_ask=can_ask)
    found = [one.replace("Ask:", "Question:") for one in says(plays, *shown)]
    assert (found, plays.asked_in_words) == (said, in_words)


AT_PAY = [BEGIN, *LOOKED]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (NOTHING, ["pay ada 5"]),
        (PROVIDER[0], ["0"]),
        (PROVIDER[1], ["429"]),
        (PROVIDER[2], ["500"]),
        (REPLIES[0], ['pay {"']),
        (REPLIES[1], [TALK]),
    ],
)
def test_a_fault_comes_at_its_place_and_once(name: str, said: list[str]) -> None:
    plays = player(TURNS, Fault(name, at=1), LOOK.calls[0])
    assert says(plays, BEGIN) == ["look ada"]
    assert says(plays, *AT_PAY) == said
    assert says(plays, *AT_PAY) == ["pay ada 5"]


def test_words_are_no_fault_where_the_request_forbids_them() -> None:
    plays = player(TURNS, Fault(REPLIES[1], at=1), LOOK.calls[0])
    says(plays, *AT_PAY, tool_choice="required")
    assert plays.forbade_talk


def test_ids_come_again() -> None:
    plays = player(TURNS, Fault(REPLIES[2], at=1), LOOK.calls[0])
    asked = [ModelRequest({"messages": shown}, (), 0) for shown in ([BEGIN], AT_PAY)]
    ids = [part.id for one in asked for part in plays.reply(one).parts if isinstance(part, Says)]
    assert ids == ["call_0", "call_0"]


def test_a_finish_stands_beside_a_call_that_fails_and_later_alone() -> None:
    plays = player(QUESTION, Fault(ENDS[0], at=1), QUESTION.calls[0])
    shown = [*ASKED, user("Cy, please.")]
    assert says(plays, *shown) == ["pay", "Finish: Cy has it."]
    assert plays.ended == set()
    assert says(plays, *shown) == ["pay cy 3"]


def test_a_second_finish_stands_beside_the_first() -> None:
    plays = player(LOOK, Fault(ENDS[1]), LOOK.calls[0])
    shown = [user(LOOK.turns[0].say), *LOOKED]
    assert says(plays, *shown) == ["Finish: She has 0.", "Finish: It is done, once more."]
    assert says(plays, *shown) == ["Finish: She has 0."]


def test_a_subject_is_killed_when_it_comes_with_the_result() -> None:
    killed: list[str] = []
    plays = Player(
        LOOK,
        LOOK.turns,
        Fault(KILLS[2], at=0),
        lambda _: Counter(map(LOOK.key, LOOK.calls)),
        finish="call",
        can_ask=True,
        die=lambda: killed.append("killed"),
    )
    assert says(plays, user(LOOK.turns[0].say)) == ["look ada"]
    with pytest.raises(ConnectionAbortedError):
        says(plays, user(LOOK.turns[0].say), *LOOKED)
    assert says(plays, user(LOOK.turns[0].say), *LOOKED) == ["Finish: She has 0."]
    assert killed == ["killed"]
