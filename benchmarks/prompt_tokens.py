"""What Signoff's first request holds more than `create_agent`'s: the control tools and the rules of the loop.

    python -m benchmarks.prompt_tokens

counts both in tokens of o200k, the encoding of OpenAI's models, and in characters, of the same working tool
and the same prompt. For tokens it takes the package `bpe-openai`, which carries the encoding.
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
    """Signoff's first request. waits: there is a checkpointer, so that questions may have deadlines."""
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
    """The tools as they go over the wire, and the words of the messages."""
    tools = (json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in seen.tools)
    return sum(map(count, (*tools, *(message.text for message in seen.messages))))


def more(count: Count, *, waits: bool = False) -> int:
    """How much more Signoff's first request holds."""
    return size(own(waits=waits), count) - size(of_create_agent(), count)


def o200k() -> Count | None:
    """Counts the tokens of a text; None where the encoding cannot be had."""
    # It reads its files by a way that newer Pythons warn of.
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
        print("The encoding o200k is not here: pip install bpe-openai", file=sys.stderr)
    for name, waits in (("without a checkpointer", False), ("with one", True)):
        tokens = f"{more(count, waits=waits)} tokens (o200k), " if count else ""
        print(f"More than create_agent's first request, {name}: {tokens}{more(len, waits=waits)} characters")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
