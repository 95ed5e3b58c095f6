"""One scenario in words: what is right, why, and what each framework did, event by event."""

from collections.abc import Iterable, Sequence

from benchmarks.loopbench.driver import Cell
from benchmarks.loopbench.observed import Died, Event, Observed, Ran, Sent, Shown, Stepped, Told
from benchmarks.loopbench.scenario import Scenario
from benchmarks.loopbench.table import MARKS, Column

_MOST = 100


def explain(scenario: Scenario, columns: Iterable[tuple[Column, Sequence[Cell]]]) -> str:
    """What is right, why, and what each framework did."""
    lines = [scenario.question, "", f"Right: {scenario.right}", ""]
    lines += [f"Somebody's pain: {scenario.thread}", ""] if scenario.thread else []
    for column, cells in columns:
        lines.append(f"{column.title} {column.version}".strip())
        lines += [f"    {column.absent}"] if column.absent else []
        for cell in cells:
            lines.append(f"    {MARKS[cell.mark]} {cell.why}")
            lines += [f"      {line}" for line in _events(cell.observed)] if cell.observed else []
        lines.append("")
    return "\n".join(lines)


def _events(seen: Observed) -> list[str]:
    lines: list[str] = []
    known: dict[str, int] = {}
    for event in seen.events:
        mark = ""
        if isinstance(event, Shown):
            mark = f"[{event.who}] " if event.who else ""
            before = known.get(event.who, 0)
            new = event.messages[before if before < len(event.messages) else -1 :]
            lines += [f"{mark}model is shown   {_sent(message)}" for message in new]
            known[event.who] = len(event.messages)
        lines.append(mark + _line(event))
    return lines


def _line(event: Event) -> str:
    match event:
        case Stepped(do=do, text=text):
            return f"outside          {do} {text}".rstrip()
        case Shown(status=status) if status != 200:
            return f"model refuses    {status}"
        case Shown():
            return f"model says       {_said(event.text, event.calls)}"
        case Ran(tool=tool, args=args, what=what):
            return f"tool runs        {tool} {dict(args)} ({what})"
        case Told(status=status, words=words, final=final, pending=pending):
            return f"the run says     {status}: {_cut(words)} {_cut(str(final or pending or ''))}".rstrip(
                ": "
            )
        case Died():
            return "killed"


def _sent(message: Sent) -> str:
    answers = f" (result of {message.answers})" if message.answers is not None else ""
    return f"{message.role}{answers}: {_said(message.text, message.calls)}"


def _said(text: str, calls: Sequence[tuple[str, str, str]]) -> str:
    written = [f"{name}({_cut(arguments)}) as {id!r}" for id, name, arguments in calls]
    return "; ".join([*([_cut(text)] if text else []), *written]) or "(nothing)"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[:_MOST]}…"
