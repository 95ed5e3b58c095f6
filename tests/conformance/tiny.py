"""A source of three small tasks, made for these tests: money is paid, and noted in a book."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopcheck.sources.task import Ask, Call, Source, Task, Tool, Turn

SUITE = Path(__file__).parents[2] / "conformance"
LOOP = [sys.executable, str(Path(__file__).parent / "subjects" / "loop.py")]
"""What starts the small loop."""
World = dict[str, Any]


def _look(world: World, args: Mapping[str, Any]) -> str:
    return f"{args['of']} has {sum(amount for to, amount in world['paid'] if to == args['of'])}"


def _pay(world: World, args: Mapping[str, Any]) -> str:
    world["paid"].append((args["to"], args["amount"]))
    return f"paid {args['amount']} to {args['to']}"


def _note(world: World, args: Mapping[str, Any]) -> str:
    world["noted"].append(args["text"])
    return "noted"


def _tool(name: str, run: Callable[[World, Mapping[str, Any]], str], reads: bool, *args: str) -> Tool:
    fields = {arg: {"type": "number" if arg == "amount" else "string"} for arg in args}
    parameters = {"type": "object", "properties": fields, "required": list(args)}
    return Tool(name, f"{name.title()} something.", parameters, run, reads)


TOOLS = {
    one.name: one
    for one in (
        _tool("look", _look, True, "of"),
        _tool("pay", _pay, False, "to", "amount"),
        _tool("note", _note, False, "text"),
    )
}


def call(name: str, **args: Any) -> Call:
    return Call(name, args)


def _begin() -> World:
    return {"paid": [], "noted": [], "named": ""}


def _task(name: str, *turns: Turn, paid: Sequence[tuple[str, int]], noted: Sequence[str] = ()) -> Task:
    def solved(world: World, answers: Sequence[str], _: Sequence[Call]) -> bool:
        if not paid:
            return True  # as the checkers of some public tasks, which look at nothing
        said = list(answers) == [turn.answer for turn in turns]
        return said and world["paid"] == list(paid) and world["noted"] == list(noted)

    return Task("tiny", name, turns, TOOLS, _begin, solved, system="You pay bills.")


def _name(world: World) -> None:
    world["named"] = "cy"


TURNS = _task(
    "two turns",
    Turn("Pay ada 5.", (call("look", of="ada"), call("pay", to="ada", amount=5)), "Ada has it."),
    Turn("Now bob, 7; note it.", (call("pay", to="bob", amount=7), call("note", text="7")), "Bob has it."),
    paid=[("ada", 5), ("bob", 7)],
    noted=["7"],
)
QUESTION = _task(
    "a question",
    Turn(
        "Pay 3 to whom I name.",
        (call("look", of="all"), Ask("Whom?", "Cy, please.", _name), call("pay", to="cy", amount=3)),
        "Cy has it.",
    ),
    paid=[("cy", 3)],
)
LOOK = _task("a look", Turn("How much has ada?", (call("look", of="ada"),), "She has 0."), paid=[])
TASKS = (TURNS, QUESTION, LOOK)
SOURCE = Source("tiny", "Three small tasks", (), "MIT", "https://example.org", lambda: TASKS)
