"""A stored thread as a test, by `signoff replay --to-test`: it passes on the day it is made, stands alone,
hides secrets, and fails when a decision differs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from signoff import Answer, Graph, Limits, Session, build_graph, delegate, go_on, sqlite_storage, stop
from signoff.cli.app import app
from signoff.models import ScriptedModel, call
from tests.incidents.player import graph_of as incident_graph
from tests.incidents.player import incidents

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROOT = Path(__file__).parents[2]
KEY = "sk-abcdefghijklmnop1234567890"
LOOK, ASK = call("look", path="a"), call("ask_user", question="Which?")
APPROVE = {"decisions": [{"type": "approve"}]}
GRAPHS: list[Graph] = []


def latest() -> Graph:
    """The graph whose thread was recorded last: what the command is given by --graph."""
    return GRAPHS[-1]


def nobody(text: str) -> str:
    return text.replace("Ada", "N. N.").replace(KEY, "N. N.")


def no_text(text: str) -> Any:
    return None


def broken(text: str) -> str:
    raise KeyError("Ada")


def written(graph: Graph, database: Path, *options: str, thread: str = "t", code: int = 0) -> str:
    """What the command writes, or says of an error if it is to end with this code."""
    GRAPHS.append(graph)
    words = ["replay", thread, "--graph", f"{__name__}:latest", "--to-test", "-", "--database", str(database)]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def passes(source: str, folder: Path) -> bool:
    """Whether the test of a file passes, as pytest would run it."""
    names: dict[str, Any] = {"__name__": "written", "__file__": str(folder / "written.py")}
    exec(compile(source, "written.py", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    own = folder / f"run {len(list(folder.iterdir()))}"
    own.mkdir()
    try:
        test(own)
    except Exception:  # noqa: BLE001  whatever it raises, it fails
        return False
    return True


def done(summary: str = "Done.") -> Any:
    return call("finish_task", summary=summary)


def look(path: str) -> str:
    """Look."""
    return f"{path}: password=hunter2, {KEY}"


def run(graph: Graph, thread: str = "t", task: Any = "go", moves: Sequence[Any] = ()) -> Graph:
    session = Session(graph, thread)
    session.run(task)
    for move in moves:
        session.run(move(session) if callable(move) else move)
    return graph


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "threads.sqlite"


# Threads of one machine.

# The threads of incidents that a script cannot stand for: they begin in the middle, were killed in a call,
# had refusals that a person was asked about, an undo, a summary by a model, a stop, a message sent again, a
# new task in the middle, control tools of their own, or middleware.
REFUSED = {
    "delegates: killed after an answer",
    "delegates: killed below",
    "delegates: undone with the task",
    "finish: a tool of the user",
    "finish: refused twice",
    "history: imported",
    "history: people said it",
    "kills: a look after it",
    "kills: a person decides",
    "kills: in a tool",
    "kills: in an approved call",
    "kills: in an undo",
    "kills: twice",
    "kills: when the end is saved",
    "loop: paused and stopped",
    "loop: the same message again",
    "questions: nobody answered in time",
    "questions: superseded by a new task",
    "undo: a person decides",
    "undo: on request",
}
INCIDENTS = incidents()


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_thread_of_an_incident_is_a_test_that_passes_or_is_refused(
    name: str, played_incidents: Path, tmp_path: Path
) -> None:
    refused = name in REFUSED or name.startswith(("middleware:", "channels:"))
    graph = incident_graph(INCIDENTS[name], (), None)
    text = written(graph, played_incidents, thread=name, code=2 if refused else 0)
    assert text if refused else passes(text, tmp_path)


@pytest.mark.slow
def test_the_file_stands_alone_and_fails_in_a_version_without_the_rule(
    tmp_path: Path, database: Path
) -> None:
    with sqlite_storage(database) as storage:
        graph = run(
            build_graph(ScriptedModel([ASK, done()]), storage=storage), moves=[lambda _: Answer("red")]
        )
    file, other = tmp_path / "test_it.py", tmp_path / "other"
    file.write_text(written(graph, database), "utf-8")
    shutil.copytree(ROOT / "signoff", other / "signoff", ignore=shutil.ignore_patterns("__pycache__"))
    rules = other / "signoff" / "graph" / "rules.py"
    kept = [line for line in rules.read_text("utf-8").splitlines() if '    Rule("asked"' not in line]
    rules.write_text("\n".join(kept), "utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    for path, code, said in ((ROOT, 0, "1 passed"), (other, 1, "1 failed")):
        ran = subprocess.run(
            [*command, "--rootdir", str(elsewhere), str(file)],
            cwd=elsewhere,
            env={**os.environ, "PYTHONPATH": str(path)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert (ran.returncode, said in ran.stdout) == (code, True), ran.stdout


class Account(BaseModel):
    """What the task must give."""

    name: str
    password: str = Field(default="none", description="Never shown.")
    cents: list[int] = Field(default_factory=list, max_length=2)


SCHEMAS: dict[str, Any] = {
    "a model": Account,
    "its JSON schema": {**Account.model_json_schema(), "description": "What the task must give."},
    "a field named description": {
        "type": "object",
        "properties": {"description": {"type": "string"}, "name": {"enum": ["Ada"]}},
    },
}


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("below", [False, True], ids=["of the thread", "of a delegate"])
def test_results_must_fit_as_they_had_to(schema: str, below: bool, tmp_path: Path, database: Path) -> None:
    finishes = [call("finish_task", summary="Done.", result=one) for one in ({"name": 1}, {"name": "Ada"})]
    with sqlite_storage(database) as storage:
        if below:
            child = build_graph(ScriptedModel(finishes), response_format=SCHEMAS[schema])
            tools = [delegate("child", child, description="Works.")]
            graph: Graph = build_graph(ScriptedModel([to("go"), done()]), tools, storage=storage)
        else:
            graph = build_graph(ScriptedModel(finishes), storage=storage, response_format=SCHEMAS[schema])
        run(graph)
    source = written(graph, database)
    assert passes(source, tmp_path)
    assert (source.count("response_format={"), "What the task must give" in source) == (1, False)
    assert not passes(re.sub(r"response_format=\{", "response_format={} and {", source), tmp_path)


@pytest.mark.parametrize("name", ["from", "class", "None", "id", "args", "x-y"])
def test_an_argument_may_have_any_name(name: str, tmp_path: Path, database: Path) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    send = StructuredTool(name="send", description="Send.", func=lambda **given: "sent", args_schema=schema)
    with sqlite_storage(database) as storage:
        graph = run(
            build_graph(ScriptedModel([call("send", args={name: "Ada"}), done()]), [send], storage=storage)
        )
    source = written(graph, database)
    assert f"{{'{name}': 'Ada'}}" in source
    assert passes(source, tmp_path)


# What is hidden.

# A text, and what of it is written.
SECRETS: list[tuple[str, str]] = [
    ("nothing to hide", "nothing to hide"),
    (f"{KEY} and {KEY}", "[secret] and [secret]"),
    ("sk-ant-api03-" + "a1" * 20 + "-uvwxyz, that", "[secret], that"),
    ("sk-proj-abcDEF_123-456ghi789", "[secret]"),
    ("ghp_" + "a" * 36 + " AKIA" + "B" * 16, "[secret] [secret]"),
    ("hf_" + "a" * 34 + " npm_" + "b" * 36, "[secret] [secret]"),
    ("postgresql://me:pass@host/db", "postgresql://[secret]@host/db"),
    ("redis://:pass@host", "redis://[secret]@host"),
    ("Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"),
    ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [secret]"),
    ("X-Api-Key: abc-123", "X-Api-Key: [secret]"),
    ("?password=hunter2&x=1", "?password=[secret]&x=1"),
    ("password: x", "password: [secret]"),
    ("login --password hunter2 --user ada", "login --password [secret] --user ada"),
    ("AWS_SECRET_ACCESS_KEY=wJalr/bPx+k=", "AWS_SECRET_ACCESS_KEY=[secret]"),
    ('export GITHUB_TOKEN="a b"', 'export GITHUB_TOKEN="[secret]"'),
    ('{"password": "hunter2 x", "n": 1}', '{"password": "[secret]", "n": 1}'),
    ("{'api_key': 'it\\'s', 'b': 2}", "{'api_key': '[secret]', 'b': 2}"),
    ('"{\\"accessToken\\": \\"abc\\"}"', '"{\\"accessToken\\": \\"[secret]\\"}"'),
    ('{"token": 123, "max_tokens": 5}', '{"token": "[secret]", "max_tokens": 5}'),
    ('{"token": ["a", "b"]}', '{"token": "[secret]"}'),
    ("token: null, secret=true", "token: null, secret=true"),
    ("total_tokens: 100, tokens=3, tokenizer: x", "total_tokens: 100, tokens=3, tokenizer: x"),
    ("The password is secret.", "The password is secret."),
    ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "[secret]"),
]
# An argument, and what of it is written.
NAMED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"accessToken": "a", "access_key": "a"}, {"accessToken": "[secret]", "access_key": "[secret]"}),
    ({"token": ["a", {"b": "c"}]}, {"token": ["[secret]", {"b": "[secret]"}]}),
    ({"token": 123}, {"token": "[secret]"}),
    ({"credentials": {"user": "u", "on": True}}, {"credentials": {"user": "[secret]", "on": True}}),
    ({"X-Api-Key": "a", "Authorization": "Basic a"}, {"X-Api-Key": "[secret]", "Authorization": "[secret]"}),
    ({"tokens": 123, "max_tokens": 5, "token": None}, {"tokens": 123, "max_tokens": 5, "token": None}),
]


def unnumbered(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"\[secret \d+\]", "[secret]", value)
    if isinstance(value, dict):
        return {name: unnumbered(one) for name, one in value.items()}
    return [unnumbered(one) for one in value] if isinstance(value, list) else value


def test_what_counts_as_a_secret(tmp_path: Path, database: Path) -> None:
    texts = iter(SECRETS)

    def note(about: dict[str, Any]) -> str:
        """Note."""
        return next(texts)[0]

    notes = [call("note", about=value) for value, _ in NAMED]
    notes += [call("note", about={"n": n}) for n in range(len(SECRETS) - len(NAMED))]
    limits = Limits(turns=60, repeats=None)
    with sqlite_storage(database) as storage:
        model = ScriptedModel([*notes, done()])
        graph = run(build_graph(model, [note], limits=limits, storage=storage))
    source = written(graph, database)
    assert passes(source, tmp_path)
    names: dict[str, Any] = {}
    exec(compile(source, "written.py", "exec"), names)
    about = [unnumbered(args["about"]) for _, args, _, _ in names["RESULTS"]]
    assert about[: len(NAMED)] == [value for _, value in NAMED]
    told = [unnumbered(text) for *_, text in names["RESULTS"]]
    assert told == [expected for _, expected in SECRETS]


@dataclass
class Recorded:
    """A thread that looked once and finished: what its tool gives, and what it was asked."""

    result: str = "done"
    task: str = "Ask Ada."
    thread: str = "t"

    def graph(self, database: Path) -> Graph:
        def look(token: str) -> str:
            """Look."""
            return self.result

        script = [call("look", token="hunter2"), done(f"Saw {KEY}.")]
        with sqlite_storage(database) as storage:
            graph: Graph = build_graph(ScriptedModel(script), [look], storage=storage)
            return run(graph, self.thread, self.task)


def test_secrets_are_not_written_and_long_values_are_cut(tmp_path: Path, database: Path) -> None:
    # What looks like secrets all over is looked through in a moment, too.
    pieces = "".join(piece * 3_000 for piece in ('token="', ",,;", "token: [", "--a-", "://:", "token: ,;"))
    source = written(Recorded(f"the key is {KEY}; " + "x" * 10_000 + pieces).graph(database), database)
    assert (KEY in source, "hunter2" in source, len(source) < 50_000) == (False, False, True)
    # What was equal stays equal, and what differed stays different.
    assert re.findall(r"key is \[secret (\d+)\]", source) == re.findall(r"Saw \[secret (\d+)\]", source)
    assert passes(source, tmp_path)


def test_a_function_of_ones_own_takes_the_place_of_the_patterns(database: Path) -> None:
    source = written(Recorded().graph(database), database, "--redact", f"{__name__}:nobody")
    assert ("Ask N. N." in source, KEY in source, "hunter2" in source) == (True, False, True)


@pytest.mark.parametrize(("redact", "named"), [(no_text, "None"), (broken, "KeyError")])
def test_a_function_of_ones_own_that_fails_is_told(
    redact: Callable[[str], Any], named: str, database: Path
) -> None:
    graph = Recorded().graph(database)
    assert named in written(graph, database, "--redact", f"{__name__}:{redact.__name__}", code=2)


def test_what_is_too_large_to_record_is_refused(database: Path) -> None:
    with sqlite_storage(database) as storage:
        graph = run(
            build_graph(ScriptedModel([done()]), storage=storage), task=[HumanMessage("x" * 1_900)] * 600
        )
    assert "too large" in written(graph, database, code=2)


def test_nothing_that_is_recorded_ends_its_place_in_the_file(tmp_path: Path, database: Path) -> None:
    thread = '"""\nraise SystemExit #'
    graph = Recorded("done @path@ @script@", thread=thread).graph(database)
    source = written(graph, database, thread=thread)
    assert "'done @path@ @script@'" in source
    assert passes(source, tmp_path)


