"""A thread with delegates as a test: every machine plays its own script, at every level."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware

from signoff import Answer, Extend, Limits, Session, SetupError, Stop, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.session.as_test import as_test, why_it_fails
from tests.proof.mutations import RULE_MUTATIONS
from tests.session.test_as_test import KEY, ROOT, run_pytest

pytestmark = pytest.mark.filterwarnings("ignore:approvals= needs a checkpointer")

LOOK, ASK = call("look", path="a"), call("ask_user", question="Which?")
THINK = call("think", thought="Hm.")
LONG = [call("write", path=f"p{number}") for number in range(12)]
APPROVE = {"decisions": [{"type": "approve"}]}


confirmed = call("finish_task", summary="Done.", requires_user_confirmation=True)


def done(summary: str = "Done.") -> Any:
    return call("finish_task", summary=summary)


def look(path: str) -> str:
    """Look."""
    return f"{path}: password=hunter2, {KEY}"


def turned(*scripts: Sequence[Any]) -> ScriptedModel:
    """A model that plays a script by the words of its task, each from its beginning."""

    def say(messages: Sequence[Any]) -> Any:
        replies = sum(map(is_reply, messages))
        number = int(re.sub(r"\D", "", messages[1].text) or 0)
        return scripts[number][replies]

    return ScriptedModel(say)


def child(
    *scripts: Sequence[Any], tools: Sequence[Any] = (look,), name: str = "child", **settings: Any
) -> Any:
    graph = build_graph(turned(*scripts), list(tools), **settings)
    return delegate(name, graph, description="Works.")


def to(task: str, name: str = "child") -> Any:
    return call(name, task=task)


@dataclass(frozen=True)
class Team:
    """script: of the machine at the top. delegates: makes its delegates. moves: after the first message.
    texts: which the test has to have. misses: what its test misses, by a rule or a replaced text."""

    script: Sequence[Any]
    delegates: Callable[[], Any]
    moves: Sequence[Any] = ()
    settings: Mapping[str, Any] = ()  # type: ignore[assignment]  # none
    texts: Sequence[str] = ()
    misses: Sequence[str | tuple[str, str]] = ("no rule 'claimed'",)


def answered(value: Any, at: int = 0) -> Callable[[Session], Any]:
    """Answers what waits at this place."""
    return lambda session: session.run(Answer(value, session.status().waits[at].interrupt_id))


def nested() -> Any:
    helper = child([LOOK, done("Deep.")], name="helper", limits={"turns": 5})
    asks = {"look": ["approve", "reject"]}
    scripts = [[LOOK, ASK, to("help", "helper"), done()], [ASK, LOOK, done()]]
    return [child(*scripts, tools=[look, helper], approvals=asks, limits={"turns": 7})]


TURNS = Limits(turns=2)
TEAMS: Mapping[str, Team] = {
    "one after the other": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, done("First.")], [done("Second.")])],
        texts=["'task': '0'", "'child / execute: done'"],
    ),
    "the same task twice, with other results": Team(
        [to("0"), to("0"), done()],
        lambda: [child([call("count"), done()], tools=[counting()])],
        texts=["'It is 1.'", "'It is 2.'"],
    ),
    "nested, beside each other, and waiting": Team(
        [[to("0"), to("1")], done()],
        nested,
        [*[answered(APPROVE)], answered("red", -1), answered("blue"), *[answered(APPROVE)] * 2],
        {"approvals": {"look": True}},
        ["answer_below(('child', 'helper')", "'child / helper / approve: decided'"],
        ["no rule 'asked'", ("turns=7", "turns=2"), ("turns=5", "turns=1")],
    ),
    "ended at its limit": Team(
        [to("0"), done()],
        lambda: [child([THINK, THINK, done()], limits=TURNS)],
        texts=["limits=Limits(turns=2)", "'child / decide: exhausted by turns'"],
        misses=["no rule 'turns'", "no rule 'near_limit'", ("turns=2", "turns=3")],
    ),
    "ended at a limit, then extended": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, LOOK, done()], [done()], limits=TURNS)],
        [Extend(2)],
        {"limits": {"turns": 1}},
        ["Extend(2)"],
        ["no rule 'turns'"],
    ),
    "with checks that refuse it once": Team(
        [[to("0"), to("1")], done()],
        lambda: [child([done(), LOOK, done()], [done()], checks=[only_after_a_look])],
        texts=["'checked': True", "'checks': [False, True]", "'checks': [True]"],
    ),
    "talking": Team(
        [to("0"), done()],
        lambda: [child(["Well.", "Well, well.", done()], talk="strict")],
        texts=["talk='strict'"],
        misses=["no rule 'claimed'", ("talk='strict'", "talk='natural'")],
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
        lambda: [child([ASK, done()], [LOOK, ASK, done()], talk="natural")],
        [answered("blue", 1)],
    ),
    "stopped while a delegate waits": Team(
        [[to("0"), to("1")], ASK, done()],
        lambda: [child([ASK, done()], [done()])],
        [Stop(), "Something else.", Stop(), "And now?"],
        texts=["    Stop(),\n"],
        misses=["no rule 'claimed'", ("    Stop(),\n", "")],
    ),
    "with a digest below": Team(
        [[to("0"), to("1")], done()],
        lambda: [child([*LONG, done()], [*LONG[:3], done()], tools=[write], prompt_tokens=2_500)],
        texts=["prompt_tokens=2500"],
        misses=["no rule 'claimed'", ("prompt_tokens=2500", "prompt_tokens=9000")],
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
        [
            answered(
                {"decisions": [{"type": "edit", "edited_action": {"name": "child", "args": {"task": "1"}}}]}
            )
        ],
        {"approvals": {"child": True}},
        ["'task': '1'"],
    ),
    "a model that failed below": Team(
        [to("0"), to("1"), done()],
        lambda: [child([LOOK, ValueError(f"down {KEY}")], [done()], model_retries=None)],
        texts=["RuntimeError("],
        misses=["no rule 'claimed'"],
    ),
    "deeper than allowed": Team(
        [to("0"), done()],
        nested,
        [answered(APPROVE), answered("red")],
        {"limits": Limits(depth=1)},
        misses=["no rule 'claimed'", ("depth=1", "depth=2")],
    ),
    "by itself": Team(
        [to("0", "same"), done()],
        lambda: [delegate("same", itself, description="Works.")],
        texts=["('same', 'same', 'same'): {", "'same / same / finish: ended'"],
    ),
    "a tool handed over below": Team(
        [to("0"), done()],
        lambda: [child([LOOK, done()], hand_over=["look"])],
        [answered("seen")],
        texts=["hand_over=['look']", "{'output': 'seen'"],
    ),
    "a finish confirmed below": Team(
        [to("0"), done()],
        lambda: [child([confirmed, LOOK, confirmed])],
        [answered("Look again."), answered("yes")],
        texts=["'child / confirm: sent back'"],
    ),
}


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


def itself() -> Any:
    below = delegate("same", itself, description="Works.")
    return build_graph(turned([to("1", "same"), done()], [done()]), [below])


@contextmanager
def recorded(team: Team, folder: Path) -> Iterator[Graph]:
    """The graph of a thread `t` of this team."""
    with sqlite_storage(folder / "t.sqlite") as storage:
        graph = build_graph(
            ScriptedModel(team.script), team.delegates(), storage=storage, **dict(team.settings)
        )
        session = Session(graph, "t")
        session.run("go")
        for move in team.moves:
            move(session) if callable(move) else session.run(move)
        yield graph


@pytest.mark.parametrize("name", TEAMS)
def test_a_thread_with_delegates_is_a_test_that_fails_when_something_changes(
    name: str, tmp_path: Path
) -> None:
    team = TEAMS[name]
    with recorded(team, tmp_path) as graph:
        source = as_test(graph, "t")
    assert why_it_fails(source) == ""
    assert [text for text in (*team.texts, "DELEGATES: ") if text not in source] == []
    assert [word for word in ("hunter2", KEY) if word in source] == []
    for change in team.misses:
        if isinstance(change, tuple):
            assert change[0] in source
            assert why_it_fails(source.replace(*change)) != "", change
            continue
        with pytest.MonkeyPatch.context() as patch:
            RULE_MUTATIONS[change].apply(patch)
            assert why_it_fails(source) != "", change


TWICE = [[to("0"), to("0")], done()]
REFUSED: Mapping[str, tuple[Team, str]] = {
    "middleware below": (
        Team([to("0"), done()], lambda: [child([done()], middleware=[AgentMiddleware()])]),
        "The graph of the delegate 'child' has middleware",
    ),
    "two at once with the same task": (
        Team(TWICE, lambda: [child([call("count"), done()], tools=[counting()])]),
        "One reply started the delegate 'child' more than once with the same task",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_test_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    team, why = REFUSED[name]
    with recorded(team, tmp_path) as graph, pytest.raises(SetupError, match=why):
        as_test(graph, "t")


def test_two_at_once_with_the_same_task_may_do_the_same(tmp_path: Path) -> None:
    with recorded(Team(TWICE, lambda: [child([LOOK, done()])]), tmp_path) as graph:
        assert why_it_fails(as_test(graph, "t")) == ""


def test_a_delegate_that_the_graph_no_longer_has_is_told(tmp_path: Path) -> None:
    with recorded(Team([to("0"), done()], lambda: [child([done()])]), tmp_path) as graph:
        other = build_graph(ScriptedModel([])).copy({"checkpointer": graph.checkpointer})
        with pytest.raises(SetupError, match="The delegate 'child' is not in the graph"):
            as_test(other, "t")


def test_secrets_in_the_task_of_a_delegate_are_not_written(tmp_path: Path) -> None:
    with recorded(Team([to(f"0 with {KEY}-x"), done()], lambda: [child([done(KEY)])]), tmp_path) as graph:
        source = as_test(graph, "t")
        own = as_test(graph, "t", lambda text: text.replace(KEY, "N. N."))
    assert "'task': '0 with [secret " in source
    assert "'task': '0 with N. N." in own
    assert (KEY in source, KEY in own) == (False, False)


@pytest.mark.slow
def test_the_file_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    with recorded(TEAMS["nested, beside each other, and waiting"], tmp_path) as graph:
        file.write_text(as_test(graph, "t"), "utf-8")
    code, said = run_pytest(file, str(ROOT))
    assert (code, "1 passed" in said) == (0, True), said
