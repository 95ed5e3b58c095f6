"""What an app for `create_agent` has, and keeps: its prompt, its tools, its context, its state.

The apps are functions that are given what builds their agent, `create_agent` or `build_graph`; only the end
of the script differs, since a Signoff graph ends by `finish_task`.
"""

import operator
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import TodoListMiddleware, dynamic_prompt, wrap_model_call
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.runtime import get_runtime
from langgraph.types import Command, Overwrite
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from signoff import ControlTool, Limits, Session, SetupError, Storage, build_graph, go_on, sqlite_storage
from signoff.models import ScriptedModel, TaggedText, call
from signoff.session import expire
from signoff.studio import served
from tests.drop_in.playing import ACCEPTED, CONTROLS, FINISH, GO, THREAD, Bank, ended, memory, play, results
from tests.support.servers.fake_others import AnthropicReply
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call

Build = Callable[..., Any]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def built(*steps: Any, tools: Any = (), **options: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel([*steps, FINISH])
    return build_graph(model, tools, **options), model


def refused(build: Callable[[], Any], *names: str) -> None:
    """It is a mistake of the caller, in one sentence that names these."""
    with pytest.raises(SetupError) as raised:
        build()
    assert [name for name in names if name not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


class TestApps:
    @staticmethod
    def ending(build: Build, text: str) -> Any:
        return text if build is create_agent else call("finish_task", summary=text)

    @dataclass
    class Reader:
        role: str

    def prompt_with_context(self, build: Build) -> Any:
        @dynamic_prompt
        def by_role(request: Any) -> str:
            return f"Explain it to an {request.runtime.context.role}."

        model = ScriptedModel([call("look"), self.ending(build, "Seen.")])
        agent = build(model, tools=Bank().tools, middleware=[by_role], context_schema=self.Reader)
        play(agent, context=self.Reader(role="expert"))
        return [seen.messages[0].text.partition("\n")[0] for seen in model.seen]

    def todo_list(self, build: Build) -> Any:
        steps = [call("write_todos", todos=[{"content": "x", "status": "in_progress"}])]
        model = ScriptedModel([*steps, self.ending(build, "Seen.")])
        return play(build(model, tools=Bank().tools, middleware=[TodoListMiddleware()]))["todos"]

    class Plan(BaseModel):
        city: str

    def structured_answer(self, build: Build) -> Any:
        by_us = call("finish_task", summary="Sunny.", result={"city": "Rome"})
        end = call("Plan", city="Rome") if build is create_agent else by_us
        agent = build(ScriptedModel([end]), tools=[], response_format=self.Plan)
        return play(agent)["structured_response"]

    def tool_that_writes_state(self, build: Build) -> Any:
        class Seen(AgentState[Any]):
            cities: Annotated[list[str], operator.add]

        @tool
        def remember(city: str, runtime: ToolRuntime[None, Seen]) -> Command[Any]:
            """Remember a city."""
            said = ToolMessage(f"number {len(runtime.state['cities'])}", tool_call_id=runtime.tool_call_id)
            return Command(update={"cities": [city], "messages": [said]})

        steps = [call("remember", city="Rome"), call("remember", city="Oslo"), self.ending(build, "Noted.")]
        agent = build(ScriptedModel(steps), tools=[remember], state_schema=Seen)
        found = play(agent, {**GO, "cities": ["Bern"]})
        return found["cities"], results(found, "remember")

    @pytest.mark.parametrize(
        "app", [prompt_with_context, todo_list, structured_answer, tool_that_writes_state]
    )
    def test_an_app_gets_the_same_of_both(self, app: Callable[..., Any]) -> None:
        assert app(self, build_graph) == app(self, create_agent)

    @pytest.mark.parametrize("build", [create_agent, build_graph])
    @pytest.mark.parametrize(("runtime", "warns"), [(ToolRuntime, True), (ToolRuntime[Reader, Any], False)])
    def test_both_warn_of_a_runtime_that_does_not_name_the_type_of_its_context(
        self, runtime: Any, warns: bool, build: Build
    ) -> None:
        """LangChain's package takes the context of a bare `ToolRuntime` to be None."""

        def role(runtime: Any) -> str:
            """Tell the role."""
            return str(runtime.context.role)

        role.__annotations__["runtime"] = runtime
        model = ScriptedModel([call("role"), self.ending(build, "Told.")])
        agent = build(model, tools=[role], context_schema=self.Reader)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert results(play(agent, context=self.Reader("expert")), "role") == ["expert"]
        assert any("Pydantic" in str(one.message) for one in caught) is warns

    PAUSES: Mapping[str, tuple[dict[str, Any], bool]] = {
        "before the tools of create_agent": ({"interrupt_before": ["tools"]}, False),
        "after its model": ({"interrupt_after": "model"}, False),
        "before a state that there is": ({"interrupt_before": ["execute"]}, True),
        "before each": ({"interrupt_before": "*"}, True),
    }

    @pytest.mark.parametrize("case", PAUSES)
    def test_a_pause_at_a_node_that_is_not_there_is_refused(self, case: str) -> None:
        options, known = self.PAUSES[case]
        agent, _ = built(call("look"), tools=Bank().tools, **memory())
        if known:
            play(agent, **options)
        else:
            refused(lambda: play(agent, **options), "tools" if "tools" in str(options) else "model")
        assert bool(agent.get_state(THREAD).next) is known


MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def block(text: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"cache_control": mark} if mark else {})}


