"""An answer goes to its wait or is refused: hostile answers, by every way in.

A refused one changes nothing that is saved, and the wait can be answered properly afterwards. One that is
delivered was made sound: the thread can be read and goes on, on both databases.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import BadAnswer, Session, Storage, TooLate, build_graph, outcome_of
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.databases import storage_at
from tests.support.plays import GO, THREAD, results
from tests.support.ways import WAYS as WAYS_OF_RUNS

NOBODY = "0" * 32


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    is_postgres = getattr(request, "param", "sqlite") == "postgres"
    address = request.getfixturevalue("postgres_url") if is_postgres else str(tmp_path / "t.sqlite")
    with storage_at(address) as opened:
        yield opened


def on_postgres(*values: Any) -> Any:
    return pytest.param("postgres", *values, marks=pytest.mark.slow)


def deep(levels: int = 5000) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def decided(*types: Any) -> dict[str, Any]:
    return {"decisions": [{"type": name} for name in types]}


def edit(action: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "edited_action": action}]}


def edited(name: str = "pay", **args: Any) -> dict[str, Any]:
    return edit({"name": name, "args": args})


APPROVE = decided("approve")
LARGE = ["x" * 1000] * 20_000
WAITS: dict[str, tuple[Any, Any]] = {
    # What the model does, and a proper answer.
    "question": (call("ask_user", question="Which?", options=["red", "green"]), "green"),
    "approval": (call("pay", to="bob", amount=3), APPROVE),
    "action": (call("run_tests", folder="a"), {"output": "3 passed"}),
    "finish": (call("finish_task", summary="Done.", requires_user_confirmation=True), "yes"),
}
REFUSED: Mapping[str, Mapping[str, Any]] = {
    # A number names an option, and words of a decision are no answer.
    "question": {
        "option 3 of 2": 3,
        "an option as a decision's message": {"decisions": [{"type": "respond", "message": "3"}]},
        "a decision": APPROVE,
        "too deep": deep(),
    },
    # One decision for each call, and arguments that fit.
    "approval": {
        "no word of a decision": "perhaps",
        "null": None,
        "two decisions for one call": decided("approve", "approve"),
        "JSON cut off": '{"decisions": [',
        "an edit that is text": edit("pay"),
        "an edit with a wrong type": edited(to="ada", amount="much"),
        "an edit with a missing argument": edited(to="ada"),
        "an edit beyond the schema": edited(to="ada", amount=1, secretly=True),
        "an edit with half a character in a name": edit(
            {"name": "pay", "args": {"to": "ada", "amount": 1, "\ud800": 1}}
        ),
        "an edit with NaN": edited(to="ada", amount=math.nan),
        "an edit with a number of 65 bits": edited(to="ada", amount=2**65),
        "an edit with too much": edited(to="x" * 20_000_000, amount=1),
    },
    # Somebody has observed something.
    "action": {
        "decisions": APPROVE,
        "too deep": {"output": deep()},
        "too much": LARGE,
    },
    "finish": {
        "nothing": "",
        "null": None,
    },
}
DELIVERED: dict[str, tuple[str, Any, str]] = {
    # What waits, the answer, and what the model reads of it.
    "an option by number": ("question", 2, "green"),
    "half a character": ("question", "half \ud800", "half \ufffd"),
    "NUL": ("question", "a\0b", "a\ufffdb"),
    "odd keys": ("question", {"__proto__": {"x": 1}, "a\ud800": 2}, '{"__proto__": {"x": 1}, "a\ufffd": 2}'),
    "an edit with half a character": ("approval", edited(to="\udfff", amount=2), "\ufffd was paid 2"),
    "an observation": ("action", {"output": "\ud800 3 passed\0"}, "\ufffd 3 passed\ufffd"),
    "an observation as text": ("action", "approve", "approve"),
    "what is wrong with a finish": ("finish", "not \ud800 yet", "not \ufffd yet"),
}


def is_kept(write: tuple[str, str, Any]) -> bool:
    """Whether a write counts: of an edit that the tool refuses, LangGraph keeps the error, for nobody."""
    return write[1] != "__error__"


class World:
    """A thread that waits, and what its tools did. guards: the agent is LangChain's."""

    def __init__(self, storage: Storage, wait: str, *, guards: bool = False) -> None:
        self.storage, self.paid, self.wait = storage, list[tuple[str, int]](), wait
        self.first, self.proper = WAITS[wait]
        self.graph: Any = self.agent() if guards else self.machine()
        (self.id,) = (found.id for found in self.graph.invoke(GO, THREAD)["__interrupt__"])

    @property
    def session(self) -> Session[Any]:
        return Session(self.graph, "t")

    def step(self, messages: list[Any]) -> Any:
        begun = any(message.type == "tool" for message in messages)
        return call("finish_task", summary="Done.") if begun else self.first

    @property
    def tools(self) -> list[StructuredTool]:
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return f"{to} was paid {amount}"

        def run_tests(folder: str) -> str:
            """Run the tests, in the editor."""
            raise NotImplementedError

        return [StructuredTool.from_function(tool) for tool in (pay, run_tests)]

    def machine(self) -> Any:
        approvals: Any = {"pay": True, "run_tests": "hand_over"}
        return build_graph(ScriptedModel(self.step), self.tools, storage=self.storage, approvals=approvals)

    def agent(self) -> Any:
        middleware: list[Any] = [Guards(), HumanInTheLoopMiddleware(interrupt_on={"pay": True})]
        saved: Any = {"checkpointer": self.storage.checkpointer, "store": self.storage.store}
        return guarded(create_agent(ScriptedModel(self.step), self.tools[:1], middleware=middleware, **saved))

    def saved(self) -> Any:
        """All that is saved of the thread: its checkpoints with what waits, and its entries in the store."""
        checkpoints = [
            (found.config, repr(found.checkpoint), [*filter(is_kept, found.pending_writes or ())])
            for found in self.storage.checkpointer.list(THREAD)
        ]
        entries = self.storage.store.search((), limit=1000)
        # Not in the order of their times: how the thread stands is written whenever somebody has held it.
        return checkpoints, {(item.namespace, item.key): item.value for item in entries}

    def succeeds(self) -> None:
        """Fails unless the task has ended, and an approved call ran once."""
        assert outcome_of(self.graph.get_state(THREAD)).status == "success"
        assert len(self.paid) == (self.wait == "approval")


