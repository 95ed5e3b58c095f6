"""Public names that have changed: the former ones still work and warn; both at once is a mistake."""

import asyncio
from typing import Any

import pytest

import signoff
from signoff import Session, SetupError, Texts, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import deps_of

OPTIONS: dict[str, tuple[str, Any, Any]] = {
    "view_tokens": ("prompt_tokens", 9_000, 8_000),
    "digest": ("compaction", "model", "lines"),
    "digest_seconds": ("compaction_seconds", 7.0, 8.0),
}
NAMES = {"Move": "ThreadCommand", "Standing": "ThreadStatus"}


def built(**options: Any) -> tuple[int, bool, float]:
    deps = deps_of(build_graph(ScriptedModel([]), **options))
    return deps.prompt_tokens, deps.own.summariser is not None, deps.compaction_seconds


@pytest.mark.parametrize("former", OPTIONS)
def test_an_option_under_its_former_name_does_the_same_and_warns(former: str) -> None:
    now, value, _ = OPTIONS[former]
    with pytest.warns(DeprecationWarning, match=f"{former}= is called {now}= now"):
        found = built(**{former: value})
    assert found == built(**{now: value})
    assert found != built()


@pytest.mark.parametrize("former", OPTIONS)
def test_an_option_under_both_names_is_a_mistake(former: str) -> None:
    now, value, other = OPTIONS[former]
    with pytest.raises(SetupError, match=f"pass only {now}="):
        built(**{former: value, now: other})


def test_the_former_name_of_a_text() -> None:
    with pytest.warns(DeprecationWarning, match="called history_summary= now"):
        texts = Texts(digest="Earlier: {lines}")
    assert texts == Texts(history_summary="Earlier: {lines}")
    assert texts.naming("done").history_summary == "Earlier: {lines}"


@pytest.mark.parametrize("former", NAMES)
def test_the_former_name_of_a_type(former: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"called {NAMES[former]} now"):
        found = getattr(signoff, former)
    assert found is getattr(signoff, NAMES[former])


def test_the_former_names_of_the_methods_of_a_session(tmp_path: Any) -> None:
    model = ScriptedModel([call("finish_task", summary="Done.")])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session = Session(build_graph(model, storage=storage), "t")
        session.run("do it")
        with pytest.warns(DeprecationWarning, match="called status"):
            assert session.standing().outcome == session.status().outcome
        with pytest.warns(DeprecationWarning, match="called astatus"):
            assert asyncio.run(session.astanding()).outcome == session.status().outcome
