"""Turns a parsed reply into the tool calls that it makes."""

import json
import re
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from signoff.models.text_protocol.reading import Reading, ReplyPart, TaggedSection, prose

DEBUGGING = "Debugging"
"""The status after an execution that failed."""

_FINALIZE = re.compile(r"""(?<!["'\w])\[FINALIZE\](?!["'\w])""")
_LABEL = r"(?:current[ \t]{1,8})?(approach|status)[ \t*_]{0,8}:"
_FIELD = re.compile(rf"[\s*_#>+•-]*+(?:\d{{1,3}}[.)][\s*_]*+)?{_LABEL}(.*)", re.IGNORECASE)
# A second field on the line of the first: after a separator in upper or lower case; after a space alone only
# as it is written at the beginning of a line, because "status:" may be a word of the approach.
_NEXT = re.compile(rf"(?<![\w\"'`]){_LABEL}", re.IGNORECASE)
_SEPARATORS = "|;,.·•/\u2013\u2014"
_AROUND = " \t*_-"
_MOST_BEFORE = 16
# The token as models write it: in bold, in code, with a colon. In quotes or within a word it is only
# mentioned.
_TOKEN = re.compile(
    r"""(?<!["'\w])(?P<mark>\*{1,3}|_{1,3}|`)?\[FINALIZE\]:?(?(mark)(?P=mark))(?!["'\w])[ \t]*+:?[ \t]?""",
    re.IGNORECASE,
)
_FINISHED = frozenset({"finished", "finalized", "finalised"})
_SHOWN = 300


@dataclass(frozen=True)
class ToolNames:
    """The names of the tools that the parts of a reply call."""

    code: str = "run_python"
    think: str = "think"
    ask: str = "ask_user"
    finish: str = "finish_task"


@dataclass(frozen=True)
class ParsedCall:
    """One tool call. `arguments` is JSON text.

    If the call was left open, it is text that no parser accepts as JSON: the loop then answers with an error
    and runs nothing.
    """

    name: str
    arguments: str


@dataclass(frozen=True)
class Update:
    """The fields of a state update, in its own words; None for a missing field."""

    approach: str | None = None
    status: str | None = None

    @property
    def finished(self) -> bool:
        return (self.status or "").rstrip(" \t.!").casefold() in _FINISHED


def update_of(text: str) -> Update:
    """Reads `Approach:` (or `Current Approach:`), of one or more lines, and `Status:`, of one line.

    Both may be in bold, in a list, or on the same line.
    """
    found: dict[str, list[str]] = {}
    field = ""
    for line in prose(text).split("\n"):
        if start := _FIELD.fullmatch(line):
            for name, said in _fields(start[1], start[2]):
                field = name
                found[field] = [said]
        elif field == "approach" or (field and not "".join(found[field]).strip(" \t*_")):
            found[field].append(line)
    values = {name: "\n".join(lines).strip(" \t\n*_") or None for name, lines in found.items()}
    return Update(values.get("approach"), values.get("status"))


def _fields(name: str, rest: str) -> Iterator[tuple[str, str]]:
    """Yields the fields of a line that begins with the field `name`, each with its value."""
    begun = 0
    for label in _NEXT.finditer(rest):
        before = rest[max(begun, label.start() - _MOST_BEFORE) : label.start()]
        said = before.rstrip(_AROUND)
        separated = said != "" and said[-1] in _SEPARATORS
        if separated or (before != said and label[1][0].isupper()):
            yield name.lower(), rest[begun : label.start()].rstrip(_AROUND + _SEPARATORS)
            name, begun = label[1], label.end()
    yield name.lower(), rest[begun:]


