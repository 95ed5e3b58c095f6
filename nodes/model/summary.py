"""Has a model write the summary. If anything goes wrong, a summary by lines is used instead.

The graph's own model is called on its current prompt, with the same tools and one extra message, so that its
provider reads nearly all of it from the cache. A tool call in such a reply does not run: the reply then does
not count as a summary. Another model is shown the old turns, one line each, without tools.

The call is not a turn and writes nothing by itself: after a kill in the middle of it, the summary is written
again when the thread continues.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp

from signoff.graph import clock
from signoff.graph.history.reader import CHARS
from signoff.graph.history.reasons import StopReason, stop_of
from signoff.graph.history.received import received
from signoff.graph.history.replies import calls_of, words_of
from signoff.graph.history.task import Task
from signoff.graph.messages import marks
from signoff.graph.prompt.compaction import PIECE, Compaction, bounded, summary_parts
from signoff.graph.prompt.prompt import shortened
from signoff.graph.rules import ToolChoice
from signoff.graph.state import AgentState, HistorySummary, Spent
from signoff.nodes.model.calling import Stream
from signoff.nodes.model.guard import without_streaming
from signoff.nodes.model.messages import bind_to_thread, options_of, show
from signoff.nodes.model.models import context_of
from signoff.nodes.model.sent import last_step
from signoff.nodes.model.stream import CallBounds, watch_of
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part

COMPACTION_SECONDS = 60.0
"""How long a model may take for a summary."""

_PIECES = (2000, 500, PIECE)
_CHARS_A_WORD = 8
# If the context size is unknown, the prompt budget is taken to be 80 % of it.
_OVER = 1.25
# With less room than this, a text would say less than the lines.
_LEAST = 300


@dataclass
class SummaryReply:
    """The model's text; at most `most` characters are awaited.

    came: as the model sent it. size: the characters of its pieces. whole: the call has ended by itself.
    """

    most: int
    came: list[BaseMessage] = field(default_factory=list)
    size: int = 0
    whole: bool = False

    @property
    def reply(self) -> AIMessage:
        return received(self.came or [AIMessage("")])

    @property
    def text(self) -> str:
        """The text, if it can serve as the summary; empty if it is truncated, refused or not text."""
        reply = self.reply
        if not self.whole or calls_of(reply) or len(reply.text) > self.most:
            return ""
        return words_of(reply) if stop_of(reply) is StopReason.NORMAL else ""


@dataclass(frozen=True, slots=True)
class Summarise(Stream):
    """A call of the model that writes summaries; what comes of it within its watch goes into `answer`."""

    answer: SummaryReply

    def _config(self, run: NodeContext) -> RunnableConfig:
        """The run's own configuration, so that callbacks and traces see the call; its text is not streamed
        to a user as part of the reply."""
        tags = [*(run.config.get("tags") or ()), TAG_NOSTREAM]
        return {**run.config, "tags": tags, "run_name": "summary"}

    def _took(self, chunk: BaseMessage) -> bool:
        self.answer.size += len(chunk.text)
        return self.answer.size > self.answer.most or (isinstance(chunk, AIMessage) and _calls(chunk))

    def _ended(
        self, run: NodeContext, chunks: list[BaseMessage], error: BaseException | None
    ) -> list[BaseMessage]:
        self.answer.came = [chunk for chunk in chunks if isinstance(chunk, AIMessage)]
        if error is not None:
            raise error
        self.answer.whole = self.watch.end is None
        return chunks


def write_summary(
    compaction: Compaction, state: AgentState, run: NodeContext, task: Task
) -> Part[tuple[HistorySummary, Spent | None]]:
    """A part of a node: the new summary, by the model if there is one for it, else by lines; and what the
    summaries of this task have cost until now."""
    model, spent = run.summariser, state.get("spent")
    # A stop does not wait for a text.
    if model is None or not compaction.turns or compaction.most < _LEAST or run.draining:
        return compaction.by_lines(), spent
    if run.continues:
        asked = yield from _on_the_prompt(compaction, state, run)
        if asked is None:
            return compaction.by_lines(), spent
    else:
        asked = (without_streaming(model) if task.unstreamed else model, _prompt(compaction, run))
    answer, begun = SummaryReply(compaction.most), clock.monotonic()
    try:
        yield Summarise(*asked, _watch(task, run), answer)
    except Exception as error:
        # Whatever a provider raises costs the text, never the run.
        if isinstance(error, GraphBubbleUp):
            raise
    text = answer.text
    cost = _cost(spent, compaction.contract["task"], answer, asked[1], clock.monotonic() - begun)
    return (compaction.by_text(text) if text else compaction.by_lines()), cost


_Asked = tuple[Runnable[Any, Any], list[BaseMessage]]


def _on_the_prompt(compaction: Compaction, state: AgentState, run: NodeContext) -> Part[_Asked | None]:
    """A part of a node: the model as it was asked last, and the prompt that it would be shown next with the
    request for notes after it. None where that does not fit into its context, or there is no prompt."""
    too_long, asked = state.get("too_long"), run.model
    if too_long and too_long["task"] == state.get("task"):
        return None
    shown = yield from show(state, run, whole=True)
    wish = HumanMessage(run.deps.texts.note_down.format(words=compaction.most // _CHARS_A_WORD))
    size = shown.size + shown.beyond + tokens([wish]) + compaction.most // CHARS
    if size > (context_of(asked.model) or int(run.deps.prompt_tokens * _OVER)):
        return None
    offers = asked.offers.unstreamed if run.task(state).unstreamed else asked.offers
    model = offers[ToolChoice.ALL]
    prompt = last_step(asked.model, [*shown.messages, wish], options_of(model), run.deps)
    return bind_to_thread(state, run)(model), prompt


def _watch(task: Task, run: NodeContext) -> CallBounds:
    """The bounds of the call: the time for a summary, the time that the task has left, and a request to
    stop."""
    watch = watch_of(task, run.limits, silence=run.model_seconds, chars=None, control=run.control)
    until = clock.monotonic() + COMPACTION_SECONDS
    return replace(watch, until=until if watch.until is None else min(until, watch.until), tokens=None)


def _prompt(compaction: Compaction, run: NodeContext) -> list[BaseMessage]:
    """The prompt for another model: as much of each turn as fits into half of the prompt budget."""
    texts, (text, lines) = run.deps.texts, summary_parts(compaction.before)
    room = compaction.budget // 2 * CHARS
    task = "\n".join(shortened(message.text, room // 8) for message in compaction.reader.section.messages)
    notes = "\n".join([text, *lines]).strip() or "(none)"
    room -= len(task) + len(notes)
    told = (compaction.turn_lines(piece) for piece in _PIECES)
    turns = next((lines for lines in told if sum(map(len, lines)) <= room), None)
    if turns is None:
        turns = bounded(compaction.turn_lines(), room)
    words = compaction.most // _CHARS_A_WORD
    material = texts.material.format(task=task, before=notes, turns="\n".join(turns))
    return [SystemMessage(texts.summarise.format(words=words)), HumanMessage(material)]


def _cost(
    spent: Spent | None, task: str, answer: SummaryReply, prompt: list[BaseMessage], seconds: float
) -> Spent:
    """The usage of the task's summaries with this one; estimated if the provider reports none."""
    reply = answer.reply
    usage, marked = reply.usage_metadata, bool(marks(reply).get("estimated"))
    read, wrote = (usage["input_tokens"], usage["output_tokens"]) if usage else (0, 0)
    if answer.came and not usage:
        read, wrote, marked = tokens(prompt), tokens([AIMessage(reply.text)]), True
    details = usage.get("input_token_details") if usage else None
    cached = min(read, (details or {}).get("cache_read", 0))
    return spent_more(spent, task, read, wrote, estimated=marked, seconds=seconds, cached=cached)


def spent_more(
    spent: Spent | None,
    task: str,
    read: int,
    wrote: int,
    *,
    estimated: bool,
    seconds: float = 0.0,
    cached: int = 0,
) -> Spent:
    """The usage of the task's calls that are not turns, with one more."""
    so_far = spent if spent and spent["task"] == task else _nothing(task)
    made = Spent(
        task=task,
        input_tokens=so_far["input_tokens"] + read,
        output_tokens=so_far["output_tokens"] + wrote,
        total_tokens=so_far["total_tokens"] + read + wrote,
        estimated=so_far["estimated"] or estimated,
        seconds=so_far["seconds"] + seconds,
    )
    if cached := cached + so_far.get("cached_tokens", 0):
        made["cached_tokens"] = cached
    return made


def _nothing(task: str) -> Spent:
    return Spent(task=task, input_tokens=0, output_tokens=0, total_tokens=0, estimated=False, seconds=0.0)


def _calls(chunk: AIMessage) -> bool:
    parts = chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else []
    return bool(parts or chunk.tool_calls or chunk.invalid_tool_calls)
