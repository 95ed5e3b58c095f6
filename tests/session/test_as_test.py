"""A stored thread as a test, by `signoff replay --to-test`: it passes on the day it is made, stands alone,
hides secrets, and fails when a decision differs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from signoff import Answer, Graph, Limits, Session, build_graph, delegate, sqlite_storage, stop
from signoff.cli.app import app
from signoff.models import ScriptedModel, call, reply
from tests.incidents.player import graph_of as incident_graph
from tests.incidents.player import incidents

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
KEY = "sk-abcdefghijklmnop1234567890"
LOOK, ASK = call("look", path="a"), call("ask_user", question="Which?")
GRAPHS: list[Graph] = []


def latest() -> Graph:
    """The graph whose thread was recorded last: what the command is given by --graph."""
    return GRAPHS[-1]


def nobody(text: str) -> str:
    return text.replace("Ada", "N. N.").replace(KEY, "N. N.")


def broken(text: str) -> str:
    raise KeyError("Ada")


def written(graph: Graph, database: Path, *options: str, thread: str = "t", code: int = 0) -> str:
    """What the command writes, or says of an error if it is to end with this code."""
    GRAPHS.append(graph)
    words = ["replay", thread, "--graph", f"{__name__}:latest", "--to-test", "-", "--database", str(database)]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def names_of(source: str, folder: Path) -> dict[str, Any]:
    """What stands in a file."""
    names: dict[str, Any] = {"__name__": "written", "__file__": str(folder / "written.py")}
    exec(compile(source, "written.py", "exec"), names)
    return names


def passes(source: str, folder: Path) -> bool:
    """Whether the test of a file passes, as pytest would run it."""
    (test,) = [value for name, value in names_of(source, folder).items() if name.startswith("test_")]
    own = folder / f"run {len(list(folder.iterdir()))}"
    own.mkdir()
    try:
        test(tmp_path=own)
    except Exception:  # noqa: BLE001  whatever it raises, it fails
        return False
    return True


def done(summary: str = "Done.") -> Any:
    return call("finish_task", summary=summary)


def to(task: str, name: str = "child") -> Any:
    return call(name, task=task)


def look(path: str) -> str:
    """Look."""
    return f"{path}: password=hunter2, {KEY}"


def recorded(
    database: Path,
    script: Any,
    tools: Any = (),
    task: Any = "go",
    thread: str = "t",
    moves: Any = (),
    **options: Any,
) -> Graph:
    """A graph whose thread has been given a task, and these moves."""
    with sqlite_storage(database) as storage:
        graph: Graph = build_graph(ScriptedModel(script), tools, storage=storage, **options)
        session = Session(graph, thread)
        for move in (task, *moves):
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
    "history: summarised by lines",
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
# Each tenth, and all at length.
SOME = [
    pytest.param(name, marks=[pytest.mark.thorough] if at % 10 else []) for at, name in enumerate(INCIDENTS)
]


@pytest.mark.parametrize("name", SOME)
def test_the_thread_of_an_incident_is_a_test_that_passes_or_is_refused(
    name: str, played_incidents: Path, tmp_path: Path
) -> None:
    refused = name in REFUSED or name.startswith(("middleware:", "channels:"))
    graph = incident_graph(INCIDENTS[name], (), None)
    text = written(graph, played_incidents, thread=name, code=2 if refused else 0)
    assert text if refused else passes(text, tmp_path)


def test_what_was_summarised_is_summarised_in_the_test_too(tmp_path: Path, database: Path) -> None:
    def look(path: str) -> str:
        """Look."""
        return "much " * 200

    looks = [reply(call("look", path=str(at)), usage=(700 + 250 * at, 10)) for at in range(8)]
    options: Any = {"moves": [Answer("red")], "policy": {"prompt_tokens": 1_800}}
    source = written(recorded(database, [*looks, ASK, done()], [look], **options), database)
    assert ("'prompt_tokens': 1800" in source, passes(source, tmp_path)) == (True, True)


# What is hidden.

SECRETS: list[tuple[str, str]] = [
    # A text, and what of it is written.
    ("sk-ant-api03-" + "a1" * 20 + "-uvwxyz, that", "[secret], that"),
    ("postgresql://me:pass@host/db", "postgresql://[secret]@host/db"),
    ("Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"),
    ('export GITHUB_TOKEN="a b"', 'export GITHUB_TOKEN="[secret]"'),
    ('"{\\"accessToken\\": \\"abc\\"}"', '"{\\"accessToken\\": \\"[secret]\\"}"'),
    ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "[secret]"),
    ("total_tokens: 100, tokens=3. The password is secret.",) * 2,
]


def test_what_counts_as_a_secret(tmp_path: Path, database: Path) -> None:
    texts = iter(SECRETS)

    def note(about: dict[str, Any]) -> str:
        """Note."""
        return next(texts)[0]

    about = {"X-Api-Key": "a", "credentials": {"user": "u", "on": True}, "max_tokens": 5, "token": None}
    notes = [call("note", about={**about, "n": number}) for number in range(len(SECRETS))]
    graph = recorded(database, [*notes, done()], [note], limits=Limits(turns=60, repeats=None))
    source = written(graph, database)
    assert passes(source, tmp_path)
    results = names_of(re.sub(r"\[secret \d+\]", "[secret]", source), tmp_path)["RESULTS"]
    assert [text for *_, text in results] == [expected for _, expected in SECRETS]
    hidden = {"X-Api-Key": "[secret]", "credentials": {"user": "[secret]", "on": True}}
    assert [args["about"] for _, args, _, _ in results[:1]] == [{**about, **hidden, "n": 0}]


def secretive(database: Path, result: str = "done", **options: Any) -> Graph:
    """A thread that looked once and finished."""

    def look(token: str) -> str:
        """Look."""
        return result

    return recorded(
        database, [call("look", token="hunter2"), done(f"Saw {KEY}.")], [look], "Ask Ada.", **options
    )


def test_secrets_are_not_written_and_long_values_are_cut(tmp_path: Path, database: Path) -> None:
    # What looks like secrets all over is looked through in a moment, too.
    pieces = "".join(piece * 3_000 for piece in ('token="', ",,;", "token: [", "--a-", "://:", "token: ,;"))
    source = written(secretive(database, f"the key is {KEY}; " + "x" * 10_000 + pieces), database)
    assert (KEY in source, "hunter2" in source, len(source) < 50_000) == (False, False, True)
    # What was equal stays equal, and what differed stays different.
    assert re.findall(r"key is \[secret (\d+)\]", source) == re.findall(r"Saw \[secret (\d+)\]", source)
    assert passes(source, tmp_path)


def test_a_function_of_ones_own_takes_the_place_of_the_patterns(database: Path) -> None:
    graph = secretive(database)
    source = written(graph, database, "--redact", f"{__name__}:nobody")
    assert ("Ask N. N." in source, KEY in source, "hunter2" in source) == (True, False, True)
    # One that fails is told.
    assert "KeyError" in written(graph, database, "--redact", f"{__name__}:broken", code=2)


def test_nothing_that_is_recorded_ends_its_place_in_the_file(tmp_path: Path, database: Path) -> None:
    thread = '"""\nraise SystemExit #'
    source = written(secretive(database, "done @path@ @script@", thread=thread), database, thread=thread)
    assert "'done @path@ @script@'" in source
    assert passes(source, tmp_path)


