"""What the rules of the stateful test draw from."""

import random
from typing import Any

from hypothesis import strategies as st

from signoff import Answer, Extend, Limits, Retry
from signoff.session.commands import Stop
from tests.support.stateful.cast import Settings
from tests.support.stateful.said import SAID

TASKS = ("do it", "and that", "and that", "half \ud800", " ")
ANSWERS: tuple[Any, ...] = (
    "approve", "yes", "approve", "reject: not now", "no", "nonsense", "", None, True, False, 1, 7, {}, [],
    "[", "half \ud800", {"decisions": [{"type": "approve"}]}, [{"type": "response", "args": "blue"}],
    [{"type": "accept", "args": None}], {"decisions": [{"type": "respond", "message": "paid by hand"}]},
    {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]}, {"type": "approve"},
    {"confirmed": True}, {"confirmed": False, "feedback": "more"}, {"output": "done", "status": "error"},
    {1, 2}, '{"decisions": [{"type": "approve"}, {"type": "approve"}]}', 2**70, float("nan"),
)  # fmt: skip
NONSENSE: tuple[Any, ...] = (
    None, Answer("yes"), Answer("yes", "wrong"), Answer(None), Extend(1), Extend(0), Extend(True), Retry(),
    Stop(), 7, [], [("ai", "hi")], {"a": 1}, "  ",
)  # fmt: skip


def _settings(number: int) -> Settings:
    """One of a few dozen: each takes long to build a graph of, and the first are the plainest."""
    dice = random.Random(number)
    if not number:
        return Settings()
    return Settings(
        limits=Limits(
            turns=dice.choice((1, 2, 3, 5, 6)),
            tool_calls=dice.choice((None, None, 1, 3)),
            calls_per_reply=dice.choice((32, 32, 2)),
            talk_turns=dice.choice((1, 3, 4)),
            repeats=dice.choice((None, 2, 4)),
        ),
        talk=dice.choice(("balanced", "strict", "natural")),
        unknown=dice.choice(("tell", "ask")),
        rounds=dice.random() < 0.3,
        prompt_tokens=dice.choice((None, None, 700)),
        usual=dice.choice(("finish", "finish", "act", "talk", "think", "empty")),
        by_loop=dice.random() < 0.25,
        streams=dice.random() < 0.5,
    )


settings_ = st.integers(0, 39).map(_settings)
said = st.lists(st.sampled_from(tuple(SAID)), min_size=1, max_size=5)
# Never, and at any of the moments of a few turns.
never = st.just(0)
kills = never | never | st.integers(1, 60)
nothing = st.none()
during = (
    nothing
    | nothing
    | nothing
    | st.tuples(st.integers(0, 3), st.sampled_from(("pause", "stop", "request", "busy", "again", "look")))
)
which = st.sampled_from((0, 0, 0, 1, 2))
pending = st.sampled_from(("answer", "answer", "supersede", "refuse"))
onward = st.fixed_dictionaries(
    {
        "at": which,
        "said": said,
        "kill": kills,
        "during": during,
        "by_step": st.sampled_from((False, False, True)),
    }
)
