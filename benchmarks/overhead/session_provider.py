"""A provider that counts and prices tokens: `python -m benchmarks.overhead.session_provider`.

The path is /RUN/TURNS/v1. Every reply of a run calls `look`, except the last, which ends the task; a summary
request gets a summary. Tokens are counted with o200k, in the tools as JSON and in the text and calls of the
messages. A prefix that a request shares with any earlier request of the run is read from the cache. GET /RUN
returns `Tally` as JSON.
"""

import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar

from benchmarks.overhead.provider import Body, Handler, Reply, call_of, offers_finish, serve
from benchmarks.overhead.subjects.sessions import ARGUMENT, SUMMARY, text_of
from benchmarks.prompt_tokens import o200k
from signoff.graph.texts import NOTE_DOWN

_ASKED = NOTE_DOWN.split(":", maxsplit=1)[0]


@dataclass
class Tally:
    """The counts of one run. first: tokens of its first request. read: tokens paid in full."""

    first: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0
    summaries: int = 0
    turns: int = 0
    requests: list[str] = field(default_factory=list)

    def take(self, text: str, size: int, wrote: int) -> Body:
        """Counts a request and its reply; returns the usage to report."""
        shared = max((_shared(text, one) for one in self.requests), default=0)
        hit = tokens(text[:shared])
        self.first = self.first or size
        self.requests.append(text)
        self.read += size - hit
        self.cached += hit
        self.written += wrote
        details = {"prompt_tokens_details": {"cached_tokens": hit}}
        return {"prompt_tokens": size, "completion_tokens": wrote, "total_tokens": size + wrote, **details}


@cache
def _count() -> Any:
    count = o200k()
    assert count is not None, "whoever starts it has looked"
    return count


def tokens(text: str) -> int:
    """Returns the number of tokens in a text."""
    return int(_count()(text))


def text_of_request(asked: Body) -> str:
    """Returns what the model reads: the tools, then the messages."""
    tools = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in asked.get("tools", ())]
    return "\n".join([*tools, *map(_said, asked["messages"])])


def _said(message: Body) -> str:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    told = [f"{call['name']}{call['arguments']}" for call in calls]
    return "\n".join([message["role"], words_of(message), *told])


def words_of(message: Body) -> str:
    """Returns the text of a message, whose content may be blocks."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def _shared(one: str, other: str) -> int:
    """Returns the length of the common prefix."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_right(sizes, False, key=lambda size: one[:size] != other[:size])


class _Handler(Handler):
    tallies: ClassVar[defaultdict[str, Tally]] = defaultdict(Tally)

    def reply(self, asked: Body) -> Reply:
        run, turns = self.path.split("/")[1:3]
        tally = self.tallies[run]
        words, call = _next(tally, asked, int(turns))
        called = call["function"]["name"] + call["function"]["arguments"] if call else ""
        wrote = tokens(words) + tokens(called)
        text = text_of_request(asked)
        return Reply([words] if words else [], call, tally.take(text, tokens(text), wrote))

    def do_GET(self) -> None:
        told = asdict(self.tallies.pop(self.path.strip("/")))
        self.say({name: value for name, value in told.items() if name != "requests"})


def _next(tally: Tally, asked: Body, turns: int) -> tuple[str, Body | None]:
    if not asked.get("tools") or words_of(asked["messages"][-1]).startswith(_ASKED):
        tally.summaries += 1
        return text_of(f"summary {tally.summaries}", SUMMARY), None
    tally.turns += 1
    if tally.turns < turns:
        where = text_of(f"where {tally.turns}", ARGUMENT)
        return "", call_of(tally.turns, "look", {"number": tally.turns, "where": where})
    if offers_finish(asked):
        return "", call_of(tally.turns, "finish_task", {"summary": "All is seen."})
    return "All is seen.", None


if __name__ == "__main__":
    serve(_Handler)
