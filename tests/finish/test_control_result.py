"""A result of a given shape: what fits is carried by the outcome, what does not is refused."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.types import Command
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import ControlTool, Effect, build_graph
from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.models import ScriptedModel, call
from signoff.tools.control import standard_controls
from tests.support.cases.loop import ASK, FINISH, GO, SUCCESS
from tests.support.reviews import Review, both_modes, play

YES: Any = Command(resume="yes")


class Page(BaseModel):
    """A page."""

    title: str
    views: int = Field(ge=0, alias="seen", default=0)


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str


SCHEMA = {
    "title": "Page",
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}}},
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"Tag": {"type": "string", "maxLength": 5}},
}


def gives(result: Any, **more: Any) -> Any:
    return call("finish_task", summary="All of it.", result=result, **more)


def fits(form: Any, given: Any, kept: Any) -> Review:
    return Review(
        [gives(given)], options={"response_format": form}, ends={**SUCCESS, "result": kept, "turns": 1}
    )


def misfits(form: Any, given: Any, right: Any, *, says: str) -> Review:
    return Review(
        [gives(given), gives(right)],
        options={"response_format": form},
        ends={**SUCCESS, "turns": 2, "refusals": 1},
        says=[says],
    )


NEEDED = "a result is required with outcome 'done' or 'partial'"
FORMS = {
    "a pydantic model": fits(Page, {"title": "a", "seen": 3}, {"title": "a", "views": 3}),
    "a dataclass": fits(Point, {"x": 1}, {"x": 1, "y": 0}),
    "a TypedDict": fits(Row, {"name": "a"}, {"name": "a"}),
    "a JSON schema": fits(SCHEMA, {"title": "a", "tags": ["b"]}, {"title": "a", "tags": ["b"]}),
    "a model's object written into a text": fits(Page, '{"title": "a"}', {"title": "a", "views": 0}),
    "a schema's object written into a text": fits(SCHEMA, '{"title": "a"}', {"title": "a"}),
    "numbers as text, as pydantic reads them": fits(Point, {"x": "1"}, {"x": 1, "y": 0}),
    "a field of a model is missing": misfits(Page, {}, {"title": "a"}, says="result.title: Field required"),
    "a field of a model is wrong": misfits(
        Page, {"title": "a", "seen": -1}, {"title": "a"}, says="result.seen: Input should be greater"
    ),
    "a field of a schema is missing": misfits(
        SCHEMA, {}, {"title": "a"}, says="result: 'title' is a required property"
    ),
    "a field of a schema is wrong, deep inside": misfits(
        SCHEMA,
        {"title": "a", "tags": ["b", "longer"]},
        {"title": "a"},
        says="result: tags.1: 'longer' is too long",
    ),
    "a field too many": misfits(
        SCHEMA, {"title": "a", "more": 1}, {"title": "a"}, says="'more' was unexpected"
    ),
    "no object at all": misfits(Page, "the title is a", {"title": "a"}, says="result: Input should be"),
    "null": misfits(Page, None, {"title": "a"}, says=NEEDED),
    "none at all": Review(
        [FINISH, gives({"title": "a"})],
        options={"response_format": Page},
        ends={**SUCCESS, "refusals": 1},
        says=[NEEDED],
    ),
    "partial needs one, too": Review(
        [call("finish_task", summary="x", outcome="partial"), gives({"title": "a"}, outcome="partial")],
        options={"response_format": Page},
        ends={"claim": "partial", "refusals": 1, "result": {"title": "a", "views": 0}},
        says=[NEEDED],
    ),
    "blocked needs none": Review(
        [call("finish_task", summary="x", outcome="blocked")],
        options={"response_format": Page},
        ends={"claim": "blocked", "result": None, "refusals": 0},
    ),
    "impossible with an empty one": Review(
        [gives({}, outcome="impossible")],
        options={"response_format": SCHEMA},
        ends={"claim": "impossible", "result": None, "refusals": 0},
    ),
    "blocked with one": Review(
        [gives({"title": "a"}, outcome="blocked")],
        options={"response_format": Page},
        ends={"claim": "blocked", "result": {"title": "a", "views": 0}},
    ),
    "a phase needs none": Review(
        [call("finish_task", summary="x", completion_percentage=50), gives({"title": "a"})],
        options={"response_format": Page},
        ends={**SUCCESS, "turns": 2, "refusals": 0},
    ),
    "it never fits: no person can accept it": Review(
        [gives({}), gives({})],
        options={"response_format": Page},
        ends={"status": "limit", "reason": "review_deadlock", "claim": None, "result": None},
        says=["result.title: Field required"],
    ),
    "a person confirms it": Review(
        [gives({"title": "a"}, requires_user_confirmation=True)],
        options={"response_format": Page},
        given=[GO, YES],
        asks={"summary": "All of it."},
        ends={**SUCCESS, "result": {"title": "a", "views": 0}},
    ),
    "together with another name": Review(
        [call("task_done", summary="All of it.", result={"title": "a"})],
        options={"response_format": Page, "control_tools": standard_controls(finish="task_done")},
        ends={**SUCCESS, "reason": "task_done", "refusals": 0},
    ),
}


@tool
def submit(title: str, views: int) -> dict[str, Any]:
    """Hand a page in."""
    return {"title": title, "views": views}


class Hidden(BaseModel):
    """What is stored of it cannot be read back."""

    title: str = Field(exclude=True)


NEVER: dict[str, Any] = {"status": "limit", "reason": "review_deadlock", "result": None}
SUBMITS = [*standard_controls(), ControlTool(submit, Effect.FINISH)]
ASKS = [*standard_controls(), ControlTool(submit, Effect.FINISH, decide=lambda _: Effect.ASK)]
HALF = call("finish_task", summary="x", completion_percentage=50)
BELOW = call("submit", title="a", views=-1)
# Whoever says yes: what lacks its result is never offered.
FORMS |= {
    "a person is asked to confirm what lacks it": Review(
        [call("finish_task", summary="x", requires_user_confirmation=True)] * 2,
        options={"response_format": Page},
        ends=NEVER,
    ),
    "a phase is refused twice": Review([HALF] * 3, options={"response_format": Page}, ends=NEVER),
    "what is stored cannot be read back": Review(
        [gives({"title": "a"})] * 2, options={"response_format": Hidden}, ends=NEVER
    ),
    "the return value of a finishing tool": Review(
        [call("submit", title="a", views=2)],
        options={"response_format": Page, "control_tools": SUBMITS},
        ends={"status": "success", "reason": "submit", "result": {"title": "a", "views": 2}},
    ),
    "a finishing tool returns something else": Review(
        [BELOW] * 2, options={"response_format": Page, "control_tools": SUBMITS}, ends=NEVER
    ),
    "a finishing tool that asks returns something else": Review(
        [BELOW] * 2, options={"response_format": Page, "control_tools": ASKS}, ends=NEVER
    ),
    "a valid result may be taken in spite of a check": Review(
        [gives({"title": "a"})] * 2,
        options={"response_format": Page, "checks": [lambda: False]},
        given=[GO, YES],
        asks={"type": "confirmation"},
        ends={"status": "success", "verified": "unverified", "result": {"title": "a", "views": 0}},
    ),
}


@both_modes
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.sample(24)
async def test_a_result_of_a_given_shape(name: str, mode: str, tmp_path: Path) -> None:
    await play(FORMS[name], mode, tmp_path)


@pytest.mark.parametrize("form", [Page, Point, Row, SCHEMA])
def test_the_model_is_told_the_shape_and_that_it_is_required(form: Any) -> None:
    with ScriptedModel([ASK]) as model:
        build_graph(model, response_format=form).invoke({"messages": GO})
    (told,) = [found for found in model.seen[0].tools if found["function"]["name"] == "finish_task"]
    parameters = told["function"]["parameters"]
    assert parameters["required"] == ["summary", "result"]
    assert parameters["properties"]["result"]["properties"]
    assert "$ref" not in str(parameters)


@tool
def hand_in(report: str) -> str:
    """Hand the work in."""
    return report


class Untellable:
    """Something that has no JSON schema."""


class Unfinished(BaseModel):
    part: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # a name that nobody has defined


ONLY_OWN = [ControlTool(hand_in, Effect.FINISH)]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"response_format": "Page"}, "pass a pydantic model"),
    "a number type": ({"response_format": int}, "pass a pydantic model"),
    "a class without a schema": ({"response_format": Untellable}, "has no JSON schema"),
    "a model with a part that is defined nowhere": (
        {"response_format": Unfinished},
        "response_format=Unfinished has no JSON schema: .*not fully defined",
    ),
    "no JSON schema": ({"response_format": {"type": "nonsense"}}, "is not a valid JSON schema"),
    "a reference that leads nowhere": (
        {"response_format": {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}}},
        "cannot be resolved",
    ),
    "no finish_task to add it to": ({"response_format": Page, "control_tools": ONLY_OWN}, "no such tool"),
    "no finish_task that could answer": ({"answer": "argument", "control_tools": ONLY_OWN}, "no such tool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_work_is_told_at_once(name: str) -> None:
    options, says = WRONG[name]
    with pytest.raises(SetupError, match=says):
        build_graph(ScriptedModel([]), **options)


def test_without_the_package_a_json_schema_is_told_to_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SetupError, match=re.escape(install_hint("schema"))):
        build_graph(ScriptedModel([]), response_format=SCHEMA)


def test_the_errors_of_a_huge_result_are_short() -> None:
    form: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
    bad = {f"k{n}": "x" * 5000 for n in range(50)}
    model = ScriptedModel(
        [gives(bad), call("finish_task", summary="x", outcome="blocked")], chunk_size=10_000_000
    )
    messages = build_graph(model, response_format=form).invoke({"messages": GO})["messages"]
    assert len(messages[2].text) < 3000
