"""Two processes resume the same thread at the same moment: exactly one wins, each time."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from signoff import Question, Session, StorageError, ThreadError, build_graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from tests.support.databases import storage_at
from tests.support.ends import is_finished

WON, LOST, CUT = 0, 3, 4


def session_on(storage: object, thread_id: str) -> Session:
    script = [call("ask_user", question="Which?"), call("finish_task", summary="Done.")]
    model = ScriptedModel(lambda messages: script[sum(map(is_reply, messages))])
    return Session(build_graph(model, storage=storage), thread_id)  # type: ignore[arg-type]  # either storage


def in_child(database: str, thread_id: str, answer: str, gate: int, ready: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with storage_at(database) as storage:
            session = session_on(storage, thread_id)
            os.write(ready, b"!")
            os.read(gate, 1)
            try:
                ended = session.resume(answer)
                code = WON if is_finished(ended) else 1
                if code:
                    print(ended, flush=True)
            except ThreadError:
                code = LOST
    except StorageError:
        # The database did not answer in time, as on a very busy machine: an error, and nothing may be lost.
        traceback.print_exc()
        code = CUT
    except Exception:  # noqa: BLE001  whatever it is, it is told
        # The process ends here: nobody else would tell.
        traceback.print_exc()
    finally:
        os._exit(code)


def race(database: str, rounds: int) -> list[list[int]]:
    """How the two processes ended, for each round."""
    found = []
    for number in range(rounds):
        thread_id = f"race {number}"
        with storage_at(database) as storage:
            assert isinstance(session_on(storage, thread_id).run("do it"), Question)
        (gate, start), (ready, tell) = os.pipe(), os.pipe()
        children = [in_child(database, thread_id, answer, gate, tell) for answer in ("red", "blue")]
        assert os.read(ready, 1) + os.read(ready, 1) == b"!!"
        os.write(start, b"gg")
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        for end in (gate, start, ready, tell):
            os.close(end)
        with storage_at(database) as storage:
            messages = session_on(storage, thread_id).status().values["messages"]
        answered = sum(message.name == "ask_user" for message in messages)
        if codes == [LOST, CUT] and not answered:
            with storage_at(database) as storage:
                assert is_finished(session_on(storage, thread_id).resume("red"))
            codes, answered = [WON, LOST], 1
        if codes == [WON, CUT]:
            # The one that came too late was told of the database instead; that is no second winner.
            codes = [WON, LOST]
        assert (codes, answered) == ([WON, LOST], 1), number
        found.append(codes)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [10, 25])
@pytest.mark.sample(1)
def test_on_sqlite(rounds: int, tmp_path: Path, figure: Callable[[str], None]) -> None:
    assert race(str(tmp_path / "t.sqlite"), rounds) == [[WON, LOST]] * rounds
    figure(f"SQLite: two processes resumed one thread {rounds} times, exactly one won each time")


@pytest.mark.slow
@pytest.mark.thorough
def test_on_postgresql(postgres_url: str, figure: Callable[[str], None]) -> None:
    assert race(postgres_url, 25) == [[WON, LOST]] * 25
    figure("PostgreSQL: two processes resumed one thread 25 times, exactly one won each time")
