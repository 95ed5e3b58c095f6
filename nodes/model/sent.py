"""Makes what is sent to a provider, by one function: the last step before its client."""

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

from signoff.graph.prompt.prompt import CACHE_MARK
from signoff.graph.prompt.roles import as_sent
from signoff.nodes.model.shown import shown_to
from signoff.nodes.model.switched import taken_over
from signoff.nodes.node import Dependencies

# Anthropic refuses a request with more.
_MOST_CACHE_MARKS = 4


def last_step(
    model: Any, prompt: list[BaseMessage], options: Mapping[str, Any], deps: Dependencies
) -> list[BaseMessage]:
    """The prompt as `model` takes it, decided anew for each model that is asked: replies of other providers,
    results and roles in a form that its client knows, and then the marks for the provider's cache.

    options: of the request, whose tools may be marked, too.
    """
    sent = as_sent(shown_to(model, taken_over(model, prompt, deps.texts)), deps.texts)
    return _with_fewer_marks(sent, [options, *(options.get("tools") or ())])


def _with_fewer_marks(prompt: list[BaseMessage], beside: Iterable[Any]) -> list[BaseMessage]:
    """The prompt with no more cache marks than a request may have, people's own among them: those of the
    system prompt, and the last ones after it, since a mark covers everything before it. beside: what else of
    the request may be marked."""
    places = [
        (isinstance(message, SystemMessage), at, number)
        for at, message in enumerate(prompt)
        if isinstance(message.content, list)
        for number, block in enumerate(message.content)
        if _is_marked(block)
    ]
    over = len(places) + sum(map(_is_marked, beside)) - _MOST_CACHE_MARKS
    fewer = list(prompt)
    for _, at, number in sorted(places)[: max(0, over)]:
        blocks: list[Any] = list(fewer[at].content)
        blocks[number] = {key: value for key, value in blocks[number].items() if key != CACHE_MARK}
        fewer[at] = fewer[at].model_copy(update={"content": blocks})
    return fewer


def _is_marked(part: Any) -> bool:
    return isinstance(part, dict) and CACHE_MARK in part
