"""A model call within the bounds of its watch, streamed or whole, sync or in a loop."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from signoff.nodes.model.guard import is_guarded
from signoff.nodes.model.incoming import cut_short
from signoff.nodes.model.messages import in_loops, is_streamed, model_input, options_of
from signoff.nodes.model.stream import CallBounds, Silent, acall, acall_in_thread, call
from signoff.nodes.node import NodeContext


@dataclass(frozen=True, slots=True)
class Stream:
    """A model call within the bounds of its watch. Returns the received chunks: a single one if not streamed.

    Raises Silent when nothing arrived for too long.
    """

    model: Runnable[Any, Any]
    prompt: list[BaseMessage]
    watch: CallBounds

    def do(self, run: NodeContext) -> list[BaseMessage]:
        config, streamed = self._config(run), self._is_streamed(run)
        return self._ended(run, *call(self.watch, partial(self._chunks, config, streamed=streamed)))

    async def ado(self, run: NodeContext) -> list[BaseMessage]:
        config, streamed = self._config(run), self._is_streamed(run)
        if not in_loops(self.model, streamed=streamed):
            chunks = partial(self._chunks, config, streamed=streamed)
            return self._ended(run, *await acall_in_thread(self.watch, chunks))
        return self._ended(run, *await acall(self.watch, partial(self._achunks, config, streamed=streamed)))

    def _config(self, run: NodeContext) -> RunnableConfig:
        return run.config

    def _is_streamed(self, run: NodeContext) -> bool:
        return is_streamed(self.model, run.deps.streaming, run.config)

    def _chunks(self, config: RunnableConfig, *, streamed: bool) -> Iterator[BaseMessage]:
        given = model_input(self.model, self.prompt)
        if not streamed:
            yield self.model.invoke(given, config)
            return
        with closing(self.model.stream(given, config)) as chunks:  # type: ignore[type-var]  # it is a generator
            for chunk in chunks:
                yield chunk
                if self._took(chunk):
                    return

    async def _achunks(self, config: RunnableConfig, *, streamed: bool) -> AsyncIterator[BaseMessage]:
        given = model_input(self.model, self.prompt)
        if not streamed:
            yield await self.model.ainvoke(given, config)
            return
        async with aclosing(self.model.astream(given, config)) as chunks:  # type: ignore[type-var]  # as above
            async for chunk in chunks:
                yield chunk
                if self._took(chunk):
                    return

    def _took(self, chunk: BaseMessage) -> bool:
        """Whether the watch ends the reply at this chunk, for a model without a guard."""
        return not is_guarded(self.model) and bool(self.watch.took(len(chunk.text)))

    def _ended(
        self, run: NodeContext, chunks: list[BaseMessage], error: BaseException | None
    ) -> list[BaseMessage]:
        if self.watch.end is None:
            if error is not None:
                raise error
            return chunks
        # The call has ended normally, or its error only reports that it was cut off.
        tools = options_of(self.model).get("tools")
        found = cut_short(chunks, self.prompt, self.watch, run.deps.toolbox, tools)
        if found is None:
            raise Silent(f"no answer for {self.watch.silence:g} seconds (model_seconds)") from error
        return found