def system(prompt: Any, given: Any = GO, context: Any = None, **options: Any) -> list[dict[str, Any]]:
    """The system message as blocks, the rules of the loop as `RULES`."""
    agent, model = built(system_prompt=prompt, **options)
    assert ended(play(agent, given, context=context)) == ACCEPTED
    content: Any = model.seen[0].messages[0].content
    if isinstance(content, str):
        content = [block(part) for part in content.split("\n\n", 1 if prompt or options else 0)]
    return [{**part, "text": "RULES"} if "finish_task" in part["text"] else part for part in content]


class TestThePrompt:
    RULES = block("RULES")
    PROMPTS: Mapping[str, tuple[Any, list[Any]]] = {
        "text": ("Be kind.", [block("Be kind."), RULES]),
        "none": (None, [RULES]),
        "a message of text": (SystemMessage("Be kind."), [block("Be kind."), RULES]),
        "blocks": (
            SystemMessage([block("Be kind."), "Be short."]),
            [block("Be kind."), block("Be short."), RULES],
        ),
        "a mark on the last block": (
            SystemMessage([block("Be kind.", HOUR)]),
            [block("Be kind."), block("RULES", HOUR)],
        ),
        "a mark on an earlier block": (
            SystemMessage([block("Long.", HOUR), block("Be kind.")]),
            [block("Long.", HOUR), block("Be kind."), RULES],
        ),
        "no blocks": (SystemMessage([]), [RULES]),
    }

    @pytest.mark.parametrize("case", PROMPTS)
    def test_the_rules_follow_what_is_given(self, case: str) -> None:
        given, wanted = self.PROMPTS[case]
        before = given.model_copy(deep=True) if isinstance(given, SystemMessage) else given
        assert system(given) == wanted
        assert given == before

    def test_system_messages_of_the_history_come_after_the_rules(self) -> None:
        given = {"messages": [("system", "Be brave."), ("user", "go")]}
        prompt = SystemMessage([block("Be kind.", MARK)])
        assert system(prompt, given) == [block("Be kind."), self.RULES, block("Be brave.", MARK)]

    @pytest.mark.parametrize(
        "prompt", ["Be kind.", SystemMessage([block("Be kind.")])], ids=["text", "blocks"]
    )
    def test_that_of_the_context_is_in_place_of_it(self, prompt: Any) -> None:
        found = system(prompt, context={"system_prompt": "Be rude."})
        assert found == [block("Be rude."), self.RULES]

    def test_a_message_keeps_what_else_it_says(self) -> None:
        developer = SystemMessage("Be kind.", additional_kwargs={"__openai_role__": "developer"})
        agent, model = built(system_prompt=developer)
        play(agent)
        assert model.seen[0].messages[0].additional_kwargs["__openai_role__"] == "developer"

    def test_one_made_for_each_call_sees_the_state_and_the_context(self) -> None:
        @dataclass
        class Who:
            name: str

        class Mood(MessagesState):
            mood: str

        @dynamic_prompt
        def by_state(request: Any) -> SystemMessage:
            words = request.state["mood"], request.runtime.context.name, str(len(request.state["messages"]))
            return SystemMessage([block(" ".join(words), HOUR)])

        options: Any = {"state_schema": Mood, "context_schema": Who, "middleware": [by_state]}
        agent, model = built(call("look"), tools=Bank().tools, system_prompt="Unused.", **options)
        play(agent, {**GO, "mood": "glad"}, context=Who("ann"))
        first = [next(iter(seen.messages[0].content_blocks)) for seen in model.seen]
        assert [part.get("text") for part in first] == ["glad ann 1", "glad ann 3"]

    @pytest.mark.parametrize("error", [LookupError("no such user"), SystemExit(3)], ids=["raises", "exits"])
    def test_one_that_fails_ends_the_task_and_can_be_tried_again(self, error: BaseException) -> None:
        @dynamic_prompt
        def fails(request: Any) -> str:
            raise error

        saved = memory()
        agent, model = built(middleware=[fails], **saved)
        found = play(agent)
        assert ended(found) == ("error", "model_error")
        assert type(error).__name__ in found["outcome"]["error"]
        assert ended(play(build_graph(model, **saved), go_on())) == ACCEPTED

    WRONG: Mapping[str, Any] = {
        "a number": 3,
        "another message": AIMessage("x"),
        "a class": SystemMessage,
        "a function": lambda state: "",
        "a block that is not JSON": SystemMessage([{"type": "text", "text": print}]),
    }

    @pytest.mark.parametrize("case", WRONG)
    def test_what_cannot_be_one_is_refused_when_the_graph_is_built(self, case: str) -> None:
        refused(lambda: built(system_prompt=self.WRONG[case]), "system_prompt")

    @pytest.mark.parametrize(
        "prompt", ["Be kind.", SystemMessage([block("Be kind.", MARK)])], ids=["text", "mark"]
    )
    def test_each_prompt_begins_with_the_whole_of_the_one_before(self, prompt: Any) -> None:
        steps = [call("look"), "Hm.", call("look"), FINISH]
        agent, model = built(*steps, tools=Bank().tools, system_prompt=prompt, **memory())
        play(agent)
        play(agent, {"messages": [("user", "again")]})
        shown = [seen.messages for seen in model.seen]
        assert len(shown) == 5
        assert all(after[: len(before)] == before for before, after in pairwise(shown))

    def test_anthropics_middleware_has_the_prompt_cached(self) -> None:
        finish = AnthropicReply(calls=[tool_call("finish_task", summary="Done.")])
        with FakeProvider([AnthropicReply(calls=[tool_call("look")]), finish]) as server:
            model = ChatAnthropic(model="m", base_url=server.root, api_key=SecretStr("k"), max_retries=0)
            options: Any = {"middleware": [AnthropicPromptCachingMiddleware()], "system_prompt": "Be kind."}
            agent = build_graph(model, Bank().tools, policy={"streaming": "never"}, **options, **memory())
            assert ended(play(agent)) == ACCEPTED
        bodies = [request.body for request in server.requests]
        assert [body["system"][-1]["cache_control"]["type"] for body in bodies] == ["ephemeral"] * 2
        assert "cache_control" not in repr(agent.get_state(THREAD).values["messages"])

    def test_for_openai_each_thread_has_a_key_of_its_own(self) -> None:
        @wrap_model_call
        def key_of_the_thread(request: Any, handler: Any) -> Any:
            key = request.runtime.execution_info.thread_id
            return handler(request.override(model_settings={"prompt_cache_key": key}))

        with FakeProvider([Reply(calls=[tool_call("finish_task", summary="Done.")])] * 2) as provider:
            model = ChatOpenAI(model="m", base_url=provider.url, api_key=SecretStr("k"), max_retries=0)
            agent = build_graph(model, middleware=[key_of_the_thread], **memory())
            for thread in ("a", "b"):
                agent.invoke(GO, {"configurable": {"thread_id": thread}})
            assert [request.body["prompt_cache_key"] for request in provider.requests] == ["a", "b"]


