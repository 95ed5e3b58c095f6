"""What a session costs, how a command starts, how long the embedded model waits: counted and judged."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.overhead import __main__ as program
from benchmarks.overhead import sessions as measured_sessions
from benchmarks.overhead import start
from benchmarks.overhead.client import provider
from benchmarks.overhead.embedded import FirstTokens, first_tokens, waiting
from benchmarks.overhead.measure import Subject
from benchmarks.overhead.record import Recorded
from benchmarks.overhead.session_provider import Tally, text_of_request
from benchmarks.overhead.sessions import BUDGET, LENGTHS, LONGEST, SUMMARISED, Session, pricing, sessions
from benchmarks.overhead.start import COMMANDS, starting
from benchmarks.overhead.subjects.sessions import text_of
from benchmarks.prompt_tokens import o200k
from signoff.graph.errors import SetupError

needs_tokens = pytest.mark.skipif(o200k() is None, reason="bpe-openai is not here")


@needs_tokens
def test_what_a_request_shares_with_any_before_it_is_read_from_the_cache() -> None:
    tally = Tally()
    for text in ("one two three", "four", "one two, five"):
        tally.take(text, len(text.split()), wrote=10)
    assert (tally.first, tally.read + tally.cached, tally.cached, tally.written) == (3, 7, 2, 30)


def test_a_request_is_read_with_its_tools_first() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    blocks = {"role": "user", "content": [{"type": "text", "text": "Go."}]}
    text = text_of_request({"tools": [tool], "messages": [blocks, called]})
    assert text == f"{json.dumps(tool, separators=(',', ':'))}\nuser\nGo.\nassistant\n\nlook{{}}"


def test_the_texts_of_a_session_are_the_same_each_time_and_no_two_alike() -> None:
    assert text_of("a", 400) == text_of("a", 400)
    assert len({text_of(str(seed), 400) for seed in range(50)}) == 50
    assert len(text_of("a", 1_600)) == 1_600


@needs_tokens
def test_a_session_is_counted_on_the_wire() -> None:
    own = Subject("signoff", "own_session")
    found = sessions([own], [own], lengths=(3,), longest=14, budget=3_000)
    whole, shortened = found
    assert (whole.turns, whole.budget, whole.summaries) == (3, None, 0)
    assert whole.read > whole.first > 500
    assert (shortened.turns, shortened.budget) == (14, 3_000)
    assert shortened.summaries >= 1
    assert whole.dollars == pytest.approx((whole.read * 3 + whole.cached * 0.3 + whole.written * 15) / 1e6)


@needs_tokens
def test_the_provider_tells_the_usage_that_it_counts() -> None:
    with provider("session_provider") as url:
        body = json.dumps({"messages": [{"role": "user", "content": "Go."}], "tools": [
            {"type": "function", "function": {"name": "look"}}]})  # fmt: skip
        for _ in range(2):
            request = Request(f"{url}/7/2/v1/chat/completions", body.encode())
            with urlopen(request) as answer:
                usage = json.load(answer)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"]
        with urlopen(f"{url}/7") as answer:
            assert json.load(answer)["turns"] == 2


def of(subject: str, turns: int, budget: int | None, first: int, read: int) -> Session:
    return Session(subject, turns, budget, first, read, 0, 0, 0)


def test_what_is_counted_is_judged_by_the_targets() -> None:
    found = [
        of("signoff", LENGTHS[0], None, 849, 1),
        of("create_agent", LENGTHS[0], None, 300, 1),
        of("signoff", LONGEST, BUDGET, 849, 110),
        of(SUMMARISED, LONGEST, BUDGET, 300, 100),
    ]
    assert [(one.measured, one.met) for one in pricing(found)] == [(549, True), (pytest.approx(1.1), False)]
    assert pricing(found[:1]) == []


def test_starting_is_judged_less_what_typer_takes() -> None:
    found = {**dict.fromkeys(COMMANDS, 1.0), "typer alone": 0.75}
    judged = {one.name: (one.measured, one.met) for one in starting(found)}
    assert judged["CPU of `signoff --version`"] == (0.25, True)
    assert judged["CPU of `signoff stats`"] == (1.0, False)
    assert judged["CPU of `signoff show`"] == (1.0, True)
    assert starting({}) == []


@pytest.mark.slow
@pytest.mark.thorough
def test_each_command_is_measured() -> None:
    found = start.measured(runs=1)
    assert set(found) == set(COMMANDS)
    assert all(0 < seconds < 30 for seconds in found.values())


def test_the_second_wait_for_the_embedded_model_is_judged_by_the_first() -> None:
    assert [(one.measured, one.met) for one in waiting(FirstTokens(100.0, 9.0))] == [(0.09, True)]
    assert [one.met for one in waiting(FirstTokens(100.0, 11.0))] == [False]
    assert waiting(None) == []


def test_a_model_that_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    with pytest.raises(SetupError, match="not installed"):
        first_tokens()


def test_a_part_that_cannot_be_measured_here_says_why_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path))
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["overhead", "--parts", "embedded", "--json", str(out)])
    assert program.main() == 0
    assert "not installed" in capsys.readouterr().out
    assert Recorded.read(out).dates == {}


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    given: dict[str, Any] = {"start": {"typer alone": 0.1}, "first_tokens": FirstTokens(1.0, 0.1)}
    recorded = Recorded(sessions=[of("signoff", 20, None, 1, 1)], **given)
    recorded.save(tmp_path / "results.json")
    assert Recorded.read(tmp_path / "results.json") == recorded
    assert measured_sessions.PRICES.startswith("3 / 0.30 / 15 dollars")
