"""The events of a thread as updates of an ACP session, during a run and when a saved thread is loaded."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp import helpers as made
from acp.schema import PlanEntry, ToolCallLocation

from signoff import Approval, PendingCall
from signoff.events import (
    Answered,
    CallFinished,
    CallProgress,
    CallStarted,
    Nudged,
    PhaseAccepted,
    Retrying,
    Said,
    SessionEvent,
    Stopping,
    TaskEnded,
    Thought,
    Token,
    Wrote,
)
from signoff.front.calls import arguments
from signoff.front.cards import WHY
from signoff.front.record.run import Run
from signoff.front.text import cut, one_line, plain
from signoff.front.work import Loading, News
from signoff.graph.foreign_files import read_regular
from signoff.text import valid_values

Update = Any
"""One of the updates that `session/update` carries."""

_KINDS: Mapping[str, Any] = {
    "read_file": "read",
    "list_files": "search",
    "search_files": "search",
    "edit_file": "edit",
    "write_file": "edit",
    "run_shell": "execute",
    "run_python": "execute",
}
_MOST_TITLE = 200
_MOST_RESULT = 100_000


class Updates:
    """Creates the updates of one session, event by event. workspace: the base of relative paths.

    again: a saved thread is loaded, so each event is complete, and the client does not know the user's
    messages yet.
    """

    def __init__(self, workspace: str | None, *, again: bool = False) -> None:
        self.workspace, self._again = workspace, again
        self._told = ""
        self._calls: set[str] = set()
        self._before: dict[str, str | None] = {}
        self._plan: list[PlanEntry] = []
        self.terminals: set[str] = set()
        """The calls that a terminal in the client shows."""

    def keep_before(self, news: News) -> None:
        """Keeps the contents that a call is about to replace. Called before the tool runs."""
        if isinstance(news, CallStarted) and news.name == "write_file":
            self._keep_content(make_call_id(news.reply_id, news.call_id), news.args)

    def convert(self, news: News) -> Iterator[Update]:
        """Yields the updates for an event of the thread's own machine; events of delegates have none."""
        if getattr(news, "path", ()):
            return
        yield from self._convert_text(news)
        yield from self._convert_work(news)

    def _convert_text(self, news: News) -> Iterator[Update]:
        match news:
            case Said(text=text):
                told, self._told = self._told, ""
                # The chunks were already shown, unless a try in between was dropped.
                if left := text.removeprefix(told) if told else text:
                    yield made.update_agent_message_text(left if text.startswith(told) else f"\n\n{text}")
            case Token(text=text):
                self._told += text
                yield made.update_agent_message_text(text)
            case Thought(text=text):
                yield made.update_agent_thought_text(text)
            case Wrote(text=text, answers=False) if self._again:
                yield made.update_user_message_text(text)
            case Answered(question=question, answer=answer) if self._again:
                yield made.update_agent_message_text(question)
                yield made.update_user_message_text(answer)
            case Retrying(dropped=True) if self._told:
                self._told = ""
                yield made.update_agent_message_text("\n\n")
        if note := _describe_event(news):
            yield made.update_agent_thought_text(note)

    def _convert_work(self, news: News) -> Iterator[Update]:
        match news:
            case PhaseAccepted(summary=summary, next_phase=following, percentage=percentage):
                yield self._convert_phase(summary, following, percentage)
            case TaskEnded() if self._plan:
                entries, self._plan = [entry for entry in self._plan if entry.status == "completed"], []
                yield made.update_plan(entries)
            case CallStarted():
                yield self._convert_start(news)
            case CallProgress(data=data) if not isinstance(data, Mapping):
                yield made.update_tool_call(
                    make_call_id(news.reply_id, news.call_id),
                    content=[_make_content(str(data))],
                    status="in_progress",
                )
            case CallFinished():
                yield self._convert_finish(news)

    def announce(self, approval: Approval, call: PendingCall) -> Update:
        """Yields the update for a call that waits for a decision."""
        found = make_call_id(approval.document().get("reply_id", ""), call.id)
        self._calls.add(found)
        if call.name == "write_file":
            self._keep_content(found, call.args)
        return made.start_tool_call(
            found, status="pending", **self._describe_call(found, call.name, call.args)
        )

    def _convert_start(self, news: CallStarted) -> Update:
        found = make_call_id(news.reply_id, news.call_id)
        shown = self._describe_call(found, news.name, news.args)
        if found in self._calls:
            # It waited before, perhaps with other arguments.
            return made.update_tool_call(found, status="in_progress", **shown)
        self._calls.add(found)
        return made.start_tool_call(found, status="in_progress", **shown)

    def _convert_finish(self, news: CallFinished) -> Update:
        found = make_call_id(news.reply_id, news.call_id)
        shown = self._describe_call(found, news.name, news.args)
        changes = [part for part in shown.pop("content") or () if news.ok]
        told: dict[str, Any] = {
            "status": "completed" if news.ok else "failed",
            "content": [*changes, _make_content(cut(plain(news.result), _MOST_RESULT))],
            "raw_output": news.result[:_MOST_RESULT],
        }
        if found in self._calls:
            self._calls.discard(found)
            if found in self.terminals and news.ok:
                # Its status and content are unchanged.
                del told["content"]
            return made.update_tool_call(found, **told)
        return made.start_tool_call(found, **shown, **told)

    def _describe_call(self, found: str, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        path, command = args.get("path"), args.get("command")
        short = command if isinstance(command, str) else f"{name} {arguments(args)}"
        shown: dict[str, Any] = {
            "title": cut(one_line(short), _MOST_TITLE),
            "kind": _KINDS.get(name, "other"),
            "raw_input": valid_values(dict(args)),
            "content": None,
        }
        if isinstance(path, str) and name in _KINDS and self.workspace:
            place = str(Path(self.workspace, path))
            shown["locations"] = [ToolCallLocation(path=place)]
            old, new = args.get("old"), args.get("new")
            if name == "edit_file" and isinstance(old, str) and isinstance(new, str):
                shown["content"] = [made.tool_diff_content(place, new, old)]
            elif name == "write_file" and isinstance(args.get("content"), str):
                shown["content"] = [made.tool_diff_content(place, args["content"], self._before.get(found))]
        return shown

    def _keep_content(self, found: str, args: Mapping[str, Any]) -> None:
        if found in self._before or not (self.workspace and isinstance(args.get("path"), str)):
            return
        root = Path(self.workspace).resolve()
        text = None
        with suppress(OSError, ValueError):
            file = (root / args["path"]).resolve()
            if file.is_relative_to(root):
                data = read_regular(file, _MOST_RESULT + 1)
                text = data.decode() if len(data) <= _MOST_RESULT else None
        self._before[found] = text

    def _convert_phase(self, summary: str, following: str, percentage: float) -> Update:
        done = [entry for entry in self._plan if entry.status == "completed"]
        done.append(made.plan_entry(f"{one_line(summary)} ({percentage:g} %)", status="completed"))
        then = [made.plan_entry(one_line(following), status="in_progress")] if following else []
        self._plan = [*done, *then]
        return made.update_plan(self._plan)


def _describe_event(news: News) -> str:
    """Returns a note beside the conversation; empty for none."""
    match news:
        case Retrying(why=why, seconds=seconds):
            return f"{one_line(why)}: retrying in {seconds:.0f} s. "
        case Loading(stage=stage, done=0):
            return f"{one_line(stage)}. "
        case Stopping():
            return "Stops after this step. "
        case Nudged(why=why):
            return f"(Reminded: {WHY.get(why, why)}.) "
    return ""


def saved_events(run: Run) -> Iterator[SessionEvent]:
    """Yields all events of a saved thread, the oldest first, with the end of each task."""
    for chapter in run.chapters:
        for words in chapter.words:
            yield Wrote(words)
        for turn in chapter.turns:
            yield Said(
                turn.number,
                turn.text,
                turn.calls,
                turn.tokens,
                turn.seconds,
                turn.beside,
                message_id=turn.message_id,
            )
            yield from turn.events
        if chapter.task in run.outcomes:
            yield TaskEnded(run.outcomes[chapter.task])


def make_call_id(reply_id: str, own: str) -> str:
    """Returns the id of a call in the session: a model may reuse an id in another reply."""
    return f"{reply_id}/{own}"


def _make_content(text: str) -> Any:
    return made.tool_content(made.text_block(text))
