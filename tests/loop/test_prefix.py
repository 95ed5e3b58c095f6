"""Each request to the model begins with the whole request before it, but for one step at a compaction.

A provider's cache is of prefixes: whatever changes at the front is paid in full again. Threads are driven
at random through all that a run meets, by graphs that are built anew from the database in between.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, convert_to_openai_messages
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Decision, Finished, Limits, Question, Session, build_graph, sqlite_storage
from signoff.graph.texts import HISTORY_SUMMARY, NOTE_DOWN
from signoff.models import ScriptedModel, call, reply
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call

ASKED = NOTE_DOWN.split(":")[0]
SUMMARY = HISTORY_SUMMARY.split("\n")[0]
LIMITS = Limits(turns=9, talk_turns=5)
MOVES = 12


def look(where: str) -> str:
    """Look."""
    return f"{where}: {'something ' * 60}"


def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid"


# One drawn reply, as a scripted model gives it and as a server does.
Drawn = tuple[str, list[tuple[str, dict[str, Any]]], str | None]
REPLIES: list[Callable[[random.Random], Drawn]] = [
    lambda draw: (f"Words {draw.random()}.", [], None),
    lambda draw: ("More words.", [], None),
    lambda draw: ("", [("look", {"where": str(draw.random())})], None),
    lambda draw: ("I look.", [("look", {"where": str(draw.random())}), ("pay", {"amount": 3})], None),
    lambda _: ("", [("look", {"where": "the same"})], None),
    lambda _: ("", [("think", {"thought": "Hm.", "approach": "Slowly."})], None),
    lambda _: ("", [("ask_user", {"question": "Which?"})], None),
    lambda _: ("", [("look", {})], None),
    lambda _: ("", [("no_such_tool", {"x": 1})], None),
    lambda _: ("Cut of", [("look", {"where": "cut"})], "length"),
    lambda _: ("", [], None),
    lambda _: ("", [("finish_task", {"summary": ""})], None),
    lambda _: ("", [("pay", {"amount": "x"}), ("finish_task", {"summary": "Done."})], None),
    lambda _: ("Done.", [("finish_task", {"summary": "Done."})], None),
]


class Requests:
    """What the model was asked, one text a request, its tools first; and the model that asks."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def drawn(self) -> Drawn:
        # Talk in a row climbs the ladder, so it comes more often.
        return self.draw.choice([*REPLIES, *REPLIES[:2] * 4])(self.draw)

    def sent(self) -> list[str]:
        raise NotImplementedError

    def model(self) -> Any:
        raise NotImplementedError


class Scripted(Requests):
    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed)
        self._model = ScriptedModel(self._step, **options)

    def _step(self, _: Sequence[BaseMessage]) -> Any:
        text, calls, stop = self.drawn()
        parts: list[Any] = [*([text] if text else []), *(call(name, **args) for name, args in calls)]
        return reply(*parts, finish_reason=stop)

    def model(self) -> ScriptedModel:
        return self._model

    def sent(self) -> list[str]:
        return [request(one.tools, convert_to_openai_messages(one.messages)) for one in self._model.seen]


class Served(Requests):
    """ChatOpenAI against a server on loopback."""

    def __init__(self, seed: int, server: FakeProvider) -> None:
        super().__init__(seed)
        self._server = server
        server.script = [self._answer(place) for place in range(200)]

    def _answer(self, place: int) -> Reply:
        text, calls, stop = self.drawn()
        made = [tool_call(name, id=f"call_{place}_{at}", **args) for at, (name, args) in enumerate(calls)]
        return Reply(text or None, calls=made, finish=stop or "auto", size=2000, usage=False)

    def model(self) -> ChatOpenAI:
        return ChatOpenAI(model="m", base_url=self._server.url, api_key=SecretStr("key"))

    def sent(self) -> list[str]:
        return [request(one.body["tools"], one.body["messages"]) for one in self._server.requests]


def request(tools: Any, messages: Any) -> str:
    """A request as it is sent, without the brackets that end it."""
    text = json.dumps({"tools": tools, "messages": messages}, ensure_ascii=False)
    assert text.endswith("]}")
    return text[:-2]


def drive(requests: Requests, file: Path, **options: Any) -> None:
    """Some moves of a user, each in a graph of its own."""
    draw, decision = requests.draw, None
    for number in range(MOVES):
        with sqlite_storage(file) as storage:
            graph = build_graph(
                requests.model(),
                [look, pay],
                storage=storage,
                system_prompt="Be kind.",
                limits=LIMITS,
                **options,
            )
            decision = moved(Session(graph, "t"), decision, draw, number)


def moved(session: Session, before: Decision | None, draw: random.Random, number: int) -> Decision:
    if isinstance(before, Question) and draw.random() < 0.7:
        return session.resume(f"This one, {number}.")
    ended = isinstance(before, Finished) and before.outcome.status == "limit"
    if ended and draw.random() < 0.5:
        return session.extend(turns=3)
    return session.run(f"Task {number}.")


def summary_of(sent: str) -> str:
    """The summary that stands in a request; empty where there is none."""
    at = sent.find(SUMMARY)
    return sent[at : sent.index('"}', at)] if at >= 0 else ""


def asks_for_notes(sent: str) -> bool:
    return ASKED in sent.rsplit('{"role"', 1)[-1]


def check(sent: list[str]) -> None:
    assert len(sent) > MOVES
    for before, after in pairwise(sent):
        # Notes that the model was asked for may be word for word those of before, of more turns.
        if summary_of(after) == summary_of(before) and not asks_for_notes(before):
            assert after.startswith(before), f"{before[-300:]}\n---\n{after[-900:]}"


SETTINGS: dict[str, dict[str, Any]] = {
    "no compaction": {"prompt_tokens": 100_000},
    "compactions by lines": {"prompt_tokens": 2_000, "compaction": "lines"},
    "compactions by the model": {"prompt_tokens": 2_000, "compaction": "model"},
}
SEEDS = [0, pytest.param(1), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 7))]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_begins_with_the_one_before(seed: int, settings: str, tmp_path: Path) -> None:
    requests = Scripted(seed)
    drive(requests, tmp_path / "t.sqlite", **SETTINGS[settings])
    check(requests.sent())
    assert any(map(summary_of, requests.sent())) == (settings != "no compaction")


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", SEEDS[1:])
def test_so_it_does_over_http(seed: int, settings: str, tmp_path: Path, server: FakeProvider) -> None:
    requests = Served(seed, server)
    drive(requests, tmp_path / "t.sqlite", **SETTINGS[settings])
    check(requests.sent())
