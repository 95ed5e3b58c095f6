"""An answer goes to its wait or is refused: hostile answers, by every way in, on both databases.

A refused one changes nothing that is saved, and the wait can be answered properly afterwards. One that is
delivered was made sound: the thread can be read and goes on, and both databases hold the same.
"""

import asyncio
import json
import math
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import (
    BadAnswer,
    Graph,
    Session,
    Storage,
    ThreadError,
    TooLate,
    build_graph,
    postgres_storage,
    sqlite_storage,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.benches.cli import ASKS, Bench
from tests.support.benches.web import WebBench

TASK: Any = {"messages": [("user", "Do it.")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}
NOBODY = "0" * 32
EXAMPLE = Path(__file__).parents[2] / "examples" / "support"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "postgres":
        opened: Storage = postgres_storage(request.getfixturevalue("postgres_url"))
    else:
        opened = sqlite_storage(tmp_path / "t.sqlite")
    with opened:
        yield opened


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def edited(name: str = "pay", **args: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "edited_action": {"name": name, "args": args}}]}


APPROVE = {"decisions": [{"type": "approve"}]}
WAITS: dict[str, tuple[Any, Any]] = {
    # What the model does, and a proper answer.
    "question": (call("ask_user", question="Which?", options=["red", "green"]), "green"),
    "approval": (call("pay", to="bob", amount=3), APPROVE),
    "action": (call("run_tests", folder="a"), {"output": "3 passed"}),
    "finish": (call("finish_task", summary="Done.", requires_user_confirmation=True), "yes"),
}


class Refused(NamedTuple):
    wait: str
    answer: Any


