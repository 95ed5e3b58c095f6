"""A "done" over an unknown effect is refused once, unless a call has looked since; what it passes over
nevertheless stands in the outcome's open points."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import Failed, Session, Stop, build_graph, delegate, outcome_of
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "Pay Ada.")]}
PAY = call("pay", to="ada")
DONE = call("finish_task", summary="Ada was paid.")
PARTIAL = call("finish_task", summary="Perhaps.", outcome="partial")
HALF = call("finish_task", summary="Half of it.", completion_percentage=50)
POINT = "it is not known whether pay(to='ada') took effect"


class Bank:
    """The tools of an agent: a payment that does not come to its end the first time, and what can look."""

    def __init__(self) -> None:
        self.paying = asyncio.Event()

    async def pay(self, to: str) -> str:
        """Pay somebody."""
        if not self.paying.is_set():
            self.paying.set()
            await asyncio.sleep(60)
        return f"{to} is paid"

    async def note(self, text: str) -> str:
        """Note something down."""
        return text

    async def balance(self) -> str:
        """Read the balance."""
        return "Ada received 5 today."

    async def broken(self) -> str:
        """Look into what is closed."""
        raise OSError("it is closed")

    @property
    def tools(self) -> list[Any]:
        return [self.pay, self.note, self.balance, self.broken]


def saved() -> Any:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def machine(script: Sequence[Any], bank: Bank, limits: Any, **settings: Any) -> Any:
    return build_graph(ScriptedModel(script), bank.tools, limits=limits, **saved(), **settings)


def plain_guards(script: Sequence[Any], bank: Bank, limits: Any) -> Any:
    return create_agent(ScriptedModel(script), bank.tools, middleware=[Guards(limits)], **saved())


def guarded_agent(script: Sequence[Any], bank: Bank, limits: Any) -> Any:
    return guarded(plain_guards(script, bank, limits))


AGENTS = {"the machine": machine, "plain Guards": plain_guards, "guarded": guarded_agent}


async def cut_short(graph: Any, bank: Bank) -> None:
    """Runs the graph until it is cancelled within the payment."""
    run = asyncio.ensure_future(graph.ainvoke(GO, THREAD))
    await asyncio.wait([asyncio.ensure_future(bank.paying.wait()), run], return_when="FIRST_COMPLETED")
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


@dataclass
class Claims:
    """What the model says once it has read that the effect is unknown, how many finishes of it are refused
    for that, and what the outcome lists."""

    then: Sequence[Any]
    refused: int
    points: list[str] = field(default_factory=list)
    turns: int = 9
    claim: str = "done"
    answers: Sequence[Any] = field(default_factory=list)


CLAIMS = {
    "done at once, twice": Claims([DONE, DONE], 1, [POINT]),
    "a look": Claims([call("balance"), DONE], 0),
    "a look after the refusal": Claims([DONE, call("balance"), DONE], 1),
    "another effect could have looked": Claims([call("note", text="x"), DONE], 0),
    "it is done again": Claims([PAY, DONE], 0),
    "a look that fails": Claims([call("broken"), DONE, DONE], 1, [POINT]),
    "only a thought": Claims([call("think", thought="Hm."), DONE, DONE], 1, [POINT]),
    "only words": Claims([{"text": "It is done."}, DONE, DONE], 1, [POINT]),
    "a call that does not run": Claims([call("no_such_tool"), DONE, DONE], 1, [POINT]),
    "a person is asked": Claims([call("ask_user", question="Was she?"), DONE], 0, answers=["Yes."]),
    "an honest claim": Claims([PARTIAL], 0, claim="partial"),
    "a phase, then done": Claims([HALF, DONE, DONE], 1, [POINT]),
    "a look before a phase": Claims([call("balance"), HALF, DONE], 0),
    "the last turn": Claims([DONE], 0, [POINT], turns=2),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", CLAIMS)
async def test_a_claim_over_an_unknown_effect(name: str, agent: str) -> None:
    case, bank = CLAIMS[name], Bank()
    script = [PAY, *(one["text"] if isinstance(one, dict) else one for one in case.then)]
    graph = AGENTS[agent](script, bank, {"turns": case.turns})
    await cut_short(graph, bank)
    result = await graph.ainvoke(None, THREAD)
    for answer in case.answers:
        result = await graph.ainvoke(Command(resume=answer), THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.claim, outcome.refusals) == ("success", case.claim, case.refused)
    assert (outcome.open_points, outcome.pending_issues) == (case.points, [])
    assert outcome.changes[0].came == "unknown"
    told = [message.text for message in result["messages"] if message.text.startswith("Refused")]
    assert [text for text in told if POINT in text] == told


async def test_in_rounds_and_before_a_check() -> None:
    bank, checked = Bank(), list[str]()

    def check(claim: Any) -> bool:
        checked.append(claim["summary"])
        return True

    script = [PAY, DONE, call("think", thought="Once more."), DONE]
    graph = machine(script, bank, {"turns": 9}, rounds=True, checks=[check])
    await cut_short(graph, bank)
    outcome = outcome_of(await graph.ainvoke(None, THREAD))
    assert (outcome.refusals, outcome.open_points, checked) == (1, [POINT], ["Ada was paid."])


async def test_what_a_delegate_passes_over_is_listed_above() -> None:
    bank = Bank()
    clerk = build_graph(ScriptedModel([PAY, DONE, DONE]), bank.tools)
    helper = delegate("clerk", clerk, description="Pays.")
    graph = build_graph(ScriptedModel([call("clerk", task="Pay."), DONE]), [helper], **saved())
    await cut_short(graph, bank)
    result = await graph.ainvoke(None, THREAD)
    outcome = outcome_of(result)
    assert (outcome.refusals, outcome.open_points) == (0, [f"clerk / {POINT}"])
    assert POINT in next(message.text for message in result["messages"] if isinstance(message, ToolMessage))


async def test_a_stopped_task_says_what_may_have_run() -> None:
    bank = Bank()
    graph = machine([PAY], bank, {"turns": 9})
    await cut_short(graph, bank)
    ended = await Session(graph, "t").arun(Stop())
    assert isinstance(ended, Failed)
    outcome = ended.outcome
    assert [change.came for change in outcome.changes] == ["unknown"]
    assert outcome.open_work == []


PERSONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "sends it back": (lambda _: {"type": "reject", "message": "It is paid."}, [DONE]),
    "says what came of it": (lambda _: {"type": "respond", "message": "It is paid."}, [DONE]),
    "has it run once more": (lambda _: "approve", [DONE]),
}


@pytest.mark.parametrize("name", PERSONS)
async def test_what_a_person_was_asked_about_is_not_asked_again(name: str) -> None:
    bank, (answer, then) = Bank(), PERSONS[name]
    graph = machine([PAY, *then], bank, {"turns": 9}, unknown_outcomes="ask")
    await cut_short(graph, bank)
    (pending,) = (await graph.ainvoke(None, THREAD))["__interrupt__"]
    result = await graph.ainvoke(Command(resume={pending.id: answer(pending)}), THREAD)
    outcome = outcome_of(result)
    assert (outcome.status, outcome.refusals, outcome.open_points) == ("success", 0, [])
    told = next(message.text for message in result["messages"] if isinstance(message, ToolMessage))
    assert "not run" not in told.lower()
