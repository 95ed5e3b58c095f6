"""The ways to call a model, for tests that must hold on each."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import Runnable

Model = Runnable[LanguageModelInput, AIMessage]
Ask = Callable[[Model, LanguageModelInput], AIMessage]


def total(chunks: Sequence[AIMessage]) -> AIMessage:
    parts = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    assert len(parts) == len(chunks)
    return add_ai_message_chunks(*parts)


def invoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return model.invoke(shown)


def ainvoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return asyncio.run(model.ainvoke(shown))


def stream(model: Model, shown: LanguageModelInput) -> AIMessage:
    return total(list(model.stream(shown)))


def astream(model: Model, shown: LanguageModelInput) -> AIMessage:
    async def collect() -> list[AIMessage]:
        return [chunk async for chunk in model.astream(shown)]

    return total(asyncio.run(collect()))


WAYS: list[Ask] = [invoke, ainvoke, stream, astream]
every_way = pytest.mark.parametrize("ask", WAYS)
