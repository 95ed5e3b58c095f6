"""One case in words: what is right, why, and what each framework did, event by event."""

from collections.abc import Sequence

from loopcheck.case import Case
from loopcheck.driver import Cell
from loopcheck.observed import Death, Event, Message, ModelCall, Observed, Report, StepStart, ToolRun
from loopcheck.outside import line
from loopcheck.process import Hello
from loopcheck.table import MARKS

_MOST = 100


def explain(case: Case, hello: Hello, cell: Cell) -> str:
    """Prints what is right, why, and what the subject did."""
    lines = [case.question, "", f"Right: {case.right}", ""]
    lines += [f"Reported in: {case.link}", ""] if case.link else []
    version = next(iter(hello.versions.values()), "")
    lines += [f"{hello.framework} {version}".strip(), f"    {MARKS[cell.mark]} {cell.why}"]
    lines += [f"      {line}" for line in _events(cell.observed)] if cell.observed else []
    return "\n".join([*lines, ""])


def _events(seen: Observed) -> list[str]:
    lines: list[str] = []
    known: dict[str, int] = {}
    for event in seen.events:
        mark = ""
        if isinstance(event, ModelCall):
            mark = f"[{event.who}] " if event.who else ""
            before = known.get(event.who, 0)
            new = event.messages[before if before < len(event.messages) else -1 :]
            lines += [f"{mark}model is shown   {_sent(message)}" for message in new]
            known[event.who] = len(event.messages)
        lines.append(mark + _line(event))
    return lines


def _line(event: Event) -> str:
    match event:
        case StepStart(do=do, text=text):
            return f"outside          {do} {text}".rstrip()
        case ModelCall(status=status) if status != 200:
            return f"model refuses    {status}"
        case ModelCall():
            return f"model says       {_said(event.text, event.calls)}"
        case ToolRun(tool=tool, args=args, what=what):
            return f"tool runs        {tool} {_cut(dict(args))} ({what})"
        case Report(status=status, words=words, final=final, pending=pending):
            return f"the run says     {status}: {_cut(words)} {_cut(final or pending or '')}".rstrip(": ")
        case Death():
            return "killed"


def _sent(message: Message) -> str:
    answers = f" (result of {_cut(message.answers)})" if message.answers is not None else ""
    return f"{_cut(message.role)}{answers}: {_said(message.text, message.calls)}"


def _said(text: str, calls: Sequence[tuple[str, str, str]]) -> str:
    written = [f"{_cut(name)}({_cut(arguments)}) as {_cut(id)!r}" for id, name, arguments in calls]
    return "; ".join([*([_cut(text)] if text else []), *written]) or "(nothing)"


def _cut(value: object) -> str:
    return line(value, _MOST)