Way = Callable[[World, str, Any], Any]


def by_id(way: str) -> Way:
    return lambda world, wait, answer: WAYS_OF_RUNS[way](world.graph, Command(resume={wait: answer}), THREAD)


WAYS: dict[str, Way] = {
    **{way: by_id(way) for way in ("invoke", "astream", "Session.aevents")},
    "Session.resume": lambda world, wait, answer: world.session.resume(answer, wait, by="ada"),
    "Session.resume, to any": lambda world, wait, answer: world.session.resume(answer),
}


def refuse_all(world: World, way: Way, each: int = 1) -> None:
    """Fails unless hostile answers to what the thread waits for are refused, and nothing changes.

    each: 5 for every fifth of them.
    """
    before = world.saved()
    for name, answer in [*REFUSED[world.wait].items()][::each]:
        with pytest.raises(BadAnswer) as raised:
            way(world, world.id, answer)
        assert len(str(raised.value)) <= 1000, name
        assert world.saved() == before, name


EVERY_WAIT = [("sqlite", wait, "invoke") for wait in WAITS]
EVERY_WAY = [("sqlite", "approval", way) for way in WAYS if way != "invoke"]


@pytest.mark.parametrize(
    ("storage", "wait", "way"),
    [*EVERY_WAIT, *EVERY_WAY, on_postgres("approval", "invoke")],
    indirect=["storage"],
)
def test_an_answer_that_does_not_fit_is_refused_and_changes_nothing(
    storage: Storage, wait: str, way: str
) -> None:
    world, run = World(storage, wait), WAYS[way]
    refuse_all(world, run, each=1 if way == "invoke" else 5)
    assert world.session.status().condition == "waiting"
    run(world, world.id, world.proper)
    world.succeeds()


def test_so_it_is_under_guards(storage: Storage) -> None:
    world = World(storage, "question", guards=True)
    refuse_all(world, WAYS["invoke"])
    WAYS["astream"](world, world.id, world.proper)
    world.succeeds()


EVERYTHING = [("sqlite", name, way) for name, way in zip(DELIVERED, cycle(WAYS), strict=False)]
HARD = ["half a character", "NUL", "odd keys", "an edit with half a character"]


@pytest.mark.parametrize(
    ("storage", "name", "way"),
    [*EVERYTHING, *(on_postgres(name, "invoke") for name in HARD)],
    indirect=["storage"],
)
def test_an_answer_that_fits_is_delivered_sound(storage: Storage, name: str, way: str) -> None:
    wait, answer, reads = DELIVERED[name]
    world = World(storage, wait)
    WAYS[way](world, world.id, answer)
    status = world.session.status()
    assert reads in "\n".join(results(status.values))
    assert len(world.paid) == ("paid" in reads)
    # It can be read in every way, and goes on.
    assert status.outcome == outcome_of(world.graph.get_state(THREAD))
    assert world.session.history()
    assert world.storage.threads("ended")[0].thread_id == "t"
    assert world.graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


# An approval under guards is LangChain's own.
LATE = [*((wait, False) for wait in WAITS), ("approval", True)]


@pytest.mark.parametrize(("wait", "guards"), LATE)
def test_an_answer_for_nobody_is_too_late(storage: Storage, wait: str, guards: bool) -> None:
    world, run = World(storage, wait, guards=guards), WAYS["invoke"]
    before = world.saved()
    both: Command[Any] = Command(resume={world.id: world.proper, NOBODY: world.proper})
    with pytest.raises(TooLate):
        run(world, NOBODY, world.proper)
    with pytest.raises(TooLate):
        world.graph.invoke(both, THREAD)
    assert (world.saved(), world.paid) == (before, [])
    run(world, world.id, world.proper)
    after = world.saved()
    with pytest.raises(TooLate):
        run(world, world.id, world.proper)
    assert world.saved() == after
    world.succeeds()