def test_what_is_not_there_or_runs_is_refused(database: Path) -> None:
    graph = Recorded().graph(database)
    assert "'nobody'" in written(graph, database, thread="nobody", code=2)
    with sqlite_storage(database) as storage, storage.runner("t"):
        assert "'t'" in written(graph, database, code=2)


# Threads with delegates: every machine plays its own script, at every level.

THINK = call("think", thought="Hm.")
LONG = [call("write", path=f"p{number}") for number in range(12)]
CONFIRMED = call("finish_task", summary="Done.", requires_user_confirmation=True)
TURNS = Limits(turns=2)


def to(task: str, name: str = "child") -> Any:
    return call(name, task=task)


def turned(*scripts: Sequence[Any]) -> ScriptedModel:
    """A model that plays a script by the words of its task, each from its beginning."""

    def say(messages: Sequence[Any]) -> Any:
        # A message that the machine puts before a reminder is of no model.
        replies = sum("model_name" in message.response_metadata for message in messages)
        return scripts[int(re.sub(r"\D", "", messages[1].text) or 0)][replies]

    return ScriptedModel(say)


def child(
    *scripts: Sequence[Any], tools: Sequence[Any] = (look,), name: str = "child", **options: Any
) -> Any:
    return delegate(name, build_graph(turned(*scripts), list(tools), **options), description="Works.")


