"""The client of all subjects that ask a provider over HTTP."""

from typing import Any

from langchain_openai import ChatOpenAI


def model_of(url: str, chunks: int, turns: int) -> Any:
    """A model whose replies have so many chunks, and which ends after so many turns."""
    address = f"{url}/{chunks}/{turns}/v1"
    return ChatOpenAI(model="m", base_url=address, api_key="none", stream_usage=True)