SEARCH = {"type": "web_search"}


def offers(model: ScriptedModel) -> list[list[str]]:
    return [seen.tool_names for seen in model.seen]


def picking(pick: Callable[[Any], Any]) -> Any:
    """A middleware that offers the tools of these names."""

    @wrap_model_call
    def picks(request: Any, handler: Any) -> Any:
        names = pick(request)
        return handler(request.override(tools=[tool for tool in request.tools if tool.name in names]))

    return picks


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

    def test_what_it_found_is_kept_and_shown_again(self) -> None:
        content: list[Any] = [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "X"}]},
            {"type": "text", "text": "It is x."},
        ]
        said = AIMessage(content, tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
        agent, model = built(said, tools=[Bank().look, SEARCH], **memory())
        found = play(agent)
        shown = [m.content for m in model.seen[1].messages if isinstance(m, AIMessage)]
        assert shown == [content] == [found["messages"][1].content]
        assert found["outcome"]["tool_calls"] == 1

    def test_a_call_of_one_is_not_run_here(self) -> None:
        agent, _ = built(call("web_search", query="x"), tools=[SEARCH])
        found = play(agent)
        assert results(found)[0].startswith("Not run: web_search")
        assert (ended(found), found["outcome"]["tool_calls"]) == (ACCEPTED, 0)

    WRONG: Mapping[str, tuple[Any, str]] = {
        "a function of OpenAI's": ([{"type": "function", "function": {"name": "f"}}], "tool"),
        "a tool of Anthropic's": ([{"name": "f", "input_schema": {}}], "tool"),
        "nothing": ([{}], "tool"),
        "one twice": ([SEARCH, SEARCH], "'web_search'"),
        "the name of a tool": ([Bank().look, {"type": "x", "name": "look"}], "'look'"),
        "the name of a control tool": ([{"type": "x", "name": "think"}], "'think'"),
        "not a list": (SEARCH, "list"),
    }

    @pytest.mark.parametrize("case", WRONG)
    def test_what_cannot_be_one_is_refused(self, case: str) -> None:
        tools, name = self.WRONG[case]
        refused(lambda: built(tools=tools), name)

    def test_a_model_that_has_no_place_for_one_says_so(self) -> None:
        refused(lambda: build_graph(TaggedText(ScriptedModel([])), [SEARCH]), "TaggedText", "tools=")

    def test_a_middleware_picks_by_the_state_and_the_context(self) -> None:
        def pick(request: Any) -> list[str]:
            later = len(request.state["messages"]) > 1 and request.runtime.context.turns == 9
            return ["pay", "look"] if later else ["look"]

        agent, model = built(
            call("look"), call("pay", amount=1), tools=Bank().tools, middleware=[picking(pick)], **memory()
        )
        found = play(agent, context={"turns": 9})
        # In the order of the graph, and the same choice is the same byte by byte.
        assert offers(model) == [["look", *CONTROLS], *[["look", "pay", *CONTROLS]] * 2]
        assert repr(model.seen[1].tools) == repr(model.seen[2].tools)
        assert results(found)[:2] == ["seen it", "paid 1"]

    def test_a_call_of_what_was_not_offered_is_neither_run_nor_asked_about(self) -> None:
        bank = Bank()
        picks = [picking(lambda _: ["look"])]
        agent, _ = built(
            call("pay", amount=1), tools=bank.tools, middleware=picks, approvals={"pay": True}, **memory()
        )
        found = play(agent)
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


@dataclass
class Fussy:
    user_id: str

    def __post_init__(self) -> None:
        raise LookupError("nobody is nobody")


class Taken(TypedDict):
    model: str


class Unfinished(BaseModel):
    part: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # a name that nobody has defined


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

    agent, _ = built(call("look"), *more, tools=[look], context_schema=schema, **options)
    return agent, seen


class TestTheContext:
    GIVEN: Mapping[str, tuple[Any, Any, Any]] = {
        "a mapping for a dataclass": (Account, {**ANN, "level": 2}, Account("ann", 2)),
        "what has no JSON form": (Account, {**ANN, "wire": WIRE}, Account("ann", wire=WIRE)),
        "a dataclass": (Account, Account("ann"), Account("ann")),
        "a mapping for a model": (AccountModel, ANN, AccountModel(user_id="ann")),
        "a model": (AccountModel, AccountModel(user_id="ann"), AccountModel(user_id="ann")),
        "a mapping for a TypedDict": (AccountDict, ANN, ANN),
        "beside Signoff's own": (Account, {**ANN, "turns": 9, "model": ""}, Account("ann")),
        "another kind of mapping": (Account, MappingProxyType(ANN), Account("ann")),
        "none": (Account, None, None),
    }

    @pytest.mark.parametrize("case", GIVEN)
    def test_a_tool_gets_the_users_part_as_the_users_type(self, case: str) -> None:
        schema, given, wanted = self.GIVEN[case]
        agent, seen = looks(schema)
        assert ended(play(agent, context=given)) == ACCEPTED
        assert (seen, type(seen[0])) == ([wanted], type(wanted))
        if isinstance(given, Account):
            assert seen[0] is given

    def test_signoffs_own_fields_hold_beside_it_and_langgraphs_runtime_has_both(self) -> None:
        found: list[Any] = []

        @tool
        def look() -> str:
            """Look."""
            held: Any = get_runtime().context
            found.append((held["user_id"], held.turns))
            return "seen"

        agent, _ = built(*[call("look")] * 3, tools=[look], context_schema=AccountDict)
        assert ended(play(agent, context={**ANN, "turns": 2})) == ("limit", "turns")
        assert found[0] == ("ann", 2)

    REFUSED: Mapping[str, tuple[Any, Any, str]] = {
        "a name that is not there": (Account, {**ANN, "usr": 1}, "'usr'"),
        "a value that does not fit": (Account, {"user_id": 3}, "user_id"),
        "what is needed": (AccountDict, {"level": 3}, "user_id"),
        "a model's own rule": (AccountModel, {"user_id": "a"}, "user_id"),
        "a value of Signoff's": (Account, {**ANN, "turns": 0}, "turns"),
        "another dataclass": (AccountModel, Account("ann"), "AccountModel"),
        "an instance for a TypedDict": (AccountDict, Account("ann"), "AccountDict"),
        "a key that is no name": (Account, {3: "ann"}, "3"),
        "a text": (Account, "ann", "'ann'"),
        "what its type refuses": (Fussy, ANN, "Fussy"),
        "a name without a schema": (None, ANN, "'user_id'"),
        "a mapping without a schema": (None, MappingProxyType({"user": 1}), "'user'"),
        "a dataclass without a schema": (None, Account("ann"), "context_schema=Account"),
        "a model without a schema": (None, Limits(), "context_schema=Limits"),
    }

    @pytest.mark.parametrize("case", REFUSED)
    def test_what_does_not_fit_is_refused_and_nothing_runs(self, case: str) -> None:
        schema, given, name = self.REFUSED[case]
        agent, seen = looks(schema)
        refused(lambda: play(agent, context=given), name)
        assert seen == []

    @pytest.mark.parametrize(
        ("schema", "name"),
        [
            (dict, "context_schema"),
            (Wire, "context_schema"),
            (Account("ann"), "context_schema"),
            (Taken, "'model'"),
            (Unfinished, "'Nowhere'"),
        ],
    )
    def test_a_schema_that_cannot_be_one_is_refused_when_the_graph_is_built(
        self, schema: Any, name: str
    ) -> None:
        refused(lambda: built(context_schema=schema), name)

    @pytest.mark.parametrize("schema", [Account, AccountModel, AccountDict, None])
    def test_the_form_shows_both_parts(self, schema: Any) -> None:
        form = looks(schema)[0].get_context_jsonschema()
        assert {"system_prompt", "turns"} <= set(form["properties"])
        assert ("user_id" in form["properties"], form.get("required", [])) == (
            bool(schema),
            ["user_id"] * bool(schema),
        )

    CHECKS: Mapping[str, Callable[..., bool]] = {
        "by its name": lambda context: bool(context == Account("ann")),
        "among all": lambda context, **given: context == Account("ann") and len(given) == 4,
        "not asked for": lambda **given: "context" not in given,
    }

    @pytest.mark.parametrize("case", CHECKS)
    def test_a_check_gets_it_when_it_asks_for_it(self, case: str) -> None:
        agent, _ = built(context_schema=Account, checks=[self.CHECKS[case]])
        outcome = play(agent, context={**ANN, "turns": 5})["outcome"]
        assert (outcome["status"], outcome["verified"]) == ("success", "verified")

    # Nobody needs to be asked for ann.
    ASKING: Mapping[str, Any] = {
        "a policy": lambda name, args, context: context.user_id != "ann",
        "a rule": {"look": lambda args, context: context.user_id != "ann"},
        "a rule of a kind": {"write": lambda args, context: context.user_id != "ann"},
        "a rule that gives a rule": {"look": lambda args, context: context.user_id != "ann" and ["approve"]},
        "when": {
            "look": {
                "allowed_decisions": ["approve", "reject"],
                "when": lambda request: request.runtime.context.user_id != "ann",
            }
        },
    }

    @pytest.mark.parametrize("case", ASKING)
    @pytest.mark.parametrize(("user", "asked"), [("ann", False), ("bob", True), (None, True)])
    def test_an_approval_may_depend_on_it(self, case: str, user: str | None, asked: bool) -> None:
        """Without a context the rule fails, and what fails asks. Who goes on is who counts."""
        agent, seen = looks(Account, approvals=self.ASKING[case], **memory())
        waits = play(agent, context={"user_id": user} if user else None).get("__interrupt__", ())
        assert (len(waits), len(seen)) == ((1, 0) if asked else (0, 1))
        if asked:
            assert ended(play(agent, None, context=ANN)) == ACCEPTED
            assert seen == [Account("ann")]

    def test_the_description_of_an_approval_gets_it(self) -> None:
        rule = {
            "allowed_decisions": ["approve"],
            "description": lambda call, state, runtime: repr(runtime.context),
        }
        agent, _ = looks(Account, approvals={"look": rule}, **memory())
        (waiting,) = play(agent, context={**ANN, "turns": 4})["__interrupt__"]
        assert waiting.value["action_requests"][0]["description"] == repr(Account("ann"))

    @dataclass
    class Outside:
        user_id: str
        colour: str
        model: str = "a name of ours, which means there what that graph means by it"

    class OutsideDict(TypedDict):
        user_id: str
        colour: str

    class Colour(TypedDict):
        colour: str

    AROUND: Mapping[str, tuple[Any, Any, Any]] = {
        "an object": (Outside, Outside("ann", "blue"), ANN),
        "a mapping": (OutsideDict, {**ANN, "colour": "blue"}, ANN),
        "nothing of it": (Colour, {"colour": "blue"}, None),
    }

    @pytest.mark.parametrize("how", ["as a node", "in a node"])
    @pytest.mark.parametrize("case", AROUND)
    def test_of_the_graph_around_it_it_takes_what_it_declares(self, case: str, how: str) -> None:
        outer, given, wanted = self.AROUND[case]
        agent, seen = looks(AccountDict)
        around: Any = StateGraph(MessagesState, context_schema=outer)
        around.add_node("agent", agent if how == "as a node" else lambda state: agent.invoke(state) and {})
        around.add_edge(START, "agent").compile().invoke(GO, context=given)
        assert seen == [wanted]

    def test_of_a_graph_of_ours_around_it_too(self) -> None:
        agent, seen = looks(AccountDict)

        @tool
        def work() -> str:
            """Have the other one work."""
            return str(agent.invoke(GO)["outcome"]["status"])

        whole, _ = built(call("work"), tools=[work], context_schema=self.OutsideDict)
        assert results(play(whole, context={**ANN, "colour": "blue"}), "work") == ["success"]
        assert seen == [ANN]

    def test_it_is_not_saved_with_the_thread(self) -> None:
        steps = [call("ask_user", question="Go on?"), call("look")]
        agent, seen = looks(Account, *steps, *steps, **memory())
        Session(agent, "t", context=ANN).run("go")
        Session(agent, "t", context=Account("bob")).resume("yes")
        Session(agent, "t").resume("yes")
        assert seen == [Account("ann"), Account("bob"), None]


class Weight(BaseModel):
    kilos: int


class Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]  # it has no equality


