"""The system prompt as text, in blocks or by a function, and what has a provider cache it."""

import asyncio
import copy
import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from signoff import SetupError, build_graph, retry
from signoff.graph.build import Graph
from signoff.graph.compiled.settings import cache_way
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
RULES = DEFAULT_TEXTS.system.format()
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(words: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": words, **({"cache_control": mark} if mark else {})}


def work() -> str:
    """Do some work."""
    return "worked"


def shown(prompt: Any, *, given: Any = GO, context: Any = None, way: str = "sync", **options: Any) -> Any:
    """The content of the system message that the model is shown."""
    with ScriptedModel([FINISH]) as model:
        graph = build_graph(model, system_prompt=prompt, **options)
        if way == "sync":
            result = graph.invoke(given, context=context)
        else:
            result = asyncio.run(graph.ainvoke(given, context=context))
        assert result["outcome"]["status"] == "success"
        return model.seen[0].messages[0].content


PROMPTS: dict[str, tuple[Any, Any]] = {
    "text": ("Be kind.", f"Be kind.\n\n{RULES}"),
    "none": (None, RULES),
    "a message of text": (SystemMessage("Be kind."), f"Be kind.\n\n{RULES}"),
    "blocks": (
        SystemMessage([text("Be kind."), "Be short."]),
        [text("Be kind."), text("Be short."), text(RULES)],
    ),
    "a mark on the last block": (
        SystemMessage([text("Be kind.", HOUR)]),
        [text("Be kind."), text(RULES, HOUR)],
    ),
    "a mark on an earlier block": (
        SystemMessage([text("Long.", HOUR), text("Be kind.")]),
        [text("Long.", HOUR), text("Be kind."), text(RULES)],
    ),
    "no blocks": (SystemMessage([]), [text(RULES)]),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_the_rules_follow_what_is_given(case: str) -> None:
    given, wanted = PROMPTS[case]
    before = copy.deepcopy(given)
    assert shown(given) == wanted
    assert given == before
    assert shown(lambda state, context: given) == wanted if given is not None else True


def test_a_message_keeps_what_else_it_says() -> None:
    with ScriptedModel([FINISH]) as model:
        developer = SystemMessage("Be kind.", additional_kwargs={"__openai_role__": "developer"})
        build_graph(model, system_prompt=developer).invoke(GO)
        (first, _) = model.seen[0].messages
    assert first.additional_kwargs["__openai_role__"] == "developer"
    assert first.content == [text("Be kind."), text(RULES)]


def test_system_messages_of_the_history_come_after_the_rules() -> None:
    given = {"messages": [("system", "Be brave."), ("user", "go")]}
    prompt = SystemMessage([text("Be kind.", MARK)])
    assert shown(prompt, given=given) == [text("Be kind."), text(RULES), text("Be brave.", MARK)]
    assert shown("Be kind.", given=given) == f"Be kind.\n\n{RULES}\n\nBe brave."


def test_a_context_goes_before_all_of_them() -> None:
    for prompt in (SystemMessage([text("Be kind.")]), lambda state, context: "Be kind."):
        assert shown(prompt, context={"system_prompt": "Be rude."}) == f"Be rude.\n\n{RULES}"


@dataclass
class Who:
    name: str = "nobody"


class Mood(MessagesState):
    mood: str


def by_state(state: Mood, context: Who | None) -> str:
    who = context.name if context else "you"
    return f"{state['mood']} {who} {len(state['messages'])}"


async def by_state_async(state: Mood, context: Who | None) -> SystemMessage:
    await asyncio.sleep(0)
    return SystemMessage(by_state(state, context))


class Asked:
    async def __call__(self, state: Mood, context: Who | None) -> str:
        return by_state(state, context)


FUNCTIONS: dict[str, Any] = {
    "plain": by_state,
    "async": by_state_async,
    "an object": Asked(),
    "a partial": partial(lambda more, state, context: by_state(state, context) + more, ""),
    "one that gives an awaitable": lambda state, context: by_state_async(state, context),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_sees_the_state_and_the_context(case: str, way: str) -> None:
    options: dict[str, Any] = {"state_schema": Mood, "context_schema": Who}
    given = {**GO, "mood": "glad"}
    found = shown(FUNCTIONS[case], given=given, context=Who("ann"), way=way, **options)
    assert found == f"glad ann 1\n\n{RULES}"


async def test_an_async_function_in_a_sync_run_within_an_event_loop() -> None:
    assert shown(by_state_async, given={**GO, "mood": "glad"}, state_schema=Mood) == f"glad you 1\n\n{RULES}"


def test_it_is_asked_once_before_each_call_of_the_model() -> None:
    asked: list[int] = []

    def prompt(state: Any, context: Any) -> str:
        asked.append(len(state["messages"]))
        return f"turn {len(asked)}"

    steps: list[Step] = [call("work"), call("work"), FINISH]
    with ScriptedModel(steps) as model:
        build_graph(model, [work], system_prompt=prompt).invoke(GO)
        said = [seen.messages[0].text.partition("\n")[0] for seen in model.seen]
    assert (asked, said) == ([1, 3, 5], ["turn 1", "turn 2", "turn 3"])


def test_what_a_function_says_counts_in_the_size_of_the_prompt() -> None:
    """A result is cut so that all fits, also where the prompt is what is long."""

    def long() -> str:
        """Return much."""
        return "word " * 3_000

    def script(messages: list[BaseMessage]) -> Any:
        return FINISH if any(isinstance(one, AIMessage) for one in messages) else call("long")

    for prompt, cut in (("", False), (lambda state, context: "kind " * 3_000, True)):
        model = ScriptedModel(script)
        build_graph(model, [long], system_prompt=prompt, prompt_tokens=7_000).invoke(GO)
        assert ("left out" in model.seen[-1].messages[-1].text) == cut


def _raises(state: Any, context: Any) -> str:
    raise LookupError("no such user")


async def _araises(state: Any, context: Any) -> str:
    raise LookupError("no such user")


FAILING: dict[str, tuple[Any, str]] = {
    "it raises": (_raises, "raised LookupError: no such user"),
    "it raises, async": (_araises, "raised LookupError: no such user"),
    "it gives nothing": (lambda state, context: None, "returned None, and not a text or a SystemMessage"),
    "it gives a number": (lambda state, context: 3, "returned 3, and not a text"),
    "it gives another message": (lambda state, context: AIMessage("x"), "returned AIMessage"),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", FAILING)
def test_one_that_fails_ends_the_task_with_a_sentence(case: str, way: str) -> None:
    function, says = FAILING[case]
    with ScriptedModel([]) as model:
        graph = build_graph(model, system_prompt=function)
        outcome = (graph.invoke(GO) if way == "sync" else asyncio.run(graph.ainvoke(GO)))["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "model_error")
    assert "The function passed as system_prompt= (" in outcome["error"]
    assert says in outcome["error"]


def test_after_a_failure_the_thread_can_be_tried_again() -> None:
    answers = iter([None, "Be kind."])
    graph = build_graph(
        ScriptedModel([FINISH]),
        system_prompt=lambda state, context: next(answers),
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "error"
    again = graph.invoke(retry(graph.get_state(THREAD).values), THREAD)
    assert again["outcome"]["status"] == "success"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"system_prompt": 3}, "pass text, a SystemMessage or a function"),
        ({"system_prompt": AIMessage("x")}, "pass text, a SystemMessage or a function"),
        ({"system_prompt": Who}, "is the class Who; pass text"),
        ({"system_prompt": lambda state: ""}, "must accept"),
        ({"system_prompt": SystemMessage([{"type": "text", "text": work}])}, "has the block"),
        ({"cache": "yes"}, "cache is 'yes'; use one of: auto, anthropic, openai"),
    ],
)
def test_what_cannot_be_one_is_refused_when_the_graph_is_built(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SetupError, match=says) as raised:
        build_graph(ScriptedModel([]), **options)
    assert "\n" not in str(raised.value)


def views(cache: Any, prompt: Any = "Be kind.") -> list[list[BaseMessage]]:
    """What the model is shown in three turns, and in a second task."""
    steps: list[Step] = [call("work"), "Hm.", call("work"), FINISH, FINISH]
    model = ScriptedModel(steps)
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    graph = build_graph(model, [work], system_prompt=prompt, cache=cache, **saved)
    graph.invoke(GO, THREAD)
    graph.invoke({"messages": [("user", "again")]}, THREAD)
    return [seen.messages for seen in model.seen]


def marks(view: list[BaseMessage]) -> list[int]:
    """The messages with a mark on their last block."""
    last = [message.content[-1] if isinstance(message.content, list) else {} for message in view]
    return [at for at, block in enumerate(last) if isinstance(block, dict) and "cache_control" in block]


def unmarked(message: BaseMessage) -> BaseMessage:
    """The message without its mark, its text as it is written without one."""
    if not isinstance(message.content, list):
        return message
    blocks = [{key: part for key, part in one.items() if key != "cache_control"} for one in message.content]  # type: ignore[union-attr]  # blocks of these tests are mappings
    alone = blocks[0]["text"] if len(blocks) == 1 else blocks
    return message.model_copy(update={"content": alone})


@pytest.mark.parametrize("prompt", ["Be kind.", SystemMessage([text("Be kind."), text("Be short.")])])
def test_for_anthropic_the_prompt_and_the_last_message_are_marked(prompt: Any) -> None:
    for view in views("anthropic", prompt):
        assert marks(view) == [0, len(view) - 1]
        assert view[0].content[-1] == text(RULES, MARK)
    assert [marks(view) for view in views(None, prompt)] == [[]] * 5


@pytest.mark.parametrize("cache", [None, "anthropic", "openai"])
def test_what_was_shown_stays_as_it_was(cache: Any) -> None:
    """Each prompt begins with the whole of the one before, but for the mark that has moved."""
    shown = [[unmarked(message) for message in view] for view in views(cache)]
    for before, after in itertools.pairwise(shown):
        assert after[: len(before)] == before


def test_a_mark_of_ones_own_goes_before_that_of_the_option() -> None:
    (view, *_) = views("anthropic", SystemMessage([text("Be kind.", HOUR)]))
    assert view[0].content == [text("Be kind."), text(RULES, HOUR)]


def test_nothing_of_it_is_stored() -> None:
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    graph = build_graph(ScriptedModel([call("work"), FINISH]), [work], cache="anthropic", **saved)
    graph.invoke(GO, THREAD)
    assert marks(graph.get_state(THREAD).values["messages"]) == []


def chat(provider: FakeProvider) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=provider.url, api_key=SecretStr("k"), max_retries=0)


def test_for_openai_each_thread_has_a_key_of_its_own() -> None:
    finish = Reply(calls=[tool_call("finish_task", summary="Done.")])
    work_first = Reply(calls=[tool_call("work")])
    with FakeProvider([work_first, finish, finish, finish]) as provider:
        saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
        graph: Graph = build_graph(chat(provider), [work], cache="openai", **saved)
        graph.invoke(GO, THREAD)
        graph.invoke(GO, {"configurable": {"thread_id": "another"}})
        build_graph(chat(provider)).invoke(GO)
        keys = [request.body.get("prompt_cache_key") for request in provider.requests]
    assert keys[0] == keys[1] != keys[2]
    assert all(key and key.startswith("signoff-") and len(key) <= 64 for key in keys[:3])
    assert keys[3] is None


class Claude(ScriptedModel):
    """A model that says of itself what Anthropic's package says."""

    @property
    def _llm_type(self) -> str:
        return "anthropic-chat"


def test_by_itself_it_is_what_the_provider_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    key = SecretStr("k")
    azure = AzureChatOpenAI(azure_endpoint="https://x", api_version="1", azure_deployment="d", api_key=key)
    models: dict[Any, str | None] = {
        "openai": cache_way("auto", ChatOpenAI(model="m", api_key=key)),
        "another server": cache_way("auto", ChatOpenAI(model="m", api_key=key, base_url="http://x/v1")),
        "azure": cache_way("auto", azure),
        "anthropic": cache_way("auto", Claude(script=[])),
        "unknown": cache_way("auto", ScriptedModel([])),
        "not asked for": cache_way(None, Claude(script=[])),
    }
    assert models == {
        "openai": "openai",
        "another server": None,
        "azure": None,
        "anthropic": "anthropic",
        "unknown": None,
        "not asked for": None,
    }
