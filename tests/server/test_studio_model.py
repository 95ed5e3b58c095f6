"""The model's name in the context of a run: another model of the same provider, for this run alone."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from signoff import Session, SetupError, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.finish.recorded import Figures
from signoff.graph.foreign import FIGURES, label
from signoff.graph.messages import is_reply
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, TaggedText, call
from signoff.models.local.chat import LocalChatModel
from signoff.nodes.model.models import renamed
from signoff.session.status import deps_of
from signoff.studio import compose
from tests.support.ends import is_finished
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call

Way = Callable[..., dict[str, Any]]
FINISH = Reply(calls=[tool_call("finish_task", summary="Done.")])
ASK = Reply(calls=[tool_call("ask_user", question="Which port?")])
GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}


def invoke(graph: Graph, **given: Any) -> dict[str, Any]:
    result: dict[str, Any] = graph.invoke(GO, THREAD, **given)
    return result


def ainvoke(graph: Graph, **given: Any) -> dict[str, Any]:
    return asyncio.run(graph.ainvoke(GO, THREAD, **given))


both_ways = pytest.mark.parametrize("run", [invoke, ainvoke])


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


def chat(provider: FakeProvider, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="first", base_url=provider.url, api_key=SecretStr("k"), max_retries=0, **more)


def asked(provider: FakeProvider) -> list[str]:
    """The model that each request named."""
    return [request.body["model"] for request in provider.requests]


@both_ways
@pytest.mark.parametrize(
    ("context", "name"),
    [
        ({"model": "second"}, "second"),
        ({"model": " second "}, "second"),
        ({"model": ""}, "first"),
        ({"model": "  "}, "first"),
        ({"model": None}, "first"),
        ({}, "first"),
        (None, "first"),
    ],
)
def test_the_context_names_the_model_of_this_run(
    provider: FakeProvider, run: Way, context: dict[str, Any] | None, name: str
) -> None:
    provider.script += [FINISH]
    graph = build_graph(chat(provider))
    assert run(graph, context=context)["outcome"]["status"] == "success"
    assert asked(provider) == [name]
    tools = [tool["function"]["name"] for tool in provider.requests[0].body["tools"]]
    assert tools == ["finish_task", "ask_user", "think"], "the other model has the same tools"


@both_ways
def test_a_name_does_not_leak_into_the_next_run(provider: FakeProvider, run: Way) -> None:
    names = ["second", None, "third", "second", None]
    provider.script += [FINISH] * len(names)
    model = chat(provider)
    graph = build_graph(model)
    for name in names:
        run(graph, context={"model": name})
    assert asked(provider) == [name or "first" for name in names]
    assert model.model_name == "first"


async def test_runs_beside_each_other_have_each_their_own(provider: FakeProvider) -> None:
    names = [f"model-{at}" for at in range(20)]
    provider.script += [FINISH] * len(names)
    graph = build_graph(chat(provider))
    await asyncio.gather(*(graph.ainvoke(GO, context={"model": name}) for name in names))
    assert sorted(asked(provider)) == sorted(names)


def test_a_resume_uses_the_name_of_its_own_context(provider: FakeProvider, tmp_path: Path) -> None:
    provider.script += [ASK, FINISH]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(chat(provider), storage=storage)
        Session(graph, "t", context={"model": "second"}).run("go")
        assert is_finished(Session(graph, "t", context={"model": "third"}).resume("80"))
    assert asked(provider) == ["second", "third"]


def test_a_name_is_bound_once_and_only_the_last_few_are_kept(provider: FakeProvider) -> None:
    deps = deps_of(build_graph(chat(provider)))
    again = deps.by_name("second")
    assert deps.by_name("second") is again
    for at in range(100):
        deps.by_name(f"model-{at}")
    assert deps.by_name("second") is not again


def test_the_model_behind_the_text_protocol_is_renamed(provider: FakeProvider) -> None:
    provider.script += [Reply("<PLAN>All is done. [FINALIZE]</PLAN>")]
    graph = build_graph(TaggedText(chat(provider)))
    assert invoke(graph, context={"model": "second"})["outcome"]["status"] == "success"
    assert asked(provider) == ["second"]


class Named(BaseChatModel):
    """A model as a provider's package might write it: its replies say which model gave them."""

    model: str = "first"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    @property
    def _llm_type(self) -> str:
        return "named"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said: dict[str, Any] = {"model_name": self.model, "finish_reason": "stop"}
        calls = [{"name": "finish_task", "args": {"summary": "Done."}, "id": "c", "type": "tool_call"}]
        reply = AIMessage("", tool_calls=calls, response_metadata=said)
        return ChatResult(generations=[ChatGeneration(message=reply)])


