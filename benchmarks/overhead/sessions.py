"""What a session costs in tokens and dollars, with a provider that caches prefixes of prompts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import urlopen

from benchmarks.overhead.client import provider
from benchmarks.overhead.measure import Subject, Worker, workers
from benchmarks.overhead.targets import OWN, Result
from benchmarks.prompt_cost import CACHED, READ, WRITTEN
from benchmarks.prompt_tokens import o200k
from signoff.graph.errors import SetupError

LENGTHS = (20, 50, 100)
LONGEST, BUDGET = LENGTHS[-1], 20_000
"""The session with summaries: its turns, and the most tokens in a prompt."""
SUMMARISED = "create_agent, SummarizationMiddleware"
_OWN = Subject(OWN, "own_session")
_BARE = Subject("create_agent", "of_langchain_session", "langchain")
_DEEP = Subject("deepagents", "of_deepagents_session", "deepagents")
WHOLE = (
    _OWN,
    _BARE,
    _DEEP,
    Subject("pydantic-ai", "of_pydantic_ai_session", "pydantic-ai"),
    Subject("OpenAI Agents", "of_openai_agents_session", "openai-agents"),
)
SHORTENED = (
    _OWN,
    Subject("signoff, summary by lines", "own_session"),
    Subject(SUMMARISED, "of_langchain_session", "langchain"),
    Subject(f"{SUMMARISED}, a summary of all", "of_langchain_session", "langchain"),
    _DEEP,
)
MOST_MORE, MOST_DOLLARS = 550, 1.0
"""Tokens of the first request minus `create_agent`'s; dollars over `create_agent` with its summaries."""
PRICES = f"{READ:g} / {CACHED:.2f} / {WRITTEN:g} dollars per million tokens read, from the cache, written"


@dataclass(frozen=True)
class Session:
    """The tokens of one session. budget: the most in a prompt; None if there is no limit. first: those of the
    first request. read: those paid in full."""

    subject: str
    turns: int
    budget: int | None
    first: int
    read: int
    cached: int
    written: int
    summaries: int

    @property
    def dollars(self) -> float:
        return (self.read * READ + self.cached * CACHED + self.written * WRITTEN) / 1e6


def sessions(
    whole: Sequence[Subject],
    shortened: Sequence[Subject],
    lengths: Sequence[int] = LENGTHS,
    longest: int = LONGEST,
    budget: int = BUDGET,
) -> list[Session]:
    """Measures each length, and the longest with a budget. Scripts are deterministic, so one run is enough.

    Raises SetupError if tokens cannot be counted.
    """
    if o200k() is None:
        raise SetupError("Counting a session's tokens needs the encoding o200k: pip install bpe-openai")
    asked: list[tuple[Subject, int, int | None]] = [(one, turns, None) for turns in lengths for one in whole]
    asked += [(one, longest, budget) for one in shortened]
    with provider("session_provider") as url, workers([*whole, *shortened]) as by_name:
        return [
            _session(by_name[one.name], one.name, turns, most, url, number)
            for number, (one, turns, most) in enumerate(asked)
        ]


def _session(worker: Worker, name: str, turns: int, budget: int | None, url: str, number: int) -> Session:
    worker.begin(name, turns, None, url=f"{url}/{number}/{turns}/v1", budget=budget)
    told = worker.end()
    with urlopen(f"{url}/{number}") as answer:
        tally = json.load(answer)
    if (told["steps"], tally.pop("turns")) != (turns - 1, turns):
        raise RuntimeError(f"{name}, a session of {turns} turns: {told}")
    return Session(name, turns, budget, **tally)


def pricing(found: Sequence[Session]) -> list[Result]:
    """Returns the targets for which the figures exist."""
    by_key = {(one.subject, one.turns, one.budget): one for one in found}
    results = []
    own, bare = (by_key.get((name, LENGTHS[0], None)) for name in (OWN, _BARE.name))
    if own and bare:
        beside = "o200k; default settings with a checkpointer; the same tool and system prompt in both"
        name = f"tokens of the first request more than {_BARE.name}'s"
        results.append(Result(name, own.first - bare.first, MOST_MORE, "tokens", beside=beside))
    own, peer = (by_key.get((name, LONGEST, BUDGET)) for name in (OWN, SUMMARISED))
    if own and peer:
        beside = f'{PRICES}; compaction="model", as for a model with a known context'
        name = f"dollars of {LONGEST} turns over {SUMMARISED}, prompts of at most {BUDGET:,} tokens"
        results.append(Result(name, own.dollars / peer.dollars, MOST_DOLLARS, "times", beside=beside))
    return results
