"""The ways to call a model, for tests that must hold on each."""

import asyncio
from collections.abc import Callable
from functools import reduce
from operator import add

import pytest
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

Model = Runnable[LanguageModelInput, AIMessage]
Ask = Callable[[Model, LanguageModelInput], AIMessage]


def invoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return model.invoke(shown)


def ainvoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return asyncio.run(model.ainvoke(shown))


def stream(model: Model, shown: LanguageModelInput) -> AIMessage:
    return reduce(add, model.stream(shown))


def astream(model: Model, shown: LanguageModelInput) -> AIMessage:
    async def collect() -> list[AIMessage]:
        return [chunk async for chunk in model.astream(shown)]

    return reduce(add, asyncio.run(collect()))


every_way = pytest.mark.parametrize("ask", [invoke, ainvoke, stream, astream])
