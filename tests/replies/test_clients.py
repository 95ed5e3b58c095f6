"""Each provider's client end to end, streamed, in `build_graph` and in `create_agent` with `Guards`: a reply
that broke off, was cut or was filtered pays nobody and ends nothing, and the model can make its calls anew.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, ModelRetries, build_graph
from signoff.guards import Guards
from tests.support.replies.providers import PROVIDERS, Provider
from tests.support.replies.wire import Event, WireReply
from tests.support.servers.fake_provider import FakeProvider

pytestmark = [
    pytest.mark.slow,
    # Of Google's own client in an event loop.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
]
LIMITS = Limits(turns=100)
FINISH = ("finish_task", '{"summary": "All is paid."}')
EARLY = ("finish_task", '{"summary": "Too early."}')


async def paid_by(
    provider: Provider, face: str, mode: str, script: Iterable[Iterable[Event]]
) -> tuple[list[int], dict[str, Any], int]:
    """What was paid, the outcome, and how many of the replies were asked for."""
    paid: list[int] = []

    def pay(to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        paid.append(amount)
        return f"paid {amount}"

    storage: Any = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    with FakeProvider([provider.answer(events) for events in script]) as server:
        model = provider.client(server.root)
        agent: Any
        if face == "build_graph":
            tries = ModelRetries(tries=9, first_wait=0.001)
            agent = build_graph(model, [pay], limits=LIMITS, model_retries=tries, **storage)
        else:
            # Bedrock's client raises for a reply without an end.
            retries = ModelRetryMiddleware(max_retries=9, initial_delay=0.001)
            agent = create_agent(model, [pay], middleware=[Guards(limits=LIMITS), retries], **storage)
        given: Any = {"messages": [("user", "Pay them.")]}
        how: Any = {"config": {"configurable": {"thread_id": "t"}}, "stream_mode": ["messages", "values"]}
        if mode == "sync":
            states = [state for kind, state in agent.stream(given, **how) if kind == "values"]
        else:
            states = [state async for kind, state in agent.astream(given, **how) if kind == "values"]
        asked = len(server.requests)
    return paid, states[-1]["outcome"], asked


def paying(provider: Provider, amount: int, *more: tuple[str, str], **reply: Any) -> list[Event]:
    arguments = f'{{"to": "ada", "amount": {amount}}}'
    given = {"reason": provider.runs[0], "size": 5, "usage": "each", **reply}
    return list(provider.events(WireReply(calls=(("pay", arguments), *more), **given)))


def broken(provider: Provider) -> dict[str, list[Event]]:
    """Streams that end too early, or in half of a call."""
    endless = paying(provider, 1, EARLY, reason="")
    cases = {"no end": endless, "a finish without an end": list(provider.events(WireReply(calls=(EARLY,))))}
    if not provider.named_last:
        cases["in the middle"] = endless[: max(1, len(endless) // 3)]
    if provider.calls != "objects":
        half = WireReply(calls=(("pay", '{"to": "ada", "amount": 10'),), reason=provider.runs[0])
        cases["half of the arguments"] = list(provider.events(half))
    return cases


every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
WAYS = [("build_graph", "sync"), ("Guards", "async"), ("build_graph", "async"), ("Guards", "sync")]
OTHERS = [pytest.param(*way, marks=pytest.mark.thorough) for way in WAYS[2:]]


@pytest.mark.parametrize(("face", "mode"), [*WAYS[:2], *OTHERS])
@every_provider
async def test_only_what_arrived_whole_is_paid(provider: Provider, face: str, mode: str) -> None:
    script = [*broken(provider).values(), paying(provider, 1000), paying(provider, 7, FINISH)]
    paid, outcome, asked = await paid_by(provider, face, mode, script)
    assert (paid, outcome["status"], outcome["summary"]) == ([1000, 7], "success", "All is paid.")
    assert asked == len(script)


@pytest.mark.sample(len(PROVIDERS))
@pytest.mark.parametrize(("face", "mode"), WAYS)
@every_provider
async def test_what_a_word_means_is_what_its_provider_documents(
    provider: Provider, face: str, mode: str
) -> None:
    """Between two that forbid is one that allows, since the second filter in a row ends a task."""
    bad = [paying(provider, at, EARLY, reason=word) for at, word in enumerate(provider.does_not_run)]
    allowed = [provider.runs[at % len(provider.runs)] for at in range(max(len(bad), len(provider.runs)))]
    good = [paying(provider, 1000 + at, reason=word) for at, word in enumerate(allowed)]
    script = [
        *chain.from_iterable(zip(bad, good, strict=False)),
        *good[len(bad) :],
        paying(provider, 7, FINISH),
    ]
    paid, outcome, asked = await paid_by(provider, face, mode, script)
    assert paid == [*range(1000, 1000 + len(good)), 7]
    assert (outcome["status"], outcome["summary"], asked) == ("success", "All is paid.", len(script))
