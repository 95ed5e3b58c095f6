"""The multi-turn tasks of the Berkeley Function Calling Leaderboard, v4, from its own package (Apache-2.0).

Its questions, function documents, simulated systems, the calls that solve each turn, and its own checks of
state and responses. Nothing of it is copied here. A world is judged as BFCL judges one: its public state is
that of a fresh world in which the solution was played, and among the results of the calls that took place
are those that the solution gets in each turn.

Of `multi_turn_miss_param`, a turn in which something is missing has no calls: the agent ends it in words,
and the next thing that the user says has what was missing. What the user says is numbered here: it can be as
short as "Nvidia.", and a file may hold the same words.
"""

import copy
import functools
import inspect
import json
from ast import Call as Expression
from ast import Name, literal_eval, parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module, resources
from typing import Any

from loopcheck.sources.task import Call, Source, Task, Tool, Turn

_CATEGORIES = ("multi_turn_base", "multi_turn_miss_param", "multi_turn_long_context")
_TYPES = {"dict": "object", "float": "number"}

_WRITES = {
    "GorillaFileSystem": "cd cp echo mkdir mv rm rmdir touch",
    "MathAPI": "",
    "MessageAPI": "add_contact delete_message message_login send_message",
    "TwitterAPI": "authenticate_twitter comment follow_user mention post_tweet retweet unfollow_user",
    "TicketAPI": "close_ticket create_ticket edit_ticket logout resolve_ticket ticket_login",
    "TradingBot": "add_to_watchlist cancel_order fund_account place_order remove_stock_from_watchlist "
    "trading_login trading_logout withdraw_funds",
    "TravelAPI": "authenticate_travel book_flight cancel_booking purchase_insurance register_credit_card "
    "set_budget_limit",
    "VehicleControlAPI": "activateParkingBrake adjustClimateControl fillFuelTank lockDoors pressBrakePedal "
    "releaseBrakePedal setCruiseControl setHeadlights set_navigation startEngine",
}
"""BFCL does not say which functions change something. These did when all solutions were played and the
systems were compared before and after every call, with the folder they are in; or they do by their source,
where no solution calls them. A cache of prices and the place of a seeded random generator are no change."""

_LATE = "a function is given to the agent in the middle of the task; ours has the same tools to its end"
_TEXT = "its solution has close_ticket(ticket_id='ticket_001'), whose document wants an integer"
_LEFT_OUT = {f"multi_turn_miss_func_{number}": _LATE for number in range(200)} | {
    f"{category}_173": _TEXT for category in _CATEGORIES
}


def _bfcl(module: str) -> Any:
    """A module of the package, which is not everywhere. Raises ImportError."""
    return import_module(f"bfcl_eval.{module}")


def _lines(path: str) -> list[Any]:
    """The objects of a file with one of them in each line."""
    text = resources.files("bfcl_eval").joinpath("data", *path.split("/")).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@dataclass
class World:
    """The systems of a task, by the name of their class, and what each call returned, in order."""

    systems: Mapping[str, Any]
    results: list[str] = field(default_factory=list)


