"""Measures the cost of a long task with a provider's prompt cache, including compactions.

    python -m benchmarks.prompt_cost [--turns 100] [--budget 20000]

It runs one scripted task, with a tool call per turn, through Signoff and through `create_agent` with
LangChain's SummarizationMiddleware, both with the same prompt budget. The provider is simulated: for each
request, its cache serves the longest prefix, tools first, that it shares with any earlier request, at a tenth
of the price. Four characters count as a token.
"""

import argparse
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.tools import tool

from signoff import Limits, build_graph
from signoff.graph.texts import NOTE_DOWN
from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Seen

READ, CACHED, WRITTEN = 3.0, 0.30, 15.0
"""Dollars per million tokens."""
CHARS = 4
ARGUMENTS, RESULT, NOTES = 400, 1_600, 2_800
"""Lengths of a call's arguments, a tool result and a summary, in characters."""
ASKED = NOTE_DOWN.split(":")[0]
SYSTEM = "You look after a house. " * 40


def text_of(seed: str, size: int) -> str:
    """Returns unique text."""
    return " ".join(f"{seed}.{number}" for number in range(size))[:size]


@tool
def look(number: int, where: str) -> str:
    """Look at a place, and say what is there."""
    return text_of(f"found{number}", RESULT)


look.metadata = {"kind": "read"}


def _shared(one: str, other: str) -> int:
    """Returns the length of the common prefix."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_right(sizes, False, key=lambda size: one[:size] != other[:size])


@dataclass
class Provider:
    """The requests of one run, priced as they arrive. paid: tokens paid in full."""

    turns: int
    requests: list[str] = field(default_factory=list)
    paid: int = 0
    cached: int = 0
    written: int = 0
    summaries: int = 0
    done: int = 0

    def model(self, **options: Any) -> ScriptedModel:
        self.scripted = ScriptedModel(self.step, **options)
        return self.scripted

    def step(self, _: Sequence[BaseMessage]) -> Any:
        seen: Seen = self.scripted.seen[-1]
        text = json.dumps(
            {"tools": seen.tools, "messages": convert_to_openai_messages(seen.messages)}, ensure_ascii=False
        )
        shared = max((_shared(text, one) for one in self.requests), default=0)
        self.requests.append(text)
        read, hit = len(text) // CHARS, shared // CHARS
        if not seen.tools or seen.messages[-1].text.startswith(ASKED):
            self.summaries += 1
            parts: list[Any] = [text_of(f"notes{self.summaries}", NOTES)]
        elif self.done < self.turns - 1:
            self.done += 1
            parts = [call("look", number=self.done, where=text_of(f"where{self.done}", ARGUMENTS))]
        else:
            self.done += 1
            finishes = any(one["function"]["name"] == "finish_task" for one in seen.tools)
            parts = [call("finish_task", summary="All is seen.")] if finishes else ["All is seen."]
        wrote = sum(len(part if isinstance(part, str) else part.arguments) for part in parts) // CHARS
        self.paid += read - hit
        self.cached += hit
        self.written += wrote
        return reply(*parts, usage={
            "input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote,
            "input_token_details": {"cache_read": hit},
        })  # fmt: skip

    @property
    def dollars(self) -> float:
        return (self.paid * READ + self.cached * CACHED + self.written * WRITTEN) / 1e6


def of_signoff(turns: int, budget: int, compaction: Any) -> Provider:
    provider = Provider(turns)
    graph = build_graph(
        provider.model(), [look], system_prompt=SYSTEM, limits=Limits(turns=2 * turns),
        policy={"prompt_tokens": budget, "compaction": compaction},
    )  # fmt: skip
    outcome = graph.invoke({"messages": ["Look everywhere."]})["outcome"]
    assert (outcome["status"], outcome["turns"]) == ("success", turns), outcome
    assert outcome["usage"]["input_tokens"] == provider.paid + provider.cached
    return provider


def of_create_agent(turns: int, budget: int, **options: Any) -> Provider:
    """By default the middleware summarizes only the last 4,000 tokens of the old messages, starting at a user
    message. In one long task that is nothing: there is no summary, and the old turns are lost."""
    provider = Provider(turns)
    model = provider.model()
    summarises = SummarizationMiddleware(model=model, trigger=("tokens", budget), **options)
    agent: Any = create_agent(model, [look], system_prompt=SYSTEM, middleware=[summarises])
    result = agent.invoke({"messages": [("user", "Look everywhere.")]}, {"recursion_limit": 10 * turns + 100})
    assert isinstance(result["messages"][-1], AIMessage), "a task ends in words"
    assert provider.done == turns, provider.done
    return provider


def rows(turns: int, budget: int) -> dict[str, Provider]:
    return {
        "create_agent, SummarizationMiddleware": of_create_agent(turns, budget),
        "the same, with a summary of all": of_create_agent(turns, budget, trim_tokens_to_summarize=None),
        "Signoff, summary by the model": of_signoff(turns, budget, "model"),
        "Signoff, summary by lines": of_signoff(turns, budget, "lines"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the cost of a long task with a provider's prompt cache."
    )
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--budget", type=int, default=20_000, help="most tokens in a prompt")
    given = parser.parse_args()
    print(
        f"{given.turns} turns, a prompt of at most {given.budget:,} tokens, "
        f"{READ:g} / {CACHED:g} / {WRITTEN:g} dollars per million tokens (read, from the cache, written)"
    )
    for name, found in rows(given.turns, given.budget).items():
        print(
            f"{name:<40} {found.dollars:.3f} dollars: {found.paid:,} read, {found.cached:,} from the cache, "
            f"{found.written:,} written; {found.summaries} calls for a summary"
        )


if __name__ == "__main__":
    main()