def extended(old: list[str], new: list[str]) -> list[str]:
    """A reducer that changes what it is given, which LangGraph allows."""
    old.extend(new)
    return old


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]
    longest: NotRequired[Annotated[str, lambda old, new: max(old, new, key=len)]]
    extended: Annotated[list[str], extended]
    name: str
    seen: NotRequired[list[AnyMessage]]


SEEN = HumanMessage("seen", id="m")
# What the tool of these tests writes, by the name that a script can say.
UPDATES: dict[str, Any] = {
    "a note": {"notes": ["a"]},
    "another": {"notes": ["b"], "name": "bob"},
    "a tuple": {"name": ("a", ("b",))},
    "messages": {"seen": [SEEN]},
    "bytes": {"name": b"raw"},
    "a new beginning": {"notes": Overwrite(["new"])},
    "extended": {"extended": ["x"]},
    "long": {"longest": "three"},
    "the outcome": {"outcome": {"status": "success"}, "notes": ["no"]},
    "an unknown channel": {"notez": ["no"]},
    "a wrong type": {"notes": 3},
    "a model": {"name": Weight(kilos=3)},
    "a model inside": {"name": [Weight(kilos=3)]},
    "a function": {"name": len},
    "an odd one": {"name": Odd()},
    "too large a number": {"name": 2**70},
    "to somewhere": {"name": "x"},
    "to the graph around it": {"name": "x"},
}