def calls_of(
    reading: Reading, names: ToolNames, bound: AbstractSet[str], *, truncated: bool, debugging: bool
) -> list[ParsedCall]:
    """Returns the calls of a reply: the thought, then code, calls and questions in order, then the finish.

    The finish comes last, after everything that could prove it wrong. bound: the available tools; a part that
    belongs to none of them makes no call. truncated: the reply was cut off, so a finish in it becomes a call
    that is refused. debugging: the status is `Debugging`, whatever the reply says (see `is_forced`), unless
    it finishes.
    """
    made = [_parse_part(part, names) for part in reading.parts if part.name or _tool(part, names) in bound]
    ends = [call for call in made if call.name == names.finish]
    if not ends and names.finish in bound:
        ends = _finish(reading, names)
    if truncated or not all(part.whole for part in reading.parts if part.name == names.finish):
        ends = [_open_call(names.finish, end.arguments) for end in ends]
    thought = _thought(reading, names, debugging and not ends) if names.think in bound else []
    return [*thought, *(call for call in made if call.name != names.finish), *ends]


def is_forced(reading: Reading, names: ToolNames, executors: Collection[str], *, failing: bool) -> bool:
    """Whether the status of a reply is `Debugging`, whatever it says.

    It is when the last execution failed and the reply contains code (or a call of one of `executors`), which
    has yet to show that it works. Without code the status is the model's.
    """
    return failing and any(_tool(part, names) in (names.code, *executors) for part in reading.parts)


def last_update(reading: Reading) -> Update:
    """Returns the last state update of a reply, or an empty one."""
    return update_of(reading.updates[-1].text) if reading.updates else Update()


def _tool(part: ReplyPart, names: ToolNames) -> str:
    return part.name or (names.code if part.kind == "code" else names.ask)


def _parse_part(part: ReplyPart, names: ToolNames) -> ParsedCall:
    name = _tool(part, names)
    if part.kind == "call":
        if part.args is None:
            return _open_call(name, part.text)
        summary = part.args.get("summary")
        said = (
            {"summary": without_token(summary)} if name == names.finish and isinstance(summary, str) else {}
        )
        return ParsedCall(name, _json({**part.args, **said}))
    argument = "code" if part.kind == "code" else "question"
    return ParsedCall(name, _json({argument: part.text})) if part.whole else _open_call(name, part.text)


def _open_call(name: str, text: str) -> ParsedCall:
    # LangChain's lenient parser accepts text that only begins like JSON.
    return ParsedCall(name, f"(left open) {text[:_SHOWN]}")


def _thought(reading: Reading, names: ToolNames, debugging: bool) -> list[ParsedCall]:
    if not reading.plans and not reading.updates:
        return []
    update = last_update(reading)
    status = DEBUGGING if debugging else update.status
    values = {"thought": _planned(reading.plans), "approach": update.approach, "status": status}
    return [
        ParsedCall(names.think, _json({key: value for key, value in values.items() if value is not None}))
    ]


def _finish(reading: Reading, names: ToolNames) -> list[ParsedCall]:
    """Returns the finish that the last plan or the last state update makes.

    In a part that was left open it becomes a call that is refused, so that the model learns of it.
    """
    update = last_update(reading)
    by_plan = bool(reading.plans) and bool(_FINALIZE.search(prose(reading.plans[-1].text)))
    if not by_plan and not update.finished:
        return []
    holds = by_plan and reading.plans[-1].whole
    if not holds and not (update.finished and reading.updates[-1].whole):
        return [_open_call(names.finish, "")]
    plan = _planned(reading.plans) or reading.plain or update.status or ""
    approach = f"Approach: {update.approach}" if update.approach else ""
    summary = "\n\n".join(part for part in (plan, approach) if part)
    return [ParsedCall(names.finish, _json({"summary": without_token(summary) or "Finished."}))]


def _planned(plans: tuple[TaggedSection, ...]) -> str:
    return "\n\n".join(without_token(plan.text) for plan in plans).strip()


def without_token(text: str) -> str:
    """Returns `text` without the token that ends the task, which is for the protocol, not for readers."""
    return _TOKEN.sub("", text).strip()


def _json(arguments: object) -> str:
    return json.dumps(arguments)