REFUSED: dict[str, Refused] = {
    # A question: a number names an option, and words of a decision are none.
    "option 0": Refused("question", 0),
    "option 3 of 2": Refused("question", 3),
    "option -1": Refused("question", -1),
    "option '3'": Refused("question", "3"),
    "option ' 3 '": Refused("question", " 3 "),
    "option '+0'": Refused("question", "+0"),
    "option 3.0": Refused("question", 3.0),
    "an option of many digits": Refused("question", "9" * 5000),
    "an option too large to count": Refused("question", 10**30),
    "an option in a wrapping": Refused("question", {"answer": 3}),
    "an option in an inbox's wrapping": Refused("question", [{"type": "response", "args": "3"}]),
    "an option as a decision's message": Refused(
        "question", {"decisions": [{"type": "respond", "message": "3"}]}
    ),
    "a decision on a question": Refused("question", APPROVE),
    "an edit of a question": Refused("question", edited(to="ada", amount=1)),
    "a rejection of a question": Refused("question", {"type": "reject", "message": "no"}),
    "two decisions on a question": Refused("question", {"decisions": [{"type": "approve"}] * 2}),
    "a question answered too deep": Refused("question", deep(5000)),
    "a question answered with too much": Refused("question", ["x" * 1000] * 200_000),
    # An approval: one decision for each call, and arguments that fit.
    "no word of a decision": Refused("approval", "perhaps"),
    "a number": Refused("approval", 7),
    "nothing": Refused("approval", ""),
    "null": Refused("approval", None),
    "an empty document": Refused("approval", {}),
    "an empty list": Refused("approval", []),
    "no decisions": Refused("approval", {"decisions": []}),
    "decisions that are null": Refused("approval", {"decisions": None}),
    "decisions that are text": Refused("approval", {"decisions": "approved by all of us"}),
    "a decision that is any text": Refused("approval", {"decisions": ["perhaps"]}),
    "a list of any text": Refused("approval", ["aprove"]),
    "a decision that is null": Refused("approval", {"decisions": [None]}),
    "a decision that is a number": Refused("approval", {"decisions": [1]}),
    "a decision without a type": Refused("approval", {"decisions": [{}]}),
    "an unknown decision": Refused("approval", {"decisions": [{"type": "shout"}]}),
    "a type that is a list": Refused("approval", {"decisions": [{"type": ["approve"]}]}),
    "two decisions for one call": Refused("approval", {"decisions": [{"type": "approve"}] * 2}),
    "a decision for another call": Refused("approval", {"decisions": [{"type": "approve", "call_id": "x"}]}),
    "an id of something else shown": Refused("approval", "approve@0000000000"),
    "JSON cut off": Refused("approval", '{"decisions": ['),
    "the words of an option": Refused("approval", {"answer": "bob"}),
    "an observation": Refused("approval", {"output": "paid"}),
    "an edit without arguments": Refused("approval", {"decisions": [{"type": "edit"}]}),
    "an edit with null": Refused(
        "approval", {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": None}}]}
    ),
    "an edit with a list": Refused(
        "approval", {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": [1]}}]}
    ),
    "an edit that is text": Refused("approval", {"decisions": [{"type": "edit", "edited_action": "pay"}]}),
    "an edit of another tool": Refused("approval", edited("run_tests", folder="a")),
    "an edit of nothing": Refused("approval", edited()),
    "an edit with a wrong type": Refused("approval", edited(to="ada", amount="much")),
    "an edit with null for a number": Refused("approval", edited(to="ada", amount=None)),
    "an edit with a missing argument": Refused("approval", edited(to="ada")),
    "an edit beyond the schema": Refused("approval", edited(to="ada", amount=1, secretly=True)),
    "an edit of __proto__": Refused("approval", edited(to="ada", amount=1, __proto__={"admin": True})),
    "an edit of self": Refused("approval", edited(to="ada", amount=1, self="x")),
    "an edit with half a character in a name": Refused(
        "approval", edited("pay", **{"to": "ada", "amount": 1, "\ud800": 1})
    ),
    "an edit with NaN": Refused("approval", edited(to="ada", amount=math.nan)),
    "an edit with infinity": Refused("approval", edited(to="ada", amount=math.inf)),
    "an edit with a fraction": Refused("approval", edited(to="ada", amount=1.5)),
    "an edit with a huge number": Refused("approval", edited(to="ada", amount=10**400)),
    "an edit with a number of 65 bits": Refused("approval", edited(to="ada", amount=2**65)),
    "an edit too deep": Refused("approval", edited(to="ada", amount=1, note=deep(5000))),
    "an edit with too much": Refused("approval", edited(to="x" * 200_000_000, amount=1)),
    # A call that is handed over: somebody has observed something.
    "decisions for an action": Refused("action", APPROVE),
    "a rejection of an action": Refused("action", {"decisions": [{"type": "reject", "message": "no"}]}),
    "a decision alone for an action": Refused("action", {"type": "approve"}),
    "a list of decisions for an action": Refused("action", [{"type": "accept"}]),
    "decisions as JSON for an action": Refused("action", '{"decisions": [{"type": "approve"}]}'),
    "an edit of an action": Refused("action", edited("run_tests", folder="b")),
    "an observation too deep": Refused("action", {"output": deep(5000)}),
    "an observation with too much": Refused("action", ["x" * 1000] * 200_000),
    # A finish.
    "nothing about a finish": Refused("finish", ""),
    "null about a finish": Refused("finish", None),
    "an edit of a finish": Refused("finish", edited("finish_task", summary="More.")),
    "two decisions on a finish": Refused("finish", {"decisions": [{"type": "approve"}] * 2}),
    "an unknown decision on a finish": Refused("finish", {"decisions": [{"type": "shout"}]}),
}


class Delivered(NamedTuple):
    wait: str
    answer: Any
    reads: str
    """What the model reads of it."""


DELIVERED: dict[str, Delivered] = {
    "an option by number": Delivered("question", 2, "green"),
    "an option by text of a number": Delivered("question", " 1 ", "red"),
    "an option by letter": Delivered("question", "b", "green"),
    "an option by its text": Delivered("question", "red", "red"),
    "free text": Delivered("question", "neither of them", "neither of them"),
    "a letter of no option": Delivered("question", "z", "z"),
    "half a character": Delivered("question", "half \ud800", "half \ufffd"),
    "NUL": Delivered("question", "a\0b", "a\ufffdb"),
    "odd keys": Delivered(
        "question", {"__proto__": {"x": 1}, "a\ud800": 2}, '{"__proto__": {"x": 1}, "a\ufffd": 2}'
    ),
    "an edit": Delivered("approval", edited(to="ada", amount=2), "ada was paid 2"),
    "an edit with half a character": Delivered(
        "approval", edited(to="\udfff", amount=2), "\ufffd was paid 2"
    ),
    "an edit with NUL": Delivered("approval", edited(to="a\0", amount=2), "a\ufffd was paid 2"),
    "a reason with half a character": Delivered("approval", "reject: \ud800 no", "\ufffd no"),
    "an observation": Delivered("action", {"output": "\ud800 3 passed\0"}, "\ufffd 3 passed\ufffd"),
    "an observation as text": Delivered("action", "approve", "approve"),
    "what is wrong with a finish": Delivered("finish", "not \ud800 yet", "not \ufffd yet"),
}


def is_kept(write: tuple[str, str, Any]) -> bool:
    """Whether a write counts: of an edit that the tool refuses, LangGraph keeps the error, for nobody."""
    return write[1] != "__error__"


class World:
    """A thread that waits, and what its tools did."""

    def __init__(self, storage: Storage, wait: str) -> None:
        self.storage, self.paid = storage, list[tuple[str, int]]()
        self.wait = wait
        self.graph = self.build(build_graph)
        self.session = Session(self.graph, "t")

    def build(self, build: Callable[..., Graph]) -> Graph:
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return f"{to} was paid {amount}"

        def run_tests(folder: str) -> str:
            """Run the tests, in the editor."""
            raise NotImplementedError

        first, _ = WAITS[self.wait]

        def step(messages: list[Any]) -> Any:
            begun = any(message.type == "tool" for message in messages)
            return call("finish_task", summary="Done.") if begun else first

        return build(
            ScriptedModel(step),
            [StructuredTool.from_function(tool) for tool in (pay, run_tests)],
            storage=self.storage,
            approvals={"pay": True, "run_tests": "hand_over"},
        )

    def begin(self) -> str:
        """The id of the wait."""
        (wait,) = self.graph.invoke(TASK, CONFIG)["__interrupt__"]
        return str(wait.id)

    def saved(self) -> Any:
        """All that is saved of the thread: its checkpoints with what waits, and its entries in the store."""
        checkpoints = [
            (found.config, repr(found.checkpoint), [*filter(is_kept, found.pending_writes or ())])
            for found in self.storage.checkpointer.list(CONFIG)
        ]
        entries = [
            (item.namespace, item.key, item.value) for item in self.storage.store.search((), limit=1000)
        ]
        return checkpoints, entries

    def told(self) -> str:
        """What the model was told last by a person or a tool."""
        messages = self.session.status().values["messages"]
        return "\n".join(message.text for message in messages if message.type == "tool")


Way = Callable[[World, str, Any], Any]


def by_stream(world: World, wait: str, answer: Any) -> Any:
    return list(world.graph.stream(Command(resume={wait: answer}), CONFIG))


def by_astream(world: World, wait: str, answer: Any) -> Any:
    async def run() -> Any:
        return [item async for item in world.graph.astream(Command(resume={wait: answer}), CONFIG)]

    return asyncio.run(run())


def by_events(world: World, wait: str, answer: Any) -> Any:
    return list(world.session.events(Command(resume={wait: answer})))


def by_http(world: World, wait: str, answer: Any) -> Any:
    make_app = runpy.run_path(str(EXAMPLE / "service.py"))["make_app"]
    client = TestClient(make_app(world.graph, world.storage))  # without its lifespan: the storage stays open
    try:
        body = json.dumps(answer)
    except RecursionError:
        body = "[" * 5000 + "]" * 5000
    response = client.post(
        f"/threads/t/waits/{wait}", content=body, headers={"content-type": "application/json"}
    )
    # What no JSON reader takes does not reach the thread.
    kinds: dict[int, Any] = {400: BadAnswer, 404: ThreadError, 409: TooLate, 422: BadAnswer}
    if kind := kinds.get(response.status_code):
        raise kind(response.text)
    assert response.status_code == 200
    return response.json()


WAYS: dict[str, Way] = {
    "invoke": lambda world, wait, answer: world.graph.invoke(Command(resume={wait: answer}), CONFIG),
    "ainvoke": lambda world, wait, answer: asyncio.run(
        world.graph.ainvoke(Command(resume={wait: answer}), CONFIG)
    ),
    "stream": by_stream,
    "astream": by_astream,
    "Session.resume": lambda world, wait, answer: world.session.resume(answer, wait, by="ada"),
    "Session.events": by_events,
    "HTTP": by_http,
}


@pytest.fixture(autouse=True)
def _service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))


