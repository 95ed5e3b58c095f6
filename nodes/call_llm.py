"""Makes one streamed model call on the prompt, which may be cut off early (see `nodes/model/guard.py`)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable

from signoff.graph import clock
from signoff.graph.foreign import gets_past, unanswered
from signoff.graph.history.received import received
from signoff.graph.history.usage import of_reply
from signoff.graph.limits import Prices
from signoff.graph.machine import Event
from signoff.graph.messages import KEY, append_messages, guard_notes, marks, slim
from signoff.graph.rules import LOOSER, ToolChoice, tool_choice
from signoff.graph.state import AgentState, Ending, TooLong
from signoff.nodes.model.advice import advise, is_too_long, secrets_of
from signoff.nodes.model.calling import Stream
from signoff.nodes.model.messages import (
    FittedPrompt,
    bind_to_thread,
    named_calls,
    options_of,
    show,
)
from signoff.nodes.model.models import AskedModel, Bound
from signoff.nodes.model.refused import refused_reply, unfinished
from signoff.nodes.model.sent import last_step
from signoff.nodes.model.shown import shown_after
from signoff.nodes.model.stream import CallBounds, EarlyEnd, Silent, watch_of
from signoff.nodes.model.trying import Tries, WaitEnded, try_model
from signoff.nodes.node import NodeContext, Report, Steps, WrongWay
from signoff.nodes.requests import Part

REPLY_CHARS = 2_000_000
"""The characters of the longest reply that is accepted: about four times the longest of current models."""


def call_llm(state: AgentState, run: NodeContext) -> Steps:
    # Raises for an invalid model name: the caller's mistake is not an outcome of the task.
    model = run.model
    shown = yield from show(state, run)
    task = run.task(state)
    offered, begun = tool_choice(task, run.deps.required), clock.now()
    watch = watch_of(task, run.limits, silence=run.model_seconds, chars=REPLY_CHARS, control=run.control)
    tries = Tries(unstreamed=task.unstreamed)
    # The cached task is stale after the reply, so it need not be kept during the model call.
    del task
    run.forget_task(state)
    call = ModelCall(model, shown, offered, watch, bind_to_thread(state, run), run, tries=tries)
    around = run.deps.middleware
    try:
        if around is None or not around.wraps_models:
            return _replied(state, run, call, (yield from call.reply(model, shown.messages)), begun)
        found = yield from around.model_call(call, state, run)
        report: Report = found.beside(_replied(state, run, call, found.message, begun))
        return report
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as raised:
        failed = unanswered(raised, can_ask=run.can_ask)
        # Whatever a provider raises or sends is an outcome, even a Rust panic in its package.
        if gets_past(failed) or isinstance(failed, WrongWay):
            raise
        report = _failed(state, run, shown, failed, call.tries)
        if around is None or not call.came:
            return report
        return replace(report, update={**report.update, "spent": around.spent_on(call.came, state)})


@dataclass
class ModelCall:
    """A call of the graph's model: its arguments, and the result of its attempts.

    shown: the last prompt that was sent, since a middleware may change it. names: the working tools that were
    last offered; None for all. came: the replies that middleware was given, each with the estimated tokens of
    its prompt. prices: of the model that a middleware asked last, if they are not those of the graph.
    """

    model: AskedModel
    shown: FittedPrompt
    offered: ToolChoice
    watch: CallBounds
    placed: Callable[[Any], Runnable[Any, Any]]
    run: NodeContext
    names: tuple[str, ...] | None = None
    tries: Tries = field(default_factory=Tries)
    came: list[tuple[AIMessage, int]] = field(default_factory=list)
    prices: Prices | None = None

    def reply(self, model: AskedModel, prompt: list[BaseMessage]) -> Part[AIMessage | None]:
        """A part of a node: the reply of this model; None when the run is asked to stop."""
        # A model under a name of its own is one that a middleware has put in place of the graph's.
        self.tries.model = "" if model.model is self.model.model else model.name

        def ask(bounds: CallBounds) -> Part[AIMessage | None]:
            options = options_of(model.offers[self.offered])
            shown = last_step(model.model, prompt, options, self.run.deps)
            chunks = yield from _streamed(model.offers, self.placed, shown, self.offered, bounds, self.tries)
            return _reply_of(chunks, self.run)

        try:
            return (yield from try_model(model, self._bounds(), self.tries, ask))
        except WaitEnded:
            return None
        except Exception as error:
            if (reply := refused_reply(error)) is None:
                raise
            return _reply_of([reply], self.run)

    def _bounds(self) -> CallBounds:
        """The bounds of a call, by what the output of its model costs."""
        bound, own = self.watch.tokens, self.run.limits.prices
        if self.prices is None or own is None or bound is None or bound[1] is not EarlyEnd.COST:
            return self.watch
        ratio = own.output / (self.prices.output or own.output)
        return replace(self.watch, tokens=(bound[0] * ratio, EarlyEnd.COST))


def _streamed(
    offers: Bound,
    placed: Callable[[Any], Runnable[Any, Any]],
    prompt: list[BaseMessage],
    offered: ToolChoice,
    bounds: CallBounds,
    tries: Tries,
) -> Part[list[BaseMessage]]:
    """The reply; without streaming if the provider refuses to stream, with a looser tool choice if it rejects
    the requested one, and with text in the place of pictures and documents in results if it may have rejected
    these. A call that has returned nothing is retried once: such a connection is often dead, and no part of a
    reply was shown."""
    silent, watch, choice = False, bounds, offered
    while True:
        models = offers.unstreamed if tries.unstreamed else offers
        try:
            chunks: list[BaseMessage] = yield Stream(placed(models[choice]), prompt, watch)
            return chunks
        except Exception as error:
            bounds.heard = watch.heard
            if refused_reply(error) is not None:
                raise
            if tries.stays_without_streaming(error):
                # The same request, to a model that does not stream.
                pass
            elif (looser := _looser(models, choice, error)) is not None:
                choice = looser
            elif (text := shown_after(error, prompt)) is not None:
                prompt = text
            elif silent or not isinstance(error, Silent) or watch.heard:
                raise
            else:
                silent = True
            # A call that was abandoned keeps its own.
            watch = watch.renewed()


def _looser(models: Bound, refused: ToolChoice, error: Exception) -> ToolChoice | None:
    """A looser choice of tools that makes another request; None if the provider has not rejected this one."""
    if "tool_choice" not in str(error).replace(" ", "_").lower():
        return None
    choice = LOOSER.get(refused)
    while choice is not None and models[choice] is models[refused]:
        choice = LOOSER.get(choice)
    return choice


def _failed(
    state: AgentState, run: NodeContext, shown: FittedPrompt, error: BaseException, tries: Tries
) -> Report:
    if is_too_long(error) and (squeezed := _squeezed(state, shown)):
        return Report(Event.TOO_LONG, {"too_long": squeezed})
    said = advise(error, secrets_of(*run.model.offers.values()))
    if tries.again:
        said = f"{said} It was tried {tries.again + 1} times, with {tries.waited:.1f} seconds between."
    ending = Ending(task=state.get("task", ""), status="error", reason="model_error", error=said)
    if tries.again:
        ending |= {"retries": tries.again, "seconds_retrying": round(tries.waited, 3)}
    return Report(Event.FAILED, {"ending": ending})


def _squeezed(state: AgentState, shown: FittedPrompt) -> TooLong | None:
    """Half of the prompt as the new budget. None if the same history was already too long before."""
    task, after, before = state.get("task", ""), state["messages"][-1].id or "", state.get("too_long")
    if before and (before["task"], before["after"]) == (task, after):
        return None
    return TooLong(task=task, after=after, budget=(shown.size + shown.beyond) // 2)


def _reply_of(chunks: Sequence[Any], run: NodeContext) -> AIMessage | None:
    """The reply; None if the run was asked to stop. Raises an error if there is no reply."""
    if not chunks:
        raise ValueError("the model's stream ended without a reply")
    if run.draining and isinstance(chunks[-1], AIMessage) and guard_notes(chunks[-1]).get("stopped"):
        return None
    message = received(chunks)
    if (error := unfinished(message)) is not None:
        raise error
    return message


def _replied(
    state: AgentState,
    run: NodeContext,
    call: ModelCall,
    message: AIMessage | None,
    begun: float,
) -> Report:
    if message is None:
        return Report(Event.STOPPED)
    ended, size = clock.now(), call.shown.size
    notes = {
        **marks(message),
        "at": ended,
        "seconds": ended - begun,
        "shown": size,
        **call.tries.marks(),
    }
    if call.names is not None:
        notes["offered"] = list(call.names)
    if call.offered is ToolChoice.CONTROLS:
        notes["controls_only"] = True
    if call.prices is not None and (more := _dearer(message, call.prices, run)):
        notes["dearer"] = more
    message.response_metadata = {**message.response_metadata, KEY: notes}
    taken = run.reader(state).index.places
    if message.id is None or message.id in taken:
        message.id = f"{message.id or 'reply'}-{len(state['messages'])}"
    if notes.get("ended") == EarlyEnd.SIZE:
        return _too_large(state, run, message)
    return Report(Event.REPLIED, {"messages": [slim(message)]})


def _dearer(message: AIMessage, prices: Prices, run: NodeContext) -> float:
    """What the reply costs at these prices above what the limits count for it."""
    if run.limits.prices is None or message.usage_metadata is None:
        return 0.0
    used = of_reply(message, lambda: (0, 0))
    return prices.cost(used) - run.limits.prices.cost(used)


def _too_large(state: AgentState, run: NodeContext, message: AIMessage) -> Report:
    """Ends the task after a reply that is too large: none of its calls run; its complete parts are kept, and
    `finish` answers its calls."""
    messages = append_messages(state["messages"], [message])
    task = run.task({**state, "messages": messages})
    assert task.last is not None, "the reply was just added"
    message = named_calls(task.last, task.call_ids) or message
    said = (
        f"The model's reply grew to more than {REPLY_CHARS:,} characters, and was ended there; "
        "go on, and it is asked again."
    )
    ending = Ending(task=task.id, status="error", reason="model_error", error=said)
    return Report(Event.FAILED, {"messages": [slim(message)], "ending": ending})
