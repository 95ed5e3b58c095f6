"""The smallest value that fits a JSON schema: arguments for a tool that nobody has called yet."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_MOST_DEPTH = 20
_EMPTY: Mapping[str, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False, "null": None}


def sample(schema: Schema) -> Any:
    """A value for `schema`: its default, the first of its choices, or the shortest of its type with what is
    required. It need not fit a pattern, a format or a validator in code: whoever asks has to look."""
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
    """The number nearest to 0 that is in the range."""
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
