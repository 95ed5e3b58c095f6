"""What Signoff's first request adds to `create_agent`'s: the control tools and the rules of the loop.

    python -m benchmarks.prompt_tokens

counts both in tokens of o200k, the encoding of OpenAI's models, and in characters, with the same working tool
and the same prompt. Counting tokens needs the package `bpe-openai`, which contains the encoding.
"""

import importlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from signoff import build_graph
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Seen

PROMPT = "You are a helpful assistant."
Count = Callable[[str], int]


@tool
def look(where: str) -> str:
    """Look at a place."""
    return where


look.metadata = {"kind": "read"}


def own(*, waits: bool = False) -> Seen:
    """Returns Signoff's first request. waits: with a checkpointer, so that questions can have deadlines."""
    with ScriptedModel([call("finish_task", summary="Done.")]) as model:
        graph = build_graph(
            model, [look], system_prompt=PROMPT, checkpointer=InMemorySaver() if waits else None
        )
        graph.invoke({"messages": ["Go."]}, {"configurable": {"thread_id": "t"}})
    return model.seen[0]


def of_create_agent() -> Seen:
    with ScriptedModel(["Done."]) as model:
        agent: Any = create_agent(model, [look], system_prompt=PROMPT)
        agent.invoke({"messages": [("user", "Go.")]})
    return model.seen[0]


def size(seen: Seen, count: Count) -> int:
    """Returns the tools in wire format, and the text of the messages."""
    tools = (json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in seen.tools)
    return sum(map(count, (*tools, *(message.text for message in seen.messages))))


def more(count: Count, *, waits: bool = False) -> int:
    """Returns how much longer Signoff's first request is."""
    return size(own(waits=waits), count) - size(of_create_agent(), count)


def o200k() -> Count | None:
    """Returns a function that counts tokens; None if the encoding is not available."""
    # It reads its files in a way that newer Python versions warn about.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            package: Any = importlib.import_module("bpe_openai")
        except ImportError:
            return None
        encoding = package.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


def main() -> int:
    count = o200k()
    if count is None:
        print("The encoding o200k is not installed: pip install bpe-openai", file=sys.stderr)
    for name, waits in (("without a checkpointer", False), ("with one", True)):
        tokens = f"{more(count, waits=waits)} tokens (o200k), " if count else ""
        print(f"More than create_agent's first request, {name}: {tokens}{more(len, waits=waits)} characters")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