def write(path: str) -> str:
    """Write."""
    return path + " word" * 150


def counting() -> Callable[[], str]:
    counted = iter(range(1, 9))

    def count() -> str:
        """Count."""
        return f"It is {next(counted)}."

    return count


def only_after_a_look(messages: Sequence[Any]) -> bool:
    return len(messages) > 4 or "1" in messages[0].text


def nested() -> Any:
    helper = child([LOOK, done("Deep.")], name="helper", limits={"turns": 5})
    asks = {"look": ["approve", "reject"]}
    scripts = [[LOOK, ASK, to("help", "helper"), done()], [ASK, LOOK, done()]]
    return [child(*scripts, tools=[look, helper], approvals=asks, limits={"turns": 7})]


def itself() -> Any:
    below = delegate("same", itself, description="Works.")
    return build_graph(turned([to("1", "same"), done()], [done()]), [below])


def answered(value: Any, at: int = 0) -> Callable[[Session], Answer]:
    """Answers what waits at this place."""
    return lambda session: Answer(value, session.status().waits[at].interrupt_id)


@dataclass(frozen=True)
class Team:
    """script: of the machine at the top. delegates: makes its delegates. moves: after the first message.
    texts: which the test has to have. misses: it fails once these are replaced in it."""

    script: Sequence[Any]
    delegates: Callable[[], Any]
    moves: Sequence[Any] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    misses: Sequence[tuple[str, str]] = ()


