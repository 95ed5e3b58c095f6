"""A stored thread as a test: it passes on the day it is made, stands alone, and fails when a rule differs."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field

import signoff.session.as_test
from signoff import Session, SetupError, ThreadBusy, ThreadError, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.as_test import as_test, why_it_fails
from signoff.session.redaction import LONGEST, Redaction
from signoff.storage.sqlite import SqliteStorage, thread_lock
from tests.incidents.player import graph_of, incidents
from tests.proof.mutations import RULE_MUTATIONS

ROOT = Path(__file__).parents[2]
INCIDENTS = incidents()
MIDDLE, DEPARTS = "starts in the middle", "cannot be written as a test that passes"
CONTROLS, MIDDLEWARE = "control tools of its own", "has middleware"
# The threads of incidents that a script cannot stand for, and what is said of each.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        [
            "history: imported",
            "kills: when the end is saved",
            "questions: nobody answered in time",
        ],
        MIDDLE,
    ),
    **dict.fromkeys(
        [
            # Kills in a call, refusals that a person was asked about, an undo, a summary by a model, a stop,
            # a message sent again and a new task in the middle: no move of a test.
            "history: people said it",
            "delegates: killed after an answer",
            "delegates: killed below",
            "delegates: undone with the task",
            "finish: refused twice",
            "kills: a look after it",
            "kills: a person decides",
            "kills: in a tool",
            "kills: in an approved call",
            "kills: in an undo",
            "kills: twice",
            "loop: paused and stopped",
            "loop: the same message again",
            "questions: superseded by a new task",
            "undo: a person decides",
            "undo: on request",
        ],
        DEPARTS,
    ),
    "finish: a tool of the user": CONTROLS,
    **{name: MIDDLEWARE for name in INCIDENTS if name.startswith(("middleware:", "channels:"))},
}


def source_of(name: str, storage: Any) -> str:
    return as_test(graph_of(INCIDENTS[name], (), storage), name)


@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.sample(12)
def test_the_thread_of_an_incident_is_a_test_that_passes_or_is_refused_in_a_sentence(
    name: str, incident_storage: SqliteStorage
) -> None:
    if name in REFUSED:
        with pytest.raises((SetupError, ThreadError), match=REFUSED[name]):
            source_of(name, incident_storage)
    else:
        assert "def test_thread_" in source_of(name, incident_storage)


def run_pytest(file: Path, path: str) -> tuple[int, str]:
    """Runs the test of a file in a process of its own, in an empty folder."""
    folder = file.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(file)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_the_file_stands_alone_and_fails_in_a_version_without_the_rule(
    incident_storage: SqliteStorage, tmp_path: Path
) -> None:
    file, name = tmp_path / "test_it.py", "questions: in the second task"
    file.write_text(source_of(name, incident_storage), "utf-8")
    code, said = run_pytest(file, str(ROOT))
    assert (code, "1 passed" in said) == (0, True), said
    other = tmp_path / "other"
    shutil.copytree(ROOT / "signoff", other / "signoff", ignore=shutil.ignore_patterns("__pycache__"))
    rules = other / "signoff" / "graph" / "rules.py"
    kept = [line for line in rules.read_text("utf-8").splitlines() if '    Rule("asked"' not in line]
    rules.write_text("\n".join(kept), "utf-8")
    code, said = run_pytest(file, str(other))
    assert (code, "1 failed" in said) == (1, True), said


# The rules without one of them, or in another order, and the incident of a thread whose test misses that.
MISSED_IN: Mapping[str, str] = {
    "no rule 'asked'": "questions: in the second task",
    "no rule 'claimed'": "finish: without a final message",
    "no rule 'turns'": "limits: turns",
    "no rule 'tool_calls'": "limits: calls",
    "no rule 'tokens'": "limits: tokens and cost",
    "no rule 'repeats'": "limits: talk and repeats",
    "no rule 'repeating'": "limits: talk and repeats",
    "no rule 'talk_turns'": "limits: talk and repeats",
    "no rule 'content_filter'": "loop: the provider fails",
    "no rule 'filtered'": "loop: the provider fails",
    "no rule 'truncated'": "loop: replies of every kind",
    "no rule 'empty'": "loop: a call that the provider refuses",
    "no rule 'spoke'": "questions: a dialogue",
    "no rule 'near_limit'": "limits: turns",
    "no rule 'think'": "finish: without a final message",
    "finish_reason stop ends the task": "limits: talk and repeats",
    "finish_reason stop is a claim": "limits: talk and repeats",
}


@pytest.mark.parametrize("mutation", MISSED_IN)
def test_it_fails_when_a_rule_changes(mutation: str, incident_storage: SqliteStorage) -> None:
    source = source_of(MISSED_IN[mutation], incident_storage)
    assert why_it_fails(source) == ""
    with pytest.MonkeyPatch.context() as patch:
        RULE_MUTATIONS[mutation].apply(patch)
        assert why_it_fails(source) != ""


KEY = "sk-abcdefghijklmnop1234567890"


class Account(BaseModel):
    """What the task must give."""

    name: str
    password: str = Field(default="none", description="Never shown.")
    cents: list[int] = Field(default_factory=list, max_length=2)


SCHEMAS: Sequence[Any] = [
    Account,
    {**Account.model_json_schema(), "description": "What the task must give."},
    {"type": "object", "properties": {"description": {"type": "string"}, "name": {"enum": ["Ada"]}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["a model", "its JSON schema", "a field named description"])
@pytest.mark.parametrize("below", [False, True], ids=["of the thread", "of a delegate"])
def test_the_results_of_a_task_must_fit_as_they_had_to(schema: Any, below: bool, tmp_path: Path) -> None:
    finishes = [call("finish_task", summary="Done.", result=one) for one in ({"name": 1}, {"name": "Ada"})]
    with sqlite_storage(tmp_path / "t.sqlite") as opened:
        if below:
            child = build_graph(ScriptedModel(finishes), response_format=schema)
            tools = [delegate("child", child, description="Works.")]
            script = [call("child", task="go"), call("finish_task", summary="Done.")]
            graph: Graph = build_graph(ScriptedModel(script), tools, storage=opened)
        else:
            graph = build_graph(ScriptedModel(finishes), storage=opened, response_format=schema)
        graph.invoke({"messages": ["go"]}, {"configurable": {"thread_id": "t"}})
        source = as_test(graph, "t")
    assert why_it_fails(source) == ""
    assert source.count("response_format={") == 1
    assert "What the task must give" not in source
    assert why_it_fails(re.sub(r"response_format=\{", "response_format={} and {", source)) != ""


@contextmanager
def recorded(folder: Path, result: str, thread_id: str = "t", words: str = "go") -> Iterator[Graph]:
    """The graph of a thread that looked once and finished."""

    def look(token: str) -> str:
        """Look."""
        return result

    script = [call("look", token="hunter2"), call("finish_task", summary=f"Saw {KEY}.")]
    with sqlite_storage(folder / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel(script), [look], storage=storage)
        graph.invoke({"messages": [words]}, {"configurable": {"thread_id": thread_id}})
        yield graph


def test_secrets_and_long_values_are_not_written(tmp_path: Path) -> None:
    with recorded(tmp_path, f"the key is {KEY}; " + "x" * 3 * LONGEST) as graph:
        source = as_test(graph, "t")
    assert [word for word in (KEY, "hunter2", "x" * LONGEST) if word in source] == []
    assert "the key is [secret " in source
    assert "token='[secret 1]'" in source
    assert "characters left out" in source
    assert why_it_fails(source) == ""


SECRETS: list[tuple[str, str]] = [
    ("nothing to hide", "nothing to hide"),
    (f"{KEY} and {KEY}", "[secret 1] and [secret 1]"),
    ("sk-ant-api03-" + "a1" * 20 + "-uvwxyz, that", "[secret 1], that"),
    ("sk-proj-abcDEF_123-456ghi789", "[secret 1]"),
    ("ghp_" + "a" * 36 + " AKIA" + "B" * 16, "[secret 1] [secret 2]"),
    ("hf_" + "a" * 34 + " npm_" + "b" * 36, "[secret 1] [secret 2]"),
    ("postgresql://me:pass@host/db", "postgresql://[secret 1]@host/db"),
    ("redis://:pass@host", "redis://[secret 1]@host"),
    ("Authorization: Bearer abcdef123456", "Authorization: Bearer [secret 1]"),
    ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [secret 1]"),
    ("X-Api-Key: abc-123", "X-Api-Key: [secret 1]"),
    ("?password=hunter2&x=1", "?password=[secret 1]&x=1"),
    ("password: x", "password: [secret 1]"),
    ("login --password hunter2 --user ada", "login --password [secret 1] --user ada"),
    ("AWS_SECRET_ACCESS_KEY=wJalr/bPx+k=", "AWS_SECRET_ACCESS_KEY=[secret 1]"),
    ('export GITHUB_TOKEN="a b"', 'export GITHUB_TOKEN="[secret 1]"'),
    ('{"password": "hunter2 x", "n": 1}', '{"password": "[secret 1]", "n": 1}'),
    ("{'api_key': 'it\\'s', 'b': 2}", "{'api_key': '[secret 1]', 'b': 2}"),
    ('"{\\"accessToken\\": \\"abc\\"}"', '"{\\"accessToken\\": \\"[secret 1]\\"}"'),
    ('{"token": 123, "max_tokens": 5}', '{"token": "[secret 1]", "max_tokens": 5}'),
    ('{"token": ["a", "b"]}', '{"token": "[secret 1]"}'),
    ("token: null, secret=true", "token: null, secret=true"),
    ("total_tokens: 100, tokens=3, tokenizer: x", "total_tokens: 100, tokens=3, tokenizer: x"),
    ("The password is secret.", "The password is secret."),
    ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "[secret 1]"),
]


@pytest.mark.parametrize(("text", "written"), SECRETS)
def test_what_counts_as_a_secret(text: str, written: str) -> None:
    assert Redaction()(text) == written


NAMED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"accessToken": "a", "access_key": "a"}, {"accessToken": "[secret 1]", "access_key": "[secret 1]"}),
    ({"token": ["a", {"b": "c"}]}, {"token": ["[secret 1]", {"b": "[secret 2]"}]}),
    ({"token": 123}, {"token": "[secret 1]"}),
    ({"credentials": {"user": "u", "on": True}}, {"credentials": {"user": "[secret 1]", "on": True}}),
    (
        {"X-Api-Key": "a", "Authorization": "Basic a"},
        {"X-Api-Key": "[secret 1]", "Authorization": "[secret 2]"},
    ),
    ({"tokens": 123, "max_tokens": 5, "token": None}, {"tokens": 123, "max_tokens": 5, "token": None}),
]


@pytest.mark.parametrize(("value", "written"), NAMED)
def test_what_stands_under_the_name_of_a_secret_is_one(value: Any, written: Any) -> None:
    assert Redaction()(value) == written


def test_a_large_text_is_looked_through_in_a_moment() -> None:
    begun = time.process_time()
    for piece in ('token="', ",,;", "token: [", "secret", "--a-", "://:", "token: ,;"):
        Redaction()(piece * 50_000)
    assert time.process_time() - begun < 10


def not_a_text(text: str) -> Any:
    return None


def broken(text: str) -> str:
    raise KeyError("Ada")


@pytest.mark.parametrize(
    ("redact", "why"),
    [
        (not_a_text, "The redaction function returned None; it must return the text"),
        (broken, "The redaction function raised KeyError: 'Ada'; it gets each text"),
    ],
)
def test_a_function_of_ones_own_that_fails_is_told(tmp_path: Path, redact: Any, why: str) -> None:
    with recorded(tmp_path, "done") as graph, pytest.raises(SetupError, match=why):
        as_test(graph, "t", redact)


def test_what_was_equal_stays_equal_and_what_differed_stays_different() -> None:
    redact, long = Redaction(), "y" * 2 * LONGEST
    other = f"{long[:LONGEST]}z{long[LONGEST + 1 :]}"
    assert redact(long) == redact(long) != redact(other)
    assert redact({"api_key": "a", "name": ["b"]}) == {"api_key": "[secret 1]", "name": ["b"]}
    assert redact({"api_key": "a"}) == {"api_key": "[secret 1]"}


def test_a_function_of_ones_own_takes_the_place_of_the_patterns(tmp_path: Path) -> None:
    with recorded(tmp_path, "done", words="Ask Ada.") as graph:
        source = as_test(graph, "t", lambda text: text.replace("Ada", "N. N."))
    assert "Ask N. N." in source
    assert KEY in source


def test_what_is_too_large_to_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signoff.session.as_test, "MOST_CHARACTERS", 5_000)
    with recorded(tmp_path, "done") as graph:
        refused = "would have [0-9,]+ characters, more than 5,000: the tool results are too large to record"
        with pytest.raises(SetupError, match=refused):
            as_test(graph, "t", lambda text: text * 100)


def test_a_name_of_a_thread_cannot_end_the_docstring(tmp_path: Path) -> None:
    with recorded(tmp_path, "done @path@ @script@", thread_id='"""\nraise SystemExit #') as graph:
        source = as_test(graph, '"""\nraise SystemExit #')
    assert why_it_fails(source) == ""
    assert "'done @path@ @script@'" in source


