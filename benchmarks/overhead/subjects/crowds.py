"""What the subjects with many runs at once share: a model that takes its time, tools, and the run of all."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import StructuredTool
from scripted import Scripted, ran

MOST_TURNS = 30
"""The limit of turns and of tool calls where a subject has limits: Signoff's default."""
TICK_SECONDS = 0.01

One = Callable[[int], Awaitable[bool]]


class Waiting(Scripted):
    """The replies of `Scripted` for many runs at once, each after `seconds`; by the messages it knows which
    is due."""

    seconds: float

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        await asyncio.sleep(self.seconds)
        return self.result(sum(isinstance(message, AIMessage) for message in messages))


def step_tool(seconds: float, *, is_async: bool, kind: str = "read") -> StructuredTool:
    """The tool `step`, which takes so long; a sync one waits in its thread."""

    def step(n: int) -> str:
        """One step."""
        time.sleep(seconds)
        ran[0] += 1
        return f"ok {n}"

    async def astep(n: int) -> str:
        """One step."""
        if seconds:
            await asyncio.sleep(seconds)
        ran[0] += 1
        return f"ok {n}"

    if is_async:
        made = StructuredTool.from_function(coroutine=astep, name="step", description="One step.")
    else:
        made = StructuredTool.from_function(step)
    made.metadata = {"kind": kind}
    return made


def at_once(*groups: tuple[One, int]) -> Callable[[], dict[str, Any]]:
    """The run of all: of each group so many, each of which says whether it ended right.

    It tells how often the tool has run (`steps`), how many runs went wrong, with the first error, how long
    each group took, and how late the event loop was at worst, in seconds.
    """

    async def group(one: One, runs: int) -> tuple[float, list[Any]]:
        begun = time.perf_counter()
        ended = await asyncio.gather(*map(one, range(runs)), return_exceptions=True)
        return time.perf_counter() - begun, list(ended)

    async def run() -> dict[str, Any]:
        ran[0], late = 0, [0.0]
        ticker = asyncio.create_task(_tick(late))
        found = await asyncio.gather(*(group(*each) for each in groups))
        ticker.cancel()
        return {"steps": ran[0], "walls": [wall for wall, _ in found], "late": max(late), **_wrong(found)}

    return lambda: asyncio.run(run())


def _wrong(found: Sequence[tuple[float, list[Any]]]) -> dict[str, Any]:
    wrong = [ended for _, each in found for ended in each if ended is not True]
    errors = [f"{type(one).__name__}: {one}"[:300] for one in wrong if isinstance(one, BaseException)]
    return {"wrong": len(wrong), "why": next(iter(errors), "")}


async def _tick(late: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        late.append(time.perf_counter() - begun - TICK_SECONDS)