def writer(kind: str = "write") -> Any:
    @tool
    def write(what: str, runtime: ToolRuntime[Any, Any]) -> Any:
        """Write an update."""
        said = ToolMessage("written", tool_call_id=runtime.tool_call_id or "")
        goto = ["decide"] if what == "to somewhere" else ()
        graph = Command.PARENT if what == "to the graph around it" else None
        return Command(update={**UPDATES[what], "messages": [said]}, goto=goto, graph=graph)

    write.metadata = {"kind": kind}
    return write


def writes(*steps: Any, kind: str = "write", schema: Any = Notes, **options: Any) -> Any:
    """A graph whose model writes these updates, one in a reply, or several."""
    replies = [step if isinstance(step, tuple) else (step,) for step in steps]
    script = [[call("write", what=what) for what in reply] for reply in replies]
    return built(*script, tools=[writer(kind)], state_schema=schema, **options)[0]


class TestTheState:
    WRITTEN: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "one after another": (("a note", "another"), {"notes": ["a", "b"], "name": "bob"}),
        "several in a reply": ((("a note", "another", "a note"),), {"notes": ["a", "b", "a"], "name": "bob"}),
        "a reducer without a value to begin with": (("long", "long"), {"longest": "three"}),
        "a reducer that changes its argument": (
            (("extended", "extended"), "extended"),
            {"extended": ["x"] * 3},
        ),
        "a tuple is a list": (("a tuple",), {"name": ["a", ["b"]]}),
        "messages": (("messages",), {"seen": [SEEN]}),
        "bytes": (("bytes",), {"name": b"raw"}),
        "past the reducer": (("a note", "a new beginning", "a note"), {"notes": ["new", "a"]}),
        "past it among others": ((("a note", "a new beginning", "a note"),), {"notes": ["new", "a"]}),
    }

    @pytest.mark.parametrize("kind", ["write", "read"])
    @pytest.mark.parametrize("case", WRITTEN)
    def test_a_tool_writes_by_a_command(self, case: str, kind: str) -> None:
        """Calls that read run side by side; what they write is joined in their order."""
        steps, wanted = self.WRITTEN[case]
        agent = writes(*steps, kind=kind, **memory())
        found = play(agent)
        state = agent.get_state(THREAD).values
        assert [{key: values[key] for key in wanted} for values in (found, state)] == [wanted] * 2
        assert set(results(found, "write")) == {"written"}

    NOT_WRITTEN: Mapping[str, str] = {
        "the outcome": "'outcome'",
        "an unknown channel": "'notez'",
        "a wrong type": "'notes'",
        "a model": "Weight",
        "a model inside": "'name'",
        "a function": "'name'",
        "an odd one": "'name'",
        "too large a number": "'name'",
        "to somewhere": "goto",
        "to the graph around it": "graph",
    }

    @pytest.mark.parametrize("kind", ["write", "read"])
    @pytest.mark.parametrize("case", NOT_WRITTEN)
    def test_what_cannot_be_written_is_an_error_that_the_model_reads(self, case: str, kind: str) -> None:
        found = play(writes("a note", case, "a note", kind=kind, **memory()))
        answers = [message for message in found["messages"] if message.type == "tool"][:3]
        assert [one.status for one in answers] == ["success", "error", "success"]
        assert self.NOT_WRITTEN[case] in answers[1].text
        assert (found["notes"], found.get("name")) == (["a", "a"], None)

    def test_without_a_saver_a_channel_may_hold_anything(self) -> None:
        assert play(writes("a model"))["name"] == Weight(kilos=3)

    def test_what_a_savers_own_serializer_takes_may_be_stored(self) -> None:
        serde = JsonPlusSerializer(allowed_msgpack_modules=[(Weight.__module__, "Weight")])
        agent, _ = built(state_schema=Notes, checkpointer=InMemorySaver(serde=serde))
        play(agent, {**GO, "name": Weight(kilos=3)})
        assert agent.get_state(THREAD).values["name"] == Weight(kilos=3)

    def test_without_a_schema_a_tool_writes_messages_alone(self) -> None:
        found = play(writes("a note", schema=None))
        assert ("notes" in found, results(found, "write") == ["written"]) == (False, False)

    def test_the_input_writes_it_tools_read_it_and_it_lives_through_tasks(self) -> None:
        seen: list[Any] = []

        @tool
        def look(
            state: Annotated[dict[str, Any], InjectedState],
            notes: Annotated[list[str], InjectedState("notes")],
            runtime: ToolRuntime[Any, Any],
        ) -> str:
            """Look at the state."""
            seen.append((state["notes"], notes, runtime.state["notes"], runtime.state.get("name")))
            return "seen"

        agent, _ = built(call("look"), FINISH, tools=[look], state_schema=Notes, **memory())
        play(agent, {**GO, "notes": ["one"], "name": "ann"})
        assert seen == [(["one"], ["one"], ["one"], "ann")]
        found = play(agent, {**GO, "notes": ["two"]})
        assert (found["notes"], found["name"]) == (["one", "two"], "ann")

    REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
        "what a reducer cannot add": ({"notes": 3}, "'notes'"),
        "none for a reducer": ({"notes": None}, "'notes'"),
        "what does not go with what is there": ({"longest": 7}, "'longest'"),
        "a function": ({"name": len}, "'name'"),
        "too large a number": ({"name": 2**70}, "'name'"),
        "what comes back as another type": ({"name": Weight(kilos=3)}, "Weight"),
        "half a character": ({"name": "\ud800"}, "'name'"),
        "beside others that are right": ({"name": "ann", "notes": 3}, "'notes'"),
    }

    @pytest.mark.parametrize("form", ["an input", "a command", "a command of pairs"])
    @pytest.mark.parametrize("case", REFUSED)
    def test_an_input_that_its_channel_cannot_take_is_refused_before_anything_is_saved(
        self, case: str, form: str, storage: Storage
    ) -> None:
        """LangGraph saves an input first: the thread could not even be read any more."""
        given, name = self.REFUSED[case]
        agent, _ = built(FINISH, FINISH, state_schema=Notes, storage=storage)
        play(agent, {**GO, "notes": ["one"], "longest": "three"})
        before = agent.get_state(THREAD)
        asked: Any = {**GO, **given}
        if form != "an input":
            asked = Command(update=asked if form == "a command" else list(asked.items()), goto="compress")
        refused(lambda: play(agent, asked), name)
        assert agent.get_state(THREAD) == before
        assert play(agent, {**GO, "notes": ["two"]})["notes"] == ["one", "two"]

    def test_an_input_with_an_unknown_channel_is_refused(self) -> None:
        refused(lambda: play(built(state_schema=Notes)[0], {**GO, "notez": ["x"]}), "'notez'", "notes")

    TAKEN: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "a new beginning": ({"notes": Overwrite(["new"])}, {"notes": ["new"]}),
        "a new beginning in JSON": ({"notes": {"__overwrite__": ["new"]}}, {"notes": ["new"]}),
        "a tuple is a list": ({"name": ("a", ("b",))}, {"name": ["a", ["b"]]}),
        "messages": ({"seen": [SEEN]}, {"seen": [SEEN]}),
        "for a reducer that changes its argument": ({"extended": ["x"]}, {"extended": ["x"]}),
    }

    @pytest.mark.parametrize("case", TAKEN)
    def test_an_input_is_written_once(self, case: str) -> None:
        given, wanted = self.TAKEN[case]
        agent, _ = built(FINISH, state_schema=Notes, **memory())
        play(agent, {**GO, "notes": ["one"]})
        found = play(agent, {**GO, **given})
        assert {key: found[key] for key in wanted} == wanted

    class Reduces(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    class Shadows(TypedDict):
        outcome: str

    @pytest.mark.parametrize(
        ("schema", "name"),
        [
            (Shadows, "'outcome'"),
            (Reduces, "'messages'"),
            (dict, "TypedDict"),
            (Weight, "TypedDict"),
            ({}, "TypedDict"),
        ],
    )
    def test_a_schema_that_cannot_be_one_is_refused_when_the_graph_is_built(
        self, schema: Any, name: str
    ) -> None:
        refused(lambda: built(state_schema=schema), name)

    def test_of_langchains_state_only_what_is_added_counts(self) -> None:
        class Own(AgentState[Any]):
            notes: Annotated[list[str], operator.add]

        agent, _ = built(state_schema=Own)
        assert set(agent.get_input_jsonschema()["properties"]) == {"messages", "notes"}
        assert agent.get_input_jsonschema()["required"] == ["messages"]
        assert set(agent.get_output_jsonschema()["properties"]) == {"messages", "outcome", "notes"}
        assert play(agent, {**GO, "notes": ["a"]})["notes"] == ["a"]

    async def test_a_server_shows_it_and_nothing_of_the_machine(self) -> None:
        agent = served(writes("a note", "another")).copy(update=memory())
        result = await agent.ainvoke(GO, THREAD)
        state = (await agent.aget_state(THREAD)).values
        assert (result["notes"], state["notes"], "task" in state) == (["a", "b"], ["a", "b"], False)

    def test_what_a_finishing_tool_writes_is_written_once(self) -> None:
        @tool
        def sign(runtime: ToolRuntime[Any, Any]) -> Any:
            """Sign."""
            said = ToolMessage("signed", tool_call_id=runtime.tool_call_id or "")
            return Command(update={"notes": ["signed"], "messages": [said]})

        options: Any = {"control_tools": [ControlTool(sign, "finish")], "state_schema": Notes}
        assert play(build_graph(ScriptedModel([call("sign")]), **options, **memory()))["notes"] == ["signed"]

    class Plans(MessagesState):
        todos: NotRequired[list[Any]]

    @pytest.mark.parametrize(
        ("schema", "kept"), [(Plans, True), (Notes, False)], ids=["declared", "not declared"]
    )
    def test_without_a_middleware_its_channel_is_kept_by_declaring_it(
        self, schema: Any, kept: bool, storage: Storage
    ) -> None:
        todos = [{"content": "look", "status": "pending"}]
        writes_todos = call("write_todos", todos=todos)
        planning, _ = built(writes_todos, middleware=[TodoListMiddleware()], storage=storage)
        play(planning)
        play(built(state_schema=schema, storage=storage)[0])
        assert planning.get_state(THREAD).values.get("todos") == (todos if kept else None)

    def test_a_fork_has_the_same_values(self) -> None:
        agent = writes("a note", "long", "extended", "messages", **memory())
        wanted = play(agent, {**GO, "notes": ["given"], "name": "ann"})
        Session(agent, "t").fork(thread_id="u")
        fork = agent.get_state({"configurable": {"thread_id": "u"}}).values
        assert {key: fork[key] for key in Notes.__annotations__ if key != "messages"} == {
            key: wanted[key] for key in Notes.__annotations__ if key != "messages"
        }

    def test_a_question_that_expires_leaves_it_as_it_is(self) -> None:
        ask = call("ask_user", question="Which?", default_answer="blue", deadline_seconds=60)
        agent, _ = built(ask, state_schema=Notes, **memory())
        play(agent, {**GO, "notes": ["a"]})
        assert expire(agent, "t", 2e10) is not None
        assert agent.get_state(THREAD).values["notes"] == ["a"]


class DiesAfter:
    """A store whose process ends as soon as it has written that a call is done, before the step is saved."""

    def __init__(self, store: Any) -> None:
        self._batch = store.batch
        store.batch = self.batch

    def batch(self, ops: Any) -> Any:
        ops = list(ops)
        done = self._batch(ops)
        if any((getattr(op, "value", None) or {}).get("status") == "done" for op in ops):
            os._exit(9)
        return done


@pytest.mark.parametrize("given", [go_on(), {"messages": [("user", "again")]}], ids=["goes on", "a new task"])
@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("another", {"notes": ["b"], "name": "bob"}),
        ("messages", {"seen": [SEEN]}),
        ("a tuple", {"name": ["a", ["b"]]}),
    ],
)
def test_an_update_of_a_call_whose_step_was_never_saved_is_written_once(
    what: str, wanted: dict[str, Any], given: Any, tmp_path: Path
) -> None:
    def script(seen: list[Any]) -> Any:
        return FINISH if any(message.type == "tool" for message in seen) else call("write", what=what)

    def run(asked: Any, *, dies: bool) -> dict[str, Any]:
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            if dies:
                DiesAfter(storage.store)
            agent = build_graph(ScriptedModel(script), [writer()], state_schema=Notes, storage=storage)
            return play(agent, asked)

    child = os.fork()
    if child == 0:
        try:
            run(GO, dies=True)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    found = run(given, dies=False)
    assert ({key: found[key] for key in wanted}, ended(found)) == (wanted, ACCEPTED)
    assert results(found, "write") == ["written"]
