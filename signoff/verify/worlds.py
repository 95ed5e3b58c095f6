"""Worlds for a user's graph: its control tools, policies and limits, explored in short runs.

A tool gets the smallest arguments that fit its schema.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError
from signoff.graph.kinds import Effect
from signoff.graph.rules import COUNTED
from signoff.nodes.delegates.graphs import deps_of as deps_of_delegate
from signoff.nodes.delegates.graphs import graph_of
from signoff.nodes.node import Dependencies
from signoff.session.status import deps_of
from signoff.tools.control import ControlRegistry
from signoff.tools.delegates import Delegate
from signoff.tools.toolbox import Toolbox
from signoff.verify.choices import World
from signoff.verify.machine import ALPHABET, CORE, Machine, Names, Symbol
from signoff.verify.tree import TOP, Part, Tree, TreeWorld

Schema = Mapping[str, Any]
_MOST_DEPTH = 20
_EMPTY: Mapping[str, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False, "null": None}


def sample(schema: Schema) -> Any:
    """Returns a value for `schema`: its default, the first choice, or the shortest with required fields.

    It may not satisfy a pattern, a format or a validator in code: the caller has to check.
    """
    return _value(schema, schema, 0)


def _value(schema: Schema, whole: Schema, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        return None
    for word in ("default", "const"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return _value(_referred(schema["$ref"], whole), whole, depth + 1)
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return _value(parts[0], whole, depth + 1)
    if parts := schema.get("allOf"):
        merged = [_value(part, whole, depth + 1) for part in parts]
        return (
            {k: v for part in merged for k, v in part.items()} if isinstance(merged[0], dict) else merged[0]
        )
    return _of_type(schema, whole, depth)


def _of_type(schema: Schema, whole: Schema, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        needed = schema.get("required", ())
        properties = schema.get("properties", {})
        return {name: _value(properties.get(name, {}), whole, depth + 1) for name in needed}
    if kind == "array":
        parts = schema.get("prefixItems") or [schema.get("items", {})] * schema.get("minItems", 0)
        return [_value(part, whole, depth + 1) for part in parts]
    if kind == "string":
        return "x" * max(1, schema.get("minLength", 1))
    if kind in ("integer", "number"):
        return _number(schema)
    return _EMPTY.get(kind)


def _number(schema: Schema) -> Any:
    """Returns the number nearest to 0 in the range."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and low >= 0:
        return low + 1 if "exclusiveMinimum" in schema else low
    if high is not None and high <= 0:
        return high - 1 if "exclusiveMaximum" in schema else high
    return 0


def _referred(path: str, whole: Schema) -> Schema:
    found: Any = whole
    for name in path.removeprefix("#/").split("/"):
        found = found[name]
    return found  # type: ignore[no-any-return]  # a schema is untyped JSON


_ROLES: Mapping[str, Effect] = {"finish": "finish", "ask": "ask", "think": "continue"}
_MORE = ("two reads + write", "two finishes", "empty finish", "phase", "finish to confirm", "unproven finish")
_EVENTS = ("kill", "message", "stop")
_BELOW = ("write + finish", "ask", "finish", "blocked")
_TURNS, _IN_A_ROW = 2, 2


@dataclass(frozen=True)
class Actors:
    """The tools used in one world, by name. write: a tool with an effect, read: one without."""

    finish: str
    write: str | None
    read: str | None


def worlds(graph: Graph, finish_args: Mapping[str, Any] | None = None) -> list[World]:
    """Returns one world for each finishing tool, and one for each sort of tool with effects.

    The sorts are: with or without approval, run here or handed over. Tools, checks and finishing tools both
    succeed and fail; the model is never called. Limits are cut to two turns; limits of tokens, money and time
    are left out. finish_args: arguments of a valid finish, if those made from its schema do not fit. Raises
    SetupError for a graph that `build_graph` did not make, and for arguments that do not fit.
    """
    deps = _short(deps_of(graph))
    return [_world(deps, actors, finish_args) for actors in casts(deps.toolbox)]