def _world(entry: Mapping[str, Any]) -> World:
    """As BFCL begins one, but for its cache of instances and for what those share with their modules."""
    backend = _bfcl("constants.executable_backend_config")
    systems, long_context = {}, "long_context" in entry["id"]
    for name in entry["involved_classes"]:
        system = getattr(import_module(backend.CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in backend.STATELESS_CLASSES:
            config = copy.deepcopy(entry["initial_config"].get(name, {}))
            system._load_scenario(config, long_context=long_context)
        # The cards and bookings of a long context are otherwise the same objects in all worlds.
        systems[name] = copy.deepcopy(system)
    return World(systems)


@functools.cache
def _tools(system: str) -> Mapping[str, Tool]:
    backend = _bfcl("constants.executable_backend_config")
    kind = getattr(import_module(backend.CLASS_FILE_PATH_MAPPING[system]), system)
    documents = _lines(f"multi_turn_func_doc/{backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING[system]}")
    return {one["name"]: _tool(system, getattr(kind, one["name"]), one) for one in documents}


def _tool(system: str, function: Any, document: Mapping[str, Any]) -> Tool:
    name, parameters = document["name"], _schema(document["parameters"])
    _, *others = inspect.signature(function).parameters.values()
    signature = inspect.Signature(others)

    def whole(args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            bound = signature.bind(**args)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from error
        bound.apply_defaults()
        fitting: Mapping[str, Any] = _fitting(parameters, bound.arguments)
        return fitting

    def run(world: World, args: Mapping[str, Any]) -> str:
        given = whole(args)
        try:
            text = _text(getattr(world.systems[system], name)(**given))
        except Exception as error:
            world.results.append(f"Error during execution: {error}")
            raise
        world.results.append(text)
        return text

    return Tool(name, document["description"], parameters, run, name not in _WRITES[system].split(), whole)


def _schema(found: Mapping[str, Any]) -> dict[str, Any]:
    """BFCL's description of a value as JSON schema. Its defaults are the functions' own business: those of
    texts may be the word "None"."""
    schema = {key: found[key] for key in ("description", "required") if key in found}
    schema["type"] = _TYPES.get(found["type"], found["type"])
    if "items" in found:
        schema["items"] = _schema(found["items"])
    if "properties" in found:
        schema["properties"] = {name: _schema(one) for name, one in found["properties"].items()}
    return schema


def _fitting(schema: Mapping[str, Any], value: Any) -> Any:
    """A copy in which 5 and 5.0 are what the schema says: not every agent's JSON keeps them apart, and BFCL
    compares the texts of results. A copy, as systems keep what they are given, and change it later."""
    kind = schema.get("type")
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        return {name: _fitting(known.get(name, {}), one) for name, one in value.items()}
    if isinstance(value, list):
        return [_fitting(schema.get("items", {}), one) for one in value]
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _text(result: Any) -> str:
    """A result as BFCL tells it."""
    if not isinstance(result, dict):
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError):
        return str(result)


def _call(text: str, tools: Mapping[str, Tool]) -> Call:
    """The call of a line of the solution; what is given by position gets the name of its parameter."""
    made = parse(text.strip(), mode="eval").body
    if not isinstance(made, Expression) or not isinstance(made.func, Name):
        raise ValueError(f"No call of a function: {text}")
    names = tools[made.func.id].parameters["properties"]
    args = dict(zip(names, map(literal_eval, made.args), strict=False))
    return Call(made.func.id, args | {one.arg or "": literal_eval(one.value) for one in made.keywords})


def _task(entry: Mapping[str, Any], solution: Sequence[Sequence[str]]) -> Task:
    excluded = entry.get("excluded_function", ())
    offered = {name: tool for system in entry["involved_classes"] for name, tool in _tools(system).items()}
    tools = {name: tool for name, tool in offered.items() if name not in excluded}
    says = [message["content"].strip() for turn in entry["question"] for message in turn]
    turns = [
        Turn(f"Turn {at}: {say}", [_call(text, tools) for text in texts], _answer(at, bool(texts)))
        for at, (say, texts) in enumerate(zip(says, solution, strict=True), 1)
    ]

    def solved(world: World, answers: Sequence[str], ran: Sequence[Call]) -> bool:
        checker, right = _bfcl("eval_checker.multi_turn_eval.multi_turn_checker"), _world(entry)
        for at, turn in enumerate(turns):
            told = [tools[call.name].run(right, call.args) for call in turn.calls]
            if not checker.response_checker(world.results, told, at)["valid"]:
                return False
        return bool(checker.state_checker(world.systems, right.systems)["valid"])

    return Task("bfcl", entry["id"], turns, tools, functools.partial(_world, entry), solved)


def _answer(turn: int, called: bool) -> str:
    return f"Done with turn {turn}." if called else f"I call nothing in turn {turn}."


def tasks() -> list[Task]:
    """All that take part. Raises ImportError where the package is missing."""
    found = []
    for category in _CATEGORIES:
        solutions = _lines(f"possible_answer/BFCL_v4_{category}.json")
        solution = {one["id"]: one["ground_truth"] for one in solutions}
        for entry in _lines(f"BFCL_v4_{category}.json"):
            if entry["id"] not in _LEFT_OUT:
                found.append(_task(entry, solution[entry["id"]]))
    return found


SOURCE = Source(
    name="bfcl",
    title="BFCL v4, multi-turn",
    # All that is imported, without what else it asks for: clients of language models, vector stores.
    packages=["bfcl-eval==2026.3.23", "mpmath==1.3.0"],
    licence="Apache-2.0",
    link="https://github.com/ShishirPatil/gorilla/tree/main/berkeley-function-call-leaderboard",
    tasks=tasks,
    left_out=_LEFT_OUT,
)
