"""What a run is given in its `context`: Signoff's own fields, and those of a type of the user's own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NotRequired

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import get_runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import Limits, Session, SetupError, build_graph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step
from signoff.session.decisions import Finished

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


class Wire:
    """A value that no form can show."""


@dataclass(frozen=True)
class Account:
    user_id: str
    level: int = 1
    tags: list[str] = field(default_factory=list)
    wire: Wire | None = None


class AccountModel(BaseModel):
    user_id: str = Field(min_length=2, description="Whose account it is.")
    level: int = 1


class AccountDict(TypedDict):
    user_id: str
    level: NotRequired[int]


Seen = list[Any]


def looking(seen: Seen) -> Callable[..., str]:
    @tool
    def look(runtime: ToolRuntime[Any, Any]) -> str:
        """Look at the context."""
        seen.append(runtime.context)
        return "seen"

    return look  # type: ignore[return-value]  # a tool is what the graph takes


def looks(schema: Any, seen: Seen, *more: Step, **options: Any) -> Graph:
    """A graph whose only call looks at the context of its run."""
    steps: list[Step] = [call("look"), *more, FINISH]
    return build_graph(ScriptedModel(steps), [looking(seen)], context_schema=schema, **options)


WIRE = Wire()
GIVEN: dict[str, tuple[Any, Any, Any]] = {
    "a mapping for a dataclass": (Account, {"user_id": "ann", "level": 2}, Account("ann", 2)),
    "what has no JSON form": (Account, {"user_id": "ann", "wire": WIRE}, Account("ann", wire=WIRE)),
    "a dataclass": (Account, Account("ann"), Account("ann")),
    "a mapping for a model": (AccountModel, {"user_id": "ann"}, AccountModel(user_id="ann")),
    "a model": (AccountModel, AccountModel(user_id="ann"), AccountModel(user_id="ann")),
    "a mapping for a TypedDict": (AccountDict, {"user_id": "ann"}, {"user_id": "ann"}),
    "beside Signoff's own": (Account, {"user_id": "ann", "turns": 9, "model": ""}, Account("ann")),
    "another kind of mapping": (Account, MappingProxyType({"user_id": "ann"}), Account("ann")),
    "none": (Account, None, None),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", GIVEN)
def test_a_tool_gets_the_users_part_as_the_users_type(case: str, way: str) -> None:
    schema, given, wanted = GIVEN[case]
    seen: Seen = []
    graph = looks(schema, seen)
    if way == "sync":
        result = graph.invoke(GO, context=given)
    else:
        result = asyncio.run(graph.ainvoke(GO, context=given))
    assert result["outcome"]["status"] == "success"
    assert seen == [wanted]
    assert type(seen[0]) is type(wanted)


def test_an_instance_is_handed_on_as_it_is() -> None:
    seen: Seen = []
    account = Account("ann")
    looks(Account, seen).invoke(GO, context=account)
    assert seen[0] is account


def test_signoffs_own_fields_hold_beside_the_users() -> None:
    graph = looks(Account, [], call("look"), call("look"))
    outcome = graph.invoke(GO, context={"user_id": "ann", "turns": 2})["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("limit", "turns")


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a name that there is not": (
        Account,
        {"user_id": "ann", "usr": 1},
        "Context: there is no 'usr'; there are system_prompt, .*user_id, level, tags, wire",
    ),
    "a value that does not fit": (Account, {"user_id": 3}, "Context: user_id: .*valid string"),
    "what is needed": (AccountDict, {"level": 3}, "Context: user_id: Field required"),
    "a model's own rule": (AccountModel, {"user_id": "a"}, "Context: user_id: .*at least 2 characters"),
    "a value of Signoff's": (Account, {"user_id": "ann", "turns": 0}, "Context: turns"),
    "another dataclass": (AccountModel, Account("ann"), "pass a mapping, or an instance of AccountModel"),
    "an instance, where there is a TypedDict": (
        AccountDict,
        Account("ann"),
        "pass a mapping, or the keys of AccountDict in one",
    ),
    "a key that is no name": (Account, {3: "ann"}, "context has the key 3; its keys must be strings"),
    "another kind of mapping, without a schema": (None, MappingProxyType({"user": 1}), "there is no 'user'"),
    "a text": (Account, "ann", "context is 'ann'; pass a mapping"),
    "a name, without a schema": (None, {"user_id": "ann"}, "there is no 'user_id'; there are system_prompt"),
    "a dataclass, without a schema": (None, Account("ann"), "build the graph with context_schema=Account"),
    "another model, without a schema": (None, Limits(), "build the graph with context_schema=Limits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_one_sentence_and_nothing_runs(case: str) -> None:
    schema, given, says = REFUSED[case]
    seen: Seen = []
    graph = looks(schema, seen)
    for run in (graph.invoke, lambda *args, **named: asyncio.run(graph.ainvoke(*args, **named))):
        with pytest.raises(SetupError, match=says) as raised:
            run(GO, context=given)
        assert "\n" not in str(raised.value)
    assert seen == []


class _Careful:
    def __init__(self, user_id: str) -> None:
        self.user_id = user_id


class Taken(TypedDict):
    model: str


class Unfinished(BaseModel):
    part: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # a name that nobody has defined


@dataclass
class Fussy:
    user_id: str

    def __post_init__(self) -> None:
        if self.user_id == "nobody":
            raise LookupError("nobody is nobody")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (dict, "pass a dataclass, a pydantic model or a TypedDict"),
        (_Careful, "pass a dataclass, a pydantic model or a TypedDict"),
        (Account("ann"), "pass a dataclass, a pydantic model or a TypedDict"),
        (Taken, "has the field 'model', which every run already has .*rename yours"),
        (
            Unfinished,
            r"context_schema=Unfinished refers to an unknown type .*'Nowhere' is not defined\); define it",
        ),
    ],
)
def test_a_schema_that_cannot_be_one_is_refused_when_the_graph_is_built(schema: Any, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        build_graph(ScriptedModel([]), context_schema=schema)


def test_what_the_users_type_itself_refuses_is_a_sentence() -> None:
    with pytest.raises(SetupError, match=r"Fussy rejects its values .*nobody is nobody"):
        looks(Fussy, []).invoke(GO, context={"user_id": "nobody"})


@pytest.mark.parametrize("schema", [Account, AccountModel, AccountDict])
def test_the_form_shows_both_parts(schema: Any) -> None:
    form = looks(schema, []).get_context_jsonschema()
    assert form is not None
    assert {"user_id", "level", "system_prompt", "turns"} <= set(form["properties"])
    assert form["required"] == ["user_id"]


def test_without_a_schema_the_form_is_signoffs_own() -> None:
    form = build_graph(ScriptedModel([])).get_context_jsonschema()
    assert form is not None
    assert "user_id" not in form["properties"]
    assert "required" not in form


def ask_account(context: Any) -> str | None:
    return None if context == Account("ann") else f"not yours: {context}"


def nothing_named(**given: Any) -> bool:
    return "context" not in given


def all_and_context(context: Any, **given: Any) -> bool:
    return context == Account("ann") and len(given) == 4


@pytest.mark.parametrize("check", [ask_account, nothing_named, all_and_context])
def test_a_check_gets_the_context_when_it_asks_for_it(check: Any) -> None:
    graph = build_graph(ScriptedModel([FINISH]), context_schema=Account, checks=[check])
    outcome = graph.invoke(GO, context={"user_id": "ann", "turns": 5})["outcome"]
    assert (outcome["status"], outcome["verified"]) == ("success", "verified")


# Whether the call of a user is asked about, by each kind of callable. Nobody needs to be asked for ann.
ASKING: dict[str, Any] = {
    "a policy": lambda name, args, context: context.user_id != "ann",
    "a rule": {"look": lambda args, context: context.user_id != "ann"},
    "a rule of a kind": {"write": lambda args, context: context.user_id != "ann"},
    "a rule that gives a rule": {
        "look": lambda args, context: ["approve"] if context.user_id != "ann" else False
    },
    "when": {
        "look": {
            "allowed_decisions": ["approve", "reject"],
            "when": lambda request: request.runtime.context.user_id != "ann",
        }
    },
}


@pytest.mark.parametrize("case", ASKING)
@pytest.mark.parametrize(("user", "asked"), [("ann", False), ("bob", True), (None, True)])
def test_an_approval_may_depend_on_the_context(case: str, user: str | None, asked: bool) -> None:
    """Without a context the policy fails, and what fails asks."""
    seen: Seen = []
    graph = looks(Account, seen, approvals=ASKING[case], **saved())
    given = {"user_id": user} if user else None
    result = graph.invoke(GO, THREAD, context=given)
    assert (len(result.get("__interrupt__", ())), len(seen)) == ((1, 0) if asked else (0, 1))
    if asked:
        (waiting,) = result["__interrupt__"]
        after = graph.invoke(Command(resume={waiting.id: "approve"}), THREAD, context=given)
        assert (after["outcome"]["status"], len(seen)) == ("success", 1)


def test_one_graph_asks_for_one_user_and_not_for_another() -> None:
    """What was read of a thread for one run does not decide for the next."""
    seen: Seen = []
    model = ScriptedModel([call("look"), FINISH])
    graph = build_graph(
        model,
        [looking(seen)],
        context_schema=Account,
        approvals=ASKING["a policy"],
        **saved(),
    )
    waits = graph.invoke(GO, THREAD, context=Account("bob"))
    assert len(waits["__interrupt__"]) == 1
    assert graph.invoke(None, THREAD, context=Account("ann"))["outcome"]["status"] == "success"
    assert seen == [Account("ann")]


def test_a_description_gets_the_context_in_the_runtime() -> None:
    def describe(found: Any, state: Any, runtime: Any) -> str:
        return f"for {runtime.context!r}"

    rule = {"look": {"allowed_decisions": ["approve"], "description": describe}}
    graph = looks(Account, [], approvals=rule, **saved())
    result = graph.invoke(GO, THREAD, context={"user_id": "ann", "turns": 4})
    (request,) = result["__interrupt__"][0].value["action_requests"]
    assert request["description"] == f"for {Account('ann')!r}"


class Outside(TypedDict):
    user_id: str
    colour: str


@dataclass
class OutsideData:
    user_id: str
    colour: str


@dataclass
class OutsideModel(OutsideData):
    # A name of Signoff's own, which in an object of another graph means what that graph means by it.
    model: str = "the outer graph's"


class Talk(TypedDict):
    messages: list[Any]


OUTER: list[tuple[Any, Any]] = [
    (Outside, {"user_id": "ann", "colour": "blue"}),
    (OutsideData, OutsideData(user_id="ann", colour="blue")),
    (OutsideModel, OutsideModel(user_id="ann", colour="blue")),
]


@pytest.mark.parametrize(
    ("outer", "given", "way"),
    [
        *((*outer, way) for outer in OUTER for way in ("as a node", "in a node")),
        # A graph of Signoff's has no such name.
        *((*outer, "in a tool") for outer in OUTER[:2]),
    ],
)
def test_of_the_graph_around_it_it_takes_what_it_declares(outer: Any, given: Any, way: str) -> None:
    seen: Seen = []
    inner = looks(AccountDict, seen)
    if way != "in a tool":
        around = StateGraph(Talk, context_schema=outer)
        around.add_node("agent", inner if way == "as a node" else lambda state: inner.invoke(state) and {})
        around.add_edge(START, "agent")
        around.compile().invoke({"messages": [("user", "go")]}, context=given)
    else:

        @tool
        def work() -> str:
            """Have the other one work."""
            return str(inner.invoke(GO)["outcome"]["status"])

        whole = build_graph(ScriptedModel([call("work"), FINISH]), [work], context_schema=outer)
        assert whole.invoke(GO, context=given)["outcome"]["status"] == "success"
    assert seen == [{"user_id": "ann"}]


def test_a_context_around_it_that_says_nothing_of_it_is_none() -> None:
    class Around(TypedDict):
        colour: str

    seen: Seen = []
    around = StateGraph(Talk, context_schema=Around)
    around.add_node("agent", looks(Account, seen))
    around.add_edge(START, "agent")
    around.compile().invoke({"messages": [("user", "go")]}, context={"colour": "blue"})
    assert seen == [None]


def test_langgraphs_own_runtime_has_both_parts() -> None:
    found: Seen = []

    @tool
    def look() -> str:
        """Look."""
        held: Any = get_runtime().context
        found.append((held["user_id"], held.turns))
        return "seen"

    graph = build_graph(ScriptedModel([call("look"), FINISH]), [look], context_schema=AccountDict)
    graph.invoke(GO, context={"user_id": "ann", "turns": 5})
    assert found == [("ann", 5)]


def test_the_context_is_not_saved_with_the_thread() -> None:
    """A resume has what it is given, or nothing, as everywhere in LangGraph."""
    seen: Seen = []
    steps: list[Step] = [call("look"), call("ask_user", question="Go on?")]
    model = ScriptedModel([*steps, call("look"), call("ask_user", question="Again?"), call("look"), FINISH])
    graph = build_graph(model, [looking(seen)], context_schema=Account, **saved())
    Session(graph, "t", context={"user_id": "ann"}).run("go")
    Session(graph, "t", context=Account("bob")).resume("yes")
    assert isinstance(Session(graph, "t").resume("yes"), Finished)
    assert seen == [Account("ann"), Account("bob"), None]
