"""Asks a person in the terminal: answers, decisions on calls, observations."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from signoff.cli.cards import Card, approving, asking
from signoff.cli.prompt import read_line
from signoff.cli.safe import named
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.decisions import Approval, Confirmation, PendingCall, Question, Waiting, read_json

_DECISIONS = {
    "approve": ("a", "y", "yes", "ok", "accept"),
    "reject": ("r", "n", "no"),
    "edit": ("e",),
    "respond": ("s", "response"),
}


@dataclass(frozen=True)
class Dialogue:
    """A conversation. show: prints a card. say: prints a remark. Raises EOFError when the person leaves."""

    show: Callable[[Card], None]
    say: Callable[[str], None]

    def answer(self, waiting: Waiting) -> Any:
        """What `waiting.read` takes."""
        if isinstance(waiting, Approval):
            return self._decisions(waiting)
        self.show(asking(waiting))
        options = waiting.options if isinstance(waiting, Question) else ()
        hint = "number or your own words" if options else "your answer"
        if isinstance(waiting, Confirmation):
            hint = "yes, or what is wrong"
        answer = self._line(hint, "Type an answer, or press Ctrl-C to leave the question open.")
        if answer not in options and answer.isdecimal() and 0 < int(answer) <= len(options):
            return options[int(answer) - 1]
        return answer

    def _decisions(self, approval: Approval) -> list[Mapping[str, Any]]:
        if len(approval.calls) == 1:
            self.show(asking(approval))
            return [self._decided(approval.calls[0])]
        found = []
        for at, call in enumerate(approval.calls):
            title = f"Waiting for approval, {at + 1} of {len(approval.calls)}"
            self.show(Card(title, "magenta", approving(call)))
            found.append(self._decided(call))
        return found

    def _decided(self, call: PendingCall) -> Mapping[str, Any]:
        while True:
            hint = " / ".join(call.allowed)
            typed = self._line(hint, "Decide, or press Ctrl-C to leave all of it open.")
            word, _, rest = typed.partition(" ")
            kind = _kind(word.rstrip(":,;."))
            if kind not in call.allowed:
                self.say(f"Type one of: {', '.join(call.allowed)}; a reason may follow.")
                continue
            try:
                decision = self._filled(kind, rest.strip(), call)
                Approval("", (call,)).read([decision])
            except (ThreadError, ValueError) as error:
                self.say(f"That does not fit: {error}")
            else:
                return decision

    def _filled(self, kind: str, rest: str, call: PendingCall) -> Mapping[str, Any]:
        if kind == "reject":
            return {"type": kind, "message": rest or self._line("reason (may be empty)")}
        if kind == "respond":
            return {"type": kind, "message": rest or self._line("what the model is told", "Type the answer.")}
        if kind == "edit":
            if not rest:
                now = named(json.dumps(dict(call.args), ensure_ascii=False, default=str))
                self.say(f"The arguments now: {now}")
                rest = self._line("new arguments as JSON", "Type all arguments as one JSON object.")
            return {"type": kind, "edited_action": {"name": call.name, "args": read_json(rest)}}
        return {"type": kind}

    def _line(self, hint: str, when_empty: str = "") -> str:
        while not (typed := valid_text(read_line(f"{hint} > ")).strip()) and when_empty:
            self.say(when_empty)
        return typed


def _kind(word: str) -> str:
    return next((kind for kind, short in _DECISIONS.items() if word.lower() in (kind, *short)), "")
