"""Functions as tools: what is bound stays bound, and what no call could satisfy is refused when the graph is
built, in one line that names the tool and the argument."""

from __future__ import annotations

import functools
import math
import operator
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.callbacks import Callbacks
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import BaseModel

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

    @classmethod
    def name(cls, item: str) -> str:
        """Name it."""
        return f"{cls.__name__}: {item}"

    @staticmethod
    def twice(item: str) -> str:
        """Say it twice."""
        return item * 2


class Service:
    def __call__(self, a: int) -> int:
        """Call it."""
        return a


class Schema(BaseModel):
    runtime: str


def unresolved(a: int, b: Decimal) -> str:
    """Add."""
    return f"{a}{b}"


def unresolved_return(a: int) -> Decimal:
    """Total."""
    return f"total {a}"  # type: ignore[return-value]  # its hint is not looked at


def undescribed(a: int) -> int:
    return a


def blank(a: int) -> int:
    """ """
    return a


def hidden(_secret: str) -> str:
    """Keep it."""
    return _secret


def explicit(runtime: str) -> str:
    return runtime


def by_place(a: int, /) -> str:
    """Take it."""
    return str(a)


def anything(*args: Any, **kwargs: Any) -> str:
    """Take anything."""
    return f"{args}{kwargs}"


def all_by_name(**items: str) -> str:
    """Take them."""
    return str(items)


def of_a_thing(thing: Service) -> str:
    """Take what JSON does not have."""
    return str(thing)


def named(argument: str, hint: str = "str") -> Callable[..., str]:
    """A function with an argument of this name."""
    names: dict[str, Any] = {"Any": Any}
    exec(f'def deploy({argument}: {hint}) -> str:\n    """Deploy."""\n    return str({argument})', names)
    made: Callable[..., str] = names["deploy"]
    return made


def described(function: Any, name: str = "<lambda>") -> Any:
    function.__doc__, function.__name__ = "Do it.", name
    return function


