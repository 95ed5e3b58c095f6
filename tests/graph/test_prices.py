"""A limit of cost goes by the prices that were given, else by the public list of `genai-prices`."""

import re
import sys
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from signoff import Limits, Prices, SetupError, build_graph
from signoff.graph.inside.installing import install_hint
from signoff.models import ScriptedModel, call, reply
from signoff.models.tagged import TaggedText
from signoff.nodes.model.prices import _listed, prices_of
from signoff.session.status import deps_of

GO: Any = {"messages": [("user", "do it")]}


def work() -> str:
    """Work."""
    return "worked"


def openai(name: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="none", **more)


def test_the_prices_of_a_known_model_by_its_name() -> None:
    found = prices_of(openai("gpt-4o"))
    assert found == Prices(input=2.5, output=10, cached_input=1.25)
    assert prices_of(openai("gpt-4o", base_url="http://127.0.0.1:1/v1")) == found, "a server between"
    assert prices_of(TaggedText(openai("gpt-4o"))) == found


def test_of_a_price_that_depends_on_the_prompt_the_highest_counts() -> None:
    assert prices_of(openai("gemini-2.5-pro")).input == 2.5


def test_a_limit_of_cost_ends_the_task() -> None:
    script = [reply(call("work"), usage=(400_000, 0)), reply(call("work"), usage=(400_000, 0))]
    model = ScriptedModel(script, model_name="gpt-4o")
    outcome = build_graph(model, [work], limits=Limits(cost=1.5)).invoke(GO)["outcome"]
    assert (outcome["reason"], outcome["turns"]) == ("cost", 2)


def test_a_run_may_set_it_and_name_another_model_with_its_own_prices() -> None:
    priced = deps_of(build_graph(openai("gpt-4o"))).priced
    assert priced is not None
    assert (priced("").output, priced("gpt-4o-mini").output) == (10, 0.6)

    def turns(**context: Any) -> int:
        script = [reply(call("work"), usage=(400_000, 0))] * 3 + [call("finish_task", summary="Done.")]
        model = ScriptedModel(script, model_name="gpt-4o")
        return int(build_graph(model, [work]).invoke(GO, context=context)["outcome"]["turns"])

    assert turns(cost=1.5) == 2
    assert turns() == 4


def test_prices_that_were_given_go_before() -> None:
    limits = Limits(cost=1, prices=Prices(input=1, output=1))
    assert deps_of(build_graph(openai("gpt-4o"), limits=limits)).limits == limits


def test_an_unknown_model_is_told_and_what_to_give() -> None:
    with pytest.raises(
        SetupError, match=r"No price is known for the model 'scripted'.*prices=Prices\(input=…"
    ):
        build_graph(ScriptedModel([]), limits=Limits(cost=1))
    with pytest.raises(SetupError, match="No price is known for the model 'scripted'"):
        build_graph(ScriptedModel([])).invoke(GO, context={"cost": 1})
    assert build_graph(ScriptedModel([])), "without a limit nothing is looked up"


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    _listed.cache_clear()
    with pytest.raises(SetupError, match=re.escape(install_hint("prices"))):
        build_graph(openai("gpt-4o"), limits={"cost": 1})
