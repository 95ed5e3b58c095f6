"""What the model of the stateful test may say."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from langchain_core.exceptions import ContextOverflowError

from signoff.models import call, reply


class Tokens(Protocol):
    """Gives names to effects; `never` marks one that may not take place."""

    def token(self, *, never: bool = False) -> str: ...


def _act(world: Tokens, tool: str = "act", *, never: bool = False, id: str | None = None) -> Any:
    return call(tool, name=world.token(never=never), id=id)


_FINISH = call("finish_task", summary="Done.")
_ASK = call("ask_user", question="Which?", options=["red", "blue"])

SAID: Mapping[str, Callable[[Tokens], Any]] = {
    "finish": lambda w: _FINISH,
    "talk": lambda w: "Let me see.",
    "think": lambda w: call("think", thought="hm"),
    "look": lambda w: [call("look", where="a"), call("look", where="b")],
    "act": _act,
    "acts": lambda w: [_act(w), call("look", where="a"), _act(w), _act(w)],
    "pay": lambda w: _act(w, "pay"),
    "pays": lambda w: [_act(w, "pay"), _act(w), _act(w, "pay")],
    "drive": lambda w: _act(w, "drive"),
    "act, pay, drive": lambda w: [_act(w), _act(w, "pay"), _act(w, "drive")],
    "wait": lambda w: _act(w, "wait"),
    "ask": lambda w: _ASK,
    "act, ask, act": lambda w: [_act(w), _ASK, _act(w, never=True)],
    "ask, finish": lambda w: [_ASK, _FINISH],
    "finish, ask": lambda w: [_FINISH, _ASK],
    "finish, act": lambda w: [_FINISH, _act(w, never=True)],
    "finish, finish": lambda w: [_FINISH, call("finish_task", summary="Done twice.")],
    "act, finish": lambda w: [_act(w), _FINISH],
    "pay, finish": lambda w: [_act(w, "pay"), _FINISH],
    "fail, finish": lambda w: [call("fail"), _FINISH],
    "empty finish": lambda w: call("finish_task", summary=""),
    "unsure finish": lambda w: call("finish_task", summary="Done?", requires_user_confirmation=True),
    "phase": lambda w: call("finish_task", summary="Half.", completion_percentage=50),
    "malformed": lambda w: [call("act", raw="{name"), call("finish_task", raw="{summary")],
    "unknown": lambda w: call("act2", name="x"),
    "bad arguments": lambda w: call("act", nome="x"),
    "cut act": lambda w: reply(_act(w, never=True), _FINISH, finish_reason="length"),
    "cut finish": lambda w: reply("So", _FINISH, finish_reason="length"),
    "empty": lambda w: reply(),
    "refusal": lambda w: reply(refusal="No."),
    "broken": lambda w: RuntimeError("the provider is gone"),
    "too long": lambda w: ContextOverflowError("too long"),
    "same ids": lambda w: [_act(w, id="call_0"), _act(w, id="call_0"), _act(w, id="")],
    "same ids, pay": lambda w: [_act(w, "pay", id="call_0"), _act(w, "drive", id="call_0")],
}
"""What a model may say, by a short name; each time with tokens of its own."""