@both_ways
def test_figures_and_history_name_the_model_that_was_used(tmp_path: Path, run: Way) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(Named(), storage=storage)
        result = run(graph, context={"model": "second"})
        (item,) = storage.store.search(("signoff", FIGURES, label("t")))
        figures: Figures = item.value  # type: ignore[assignment]  # what the store keeps under FIGURES
    assert figures["model"] == "second"
    (reply,) = [message for message in result["messages"] if is_reply(message)]
    assert reply.response_metadata["model_name"] == "second"


def note(text: str) -> str:
    """Takes a note."""
    return f"noted {text}"


@both_ways
@pytest.mark.parametrize(("name", "summaries_by"), [("second", "second"), (None, "first")])
@pytest.mark.slow
@pytest.mark.sample(1)
def test_a_summary_by_the_model_is_by_the_one_that_the_context_names(
    provider: FakeProvider, run: Way, name: str | None, summaries_by: str
) -> None:
    provider.script += [Reply(calls=[tool_call("note", text=f"{at} " + "x" * 400)]) for at in range(60)]
    graph = build_graph(chat(provider), [note], policy={"compaction": "model", "prompt_tokens": 3_000})
    run(graph, context={"model": name, "turns": 30})
    asks = DEFAULT_TEXTS.note_down.partition(":")[0]
    last = ((request.body["model"], request.body["messages"][-1]["content"]) for request in provider.requests)
    summaries = [model for model, words in last if str(words).startswith(asks)]
    assert summaries
    assert set(summaries) == {summaries_by} == set(asked(provider))


def test_another_model_for_summaries_keeps_its_name(provider: FakeProvider) -> None:
    provider.script += [Reply(calls=[tool_call("note", text=f"{at} " + "x" * 400)]) for at in range(40)]
    writer = ScriptedModel(lambda messages: "Some notes were taken.")
    graph = build_graph(chat(provider), [note], policy={"compaction": writer, "prompt_tokens": 3_000})
    invoke(graph, context={"model": "second", "turns": 30})
    assert writer.seen
    assert set(asked(provider)) == {"second"}


def azure() -> BaseChatModel:
    return AzureChatOpenAI(
        azure_deployment="ours",
        azure_endpoint="http://127.0.0.1:9",
        api_version="2024-06-01",
        api_key=SecretStr("k"),
    )


def by_session(graph: Graph, **given: Any) -> dict[str, Any]:
    Session(graph, "t", **given).run("go")
    return {}


@pytest.mark.parametrize("run", [invoke, ainvoke, by_session])
def test_a_model_without_a_name_to_change_is_told_so_and_the_thread_goes_on(run: Way) -> None:
    with ScriptedModel([call("finish_task", summary="Done.")]) as model:
        graph = build_graph(model, checkpointer=InMemorySaver())
        with pytest.raises(SetupError, match="'second', but ScriptedModel has no name that can be changed"):
            run(graph, context={"model": "second"})
        ended = Session(graph, "t").run()
    assert is_finished(ended)
    assert ended.outcome.turns == 1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ScriptedModel([]), id="scripted"),
        pytest.param(lambda: TaggedText(ScriptedModel([])), id="wrapped"),
        pytest.param(azure, id="a deployment"),
        pytest.param(lambda: LocalChatModel.model_construct(model_name="embedded"), id="embedded"),
    ],
)
def test_models_that_cannot_be_renamed(make: Callable[[], BaseChatModel]) -> None:
    with pytest.raises(SetupError, match="leave `model` out of the context"):
        renamed(make(), "second")


def test_a_model_that_is_missing_says_what_is_missing_under_any_name() -> None:
    outcome = invoke(compose({"SIGNOFF_MODEL": "gpt-5"}), context={"model": "second"})["outcome"]
    assert (outcome["reason"], "OPENAI_API_KEY" in outcome["error"]) == ("model_error", True)


def test_a_name_longer_than_any_is_refused() -> None:
    with pytest.raises(SetupError, match="model"):
        invoke(build_graph(ScriptedModel([])), context={"model": "x" * 1_000})
