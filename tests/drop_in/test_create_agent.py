"""What an app for `create_agent` has, and keeps: its prompt, its tools, its context, its state."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents import AgentState
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, Overwrite
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import Session, SetupError, Storage, build_graph, sqlite_storage
from signoff.models import ScriptedModel, TaggedText, call
from tests.drop_in.playing import (
    ACCEPTED,
    FINISH,
    GO,
    POLICY,
    THREAD,
    Bank,
    around,
    ended,
    labels,
    memory,
    play,
    results,
)


@pytest.fixture
def storage(tmp_path: Any) -> Iterator[Storage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def built(*steps: Any, tools: Any = (), **options: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel([*steps, FINISH])
    return build_graph(model, tools, policy=POLICY, **options), model


def refused(build: Callable[[], Any], *names: str) -> None:
    """It is a mistake of the caller, in one sentence that names these."""
    with pytest.raises(SetupError) as raised:
        build()
    assert [name for name in names if name not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


def test_a_pause_at_a_node_that_is_not_there_is_refused() -> None:
    agent, _ = built(call("look"), tools=Bank().tools, **memory())
    refused(lambda: play(agent, interrupt_before=["tools"]), "tools")
    play(agent, interrupt_before="*")
    assert agent.get_state(THREAD).next


MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def block(text: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"cache_control": mark} if mark else {})}


KIND, RULES = block("Be kind."), block("RULES")


def system(prompt: Any, given: Any = GO, context: Any = None) -> list[dict[str, Any]]:
    """The system message as blocks, the rules of the loop as `RULES`."""
    agent, model = built(system_prompt=prompt)
    assert ended(play(agent, given, context=context)) == ACCEPTED
    content: Any = model.seen[0].messages[0].content
    if isinstance(content, str):
        content = [block(part) for part in content.split("\n\n", 1 if prompt else 0)]
    return [{**part, "text": "RULES"} if "finish_task" in part["text"] else part for part in content]


BRAVE: Any = {"messages": [("system", "Be brave."), ("user", "go")]}


class TestThePrompt:
    # The prompt, and what the model reads of it, maybe for another input or in another context.
    PROMPTS: Mapping[str, tuple[Any, ...]] = {
        "text": ("Be kind.", [KIND, RULES]),
        "none": (None, [RULES]),
        "blocks": (SystemMessage([KIND, "Be short."]), [KIND, block("Be short."), RULES]),
        "a mark on an earlier one": (
            SystemMessage([block("Long.", HOUR), KIND]),
            [block("Long.", HOUR), KIND, RULES],
        ),
        "one of the history": (
            SystemMessage([block("Be kind.", MARK)]),
            [KIND, RULES, block("Be brave.", MARK)],
            BRAVE,
        ),
    }

    @pytest.mark.parametrize("case", PROMPTS)
    def test_the_rules_follow_what_is_given(self, case: str) -> None:
        prompt, wanted, *rest = self.PROMPTS[case]
        before = prompt.model_copy(deep=True) if isinstance(prompt, SystemMessage) else prompt
        assert system(prompt, *rest) == wanted
        assert prompt == before

    def test_a_message_keeps_what_else_it_says(self) -> None:
        developer = SystemMessage("Be kind.", additional_kwargs={"__openai_role__": "developer"})
        agent, model = built(system_prompt=developer)
        play(agent)
        assert model.seen[0].messages[0].additional_kwargs["__openai_role__"] == "developer"


SEARCH = {"type": "web_search"}


class TestTheToolsThatAreOffered:
    @pytest.mark.parametrize(
        "given",
        [SEARCH, {"type": "web_search_20250305", "name": "web_search"}, {"google_search": {}}],
        ids=str,
    )
    def test_a_providers_own_is_told_as_it_is(self, given: dict[str, Any]) -> None:
        agent, model = built(tools=[Bank().look, given])
        play(agent)
        assert model.seen[0].tools[1] == given

    def test_a_call_of_one_is_not_run_here(self) -> None:
        found = play(built(call("web_search", query="x"), tools=[SEARCH])[0])
        assert (labels(found)[0], ended(found)) == ("<provided>", ACCEPTED)
        assert found["outcome"]["tool_calls"] == 0

    def test_a_call_of_what_was_not_offered_is_neither_run_nor_asked_about(self) -> None:
        bank = Bank()
        picks = around(lambda request, handler: handler(request.override(tools=request.tools[:1])))
        options: Any = {"middleware": [picks], "approvals": {"pay": True}}
        found = play(built(call("pay", amount=1), tools=bank.tools, **options, **memory())[0])
        assert (bank.paid, ended(found), found["outcome"]["changes"]) == ([], ACCEPTED, [])


class Wire:
    """A value that no form can show."""


@dataclass(frozen=True)
class Account:
    user_id: str
    level: int = 1
    tags: list[str] = field(default_factory=list)
    wire: Wire | None = None


class AccountModel(BaseModel):
    user_id: str = Field(min_length=2)
    level: int = 1


class AccountDict(TypedDict):
    user_id: str
    level: NotRequired[int]


ANN = {"user_id": "ann"}
WIRE = Wire()


def looks(schema: Any, *more: Any, **options: Any) -> tuple[Any, list[Any]]:
    """A graph whose first call looks at the context of its run, and what it has seen."""
    seen: list[Any] = []

    @tool
    def look(runtime: ToolRuntime[Any, Any]) -> str:
        """Look at the context."""
        seen.append(runtime.context)
        return "seen"

    return built(call("look"), *more, tools=[look], context_schema=schema, **options)[0], seen


def not_ann(context: Any) -> bool:
    return bool(context.user_id != "ann")


class TestTheContext:
    GIVEN: Mapping[str, tuple[Any, Any, Any]] = {
        "a mapping for a dataclass": (Account, {**ANN, "level": 2}, Account("ann", 2)),
        "what has no JSON form": (Account, {**ANN, "wire": WIRE}, Account("ann", wire=WIRE)),
        "a mapping for a model": (AccountModel, ANN, AccountModel(user_id="ann")),
        "a mapping for a TypedDict": (AccountDict, ANN, ANN),
        "beside Signoff's own": (Account, {**ANN, "turns": 9, "model": ""}, Account("ann")),
        "none": (Account, None, None),
    }

    @pytest.mark.parametrize("case", GIVEN)
    def test_a_tool_gets_the_users_part_as_the_users_type(self, case: str) -> None:
        schema, given, wanted = self.GIVEN[case]
        agent, seen = looks(schema)
        assert ended(play(agent, context=given)) == ACCEPTED
        assert (seen, type(seen[0])) == ([wanted], type(wanted))
        assert not isinstance(given, Account) or seen[0] is given

    REFUSED: Mapping[str, tuple[Any, Any, str]] = {
        "a name that is not there": (Account, {**ANN, "usr": 1}, "'usr'"),
        "a value that does not fit": (Account, {"user_id": 3}, "user_id"),
        "a value of Signoff's": (Account, {**ANN, "turns": 0}, "turns"),
        "a text": (Account, "ann", "'ann'"),
        "a dataclass without a schema": (None, Account("ann"), "context_schema=Account"),
    }

    @pytest.mark.parametrize("case", REFUSED)
    def test_what_does_not_fit_is_refused_and_nothing_runs(self, case: str) -> None:
        schema, given, name = self.REFUSED[case]
        agent, seen = looks(schema)
        refused(lambda: play(agent, context=given), name)
        assert seen == []

    @pytest.mark.parametrize("schema", [Account, AccountDict, None])
    def test_the_form_shows_both_parts(self, schema: Any) -> None:
        form = looks(schema)[0].get_context_jsonschema()
        assert ("user_id" in form["properties"], "turns" in form["properties"]) == (bool(schema), True)
        assert form.get("required", []) == ["user_id"] * bool(schema)

    def test_a_check_gets_it_when_it_asks_for_it(self) -> None:
        checks = [lambda context, **_: context == Account("ann"), lambda **given: "context" not in given]
        outcome = play(built(context_schema=Account, checks=checks)[0], context={**ANN, "turns": 5})[
            "outcome"
        ]
        assert (outcome["status"], outcome["verified"]) == ("success", "verified")

    # Nobody needs to be asked for ann.
    ASKING: Mapping[str, Any] = {
        "a rule": {"look": lambda args, context: not_ann(context)},
        "when": {
            "look": {"allowed_decisions": ["approve"], "when": lambda r: not_ann(r.runtime.context)},
        },
    }

    @pytest.mark.parametrize("case", ASKING)
    def test_an_approval_may_depend_on_it(self, case: str) -> None:
        """Without a context the rule fails, and what fails asks."""
        for context, asked in ((ANN, False), ({"user_id": "bob"}, True), (None, True)):
            agent, seen = looks(Account, approvals=self.ASKING[case], **memory())
            waits = play(agent, context=context).get("__interrupt__", ())
            assert (len(waits), len(seen)) == ((1, 0) if asked else (0, 1))

    def test_of_the_graph_around_it_it_takes_what_it_declares(self) -> None:
        whole: Any = TypedDict("whole", {"user_id": str, "colour": str})
        agent, seen = looks(AccountDict, FINISH, call("look"))
        graph: Any = StateGraph(MessagesState, context_schema=whole).add_node("agent", agent)
        work = tool("work", description="Work.")(lambda: str(agent.invoke(GO)["outcome"]["status"]))
        outer, _ = built(call("work"), tools=[work], context_schema=whole)
        for each in (graph.add_edge(START, "agent").compile(), outer):
            each.invoke(GO, context={**ANN, "colour": "blue"})
        assert seen == [ANN, ANN]

    def test_it_is_not_saved_with_the_thread(self) -> None:
        steps = [call("ask_user", question="Go on?"), call("look")]
        agent, seen = looks(Account, *steps, *steps, **memory())
        Session(agent, "t", context=ANN).run("go")
        Session(agent, "t", context=Account("bob")).resume("yes")
        Session(agent, "t").resume("yes")
        assert seen == [Account("ann"), Account("bob"), None]


class Weight(BaseModel):
    kilos: int


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]
    name: str


# What the tool of these tests writes, by the name that a script can say.
UPDATES: dict[str, Any] = {
    "a note": {"notes": ["a"]},
    "another": {"notes": ["b"], "name": "bob"},
    "a new beginning": {"notes": Overwrite(["new"])},
    "the outcome": {"outcome": {"status": "success"}, "notes": ["no"]},
    "an unknown channel": {"notez": ["no"]},
    "a wrong type": {"notes": 3},
    "a model": {"name": Weight(kilos=3)},
}


def writer(kind: str = "write") -> Any:
    @tool
    def write(what: str, runtime: ToolRuntime[Any, Any]) -> Any:
        """Write an update."""
        said = ToolMessage("written", tool_call_id=runtime.tool_call_id or "")
        return Command(update={**UPDATES[what], "messages": [said]})

    write.metadata = {"kind": kind}
    return write


def writes(*steps: Any, kind: str = "write", schema: Any = Notes, **options: Any) -> Any:
    """A graph whose model writes these updates, one in a reply, or several."""
    replies = [step if isinstance(step, tuple) else (step,) for step in steps]
    script = [[call("write", what=what) for what in reply] for reply in replies]
    return built(*script, tools=[writer(kind)], state_schema=schema, **options)[0]


KINDS = pytest.mark.parametrize("kind", ["write", "read"])


class TestTheState:
    WRITTEN: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "one after another": (
            ("a note", "another", ("a note", "a note")),
            {"notes": ["a", "b", "a", "a"], "name": "bob"},
        ),
        "past it among others": ((("a note", "a new beginning", "a note"),), {"notes": ["new", "a"]}),
    }

    @KINDS
    @pytest.mark.parametrize("case", WRITTEN)
    def test_a_tool_writes_by_a_command(self, case: str, kind: str) -> None:
        """Calls that read run side by side; what they write is joined in their order."""
        steps, wanted = self.WRITTEN[case]
        agent = writes(*steps, kind=kind, **memory())
        found = play(agent)
        state = agent.get_state(THREAD).values
        assert [{key: values[key] for key in wanted} for values in (found, state)] == [wanted] * 2
        assert set(results(found, "write")) == {"written"}

    # What cannot be written, and the channel that is named.
    NOT_WRITTEN: Mapping[str, tuple[str, str]] = {
        "the outcome": ("<no_channel>", "outcome"),
        "an unknown channel": ("<no_channel>", "notez"),
        "a wrong type": ("<not_written>", "notes"),
        "a model": ("<not_written>", "name"),
    }

    @KINDS
    @pytest.mark.parametrize("case", NOT_WRITTEN)
    def test_what_cannot_be_written_is_an_error_that_the_model_reads(self, case: str, kind: str) -> None:
        found = play(writes("a note", case, "a note", kind=kind, **memory()))
        answers = [message for message in found["messages"] if message.type == "tool"][:3]
        assert [one.status for one in answers] == ["success", "error", "success"]
        label, channel = self.NOT_WRITTEN[case]
        assert answers[1].text.split()[:3] == [label, "write", channel]
        assert (found["notes"], found.get("name")) == (["a", "a"], None)

    def test_a_channel_may_hold_what_its_saver_takes_and_without_one_anything(self) -> None:
        assert play(writes("a model"))["name"] == Weight(kilos=3)
        serde = JsonPlusSerializer(allowed_msgpack_modules=[(Weight.__module__, "Weight")])
        agent, _ = built(state_schema=Notes, checkpointer=InMemorySaver(serde=serde))
        play(agent, {**GO, "name": Weight(kilos=3)})
        assert agent.get_state(THREAD).values["name"] == Weight(kilos=3)

    REFUSED: Mapping[str, tuple[str, dict[str, Any], str]] = {
        "what a reducer cannot add": ("an input", {"notes": 3}, "'notes'"),
        "a function": ("a command", {"name": len}, "'name'"),
        "what comes back as another type": ("an input", {"name": Weight(kilos=3)}, "Weight"),
        "beside others that are right": ("a command", {"name": "ann", "notes": 3}, "'notes'"),
        "an unknown channel": ("an input", {"notez": ["x"]}, "'notez'"),
    }

    @pytest.mark.parametrize("case", REFUSED)
    def test_an_input_that_its_channel_cannot_take_is_refused_before_anything_is_saved(
        self, case: str, storage: Storage
    ) -> None:
        """LangGraph saves an input first: the thread could not even be read any more."""
        form, given, name = self.REFUSED[case]
        agent, _ = built(FINISH, FINISH, state_schema=Notes, storage=storage)
        play(agent, {**GO, "notes": ["one"]})
        before = agent.get_state(THREAD)
        asked: Any = {**GO, **given}
        update: Any = Command(update=asked, goto="compress")
        refused(lambda: play(agent, asked if form == "an input" else update), name)
        assert agent.get_state(THREAD) == before
        assert play(agent, {**GO, "notes": ["two"]})["notes"] == ["one", "two"]

    def test_an_input_is_written_once_and_lives_through_tasks(self) -> None:
        agent, _ = built(FINISH, FINISH, state_schema=Notes, **memory())
        play(agent, {**GO, "notes": ["one"], "name": "ann"})
        found = play(agent, {**GO, "notes": ["two"]})
        assert (found["notes"], found["name"]) == (["one", "two"], "ann")
        assert play(agent, {**GO, "notes": {"__overwrite__": ["new"]}})["notes"] == ["new"]

    def test_of_langchains_state_only_what_is_added_counts(self) -> None:
        class Own(AgentState[Any]):
            notes: Annotated[list[str], operator.add]

        agent, _ = built(state_schema=Own)
        assert set(agent.get_input_jsonschema()["properties"]) == {"messages", "notes"}
        assert agent.get_input_jsonschema()["required"] == ["messages"]
        assert set(agent.get_output_jsonschema()["properties"]) == {"messages", "outcome", "notes"}
        assert play(agent, {**GO, "notes": ["a"]})["notes"] == ["a"]


def test_a_model_that_has_no_place_for_a_providers_tool_says_so() -> None:
    refused(lambda: build_graph(TaggedText(ScriptedModel([])), [SEARCH]), "TaggedText", "tools=")
