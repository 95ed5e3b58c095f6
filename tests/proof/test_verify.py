"""`signoff verify`: every short run of a graph of somebody's own, and what does not hold in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from signoff.graph.rules import RULES
from signoff.verify.worlds import sample
from tests.support.benches.cli import Bench

GRAPH = """
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, field_validator

from signoff import ControlTool, Limits, build_graph, delegate
from signoff.models import ScriptedModel
from signoff.tools.control import standard_controls

def send(to: str, text: str) -> str:
    "Send a mail."
    raise AssertionError("a tool has really run")

@tool
def look(name: str) -> str:
    "Look something up."
    raise AssertionError("a tool has really run")

look.metadata = {"kind": "read"}

class Verdict(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def _known(cls, word):
        assert word in ("guilty", "free"), "guilty or free"
        return word

def close(verdict: Verdict) -> str:
    "Close the case."
    raise AssertionError("a tool has really run")

@tool
def file_it(place: int) -> str:
    "File it."
    raise AssertionError("a tool has really run")

def play(*tools, **given):
    def model(_):
        raise AssertionError("the model was really asked")
    return build_graph(ScriptedModel(model), tools, limits=Limits(turns=1), **given)

CONTROLS = [ControlTool(file_it, "finish")]
plain = play()
saved = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
guarded = play(send, look, approvals={"send": True}, checks=[lambda: 1 / 0], **saved)
made = lambda: play(approvals={"send": "hand_over"}, *[send])
own = play(look, control_tools=CONTROLS)
two = play(control_tools=[*standard_controls(), *CONTROLS])
class Caller(BaseModel):
    user: str

prompted = play(
    system_prompt="Be kind.",
    context_schema=Caller,
    approvals=lambda name, args, context: context.user,
    **saved,
)
def team(**given):
    helper = delegate("helper", play(send), description="Helps.")
    asker = delegate("asker", play(look), description="Asks.")
    return play(helper, asker, **saved, **given)

led = team()
guarded_team = team(approvals={"write": True})
twice = play(delegate("helper", play(send), description="Helps."), **saved)
itself = play(send, delegate("again", lambda: itself, description="Helps."))
picky = play(response_format=Verdict)
number = 7
def broken():
    raise KeyError("no key")
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "my_agent.py").write_text(GRAPH)
    (tmp_path / "talks.py").write_text(f"print('talking')\n{GRAPH}")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("graph", "worlds", "properties"),
    [
        ("guarded", ["finish_task, send, look"], 36),
        ("made", ["finish_task, send"], 36),
        ("own", ["file_it, look"], 36),
        ("two", ["finish_task", "file_it"], 36),
        ("prompted", ["finish_task"], 36),
        ("led", ["finish_task", "helper and asker"], 46),
        ("guarded_team", ["finish_task", "helper and asker"], 46),
        ("twice", ["finish_task", "helper and helper"], 46),
        ("itself", ["finish_task, send", "again and again"], 46),
    ],
)
def test_all_holds_and_nothing_really_runs(
    bench: Bench, graph: str, worlds: list[str], properties: int
) -> None:
    result = bench("verify", f"my_agent.py:{graph}", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert told["held"] is True
    assert [world["tools"] for world in told["worlds"]] == worlds
    assert all(world["states"] > 20 for world in told["worlds"])
    assert len(told["properties"]) == properties


@pytest.mark.slow
@pytest.mark.thorough
def test_arguments_of_a_finish_can_be_given(bench: Bench) -> None:
    refused = bench("verify", "my_agent.py:picky")
    assert refused.exit_code == 2
    assert "No arguments of 'finish_task' were found that fit" in refused.stderr
    assert "--finish" in refused.stderr
    finish = json.dumps({"summary": "Done.", "result": {"word": "free"}})
    assert bench("verify", "my_agent.py:picky", "--finish", finish).exit_code == 0


@pytest.mark.slow
def test_what_does_not_hold_is_told_with_the_way_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which one rule is missing, as a graph with the same fault would be."""
    monkeypatch.setattr(
        "signoff.graph.rules.RULES", tuple(rule for rule in RULES if rule.name != "cancelled")
    )
    result = bench("verify", "my_agent.py:plain", "--json")
    assert result.exit_code == 1
    properties = {one["name"]: one for one in json.loads(result.stdout)["properties"]}
    assert properties["a stop stops"]["held"] is False
    assert properties["a stop stops"]["why"]
    assert properties["a stop stops"]["by"][0] == "a task"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["my_agent"], "as package.module:graph or path/to/file.py:graph"),
        ([":graph"], "as package.module:graph or path/to/file.py:graph"),
        (["gone.py:graph"], "There is no file gone.py"),
        (["no_such_module_at_all:graph"], "could not be loaded (ModuleNotFoundError"),
        (["my_agent.py:nothing"], "has no 'nothing'"),
        (["my_agent.py:number"], "is of type int; name the graph"),
        (["my_agent.py:broken"], "could not be loaded (KeyError"),
        (["leaves.py:graph"], "could not be loaded (SystemExit: 0)"),
        (["my_agent.py:plain", "--finish", "[1]"], "--finish needs a JSON object"),
        (["my_agent.py:plain", "--finish", "{"], "--finish needs a JSON object"),
        (["my_agent.py:plain", "--finish", "{}"], "No arguments of 'finish_task' were found that fit"),
    ],
)
def test_what_cannot_be_verified_is_told(bench: Bench, words: list[str], told: str) -> None:
    result = bench("verify", *words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


@pytest.mark.thorough
def test_what_the_graphs_own_code_prints_stays_out_of_the_document(bench: Bench) -> None:
    result = bench("verify", "talks.py:plain", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, told["held"]) == (0, "talking\n", True)
    assert [world["tools"] for world in told["worlds"]] == ["finish_task"]
    assert len(told["properties"]) == 36


def test_a_graph_of_another_make_is_told(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "builder = StateGraph(MessagesState)\n"
        "builder.add_node('one', lambda state: state)\n"
        "builder.add_edge(START, 'one')\n"
        "graph = builder.compile()\n"
    )
    result = bench("verify", "other.py:graph")
    assert result.exit_code == 2
    assert "is of type CompiledStateGraph; name the graph that build_graph returned" in result.stderr


class TestSample:
    @pytest.mark.parametrize(
        "kind",
        [str, int, float, bool, None, list[int], dict[str, int], tuple[int, str], int | None, set[str]],
        ids=str,
    )
    def test_it_fits_the_schema_of(self, kind: Any) -> None:
        adapter = TypeAdapter(kind)
        adapter.validate_python(sample(adapter.json_schema()))

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            ({"type": "integer", "minimum": 3}, 3),
            ({"type": "integer", "exclusiveMinimum": 3}, 4),
            ({"type": "integer", "maximum": -2}, -2),
            ({"type": "integer", "minimum": -2, "maximum": 2}, 0),
            ({"type": "string", "minLength": 3}, "xxx"),
            ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
            ({"enum": ["b", "a"]}, "b"),
            ({"const": 5}, 5),
            ({"type": "string", "default": "it"}, "it"),
            ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 0),
            ({"allOf": [{"type": "integer", "minimum": 2}]}, 2),
            ({"type": ["string", "null"]}, "x"),
            ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x"}),
            ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
            ({"$ref": "#/$defs/It", "$defs": {"It": {"type": "boolean"}}}, False),
        ],
    )
    def test_of(self, schema: dict[str, Any], value: object) -> None:
        assert sample(schema) == value

    def test_of_a_schema_that_needs_itself_comes_to_an_end(self) -> None:
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
        assert sample({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