def test_what_is_not_there_or_runs_or_is_too_large_is_refused(database: Path) -> None:
    graph = secretive(database)
    assert "'nobody'" in written(graph, database, thread="nobody", code=2)
    with sqlite_storage(database) as storage, storage.runner("t"):
        assert "'t'" in written(graph, database, code=2)
    large = recorded(database, [done()], task=[HumanMessage("x" * 1_900)] * 600, thread="large")
    assert written(large, database, thread="large", code=2)


# Threads with delegates: every machine plays its own script, at every level.

CONFIRMED = call("finish_task", summary="Done.", requires_user_confirmation=True)
APPROVE = {"decisions": [{"type": "approve"}]}


def child(*scripts: Sequence[Any], tools: Any = (look,), name: str = "child", **options: Any) -> Any:
    """A delegate that plays a script by the number in its task, each from its beginning."""

    def step(messages: Sequence[Any]) -> Any:
        # A message that the machine puts before a reminder is of no model.
        replies = sum("model_name" in message.response_metadata for message in messages)
        return scripts[int(re.sub(r"\D", "", messages[1].text) or 0)][replies]

    return delegate(name, build_graph(ScriptedModel(step), list(tools), **options), description="Works.")


def nested() -> Any:
    helper = child([LOOK, done("Deep.")], name="helper", limits={"turns": 5})
    scripts = [[LOOK, ASK, to("help", "helper"), done()], [ASK, LOOK, done()]]
    asks = {"look": ["approve", "reject"]}
    return child(*scripts, tools=[look, helper], approvals=asks, limits={"turns": 7})