# A tool, and what the error names.
REFUSED: dict[str, tuple[Any, str, str]] = {
    "a tool made in a class": (Shop.stock, "'stock'", "'self'"),
    "of an object": (Shop().stock, "'stock'", "'self'"),
    "a method without its object": (Shop.price, "'price'", "'self'"),
    "a partial of it": (functools.partial(Shop.price), "'price'", "'self'"),
    "a class method without its class": (Shop.__dict__["name"].__func__, "'name'", "'cls'"),
    "a class method of the class's dict": (Shop.__dict__["name"], "'name'", "tool"),
    "a hint for type checkers alone": (unresolved, "'unresolved'", "'b'"),
    "the same of a partial": (functools.partial(unresolved, 3), "'unresolved'", "'b'"),
    "by its place alone": (by_place, "'by_place'", "'a'"),
    "anything": (anything, "'anything'", "'args'"),
    "a partial of anything": (functools.partial(anything, a=1), "'anything'", "'args'"),
    "any by name": (all_by_name, "'all_by_name'", "'items'"),
    "a function of C by its place": (math.sqrt, "'sqrt'", "'x'"),
    "a method of a text": (str.upper, "'upper'", "'self'"),
    "a function of C that says nothing": (max, "'max'", "signature"),
    "a bound one": (functools.partial(max, 1), "max", "tool"),
    "no docstring": (undescribed, "'undescribed'", "docstring"),
    "a blank one": (blank, "'blank'", "docstring"),
    "a lambda": (described(lambda a: a), "'<lambda>'", "name"),
    "an argument with an underscore": (hidden, "'hidden'", "'_secret'"),
    "a type without a schema": (of_a_thing, "'of_a_thing'", "'thing'"),
    "a name in a schema": (
        StructuredTool.from_function(explicit, description="Deploy.", args_schema=Schema),
        "'explicit'",
        "'runtime'",
    ),
    "a name with a default": (named("runtime", "str = 'python3'"), "'deploy'", "'runtime'"),
    **{
        f"the name {name}": (named(name), "'deploy'", f"'{name}'")
        for name in ("runtime", "callbacks", "run_manager", "args", "kwargs", "v__args", "model_config")
    },
    "a type": (int, "int", "tool"),
    "a type with a bound argument": (functools.partial(int, base=2), "int", "tool"),
    "an object that can be called": (Service(), "Service", "tool"),
    "a getter": (operator.itemgetter("a"), "itemgetter", "tool"),
    "a runnable": (RunnableLambda(len), "RunnableLambda", "tool"),
    "a partial method": (functools.partialmethod(unresolved_return), "partialmethod", "tool"),
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
    return f"{user} in {year}, {len(state['messages'])} messages"


def configured(year: int, config: RunnableConfig) -> str:
    """Orders of a thread."""
    return f"{year} {type(config).__name__}"


def called_back(year: int, callbacks: Callbacks = None) -> str:
    """Orders."""
    return f"{year} {callbacks is not None}"


def at_run_time(year: int, runtime: ToolRuntime) -> str:
    """Orders."""
    return f"{year} {len(runtime.state['messages'])}"


def by_call(year: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Orders."""
    return f"{year} {tool_call_id}"


def bound(function: Any, *args: Any, update: bool = False, **keywords: Any) -> Any:
    made = functools.partial(function, *args, **keywords)
    return functools.update_wrapper(made, function) if update else made


async def soon(year: int) -> str:
    """Orders."""
    return f"soon {year}"


def without_end(year: int, until: float = math.inf, of: frozenset[int] = frozenset({1})) -> str:
    """Orders, with defaults that JSON does not have."""
    return f"{year} {until} {of}"


def by_name_alone(*, year: int) -> str:
    """Orders."""
    return str(year)


ANN, YEAR, LESS = "3 orders of ann in 1", {"year": 1}, ["year", "limit"]
FORGED = {"year": 1, "user": "mallory"}
# A tool, the arguments that the model passes, those that it is shown, and the result.
TAKEN: dict[str, tuple[Any, dict[str, Any], list[str], str]] = {
    "a function": (orders, {"user": "ann", "year": 1}, ["user", "year", "limit"], ANN),
    "a bound name": (bound(orders, user="ann"), YEAR, LESS, ANN),
    "a bound name that the model passes": (bound(orders, user="ann"), FORGED, LESS, ANN),
    "bound, with the function's name": (bound(orders, user="ann", update=True), FORGED, LESS, ANN),
    "bound by position": (bound(orders, "ann"), YEAR, LESS, ANN),
    "a bound default": (bound(orders, limit=3), {"user": "ann", "year": 1}, ["user", "year"], ANN),
    "bound twice": (bound(bound(orders, user="ann"), limit=3), YEAR, ["year"], ANN),
    "a partial of a coroutine": (bound(soon), YEAR, ["year"], "soon 1"),
    "a partial of a method": (bound(Shop().price), {"item": "x"}, ["item"], "the price of x"),
    "bound beside the state": (bound(with_state, user="ann"), YEAR, ["year"], "ann in 1, 2 messages"),
    "a tool of a partial": (
        StructuredTool.from_function(bound(orders, user="ann", update=True)),
        FORGED,
        LESS,
        ANN,
    ),
    "a partial that gives its object": (bound(Shop.price, Shop()), {"item": "x"}, ["item"], "the price of x"),
    "a coroutine": (soon, YEAR, ["year"], "soon 1"),
    "defaults that are no JSON": (without_end, YEAR, ["year", "until", "of"], "1 inf frozenset({1})"),
    "by its name alone": (by_name_alone, YEAR, ["year"], "1"),
    "a cached function": (functools.cache(by_name_alone), YEAR, ["year"], "1"),
    "a lambda with a name": (described(lambda year: f"lambda {year}", "made"), YEAR, ["year"], "lambda 1"),
    **{
        f"the name {name}": (named(name), {name: "v"}, [name], "v")
        for name in ("config", "state", "store", "context", "name", "schema", "json", "copy", "cls", "self")
    },
    "a method": (Shop().price, {"item": "x"}, ["item"], "the price of x"),
    "a class method": (Shop.name, {"item": "x"}, ["item"], "Shop: x"),
    "a static method": (Shop.twice, {"item": "x"}, ["item"], "xx"),
    "a return hint for type checkers alone": (unresolved_return, {"a": 1}, ["a"], "total 1"),
    "the configuration": (configured, YEAR, ["year"], "1 dict"),
    "callbacks": (called_back, YEAR, ["year"], "1 True"),
    "the runtime": (at_run_time, YEAR, ["year"], "1 2"),
    "the id of the call": (by_call, YEAR, ["year"], "1 c1"),
}


# Pydantic warns of names that its models have, and of defaults that JSON does not have.
@pytest.mark.filterwarnings("ignore:Field name", "ignore:Default value")
@pytest.mark.parametrize("case", TAKEN)
def test_what_the_model_is_shown_and_may_pass(case: str) -> None:
    given, args, shown, result = TAKEN[case]
    name = getattr(given, "name", None) or getattr(given, "__name__", None) or given.func.__name__
    model = ScriptedModel([call(name, id="c1", **args), FINISH])
    state = build_graph(model, tools=[given]).invoke(GO)
    offered = model.seen[0].tools[0]["function"]
    assert list(offered["parameters"]["properties"]) == shown
    assert results(state, name) == [result]


PROGRAM = '''
from langchain_core.tools import StructuredTool
from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call
def look(place: str) -> str:
    """Look."""
    return place
try:
    build_graph(ScriptedModel([]), tools=[look])
except SetupError as error:
    print(error)
named = StructuredTool.from_function(look, description="Look.")
model = ScriptedModel([call("look", place="here"), call("finish_task", summary="Done.")])
print(build_graph(model, tools=[named]).invoke({"messages": [("user", "go")]})["outcome"]["status"])
'''


@pytest.mark.slow
def test_without_docstrings_an_error_says_why() -> None:
    done = subprocess.run([sys.executable, "-OO", "-c", PROGRAM], capture_output=True, text=True, check=True)
    told, status = done.stdout.splitlines()
    assert ("'look'" in told, "-OO" in told, status) == (True, True, "success")
