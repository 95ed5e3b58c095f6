"""Worlds for a graph of somebody's own: its control tools, policies and limits, played in short runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError
from signoff.graph.kinds import Effect
from signoff.nodes.kit import Kit
from signoff.session.standing import kit_of
from signoff.tools.control import ControlRegistry
from signoff.tools.toolbox import Toolbox
from signoff.verify.alphabet import ALPHABET, CORE, Names
from signoff.verify.choices import World
from signoff.verify.machine import Machine
from signoff.verify.sample import sample

_ROLES = {"finish": Effect.FINISH, "ask": Effect.ASK, "think": Effect.CONTINUE, "more": Effect.MORE_TURNS}
_MORE = ("two reads + write", "two finishes", "empty finish", "phase", "finish to confirm", "unproven finish")
_EVENTS = ("kill", "message", "stop")
_TURNS, _IN_A_ROW = 2, 2


@dataclass(frozen=True)
class Actors:
    """The tools that are played in one world, by name. write: a tool with an effect, read: one without."""

    finish: str
    write: str | None
    read: str | None


def worlds(graph: Graph, finish_args: Mapping[str, Any] | None = None) -> list[World]:
    """One world for each finishing tool, and one for each sort of tool with effects: asked about or not, run
    here or handed over.

    What tools, checks and finishing tools come to is played both ways; the model is never asked. Limits are
    cut to two turns; limits of tokens, money and time are left out.
    finish_args: arguments of a right finish, where those made from its schema do not fit.
    Raises SetupError for a graph that `build_graph` did not make, and for arguments that do not fit.
    """
    kit = _short(kit_of(graph))
    return [_world(kit, actors, finish_args) for actors in casts(kit.toolbox)]


def casts(box: Toolbox) -> Iterator[Actors]:
    """Who plays in each world."""
    read = next((name for name in box.tools if not box.is_effect(name)), None)
    sorts: dict[tuple[bool, bool], str] = {}
    for name in box.tools:
        if box.is_effect(name):
            sort = (bool(box.approvals.allowed(name, _args(box.tools[name]))), box.is_driven(name))
            sorts.setdefault(sort, name)
    writes: list[str | None] = [*sorts.values()] or [None]
    finishes = [name for name in box.controls if box.effect(name) is Effect.FINISH]
    for write in writes:
        yield Actors(finishes[0], write, read)
    for finish in finishes[1:]:
        yield Actors(finish, writes[0], read)


def _world(kit: Kit, actors: Actors, finish_args: Mapping[str, Any] | None) -> World:
    names = _names(kit.toolbox, actors, finish_args)
    known = kit.toolbox.controls[actors.finish].tool.get_input_jsonschema().get("properties", {})
    replies = [
        name
        for name in (*CORE, *_MORE)
        for symbol in [ALPHABET[name]]
        if all(role in names or role.startswith("no_such") for role in symbol.roles)
        and all(set(args) <= set(known) for role, args in symbol.calls if role == "finish")
    ]
    told = [actors.finish, *(name for name in (actors.write, actors.read) if name)]
    return World(", ".join(told), Machine(kit, names), replies, _EVENTS, 1)


def _names(box: Toolbox, actors: Actors, finish_args: Mapping[str, Any] | None) -> Names:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for role, effect in _ROLES.items():
        name = actors.finish if role == "finish" else _first(box, effect)
        if name is not None:
            given = finish_args if role == "finish" else None
            found[role] = (name, _args(box.controls[name].tool) if given is None else given)
    for role, name in (("write", actors.write), ("read", actors.read)):
        if name is not None:
            found[role] = (name, _args(box.tools[name]))
    if problem := box.problem(*found["finish"]):
        raise SetupError(
            f"No arguments of {actors.finish!r} were found that fit ({problem}); "
            """give some by --finish '{"summary": "…"}'."""
        )
    return found


def _first(box: Toolbox, effect: Effect) -> str | None:
    return next((name for name in box.controls if box.effect(name) is effect), None)


def _args(tool: Any) -> Mapping[str, Any]:
    schema = tool.tool_call_schema
    found = sample(schema if isinstance(schema, dict) else schema.model_json_schema())
    return found if isinstance(found, dict) else {}


def _short(kit: Kit) -> Kit:
    """The parts of a graph with short limits, without a model for digests, and with finishes that hold."""
    limits = kit.limits.model_copy(
        update={
            "turns": min(kit.limits.turns or _TURNS, _TURNS),
            "talk_turns": min(kit.limits.talk_turns or _IN_A_ROW, _IN_A_ROW),
            "refusals": min(kit.limits.refusals or _IN_A_ROW, _IN_A_ROW),
            **dict.fromkeys(("repeats", "tool_calls", "tokens", "cost", "seconds")),
        }
    )
    controls = [
        replace(found, decide=_holds) if found.is_run else found for found in kit.toolbox.controls.values()
    ]
    box = replace(kit.toolbox, controls=ControlRegistry(controls))
    return replace(kit, limits=limits, toolbox=box, digester=None, readings={})


def _holds(_: Any) -> Effect:
    return Effect.FINISH