def answered(value: Any, at: int = 0) -> Callable[[Session], Answer]:
    """Answers what waits at this place."""
    return lambda session: Answer(value, session.status().waits[at].interrupt_id)


@dataclass(frozen=True)
class Team:
    """below: makes the delegate. script: of the machine at the top. moves: after the first message.
    texts: which the test has to have. misses: it fails once these are replaced in it."""

    below: Callable[[], Any]
    script: Sequence[Any] = (to("0"), done())
    moves: Sequence[Any] = ()
    options: dict[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    misses: Sequence[tuple[str, str]] = ()

    def recorded(self, database: Path) -> Graph:
        return recorded(database, self.script, [self.below()], moves=self.moves, **self.options)


BOTH = [[to("0"), to("1")], done()]
TEAMS = {
    "nested, beside each other, and waiting": Team(
        nested,
        BOTH,
        [answered(APPROVE), answered("red", -1), answered("blue"), answered(APPROVE), answered(APPROVE)],
        {"approvals": {"look": True}},
        ["answer_below(('child', 'helper')", "'child / helper / approve: decided'"],
        [("turns=7", "turns=2"), ("turns=5", "turns=1")],
    ),
    "stopped while a delegate waits": Team(
        lambda: child([ASK, done()], [done()]),
        [[to("0"), to("1")], ASK, done()],
        [stop(), "Something else.", stop(), "And now?"],
        misses=[("    stop(),\n", "")],
    ),
    "a model that failed below": Team(
        lambda: child([LOOK, ValueError(f"down {KEY}")], [done()], policy={"model_retries": None}),
        [to("0"), to("1"), done()],
        texts=["RuntimeError("],
    ),
    "handed over below, and a finish confirmed": Team(
        lambda: child([LOOK, CONFIRMED, LOOK, CONFIRMED], approvals={"look": "hand_over"}),
        moves=[answered("seen"), answered("Look again."), answered("seen"), answered("yes")],
        texts=["approvals={'look': 'hand_over'}", "{'output': 'seen'", "'child / confirm: sent back'"],
    ),
}


@pytest.mark.parametrize("team", TEAMS.values(), ids=TEAMS)
def test_a_thread_with_delegates_is_a_test_that_fails_when_something_changes(
    team: Team, tmp_path: Path, database: Path
) -> None:
    source = written(team.recorded(database), database)
    assert passes(source, tmp_path)
    assert [text for text in (*team.texts, "DELEGATES: ") if text not in source] == []
    assert [word for word in ("hunter2", KEY, "from tests", "import tests") if word in source] == []
    for old, new in (("call_llm: replied", "call_llm: empty"), *team.misses):
        assert old in source
        assert not passes(source.replace(old, new), tmp_path), old


def test_what_cannot_be_a_test_is_refused(tmp_path: Path) -> None:
    """A delegate with middleware; two with the same task, of which a script cannot tell which is which."""
    numbers = count()

    def look(path: str) -> str:
        """Look."""
        return f"number {next(numbers)}"

    hooked = Team(lambda: child([done()], middleware=[AgentMiddleware()]))
    twins = Team(lambda: child([LOOK, done()], tools=[look]), [[to("0"), to("0")], done()])
    for at, team in enumerate((hooked, twins)):
        database = tmp_path / f"{at}.sqlite"
        assert "'child'" in written(team.recorded(database), database, code=2)
        # So is what the graph no longer has.
        assert "'child'" in written(build_graph(ScriptedModel([])), database, code=2)