TEAMS: Mapping[str, Team] = {
    "one after the other": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, done("First.")], [done("Second.")])],
        texts=["'task': '0'", "'child / execute: done'"],
        misses=[("'child / execute: done'", "'child / execute: waits'")],
    ),
    "the same task twice, with other results": Team(
        [to("0"), to("0"), done()],
        lambda: [child([call("count"), done()], tools=[counting()])],
        texts=["'It is 1.'", "'It is 2.'"],
    ),
    "nested, beside each other, and waiting": Team(
        [[to("0"), to("1")], done()],
        nested,
        [answered(APPROVE), answered("red", -1), answered("blue"), answered(APPROVE), answered(APPROVE)],
        {"approvals": {"look": True}},
        ["answer_below(('child', 'helper')", "'child / helper / approve: decided'"],
        [("turns=7", "turns=2"), ("turns=5", "turns=1")],
    ),
    "ended at its limit": Team(
        [to("0"), done(), done()],
        lambda: [child([THINK, THINK, done()], limits=TURNS)],
        texts=["limits=Limits(turns=2)", "'child / decide: exhausted by turns'"],
        misses=[("turns=2", "turns=3")],
    ),
    "ended at a limit, then extended": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, LOOK, done()], [done()], limits=TURNS)],
        [go_on(2)],
        {"limits": {"turns": 1}},
        ["go_on(2)"],
    ),
    "with checks that refuse it once": Team(
        [[to("0"), to("1")], done()],
        lambda: [child([done(), LOOK, done()], [done()], checks=[only_after_a_look])],
        texts=["'checked': True", "'checks': [False, True]", "'checks': [True]"],
    ),
    "talking": Team(
        [to("0"), done()],
        lambda: [child(["Well.", "Well, well.", done()], policy={"talk": "strict"})],
        texts=["'talk': 'strict'"],
        misses=[("'talk': 'strict'", "'talk': 'natural'")],
    ),
    "never started": Team(
        [to("0"), done()],
        lambda: [child([done()])],
        [answered({"decisions": [{"type": "reject", "message": "No."}]})],
        {"approvals": {"child": True}},
        ["MACHINES: list[dict[str, Any]] = []"],
    ),
    "waiting below": Team(
        [[to("0"), to("1")], done()],
        lambda: [child([ASK, done()], [LOOK, ASK, done()], policy={"talk": "natural"})],
        [answered("blue", 1)],
    ),
    "stopped while a delegate waits": Team(
        [[to("0"), to("1")], ASK, done()],
        lambda: [child([ASK, done()], [done()])],
        [stop(), "Something else.", stop(), "And now?"],
        texts=["    stop(),\n"],
        misses=[("    stop(),\n", "")],
    ),
    "with a digest below": Team(
        [[to("0"), to("1")], done()],
        lambda: [child([*LONG, done()], [*LONG[:3], done()], tools=[write], policy={"prompt_tokens": 2_500})],
        texts=["'prompt_tokens': 2500"],
        misses=[("'prompt_tokens': 2500", "'prompt_tokens': 9000")],
    ),
    "in a tree with limits": Team(
        [[to("0"), to("1")], to("2"), done()],
        lambda: [child([LOOK, done()], [LOOK, done()], [*[LOOK] * 4, done()])],
        settings={"limits": Limits(tree_turns=9)},
        misses=[("tree_turns=9", "tree_turns=5")],
    ),
    "a task that a person has edited": Team(
        [to("0"), done()],
        lambda: [child([done()], [LOOK, done()])],
        [answered([{"type": "edit", "edited_action": {"name": "child", "args": {"task": "1"}}}])],
        {"approvals": {"child": True}},
        ["'task': '1'"],
    ),
    "a model that failed below": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, ValueError(f"down {KEY}")], [done()], policy={"model_retries": None})],
        texts=["RuntimeError("],
    ),
    "deeper than allowed": Team(
        [to("0"), done(), done()],
        nested,
        [answered(APPROVE), answered("red")],
        {"limits": Limits(depth=1)},
        misses=[("depth=1", "depth=2")],
    ),
    "by itself": Team(
        [to("0", "same"), done()],
        lambda: [delegate("same", itself, description="Works.")],
        texts=["('same', 'same', 'same'): {", "'same / same / finish: ended'"],
    ),
    "a tool handed over below": Team(
        [to("0"), done()],
        lambda: [child([LOOK, done()], approvals={"look": "hand_over"})],
        [answered("seen")],
        texts=["approvals={'look': 'hand_over'}", "{'output': 'seen'"],
    ),
    "a finish confirmed below": Team(
        [to("0"), done()],
        lambda: [child([CONFIRMED, LOOK, CONFIRMED])],
        [answered("Look again."), answered("yes")],
        texts=["'child / confirm: sent back'"],
    ),
    "two at once with the same task that do the same": Team(
        [[to("0"), to("0")], done()], lambda: [child([LOOK, done()])]
    ),
}


