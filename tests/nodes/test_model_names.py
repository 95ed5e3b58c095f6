"""Models by name, in LangChain's wrappers, and several of them: with the guard and the tools."""

import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import ModelRetries, Session, SetupError, build_graph, sqlite_storage
from signoff.graph.inside.installing import install_hint
from signoff.graph.studio import compose
from signoff.models import ScriptedModel
from signoff.models.choose import check_model, choose_model
from signoff.models.tagged import TaggedText
from signoff.nodes.model.providers import PROVIDERS, model_by_name, provider_name
from signoff.session.status import deps_of
from tests.support.benches.cli import Bench
from tests.support.servers.fake_provider import FakeProvider, Reply, error, tool_call

DONE = Reply(calls=[tool_call("finish_task", summary="Done.")])
LONG = Reply(calls=[tool_call("finish_task", summary="Done."), *[tool_call("think", thought="x" * 400)] * 9])
GO: Any = {"messages": [("user", "go")]}
KEYS = {"ANTHROPIC_API_KEY": "a", "GOOGLE_API_KEY": "g", "OPENAI_API_KEY": "o"}
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for key in provider.keys:
            monkeypatch.delenv(key, raising=False)


def chat(server: FakeProvider, name: str = "m", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=server.url, api_key=SecretStr("none"), **options)


async def ran(model: Any, mode: str, config: Any = None, **settings: Any) -> dict[str, Any]:
    graph = build_graph(model, **{"model_retries": ModelRetries(first_wait=0.01), **settings})
    result: dict[str, Any] = await graph.ainvoke(GO, config) if mode == "async" else graph.invoke(GO, config)
    return result


# By name.

