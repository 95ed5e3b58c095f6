"""The contract: what of the folded part of a task still binds the model, in a few lines of the view.

A pure function of the history. It changes only when more turns are folded, so that the prefix of the view
stays the same in between; what is newer stands in the turns that the view shows whole.
"""

from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage

from signoff.graph.history import Reader
from signoff.graph.ledger import CHARS
from signoff.graph.marks import nudge_kind
from signoff.graph.outcome import issues_of
from signoff.graph.phases import open_phases
from signoff.graph.replies import Reply
from signoff.graph.state import Contract, Phases
from signoff.graph.texts import Texts
from signoff.tools.kinds import Effect

_SHORTEST = 100
_REFUSALS = 3
_PHASES = 3
_NUDGES = ("refused", "sent_back")


def contract(reader: Reader, end: int, most: int, phases: Phases | None = None) -> Contract:
    """The contract of the current task's part before the message at `end`, of about `most` tokens at most.

    The approach and the status are those of the last thought that names them; the issues those of the last
    finish; of refusals, and of the `phases` reported in this part, the last few.
    """
    section, starts = reader.section, reader.noted.replies
    places = starts[len(starts) - len(section.replies) :]
    replies = [reply for reply, at in zip(section.replies, places, strict=True) if at < end]
    approach, status = _thought(replies)
    begun = reader.noted.places.get(section.id, 0)
    refused = list(dict.fromkeys([*_results(replies), *_reminders(reader.messages[begun:end])]))
    reported = open_phases(phases, section.id, len(replies))
    piece = max(_SHORTEST, most * CHARS // (3 + _REFUSALS + _PHASES))
    return Contract(
        task=section.id,
        approach=shortened(approach, piece),
        status=shortened(status, piece),
        issues=shortened("; ".join(_issues(replies)), piece),
        refused=[shortened(text, piece) for text in refused[-_REFUSALS:]],
        phases=[shortened(text, piece) for text in reported[-_PHASES:]],
    )


def contract_text(found: Contract | None, task: str, texts: Texts) -> str:
    """The contract as the model reads it; empty when nothing binds, or when it is another task's."""
    if found is None or found["task"] != task:
        return ""
    parts = [("approach", found["approach"]), ("status", found["status"]), ("issues", found["issues"])]
    parts += [("refused", text) for text in found["refused"]]
    parts += [("phase", text) for text in found.get("phases", ())]
    lines = [texts.contract_lines[key].format(text=text) for key, text in parts if text]
    return texts.contract.format(lines="\n".join(lines)) if lines else ""


def shortened(text: str, most: int) -> str:
    """`text` on one line and of at most `most` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: max(most - 1, 0)] + "…"


def _thought(replies: Sequence[Reply]) -> tuple[str, str]:
    """The last approach and the last status that a thought names."""
    found = {"approach": "", "status": ""}
    for reply in reversed(replies):
        for call in reversed(reply.calls):
            if call.effect is Effect.CONTINUE and call.problem is None:
                found |= {key: _said(call.args.get(key)) for key in found if not found[key]}
        if all(found.values()):
            break
    return found["approach"], found["status"]


def _said(value: object) -> str:
    return "" if value is None else str(value)


def _issues(replies: Sequence[Reply]) -> list[str]:
    calls = (call for reply in reversed(replies) for call in reply.calls)
    return issues_of(next((call.args for call in calls if call.effect is Effect.FINISH), {}))


def _results(replies: Sequence[Reply]) -> Iterator[str]:
    """What the model was told of finishes that did not count."""
    for reply in replies:
        for call in reply.calls:
            result = reply.result(call)
            if call.effect is Effect.FINISH and reply.failed(call) and reply.ran(call) and result:
                yield result.text


def _reminders(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """The same, of finishes that an imported history had answered already."""
    return (message.text for message in messages if nudge_kind(message) in _NUDGES)
