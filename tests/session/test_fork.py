"""The driver of a thread: forks of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Finished,
    Question,
    SetupError,
    ThreadError,
)
from signoff.models import call
from tests.random_kills import storage_at
from tests.support.benches.session import DONE, Bench


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


class TestFork:
    SCRIPT = (call("look", where="a"), call("look", where="b"), call("look", where="c"), DONE)

    @pytest.mark.parametrize(("at", "seen"), [(0, ""), (1, "a"), (3, "abc"), (None, "abc"), (4, "abc")])
    def test_at_a_turn(self, bench: Bench, at: int | None, seen: str) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        forked = session.fork(at)
        messages = forked.status().values["messages"]
        assert "".join(m.text[-1] for m in messages if m.name == "look") == seen
        assert isinstance(forked.run(), Finished)
        assert [m.text for m in session.status().values["messages"] if m.type == "human"] == ["do it"]

    def test_the_way_from_there_is_its_own(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        forked = session.fork(1, "other")
        end = forked.run("Do it another way.")
        assert isinstance(end, Finished)
        assert forked.status().values["messages"][-1].text != ""
        assert len(session.history()) == 4
        assert bench.storage.threads() == ["other", "t"]

    def test_by_a_checkpoint(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        first = session.history()[0].steps[-1]
        assert len(session.fork(first.checkpoint_id).history()) == 1

    def test_an_effect_does_not_happen_again(self, bench: Bench) -> None:
        paid: list[int] = []

        def give(amount: int) -> str:
            """Give."""
            paid.append(amount)
            return "given"

        session = bench(call("give", amount=3), DONE, tools=[give])
        session.run("do it")
        before = next(step for step in session.history()[0].steps if step.next == ("execute",))
        forked = session.fork(before.checkpoint_id)
        assert isinstance(forked.run(), Finished)
        assert paid == [3]

    @pytest.mark.parametrize("at", [-1, 9, "no-such", 1.5, True, [], "../x"])
    def test_no_such_point(self, bench: Bench, at: Any) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        with pytest.raises(ThreadError if isinstance(at, int | str) and at is not True else SetupError):
            session.fork(at)
        assert bench.storage.threads() == ["t"]

    def test_a_taken_id(self, bench: Bench) -> None:
        session = bench(DONE)
        session.run("do it")
        with pytest.raises(ThreadError, match="already"):
            session.fork(thread_id="t")

    @pytest.mark.parametrize("at", [None, 1, "its checkpoint"])
    def test_a_fork_at_a_question_waits_for_an_answer(self, bench: Bench, at: int | str | None) -> None:
        session = bench(call("look", where="a"), call("ask_user", question="Which?"), DONE)
        asked = session.run("do it")
        assert isinstance(asked, Question)
        if at == "its checkpoint":
            at = session.graph.get_state(session._thread.config).config["configurable"]["checkpoint_id"]
            session.resume("red")
        forked = session.fork(at)
        waiting = forked.status().waiting
        if at == 1:
            assert waiting is None, "it had not asked yet"
            return
        assert isinstance(waiting, Question)
        assert (waiting.text, waiting.interrupt_id == asked.interrupt_id) == ("Which?", False)
        assert isinstance(forked.resume("blue"), Finished)

    async def test_async(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        await session.arun("do it")
        forked = await session.afork(2)
        assert len(await forked.ahistory()) == 2
        assert isinstance(await forked.arun(), Finished)