def test_bad_input_is_told_in_a_sentence(tmp_path: Path) -> None:
    with recorded(tmp_path, "done") as graph:
        with pytest.raises(ThreadError, match="There is no thread 'nobody'"):
            as_test(graph, "nobody")
        with pytest.raises(SetupError, match="nothing to record without a checkpointer"):
            as_test(build_graph(ScriptedModel([])), "t")
        with thread_lock(tmp_path / "t.sqlite", "t"), pytest.raises(ThreadBusy):
            as_test(graph, "t")


@pytest.mark.parametrize("name", ["from", "class", "None", "id", "args", "x-y"])
def test_an_argument_may_have_any_name(name: str, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    send = StructuredTool(name="send", description="Send.", func=lambda **given: "sent", args_schema=schema)
    with sqlite_storage(tmp_path / "t.sqlite") as opened:
        script = [call("send", args={name: "Ada"}), call("finish_task", summary="Sent.")]
        graph = build_graph(ScriptedModel(script), [send], storage=opened)
        graph.invoke({"messages": ["go"]}, {"configurable": {"thread_id": "t"}})
        assert f"{{'{name}': 'Ada'}}" in as_test(graph, "t")


def test_the_stop_of_a_run_is_refused(tmp_path: Path) -> None:
    """A test can stop only what waits: nothing tells where a run was."""
    with sqlite_storage(tmp_path / "t.sqlite") as opened:
        sessions: list[Session[Any]] = []

        def stop() -> str:
            """Stop."""
            sessions[0].stop()
            return "stopped"

        model = ScriptedModel([call("stop"), call("finish_task", summary="Done.")])
        sessions.append(Session(build_graph(model, [stop], storage=opened), "t"))
        sessions[0].run("go")
        with pytest.raises(SetupError, match=DEPARTS):
            as_test(sessions[0].graph, "t")