def compositions(graph: Graph) -> list[TreeWorld]:
    """Returns one world of the graph and its delegates, if it has any.

    It calls two at once, or one twice; each works, asks, or ends in success or failure. One event comes from
    outside: a kill or a stop. Delegates of delegates are not called.
    """
    deps = _short(deps_of(graph))
    below = {name: _below(tool) for name, tool in deps.toolbox.delegates.items()}
    if not below:
        return []
    called = [*below, *below][:2]
    names = _names(deps.toolbox, next(casts(deps.toolbox)), None)
    made = [("one", called[:1]), ("both", called)]
    lead = {word: Symbol(calls=[(name, {}) for name in some]) for word, some in made}
    lead["done"] = ALPHABET["finish"]
    parts = {TOP: Part({**names, **{name: (name, {"task": "x"}) for name in called}}, lead, deps)}
    for name in called:
        own = _names(below[name].toolbox, next(casts(below[name].toolbox)), None)
        said = {word: ALPHABET[word] for word in _BELOW if set(ALPHABET[word].roles) <= set(own)}
        parts[name] = Part(own, said, below[name])
    return [TreeWorld(" and ".join(called), Tree(deps, parts), ("kill", "stop"), 1)]


def _below(tool: Delegate) -> Dependencies:
    return _short(deps_of_delegate(graph_of(tool)), turns=1)


def casts(box: Toolbox) -> Iterator[Actors]:
    """Returns the tools of each world."""
    read = next((n for n in box.tools if not (box.is_effect(n) or n in box.delegates)), None)
    sorts: dict[tuple[bool, bool], str] = {}
    for name in box.tools:
        if box.is_effect(name) and name not in box.delegates:
            sort = (bool(box.approvals.allowed(name, _args(box.tools[name]))), box.is_driven(name))
            sorts.setdefault(sort, name)
    writes: list[str | None] = [*sorts.values()] or [None]
    finishes = [name for name in box.controls if box.effect(name) == "finish"]
    for write in writes:
        yield Actors(finishes[0], write, read)
    for finish in finishes[1:]:
        yield Actors(finish, writes[0], read)


def _world(deps: Dependencies, actors: Actors, finish_args: Mapping[str, Any] | None) -> World:
    names = _names(deps.toolbox, actors, finish_args)
    known = deps.toolbox.controls[actors.finish].tool.get_input_jsonschema().get("properties", {})
    replies = [
        name
        for name in (*CORE, *_MORE)
        for symbol in [ALPHABET[name]]
        if all(role in names or role.startswith("no_such") for role in symbol.roles)
        and all(set(args) <= set(known) for role, args in symbol.calls if role == "finish")
    ]
    told = [actors.finish, *(name for name in (actors.write, actors.read) if name)]
    return World(", ".join(told), Machine(deps, names), replies, _EVENTS, 1)


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
            """pass some with --finish '{"summary": "…"}'."""
        )
    return found


def _first(box: Toolbox, effect: Effect) -> str | None:
    return next((name for name in box.controls if box.effect(name) == effect), None)


def _args(tool: Any) -> Mapping[str, Any]:
    schema = tool.tool_call_schema
    found = sample(schema if isinstance(schema, dict) else schema.model_json_schema())
    return found if isinstance(found, dict) else {}


def _short(deps: Dependencies, turns: int = _TURNS) -> Dependencies:
    """Returns a graph's parts with short limits, no model for summaries, and accepted finishes."""
    limits = deps.limits.model_copy(
        update={
            "turns": min(deps.limits.turns or turns, turns),
            "talk_turns": min(deps.limits.talk_turns or _IN_A_ROW, _IN_A_ROW),
            "refusals": min(deps.limits.refusals or _IN_A_ROW, _IN_A_ROW),
            **dict.fromkeys({"repeats", *COUNTED} - {"turns"}),
        }
    )
    controls = [
        replace(found, decide=_holds) if found.is_run else found for found in deps.toolbox.controls.values()
    ]
    box = replace(deps.toolbox, controls=ControlRegistry(controls))
    return replace(
        deps, limits=limits, toolbox=box, own=replace(deps.own, summariser=None), middleware=None, readings={}
    )


def _holds(_: Any) -> Effect:
    return "finish"
