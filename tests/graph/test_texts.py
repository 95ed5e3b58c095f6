"""Texts of one's own: what may stand in braces is checked when they are made, and no word in them decides."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, Session, SetupError, build_graph
from signoff.graph.kinds import Effect
from signoff.graph.messages import marks
from signoff.graph.texts import DEFAULT_TEXTS, REFUSALS, Texts
from signoff.models import ScriptedModel, call, reply
from signoff.models.text_protocol.texts import TaggedTexts
from signoff.tools.control import ControlTool, standard_controls

GO: Any = {"messages": [("user", "go")]}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "JSON": ({"nudges": {"talked": 'Call {"name": "finish_task"}'}}, r"nudges\['talked'\] has \{\"name\"\}"),
    "JSON, in a text with nothing to fill in": (
        {"system": 'Call {"a": 1}'},
        "system has .* may stand nothing",
    ),
    "a brace alone": ({"think": "a { b"}, "think cannot be read"),
    "a brace that closes": ({"results": {"ended": "}"}}, r"results\['ended'\] cannot be read"),
    "a name of another text": ({"refusals": {"tool": "{names}"}}, r"has \{names\}\. .* \{name\}, \{error\};"),
    "no name": ({"amounts": {"turns": "{}"}}, r"has \{\}"),
    "a place": ({"amounts": {"turns": "{0}"}}, r"has \{0\}"),
    "an attribute": ({"refusals": {"tool": "{name.upper}"}}, r"has \{name\.upper\}"),
    "an item": ({"refusals": {"tool": "{name[0]}"}}, r"has \{name\[0\]\}"),
    "a name inside of a way to write": ({"refusals": {"tool": "{name:{width}}"}}, r"has \{width\}"),
    "a way to write that does not fit": ({"results": {"timeout": "{seconds:d}"}}, "cannot be filled in"),
    "no text": ({"history_summary": 3}, "history_summary is 3; pass a text"),
    "none": ({"nudges": {"talked": None}}, r"nudges\['talked'\] is None"),
    "half a character": ({"system": "a\ud800"}, "system holds NUL or half a character"),
    "a name that no text has": (
        {"nudges": {"taked": "x"}},
        r"no text nudges\['taked'\]; its names are",
    ),
    "what was undone is not told": (
        {"nudges": {"resumed_undone": "Just go on."}},
        r"nudges\['resumed_undone'\] has no \{undone\}",
    ),
    "which result was undone is not told": (
        {"results": {"undone": "[undone: {{calls}}]"}},
        r"results\['undone'\] has no \{calls\}",
    ),
    "what people said is not told": (
        {"words": {"said": "- somebody spoke"}},
        r"words\['said'\] has no \{words\}",
    ),
    "no mapping": ({"results": "x"}, "results are 'x'; pass a mapping"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_text_that_could_not_be_filled_in_is_refused_when_it_is_made(case: tuple[Any, str]) -> None:
    given, why = case
    with pytest.raises(SetupError, match=why):
        Texts(**given)
    with pytest.raises(SetupError, match=why):
        replace(DEFAULT_TEXTS, **given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"principles": 'Say {"a": 1}. {constitution}'}, r"principles has \{\"a\"\}"),
        ({"older": "{count:s}"}, "older cannot be filled in"),
        ({"current": "{plan}"}, r"current has \{plan\}. .* \{approach\}, \{status\}"),
    ],
)
def test_so_are_those_of_a_tagged_model(given: dict[str, Any], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        TaggedTexts(**given)


def every(mark: str) -> Texts:
    """The default texts, each with `mark` before it."""
    parts: dict[str, Any] = {}
    for part in fields(Texts):
        text = getattr(DEFAULT_TEXTS, part.name)
        marked = {key: mark + one for key, one in text.items()} if isinstance(text, Mapping) else mark + text
        parts[part.name] = marked
    return Texts(**parts)


def look(n: int) -> str:
    """Look at something."""
    return "x" * 400


def seen_by_a_model(texts: Texts) -> list[str]:
    """What a model is shown on a way that passes most of the texts, and what the tools are described with."""
    script: list[Any] = [
        "I have talked.",
        "",
        call("nothing_of_this_name"),
        [call("look", n=1), call("think", thought="so")],
        call("look", n="many"),
        *(call("look", n=n) for n in range(8)),
        call("look", n=7),
        call("look", n=7),
        call("look", n=7),
        call("finish_task", summary=""),
        call("finish_task", summary="half", completion_percentage=50),
        call("ask_user", question="Which?"),
        call("finish_task", summary="whole", requires_user_confirmation=True),
        call("finish_task", summary="again", requires_user_confirmation=True),
    ]
    model = ScriptedModel(script)
    graph = build_graph(
        model,
        [look],
        texts=texts,
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
        prompt_tokens=2_500,
    )
    session = Session(graph, "t")
    session.run("go")
    session.resume("")
    session.resume("not yet")
    session.resume("yes")
    shown = [message.text for seen in model.seen for message in seen.messages]
    told = graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    tools = [found.tool.description for found in standard_controls(texts)]
    return [*shown, *(message.text for message in told), *tools]


def test_a_text_that_is_empty_refuses_as_well() -> None:
    made: list[int] = []

    @tool
    def note(n: int) -> str:
        """Note."""
        made.append(n)
        return "noted"

    quiet = Texts(results={**dict.fromkeys(DEFAULT_TEXTS.results, ""), "undone": "{calls}"})
    script: list[Any] = [reply("", *(call("note", n=n) for n in range(3))), call("finish_task", summary="x")]
    build_graph(ScriptedModel(script), [note], texts=quiet, limits=Limits(calls_per_reply=1)).invoke(GO)
    assert made == [0]


def test_a_brace_is_doubled_in_every_text() -> None:
    shown = seen_by_a_model(every("{{§}} "))
    assert not [text for text in shown if "{{" in text or "}}" in text]
    assert sum("{§}" in text for text in shown) > 100
    plain = seen_by_a_model(DEFAULT_TEXTS)
    assert len(plain) == len(shown), "the same way was gone"


# All words that the code once compared with.
WORDS = ["accepted", "needs a person", "phase", "goes on", "sent back", "sent back: no", "Refused: accepted"]


def broken(summary: str) -> str:
    """Finish."""
    raise ValueError("it is down")


def ends_of(kind: str, texts: Texts) -> list[Any]:
    """How a task ends whose finish is refused twice for a reason of this kind."""
    again: list[Any] = [call("finish_task", summary="")] * 2
    given: dict[str, Any] = {}
    if kind == "checks":
        given, again = {"checks": [lambda: False]}, [call("finish_task", summary="x")] * 2
    elif kind == "tool":
        finish = ControlTool(tool(broken), Effect.FINISH)
        given, again = {"control_tools": [finish]}, [call("broken", summary="x")] * 2
    graph = build_graph(ScriptedModel([*again, "Words."]), texts=texts, **given)
    result = graph.invoke(GO)
    outcome = result["outcome"]
    told = [marks(m).get("not_run") for m in result["messages"] if isinstance(m, ToolMessage)]
    return [outcome[name] for name in ("status", "reason", "turns", "refusals", "verified")] + told


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("kind", ["empty_summary", "checks", "tool"])
def test_no_word_of_a_refusal_changes_what_happens(kind: str, words: str) -> None:
    assert kind in REFUSALS
    expected = ends_of(kind, DEFAULT_TEXTS)
    assert expected[:2] == ["limit", "review_deadlock"]
    assert ends_of(kind, Texts(refusals={kind: words})) == expected
