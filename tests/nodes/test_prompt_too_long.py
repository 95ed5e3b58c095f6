"""A prompt that does not fit into the model's context: folded harder once, then it is an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

from signoff import Failed, Finished, Limits, Session, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.machine import State
from signoff.models import ScriptedModel, call, reply
from signoff.session.path import steps
from signoff.storage.sqlite import SqliteStorage

FINISH = call("finish_task", summary="All of it.")


def refused(text: str, code: str | None = None) -> openai.BadRequestError:
    answer: Any = httpx.Response(400, request=httpx.Request("POST", "http://127.0.0.1/v1/chat/completions"))
    return openai.BadRequestError(text, response=answer, body={"message": text, "code": code})


ERRORS = {
    "langchain": ContextOverflowError("too big"),
    "a code": refused("no", "context_length_exceeded"),
    "words": refused("This model's maximum context length is 10 tokens"),
}
TOO_LONG = ERRORS["langchain"]


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def notes(count: int, usage: Any = None) -> list[Any]:
    return [reply(call("note", text=f"{at} " + "x" * 400), usage=usage) for at in range(count)]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def graph(storage: SqliteStorage, model: ScriptedModel) -> Graph:
    return build_graph(model, [note], storage=storage, limits=Limits(turns=100))


def sizes(model: ScriptedModel) -> list[int]:
    return [count_tokens_approximately(seen.messages) for seen in model.seen]


@pytest.mark.parametrize("usage", [None, False, (50, 5)], ids=["counted", "not counted", "counted by less"])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.sample(3)
def test_it_is_folded_to_half_and_tried_again(error: Exception, usage: Any, storage: SqliteStorage) -> None:
    with ScriptedModel([*notes(20, usage), error, *notes(20, usage), FINISH]) as model:
        done = Session(graph(storage, model), "t").run("Remember the heron.")
    assert isinstance(done, Finished)
    assert (done.outcome.status, done.outcome.turns) == ("success", 41)
    before, after, *later = sizes(model)[20:]
    assert after <= before / 2
    assert max(later) < before, "the smaller budget holds from then on"
    assert all("Remember the heron." in [m.text for m in seen.messages] for seen in model.seen)
    events = [step.event for step in steps(storage.checkpointer, "t") if step.state is State.CALL_LLM]
    assert events == ["replied"] * 20 + ["too long"] + ["replied"] * 21


def test_the_second_in_a_row_is_an_error_that_says_what_to_do(storage: SqliteStorage) -> None:
    with ScriptedModel([*notes(6), TOO_LONG, TOO_LONG]) as model:
        failed = Session(graph(storage, model), "t").run("go")
    assert isinstance(failed, Failed)
    assert (failed.outcome.reason, failed.outcome.turns) == ("model_error", 6)
    assert "shorten the task" in failed.error


def test_a_success_between_two_allows_another_fold(storage: SqliteStorage) -> None:
    with ScriptedModel([*notes(8), TOO_LONG, *notes(3), TOO_LONG, FINISH]) as model:
        assert isinstance(Session(graph(storage, model), "t").run("go"), Finished)


def test_nothing_to_fold_is_tried_once_more_and_no_oftener(storage: SqliteStorage) -> None:
    with ScriptedModel([TOO_LONG, TOO_LONG]) as model:
        failed = Session(graph(storage, model), "t").run("go")
    assert isinstance(failed, Failed)
    assert len(model.seen) == 2


def test_a_retry_and_another_process_go_on_from_what_is_saved(storage: SqliteStorage) -> None:
    with ScriptedModel([*notes(10), TOO_LONG, TOO_LONG]) as model:
        assert isinstance(Session(graph(storage, model), "t").run("go"), Failed)
    with ScriptedModel([TOO_LONG, FINISH]) as other:
        done = Session(graph(storage, other), "t").retry()
    assert isinstance(done, Finished)
    first, second = sizes(other)
    assert second <= first <= sizes(model)[-1] + 50, "no process starts again from the whole history"


def test_the_next_task_has_the_whole_budget_again(storage: SqliteStorage) -> None:
    def texts(seen: list[BaseMessage]) -> str:
        return "\n".join(message.text for message in seen)

    with ScriptedModel([*notes(10), TOO_LONG, FINISH, *notes(30), FINISH]) as model:
        session = Session(graph(storage, model), "t")
        assert isinstance(session.run("one"), Finished)
        assert isinstance(session.run("two"), Finished)
    last = model.seen[-1].messages
    assert all(f"noted {at} " in texts(last) for at in range(30))