NAMES: dict[str, tuple[str, str, str]] = {
    "anthropic:claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5", "ChatAnthropic"),
    "google_genai:gemini-2.5-flash": ("google_genai", "gemini-2.5-flash", "ChatGoogleGenerativeAI"),
    "google-genai: gemini-2.5-flash": ("google_genai", "gemini-2.5-flash", "ChatGoogleGenerativeAI"),
    "OpenAI:gpt-5": ("openai", "gpt-5", "ChatOpenAI"),
    "openai:ft:gpt-4o:me": ("openai", "ft:gpt-4o:me", "ChatOpenAI"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_a_provider_makes_its_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, model, kind = NAMES[name]
    assert provider_name(name) == (provider, model)
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    graph = build_graph(name)
    assert deps_of(graph).own.asked[0].name.removeprefix("models/") == model
    assert type(model_by_name(name)).__name__ == kind


def test_a_name_with_openai_makes_its_model_without_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    assert deps_of(build_graph("openai:gpt-5")).own.asked[0].name == "gpt-5"


@pytest.mark.parametrize("name", ["qwen2.5:7b", "ft:gpt-4o:me", "gpt-5", "meta-llama/llama:free", ""])
def test_other_names_are_bare(name: str) -> None:
    assert provider_name(name) is None


@pytest.mark.parametrize("name", ["qwen2.5:7b", "ft:gpt-4o:me"])
def test_a_bare_name_stays_that_of_an_openai_compatible_server(name: str) -> None:
    check_model(name, None, KEYS)
    model: Any = choose_model(name, None, KEYS).model
    assert (type(model), model.model_name) == (ChatOpenAI, name)


def test_with_a_base_url_every_name_is_bare() -> None:
    model: Any = choose_model("anthropic:claude", "http://127.0.0.1:9/v1", {}).model
    assert (type(model), model.model_name) == (ChatOpenAI, "anthropic:claude")


MISSING: dict[str, tuple[str, list[str]]] = {
    "no package": ("perplexity:sonar", ["langchain-perplexity", install_hint("", "langchain-perplexity")]),
    "no package and no key": ("together:m", [install_hint("", "langchain-together")]),
    "no key of Anthropic": ("anthropic:claude", ["needs a key: set ANTHROPIC_API_KEY."]),
    "no key of Google": ("google_genai:gemini", ["needs a key: set GOOGLE_API_KEY or GEMINI_API_KEY."]),
    "no key of OpenAI": ("openai:gpt-5", ["needs a key: set OPENAI_API_KEY."]),
}
BEGIN: dict[str, Callable[[str], object]] = {
    "a graph": build_graph,
    "a fallback": lambda name: build_graph(ScriptedModel([]), fallbacks=[name]),
    "a command": lambda name: choose_model(name, None, {}),
}


@pytest.mark.parametrize("begin", BEGIN)
@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_told_in_one_sentence(case: str, begin: str) -> None:
    name, says = MISSING[case]
    with pytest.raises(SetupError) as told:
        BEGIN[begin](name)
    said = str(told.value)
    assert all(words in said for words in says), said
    assert repr(name) in said
    assert "\n" not in said
    assert "OPENAI" not in said or name.startswith("openai")


def test_without_langchain_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # So Python notes that there is none.
    monkeypatch.setitem(sys.modules, "langchain", None)
    with pytest.raises(SetupError, match=re.escape(install_hint("langchain")) + "$"):
        build_graph("anthropic:claude")
    with pytest.raises(SetupError, match=re.escape(install_hint("langchain", "langchain-perplexity")) + "$"):
        build_graph("perplexity:sonar")


def test_the_providers_are_those_of_langchain() -> None:
    with pytest.raises(ValueError, match="Supported model providers are: ") as told:
        init_chat_model("x", model_provider="nobody")
    assert set(str(told.value).rpartition("are: ")[2].split(", ")) == set(PROVIDERS)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_has_the_package_that_langchain_names(provider: str) -> None:
    said = ""
    try:
        init_chat_model("x", model_provider=provider)
    except Exception as error:  # noqa: BLE001  each package has its own, where it is installed
        said = str(error)
    if "Please install it" in said:
        assert f"requires the {PROVIDERS[provider].package} package" in said
    else:
        assert find_spec(PROVIDERS[provider].package.replace("-", "_")), said


def test_the_command_line_says_it_before_anything_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_MODEL"] = None
    result = bench.run("Do it", "--model", "anthropic:claude", ANTHROPIC_API_KEY=None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ANTHROPIC_API_KEY" in result.stderr
    assert "OPENAI" not in result.stderr


def test_studio_takes_such_a_name_too(tmp_path: Path) -> None:
    env = {"SIGNOFF_MODEL": "anthropic:claude", "SIGNOFF_WORKSPACE": str(tmp_path)}
    outcome = compose(env).invoke(GO)["outcome"]
    assert outcome["status"] == "error"
    assert "set ANTHROPIC_API_KEY" in outcome["error"]


# Not in wrappers.

HEAT = ConfigurableField(id="heat")
WRAPPED: dict[str, Callable[[], Any]] = {
    "bind": lambda: chat_at_nowhere().bind(temperature=0.25),
    "bind_tools": lambda: chat_at_nowhere().bind_tools([]),
    "with_config": lambda: chat_at_nowhere().with_config(tags=["mine"]),
    "with_retry": lambda: chat_at_nowhere().with_retry(),
    "with_fallbacks": lambda: chat_at_nowhere().with_fallbacks([ScriptedModel([])]),
    "configurable_fields": lambda: chat_at_nowhere().configurable_fields(temperature=HEAT),
    "configurable_alternatives": lambda: chat_at_nowhere().configurable_alternatives(HEAT),
    "made anew for each run": lambda: init_chat_model("openai:m", configurable_fields=("model",)),
    "a parser behind it": lambda: ScriptedModel([]) | RunnableLambda(lambda message: message),
}


def chat_at_nowhere() -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url="http://127.0.0.1:9/v1", api_key=SecretStr("none"))


@pytest.mark.parametrize("made", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_model_is_refused_in_a_sentence_that_says_what_to_write(made: Callable[[], Any]) -> None:
    wrapped = made()
    for arguments in ({"model": wrapped}, {"model": ScriptedModel([]), "fallbacks": [wrapped]}):
        with pytest.raises(SetupError, match=r"not a chat model.*model_retries=.*fallbacks=") as told:
            build_graph(**arguments)
        assert type(wrapped).__name__ in str(told.value)


# Several.


def test_a_run_names_another_first_model(tmp_path: Path) -> None:
    with FakeProvider([DONE]) as server, sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(chat(server, "a", seed=7), storage=storage, fallbacks=[chat(server, "b")])
        outcome: Any = Session(graph, "t", context={"model": "c"}).run("go")
        assert [(r.body["model"], r.body["seed"]) for r in server.requests] == [("c", 7)]
    assert outcome.outcome.models == {"c": 1}


def test_the_prompt_fits_the_smallest_of_them() -> None:
    def of(size: int | None) -> BaseChatModel:
        model = ScriptedModel([])
        model.profile = {"max_input_tokens": size} if size else None
        return model

    assert deps_of(build_graph(of(200_000), fallbacks=[of(50_000), of(None)])).prompt_tokens == 40_000


def test_prompts_are_cached_where_all_of_them_go_by_one_way() -> None:
    # Not at the top: `make lowest` runs tests of this file without this package.
    from langchain_anthropic import ChatAnthropic

    claude = ChatAnthropic(model="m", api_key=SecretStr("k"))
    own = chat_at_nowhere()
    assert deps_of(build_graph(claude, cache="auto", fallbacks=[claude])).cache == "anthropic"
    assert deps_of(build_graph(claude, cache="auto", fallbacks=[own])).cache is None


def test_the_text_protocol_has_fallbacks_too() -> None:
    text = "<PLAN>[FINALIZE] All of it.</PLAN>"
    with FakeProvider([error(401, "No.")]) as server:
        spare = TaggedText(ScriptedModel([text]))
        outcome = build_graph(TaggedText(chat(server)), fallbacks=[spare]).invoke(GO)["outcome"]
    assert outcome["status"] == "success", outcome