def recorded(team: Team, database: Path) -> Graph:
    with sqlite_storage(database) as storage:
        model = ScriptedModel(team.script)
        return run(build_graph(model, team.delegates(), storage=storage, **team.settings), moves=team.moves)


@pytest.mark.parametrize("name", TEAMS)
def test_a_thread_with_delegates_is_a_test_that_fails_when_something_changes(
    name: str, tmp_path: Path, database: Path
) -> None:
    team = TEAMS[name]
    source = written(recorded(team, database), database)
    assert passes(source, tmp_path)
    assert [text for text in (*team.texts, "DELEGATES: ") if text not in source] == []
    assert [word for word in ("hunter2", KEY) if word in source] == []
    for old, new in (("call_llm: replied", "call_llm: empty"), *team.misses):
        assert old in source
        assert not passes(source.replace(old, new), tmp_path), old


NOT_WRITTEN: Mapping[str, Team] = {
    "middleware below": Team([to("0"), done()], lambda: [child([done()], middleware=[AgentMiddleware()])]),
    "two at once with the same task that do different things": Team(
        [[to("0"), to("0")], done()], lambda: [child([call("count"), done()], tools=[counting()])]
    ),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_what_cannot_be_a_test_is_refused(name: str, database: Path) -> None:
    assert "'child'" in written(recorded(NOT_WRITTEN[name], database), database, code=2)


def test_a_delegate_that_the_graph_no_longer_has_is_named(database: Path) -> None:
    recorded(Team([to("0"), done()], lambda: [child([done()])]), database)
    assert "'child'" in written(build_graph(ScriptedModel([])), database, code=2)


def test_secrets_in_the_task_of_a_delegate_are_not_written(database: Path) -> None:
    graph = recorded(Team([to(f"0 with {KEY}-x"), done()], lambda: [child([done(KEY)])]), database)
    source, own = written(graph, database), written(graph, database, "--redact", f"{__name__}:nobody")
    assert ("'task': '0 with [secret " in source, "'task': '0 with N. N." in own) == (True, True)
    assert (KEY in source, KEY in own) == (False, False)
