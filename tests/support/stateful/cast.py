"""The graph of the stateful test: a model and tools that do what the world of the example says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt

from signoff import Limits, build_graph
from signoff.models import ScriptedModel


@dataclass(frozen=True)
class Settings:
    """How a graph is built; `usual` is what the model says when it was told nothing.

    by_loop: whether the threads are driven in an event loop. streams: without, no reply is cut
    while it comes in.
    """

    limits: Limits = field(default_factory=lambda: Limits(turns=5))
    talk: Any = "balanced"
    unknown: Any = "tell"
    rounds: bool = False
    prompt_tokens: int | None = None
    usual: str = "finish"
    by_loop: bool = False
    streams: bool = True


class Stage(Protocol):
    """The world that a run shows in."""

    def say(self, messages: list[BaseMessage]) -> Any: ...

    def happen(self, name: str) -> str: ...

    def pay(self, name: str) -> str: ...


class Cast:
    """A graph that is built once for all worlds of the same settings: building takes longer than a run.

    It is copied for a world, with the world's database; `stage` is the world that it plays in now.
    """

    stage: Stage

    def __init__(self, settings: Settings) -> None:
        self.graph = build_graph(
            ScriptedModel(
                lambda messages: self.stage.say(messages),
                chunk_size=1_000,
                disable_streaming=not settings.streams,
            ),
            self._tools(),
            checkpointer=InMemorySaver(),
            store=InMemoryStore(),
            approvals={"pay": True},
            hand_over=["drive"],
            limits=settings.limits,
            talk=settings.talk,
            unknown_outcomes=settings.unknown,
            rounds=settings.rounds,
            prompt_tokens=settings.prompt_tokens,
            compaction="lines",
        )

    def _tools(self) -> list[BaseTool]:
        def act(name: str) -> str:
            """Act."""
            return self.stage.happen(name)

        def pay(name: str, more: str = "") -> str:
            """Pay."""
            return self.stage.pay(name)

        def wait(name: str) -> str:
            """Wait for a person, then act."""
            interrupt({"question": "May I?"})
            return self.stage.happen(name)

        def look(where: str) -> str:
            """Look."""
            return where

        def fail() -> str:
            """Fail."""
            raise ValueError("it failed")

        made: Mapping[str, tuple[str, Callable[..., str]]] = {
            "act": ("write", act), "drive": ("write", act), "pay": ("write", pay), "wait": ("write", wait),
            "look": ("read", look), "fail": ("read", fail),
        }  # fmt: skip
        return [
            StructuredTool.from_function(work, name=name, metadata={"kind": kind})
            for name, (kind, work) in made.items()
        ]


@lru_cache(maxsize=64)
def cast_of(settings: Settings) -> Cast:
    """The graph of these settings."""
    return Cast(settings)
