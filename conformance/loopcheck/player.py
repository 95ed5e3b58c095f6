"""The model of a task: it knows the moves that solve it, and finds in the history which ones are done.

So it continues in a new process as a real one would: it knows only what the subject shows it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from loopcheck.faults import ENDS, KILLS, PROVIDER, REPLIES, Fault
from loopcheck.replies import Ask as Question
from loopcheck.replies import Call, Finish, Reply
from loopcheck.sources.task import Ask, Key, Move, Task, Turn
from loopcheck.stage import ModelRequest, text_of

TALK = "I will go on with the next step now."
NO_TASK = "I was not told what to do."
_ERRORS = {PROVIDER[0]: 0, PROVIDER[1]: 429, PROVIDER[2]: 500}


class Player:
    """took_place: the effects in the world since the turn with this number began.

    finish: the way of ending. can_ask: whether the model can ask with a call; otherwise it asks in text,
    which ends the run. die: kills the subject. came: a fault in a reply, or after a call, has taken place.
    ended: the numbers of the turns that the model has ended.
    """

    def __init__(
        self,
        task: Task,
        turns: Sequence[Turn],
        fault: Fault,
        took_place: Callable[[int], Counter[Key]],
        *,
        finish: str,
        can_ask: bool,
        die: Callable[[], None],
    ) -> None:
        self.finish, self.most = finish, 40 + 4 * sum(len(turn.moves) + 1 for turn in turns)
        self.asked_in_words = ""
        self.forbade_talk = False
        self.ended = set[int]()
        self._task, self._turns, self._fault = task, turns, fault
        self._took_place, self.can_ask, self._die = took_place, can_ask, die
        self.came = False
        self._said: list[tuple[int, str, Key]] = []
        """The calls that were made: turn, ID and call."""

    def who(self, told: str) -> str:
        return ""

    def reply(self, asked: ModelRequest) -> Reply:
        self.asked_in_words = ""
        number = self._turn(asked.messages)
        if number is None or not self._knows(number, asked.messages):
            return Reply((Finish(NO_TASK),))
        done, move = self._next(number, asked.messages)
        at = sum(len(turn.calls) for turn in self._turns[:number]) + done
        return self._faulty(at, asked) or self._right(at, number, move)

    def _faulty(self, at: int, asked: ModelRequest) -> Reply | None:
        """Returns the fault at this place, if any; each comes once."""
        name, here = self._fault.name, at == min(self._fault.at, len(self._task.calls))
        if name == KILLS[2] and at > self._fault.at and not self.came:
            self.came = True
            self._die()
            raise ConnectionAbortedError("the subject is gone")
        if self.came or not here:
            return None
        if name in _ERRORS:
            self.came = True
            return Reply(error=_ERRORS[name])
        if name == REPLIES[0]:
            self.came = True
            return Reply((Call(self._name(at), raw='{"', id="call_cut"),), reason="length")
        if name == REPLIES[1]:
            self.came = True
            # A provider that obeys the request would not reply with text where a call is required.
            self.forbade_talk = asked.body.get("tool_choice") not in (None, "auto", "none")
            return Reply((TALK,))
        return None

    def _name(self, at: int) -> str:
        calls = self._task.calls
        return calls[min(at, len(calls) - 1)].name if calls else next(iter(self._task.tools))

    def _right(self, at: int, number: int, move: Move | None) -> Reply:
        turn = self._turns[number]
        if isinstance(move, Ask):
            if self.can_ask:
                return Reply((Question(move.question),))
            self.asked_in_words = move.answer
            return Reply((Finish(move.question),))
        if move is None:
            return self._end(number)
        last = at == len(self._task.calls) - 1
        if last and self._fault.name == ENDS[0] and not self.came:
            self.came = True
            return self._beside_a_failure(turn)
        # An ID unique to the run, or the same one in every reply.
        id = "call_0" if self._fault.name == REPLIES[2] else f"call_t{len(self._said)}"
        self._said.append((number, id, self._task.key(move)))
        return Reply((Call(move.name, move.args, id=id),))

    def _end(self, number: int) -> Reply:
        self.ended.add(number)
        turn = self._turns[number]
        if self._fault.name == ENDS[1] and turn is self._turns[-1] and not self.came:
            self.came = True
            return Reply((Finish(turn.answer), Finish("It is done, once more.")))
        return Reply((Finish(turn.answer),))

    def _beside_a_failure(self, turn: Turn) -> Reply:
        """Ends the work beside a call that omits what its tool requires."""
        failing = Call(self._task.calls[self._fault.at].name, {}, id="call_failing")
        return Reply((failing, Finish(turn.answer)))

    def _turn(self, messages: Sequence[Mapping[str, Any]]) -> int | None:
        """Returns the number of the last turn whose message the model is shown."""
        shown = _told(messages)
        for number in reversed(range(len(self._turns))):
            if any(self._turns[number].say in text for text in shown):
                return number
        return None

    def _knows(self, number: int, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether the model is shown anything of the previous turn, the user's message or its own
        reply: it knows the thread by nothing else."""
        said = any(one.get("role") == "assistant" for one in messages)
        return not number or said or any(self._turns[number - 1].say in text for text in _told(messages))

    def _next(self, number: int, messages: Sequence[Mapping[str, Any]]) -> tuple[int, Move | None]:
        """Returns how many calls of this turn are done, and the next move; None if all are done.

        If a result is not what the tool returned, or it is unknown whether a call took place, the model
        checks the world, and repeats the call only if it did not take place.
        """
        turn = self._turns[number]
        since = _since(messages, turn.say)
        told = "\n".join(_told(since))
        have, ran, done = Counter[Key](), self._took_place(number), 0
        for key in self._answered(number, since):
            have[key] += have[key] < ran[key]
        for move in turn.moves:
            if isinstance(move, Ask):
                if move.answer not in told:
                    return done, move
                continue
            key = self._task.key(move)
            if not have[key]:
                return done, move
            have[key] -= 1
            done += 1
        return done, None

    def _answered(self, number: int, messages: Sequence[Mapping[str, Any]]) -> Iterator[Key]:
        """Returns the calls that the model is shown with something after them."""
        said = [(id, key) for turn, id, key in self._said if turn == number]
        for place, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            calls = message.get("tool_calls") or ()
            for call in calls:
                if _has_result(messages[place + 1 :], call.get("id")) and (key := self._key(call)):
                    yield key
            if not calls and place + 1 < len(messages):
                # Some frameworks write calls, with their IDs, into the text of a message.
                text = text_of(message.get("content"))
                for one in [one for one in said if f"'{one[0]}'" in text or f'"{one[0]}"' in text][:1]:
                    said.remove(one)
                    yield one[1]

    def _key(self, call: Mapping[str, Any]) -> Key | None:
        """Returns which call this is; None if it is not one of the task's, as a subject may show others."""
        try:
            function = call["function"]
            return self._task.tools[function["name"]].key(json.loads(function.get("arguments") or "{}"))
        except Exception:  # noqa: BLE001  a source's own reading of arguments may raise anything
            return None


def _told(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the messages that are not the model's."""
    return [text_of(one.get("content")) for one in messages if one.get("role") != "assistant"]


def _since(messages: Sequence[Mapping[str, Any]], words: str) -> Sequence[Mapping[str, Any]]:
    """Returns the messages after the last one that says so."""
    said = (one.get("role") != "assistant" and words in text_of(one.get("content")) for one in messages)
    places = [at for at, is_it in enumerate(said) if is_it]
    return messages[places[-1] + 1 :] if places else ()


def _has_result(after: Sequence[Mapping[str, Any]], id: Any) -> bool:
    """Returns whether a result of this call comes before the next reply."""
    for message in after:
        if message.get("role") == "assistant":
            return False
        if message.get("tool_call_id") == id:
            return True
    return False