def refuse_all(world: World, interrupt_id: str, way: Way) -> None:
    """Fails unless each hostile answer to what the thread waits for is refused, and nothing changes."""
    before, wrong = world.saved(), []
    for case, refused in REFUSED.items():
        if refused.wait != world.wait:
            continue
        try:
            found: Any = way(world, interrupt_id, refused.answer)
            wrong.append(f"{case}: taken: {str(found)[-200:]}")
        except BadAnswer as error:
            if len(str(error)) > 1000:
                wrong.append(f"{case}: {len(str(error))} characters")
        except Exception as error:  # noqa: BLE001  any other is wrong
            wrong.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
        if world.saved() != before:
            wrong.append(f"{case}: something has changed")
            break
    assert wrong == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wait", WAITS)
def test_an_answer_that_does_not_fit_is_refused_and_changes_nothing(
    storage: Storage, wait: str, way: str
) -> None:
    world = World(storage, wait)
    interrupt_id = world.begin()
    refuse_all(world, interrupt_id, WAYS[way])
    assert world.session.status().condition == "waiting"
    assert world.session.history() is not None
    WAYS[way](world, interrupt_id, WAITS[wait][1])
    status = world.session.status()
    assert status.outcome is not None
    assert (status.outcome.status, len(world.paid)) == ("success", 1 if wait == "approval" else 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", DELIVERED)
def test_an_answer_that_fits_is_delivered_sound(storage: Storage, case: str, way: str) -> None:
    wait, answer, reads = DELIVERED[case]
    world = World(storage, wait)
    WAYS[way](world, world.begin(), answer)
    assert reads in world.told()
    assert len(world.paid) == ("paid" in reads)
    status = world.session.status()
    assert status.outcome is not None
    assert status.outcome.status == "success"
    # It can be read in every way, and goes on.
    assert world.session.history()
    assert world.graph.get_state(CONFIG).values["messages"]
    assert world.storage.threads("ended")[0].thread_id == "t"
    assert world.graph.invoke(TASK, CONFIG)["outcome"]["status"] == "success"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wait", WAITS)
def test_an_answer_for_nobody_is_too_late(storage: Storage, wait: str, way: str) -> None:
    world, proper = World(storage, wait), WAITS[wait][1]
    interrupt_id = world.begin()
    before = world.saved()
    with pytest.raises(TooLate):
        WAYS[way](world, NOBODY, proper)
    assert world.saved() == before
    WAYS[way](world, interrupt_id, proper)
    after = world.saved()
    for late in (interrupt_id, NOBODY):
        with pytest.raises(TooLate):
            WAYS[way](world, late, proper)
    assert world.saved() == after
    assert len(world.paid) == (1 if wait == "approval" else 0)


def test_an_answer_beside_one_for_nobody_is_not_delivered(storage: Storage) -> None:
    world = World(storage, "approval")
    interrupt_id = world.begin()
    before = world.saved()
    both: Command[Any] = Command(resume={interrupt_id: "approve", NOBODY: "approve"})
    acts: list[Callable[[], Any]] = [
        lambda: world.graph.invoke(both, CONFIG),
        lambda: world.session.run(both),
        lambda: list(world.graph.stream(both, CONFIG)),
    ]
    for act in acts:
        with pytest.raises(TooLate):
            act()
        assert (world.saved(), world.paid) == (before, [])


def guarded_world(storage: Storage, wait: str) -> World:
    def build(model: Any, tools: Any, storage: Storage, approvals: Any) -> Any:
        asks: Any = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
        saved: dict[str, Any] = {"checkpointer": storage.checkpointer, "store": storage.store}
        return guarded(create_agent(model, tools[:1], middleware=[Guards(), asks], **saved))

    world = World(storage, wait)
    world.graph = world.build(build)
    return world


OF_INVOKE = ["invoke", "ainvoke", "stream", "astream"]


@pytest.mark.parametrize("way", OF_INVOKE)
@pytest.mark.parametrize("wait", ["question", "finish"])
def test_the_same_under_guards(storage: Storage, wait: str, way: str) -> None:
    world = guarded_world(storage, wait)
    interrupt_id = world.begin()
    refuse_all(world, interrupt_id, WAYS[way])
    WAYS[way](world, interrupt_id, WAITS[wait][1])
    assert world.graph.get_state(CONFIG).values["outcome"]["status"] == "success"


@pytest.mark.parametrize("way", OF_INVOKE)
@pytest.mark.parametrize("wait", ["question", "approval", "finish"])
def test_an_answer_for_nobody_is_too_late_under_guards(storage: Storage, wait: str, way: str) -> None:
    """An approval there is LangChain's own."""
    world, proper = guarded_world(storage, wait), WAITS[wait][1]
    interrupt_id = world.begin()
    before = world.saved()
    with pytest.raises(TooLate):
        WAYS[way](world, NOBODY, proper)
    assert world.saved() == before
    WAYS[way](world, interrupt_id, proper)
    with pytest.raises(TooLate):
        WAYS[way](world, interrupt_id, proper)
    assert len(world.paid) == (1 if wait == "approval" else 0)


OPTIONS = ("0", "3", "-1", "+9", "9" * 500)


@pytest.mark.parametrize("answer", OPTIONS, ids=lambda answer: answer[:9])
def test_the_command_line_refuses_an_option_that_is_none(tmp_path: Path, answer: str) -> None:
    bench = Bench(tmp_path)
    bench.run()
    before = bench.json("show", "t1")
    told = bench("resume", "t1", "--", answer)
    assert (told.exit_code, "there is no option" in told.stderr) == (2, True)
    assert bench.json("show", "t1") == before
    assert bench("resume", "t1", "2").exit_code == 0
    assert bench.config.read_text() == "PORT = 9090\n"


@pytest.mark.parametrize("answer", OPTIONS, ids=lambda answer: answer[:9])
async def test_the_web_application_refuses_an_option_that_is_none(tmp_path: Path, answer: str) -> None:
    bench = WebBench(tmp_path)
    async with bench.served(ASKS) as opened:
        await opened.post("write", text="Change the port")
        await opened.rests()
        before = opened.messages()
        code, told = await opened.answer(answer)
        assert 400 <= code < 500
        assert "there is no option" in str(told)
        assert (opened.messages(), opened.status().condition) == (before, "waiting")
        await opened.answer("2")
        await opened.rests()
        assert opened.outcome()["status"] == "success"
