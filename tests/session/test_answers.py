"""The driver of a thread: answers, new messages and observations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Action,
    Extend,
    Finished,
    Question,
    Retry,
    Session,
    ThreadError,
)
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import call
from tests.random_kills import storage_at
from tests.support.benches.session import DONE, Bench


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


QUESTION_ANSWERS: list[tuple[Any, str]] = [
    ("blue", "blue"),
    (7, "7"),
    (1, "red"),
    ("2", "green"),
    (2.5, "2.5"),
    ("", "(no answer)"),
    (None, "(no answer)"),
    ({}, "(no answer)"),
    ([], "(no answer)"),
    (True, "true"),
    ({"answer": "blue"}, "blue"),
    ([{"type": "response", "args": "blue"}], "blue"),
    ({"decisions": [{"type": "respond", "message": "blue"}]}, "blue"),
    ({"colour": "blue", "shade": 3}, '{"colour": "blue", "shade": 3}'),
    ("half \ud800", "half \ufffd"),
    ({"x": {1, 2}}, '{"x": "{1, 2}"}'),
]


@pytest.mark.parametrize("case", QUESTION_ANSWERS, ids=lambda case: ascii(case[0]))
@pytest.mark.sample(16)
def test_answers_to_a_question(bench: Bench, case: tuple[Any, str]) -> None:
    given, read = case
    session = bench(call("ask_user", question="Which?", options=["red", "green"]), DONE)
    session.run("do it")
    assert isinstance(session.resume(given), Finished)
    (answer,) = [m.text for m in session.status().values["messages"] if m.name == "ask_user"]
    texts = DEFAULT_TEXTS.results
    assert answer == (texts["no_answer"] if read == "(no answer)" else read)


APPROVES: list[Any] = [
    "approve",
    " Yes ",
    True,
    {"type": "approve"},
    [{"type": "accept", "args": None}],
    {"decisions": [{"type": "approve"}]},
    '{"decisions": [{"type": "approve"}]}',
]
REJECTS: list[Any] = [
    "no",
    "reject: too much",
    False,
    [{"type": "ignore"}],
    {"type": "reject", "message": "x"},
]
NO_DECISION: list[Any] = [
    None,
    "",
    {},
    [],
    7,
    "perhaps",
    "{",
    [{"type": "approve"}] * 2,
    [{"type": "shout"}],
    object(),
]


@pytest.mark.parametrize("answer", APPROVES + REJECTS, ids=ascii)
@pytest.mark.sample(12)
def test_answers_to_an_approval(bench: Bench, answer: Any) -> None:
    session = bench(call("pay", amount=3), DONE, approvals={"pay": True})
    session.run("do it")
    assert isinstance(session.resume(answer), Finished)
    texts = [m.text for m in session.status().values["messages"] if m.name == "pay"]
    assert (texts == ["paid 3"]) == (answer in APPROVES)


@pytest.mark.parametrize("answer", NO_DECISION, ids=lambda answer: type(answer).__name__ + ascii(answer)[:12])
def test_what_is_no_decision_is_refused_and_changes_nothing(bench: Bench, answer: Any) -> None:
    session = bench(call("pay", amount=3), DONE, approvals={"pay": True})
    asked = session.run("do it")
    before = session.graph.get_state(session._thread.config).config
    with pytest.raises(ThreadError):
        session.resume(answer)
    assert session.graph.get_state(session._thread.config).config == before
    assert session.run() == asked


class TestNothingWaits:
    def test_an_answer_twice(self, bench: Bench) -> None:
        session = bench(call("ask_user", question="?"), call("ask_user", question="And?"), DONE)
        first = session.run("do it")
        assert isinstance(first, Question)
        second = session.resume("a", first.interrupt_id)
        with pytest.raises(ThreadError, match="no longer waits for this answer"):
            session.resume("a", first.interrupt_id)
        assert session.run() == second

    def test_an_ended_thread(self, bench: Bench) -> None:
        session = bench(DONE)
        first = session.run("do it")
        with pytest.raises(ThreadError, match="has ended and does not wait for an answer"):
            session.resume("a")
        with pytest.raises(ThreadError):
            session.run(Extend(3))
        assert session.run(Retry()) == first, "there is nothing to try again"
        with pytest.raises(ThreadError, match="nothing to stop"):
            session.stop()

    def test_an_unknown_thread(self, bench: Bench) -> None:
        session = bench()
        for act in (session.run, session.step, lambda: session.resume("a"), session.stop, session.fork):
            with pytest.raises(ThreadError, match="no thread 't'"):
                act()
        assert bench.storage.threads() == []
        assert session.history() == []


class TestNewMessage:
    """A task that is given while something waits."""

    def waiting(self, bench: Bench, kind: str, **options: Any) -> Session:
        first = {
            "question": call("ask_user", question="Which?"),
            "approval": call("pay", amount=3),
            "action": call("run", command="ls"),
            "confirmation": call("finish_task", summary="Done.", requires_user_confirmation=True),
        }[kind]
        session = bench(first, DONE, DONE, approvals={"pay": True}, hand_over=["run"], **options)
        assert type(session.run("the first task")).__name__.lower() == kind
        return session

    KINDS = ("question", "approval", "action", "confirmation")

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_the_answer(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind)
        end = session.run("never mind")
        assert isinstance(end, Finished)
        messages = session.status().values["messages"]
        assert end.outcome.task == messages[0].id
        assert any("never mind" in m.text for m in messages if m.type == "tool")

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_supersedes(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind, on_pending="supersede")
        end = session.run("something else")
        assert isinstance(end, Finished)
        (second,) = [m for m in session.status().values["messages"] if m.text == "something else"]
        assert (end.outcome.task, end.outcome.turns) == (second.id, 1)
        items = bench.storage.store.search(("signoff", "outcomes", "t"))
        assert sorted(item.value["reason"] for item in items) == ["finish_task", "superseded"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_refused(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind, on_pending="refuse")
        before = session.status().values["messages"]
        with pytest.raises(ThreadError, match="waits for"):
            session.run("something else")
        assert session.status().values["messages"] == before
        assert type(session.run()).__name__.lower() == kind


class TestActions:
    def test_a_second_hand_out_is_marked_unknown(self, bench: Bench) -> None:
        script = [call("run", command="pay"), DONE]
        first = bench(*script, hand_over=["run"]).run("do it")
        second = bench(*script, hand_over=["run"]).run()
        assert isinstance(first, Action)
        assert isinstance(second, Action)
        assert (first.unknown, second.unknown) == (False, True)
        assert second.interrupt_id == first.interrupt_id

    def test_a_superseded_action_may_have_happened(self, bench: Bench) -> None:
        session = bench(call("run", command="pay"), DONE, hand_over=["run"], on_pending="supersede")
        session.run("do it")
        session.run("something else")
        (told,) = [m.text for m in session.status().values["messages"] if m.name == "run"]
        assert "unknown" in told
