"""What Signoff itself leaves behind, linted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.messages import BaseMessage, messages_to_dict
from langgraph.types import Command

from signoff import Finished, Limits, Session, build_graph, delegate, sqlite_storage
from signoff.lint import Fault, FaultKind, faults, names, read_trace
from signoff.models import ScriptedModel, call
from signoff.models.tagged import TaggedText
from tests.support.cases.confirm import CONFIRMING
from tests.support.cases.loop import CASES, FINISH, GO, IMPORTS, THINK, THREAD, WRITE, Bench, Case

# What other systems wrote is no history of Signoff's; nor is a thread without one message.
OWN = {
    name: case
    for name, case in {**CASES, **CONFIRMING}.items()
    if name not in IMPORTS and not name.startswith(("an import", "nothing at all", "a system message alone"))
}

# A claim beside work is accepted when the work went well, unless the graph is told to refuse it; what ends by
# a limit or an error has no finish, which is what its outcome says.
FOUND = {
    "work, then a finish in the same reply": [FaultKind.BLIND],
    "work before it has run": [FaultKind.BLIND],
    "a model that only talks ends at talk_turns": [FaultKind.NO_FINISH],
    "thoughts do not reset the talk": [FaultKind.NO_FINISH],
    "a model that never finishes ends at its turns": [FaultKind.REPEAT, FaultKind.NO_FINISH],
    "two refusals in a row": [FaultKind.NO_FINISH],
    "a failing model is an outcome": [FaultKind.NO_FINISH],
    "and only one more": [FaultKind.NO_FINISH],
}


def linted(messages: Sequence[BaseMessage]) -> list[Fault]:
    documents: list[Any] = [
        messages_to_dict(messages),
        json.loads(dumps({"messages": messages})),
        [message.model_dump() for message in messages],
    ]
    first, *others = (faults(read_trace(document), names()) for document in documents)
    assert all(other == first for other in others)
    return first


def play(case: Case, tmp_path: Path, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        model = ScriptedModel(case.script, disable_streaming=not case.streamed)
        graph = build_graph(model, Bench().tools(), limits=case.limits, storage=storage, **options)
        for given in case.given:
            result = graph.invoke(given if isinstance(given, Command) else {"messages": given}, THREAD)
    return result


@pytest.mark.parametrize("name", OWN)
@pytest.mark.sample(25)
def test_a_history_of_signoff_is_clean(name: str, tmp_path: Path) -> None:
    found = linted(play(OWN[name], tmp_path)["messages"])
    assert [fault.kind for fault in found] == FOUND.get(name, [])


def test_the_exceptions_exist() -> None:
    assert set(FOUND) <= set(OWN)


BESIDE = Case([[WRITE, FINISH], FINISH], ran=["write"])
OPTIONS: dict[str, tuple[Case, dict[str, Any]]] = {
    "finish_alone": (BESIDE, {"finish_alone": True}),
    "checks that fail at first": (
        Case([FINISH, WRITE, FINISH]),
        {"checks": [lambda messages: len(messages) > 3]},
    ),
    "rounds": (Case([[THINK, WRITE], THINK, FINISH]), {"rounds": True}),
    "natural talk": (Case(["hello", FINISH], given=[GO, Command(resume="go on")]), {"talk": "natural"}),
    "an approval that is given": (
        Case([WRITE, FINISH], given=[GO, Command(resume="approve")]),
        {"approvals": {"write": True}},
    ),
    "an approval that is not": (
        Case([WRITE, FINISH], given=[GO, Command(resume="reject: no")]),
        {"approvals": {"write": True}},
    ),
    "a message in its place": (
        Case([WRITE, FINISH], given=[GO, [("user", "rather not")]]),
        {"approvals": {"write": True}},
    ),
    "an action that is handed over": (
        Case([WRITE, FINISH], given=[GO, Command(resume="written")]),
        {"hand_over": ["write"]},
    ),
    "more turns": (
        Case([WRITE, call("request_more_turns", reason="more", turns=2), FINISH], limits=Limits(turns=3)),
        {"more_turns": "once"},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_so_it_is_with_the_options_of_the_graph(name: str, tmp_path: Path) -> None:
    case, options = OPTIONS[name]
    result = play(case, tmp_path, **options)
    assert result["outcome"]["status"] == "success"
    assert linted(result["messages"]) == []


def test_the_tagged_protocol_is_clean_too() -> None:
    def run_python(code: str) -> str:
        """Run."""
        return "55"

    works = "<PLAN>\nI compute.\n</PLAN>\n```python\nprint(55)\n```\n"
    ends = "<PLAN>\n[FINALIZE] It is 55.\n</PLAN>\n<STATE_UPDATE>\nStatus: Finished\n</STATE_UPDATE>\n"
    with ScriptedModel([works, ends]) as model:
        result = build_graph(TaggedText(model), [run_python]).invoke({"messages": GO})
    assert result["outcome"]["status"] == "success"
    assert linted(result["messages"]) == []


def test_a_thread_with_delegates_is_clean(tmp_path: Path) -> None:
    """One fails, one asks and is stopped, and goes on with the task; the failure is named in the end."""
    below = {
        "fails": build_graph(ScriptedModel([call("finish_task", summary="No.", outcome="blocked")])),
        "asks": build_graph(ScriptedModel([call("ask_user", question="Which?"), FINISH])),
    }
    team = [delegate(name, graph, description="Works.") for name, graph in below.items()]
    model = ScriptedModel(
        [
            [call(name, task="Go.") for name in below],
            FINISH,
            call("finish_task", summary="Partly.", outcome="partial"),
        ]
    )
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session = Session(build_graph(model, team, storage=storage), "t")
        session.run("go")
        session.stop()
        session.retry()
        assert isinstance(session.resume("this"), Finished)
        assert linted(session.status().values["messages"]) == []


def test_a_thread_with_a_delegate_that_waits_is_clean(tmp_path: Path) -> None:
    """By what the graph returns, which says so, or by its messages and the name of the delegate."""
    below = build_graph(ScriptedModel([call("ask_user", question="Which?"), FINISH]))
    team = [delegate("asks", below, description="Works.")]
    model = ScriptedModel([call("asks", task="Go."), FINISH])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        result = build_graph(model, team, storage=storage).invoke({"messages": GO}, THREAD)
    assert faults(read_trace(json.loads(dumps(dict(result)))), names()) == []
    messages = messages_to_dict(result["messages"])
    assert [f.kind for f in faults(read_trace(messages), names())] == [
        FaultKind.DANGLING,
        FaultKind.NO_FINISH,
    ]
    assert faults(read_trace(messages), names(delegates={"asks"})) == []
