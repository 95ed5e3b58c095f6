"""The client of all subjects that ask a provider over HTTP by LangChain, and who listens to them."""

from collections.abc import Callable
from typing import Any

from langchain_openai import ChatOpenAI
from listening import Ear
from scripted import MOST_STEPS, TASK, counted


def model_of(url: str, chunks: int, turns: int) -> Any:
    """A model whose replies have so many chunks, and which ends after so many turns."""
    address = f"{url}/{chunks}/{turns}/v1"
    return ChatOpenAI(model="m", base_url=address, api_key="none", stream_usage=True)


def called(agent: Any) -> Callable[[], int]:
    """A run without a listener."""
    return lambda: counted(lambda: agent.invoke(TASK, {"recursion_limit": MOST_STEPS}))


def listened(agent: Any, least: int) -> Callable[[], dict[str, float]]:
    """A run whose words somebody takes as they come."""

    def run() -> dict[str, float]:
        ear = Ear()

        def listen() -> None:
            for message, _ in agent.stream(TASK, {"recursion_limit": MOST_STEPS}, stream_mode="messages"):
                ear.hear(message.content)

        return ear.told(counted(listen), least)

    return run
