"""Functions as tools: what is bound stays bound, and what no call could satisfy is refused when the graph is
built, in one line that names the tool and the argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.tools import StructuredTool, tool
from langgraph.prebuilt import InjectedState

from signoff import ControlTool, SetupError, build_graph, standard_controls
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, results

if TYPE_CHECKING:
    from decimal import Decimal


class Shop:
    @tool
    def stock(self, item: str) -> str:
        """Look up the stock."""
        return item

    def price(self, item: str) -> str:
        """Look up the price."""
        return f"the price of {item}"


class Service:
    def __call__(self, a: int) -> int:
        """Call it."""
        return a


def unresolved(a: int, b: Decimal) -> str:
    """Add."""
    return f"{a}{b}"


def hidden(_secret: str) -> str:
    """Keep it."""
    return _secret


def by_place(a: int, /) -> str:
    """Take it."""
    return str(a)


def anything(*args: Any, **kwargs: Any) -> str:
    """Take anything."""
    return f"{args}{kwargs}"


def of_a_thing(thing: Service) -> str:
    """Take what JSON does not have."""
    return str(thing)


def named(argument: str) -> Callable[..., str]:
    """A function with an argument of this name."""
    names: dict[str, Any] = {}
    exec(f'def deploy({argument}: str) -> str:\n    """Deploy."""\n    return str({argument})', names)
    made: Callable[..., str] = names["deploy"]
    return made


# A tool, and what the error names.
REFUSED: dict[str, tuple[Any, str, str]] = {
    "a tool made in a class": (Shop.stock, "'stock'", "'self'"),
    "a method without its object": (Shop.price, "'price'", "'self'"),
    "a hint for type checkers alone": (unresolved, "'unresolved'", "'b'"),
    "by its place alone": (by_place, "'by_place'", "'a'"),
    "anything": (anything, "'anything'", "'args'"),
    "a function of C that says nothing": (max, "'max'", "signature"),
    "an argument with an underscore": (hidden, "'hidden'", "'_secret'"),
    "a type without a schema": (of_a_thing, "'of_a_thing'", "'thing'"),
    **{
        f"the name {name}": (named(name), "'deploy'", f"'{name}'")
        for name in ("runtime", "run_manager", "args", "v__args", "model_config")
    },
    "an object that can be called": (Service(), "Service", "tool"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_call_could_satisfy_is_refused_when_the_graph_is_built(case: str) -> None:
    given, tool_name, argument = REFUSED[case]
    with pytest.raises(SetupError) as told:
        build_graph(ScriptedModel([]), tools=[given])
    said = str(told.value)
    assert (tool_name in said, argument in said, "\n" in said) == (True, True, False)


def test_a_finishing_tool_is_checked_too() -> None:
    controls = [*standard_controls(), ControlTool(Shop.stock, "finish")]
    with pytest.raises(SetupError, match=r"'stock'.*'self'"):
        build_graph(ScriptedModel([]), control_tools=controls)


def orders(user: str, year: int, limit: int = 3) -> str:
    """Orders of a user."""
    return f"{limit} orders of {user} in {year}"


def with_state(user: str, year: int, state: Annotated[Any, InjectedState]) -> str:
    """Orders of a user."""
    return f"{user}: {len(state['messages'])} messages"


async def soon(year: int) -> str:
    """Orders."""
    return f"soon {year}"


ANN, YEAR, LESS = "3 orders of ann in 1", {"year": 1}, ["year", "limit"]
FORGED = {"year": 1, "user": "mallory"}
OF_ANN = StructuredTool.from_function(update_wrapper(partial(orders, user="ann"), orders))
# A tool, the arguments that the model passes, those that it is shown, and the result.
TAKEN: dict[str, tuple[Any, dict[str, Any], list[str], str]] = {
    "a function": (orders, {"user": "ann", "year": 1}, ["user", "year", "limit"], ANN),
    "a bound name": (partial(orders, user="ann"), YEAR, LESS, ANN),
    "a bound name that the model passes": (partial(orders, user="ann"), FORGED, LESS, ANN),
    "bound by position": (partial(orders, "ann"), YEAR, LESS, ANN),
    "bound beside the state": (partial(with_state, user="ann"), YEAR, ["year"], "ann: 2 messages"),
    "a tool of a partial": (OF_ANN, FORGED, LESS, ANN),
    "a coroutine": (soon, YEAR, ["year"], "soon 1"),
    **{
        f"the name {name}": (named(name), {name: "v"}, [name], "v")
        for name in ("config", "state", "store", "schema", "json", "cls", "self")
    },
    "a method": (Shop().price, {"item": "x"}, ["item"], "the price of x"),
}


# Pydantic warns of names that its models have.
@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("case", TAKEN)
def test_what_the_model_is_shown_and_may_pass(case: str) -> None:
    given, args, shown, result = TAKEN[case]
    name = getattr(given, "name", None) or getattr(given, "__name__", None) or given.func.__name__
    model = ScriptedModel([call(name, id="c1", **args), FINISH])
    state = build_graph(model, tools=[given]).invoke(GO)
    offered = model.seen[0].tools[0]["function"]
    assert list(offered["parameters"]["properties"]) == shown
    assert results(state, name) == [result]
