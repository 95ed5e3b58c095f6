"""`SIGNOFF_OTEL`: whole programs make spans; a server that is down costs them a second at most."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel
from signoff.session.tracing import VARIABLE, tracing
from tests.support.benches.cli import Bench, one_sentence, steps
from tests.support.prepared import run_python
from tests.support.servers.collector import Collector, collector

ROOT = Path(__file__).parents[2]
DONE = 'call("finish_task", summary="All done.")'
ASK = 'call("ask_user", question="Which?")'
LOOK = 'call("read_file", path="config.py")'

WORDS: list[tuple[str, list[bool] | None]] = [
    ("", None),
    (" Off ", None),
    ("0", None),
    ("none", None),
    ("on", [False, False]),
    ("1", [False, False]),
    ("content", [True, False]),
    ("states", [False, True]),
    ("Content, states", [True, True]),
]
SHOWN = """
import json
from signoff import build_graph
from signoff.models import ScriptedModel
from signoff.session.tracing import tracing

found = tracing(build_graph(ScriptedModel([])))
print(json.dumps([[one._content, one._states] for one in found]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("words", "options"), WORDS)
def test_the_variable_says_what_is_traced(words: str, options: list[bool] | None) -> None:
    done = run_python("-c", SHOWN, cwd=ROOT, env={VARIABLE: words, "PATH": "/usr/bin"})
    assert json.loads(done.stdout) == ([] if options is None else [options])


def test_a_word_that_means_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "states,everything")
    with pytest.raises(SetupError, match="SIGNOFF_OTEL has 'everything'; set it to on, or to content"):
        tracing(build_graph(ScriptedModel([])))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.env[VARIABLE] = "on"
    return bench


def test_a_command_tells_it_in_a_sentence(bench: Bench) -> None:
    bench.env[VARIABLE] = "onn"
    one_sentence(bench.run(), "SIGNOFF_OTEL has 'onn'")


def sent_to(bench: Bench, found: Collector) -> None:
    bench.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = found.address


@pytest.mark.slow
def test_two_commands_on_a_thread_are_one_trace(bench: Bench) -> None:
    bench.model(steps(LOOK, ASK, DONE))
    with collector() as found:
        sent_to(bench, found)
        first = bench.process("run", "Look", "-t", "t1", "-w", str(bench.workspace), real=True)
        second = bench.process("resume", "t1", "that one", real=True)
    assert [(code, err) for code, _, err in (first, second)] == [(4, ""), (0, "")]
    assert (len(found.traces), found.services) == (1, {"signoff"})
    agents = [span["attributes"] for span in found.spans if span["name"].startswith("invoke_agent")]
    assert [one["gen_ai.conversation.id"] for one in agents] == ["t1", "t1"]
    assert [one.get("signoff.outcome.status") for one in agents] == [None, "success"]
    assert ("execute_tool read_file", "invoke_agent signoff") in found.tree
    assert not [span for span in found.spans if "gen_ai.tool.call.arguments" in span["attributes"]]


@pytest.mark.slow
def test_a_thread_that_two_workers_ran_is_one_trace(bench: Bench, postgres_url: str) -> None:
    bench.env["SIGNOFF_DATABASE"] = postgres_url
    bench.model(steps(LOOK, ASK, DONE))
    work = ("worker", "--until-idle")
    with collector() as found:
        sent_to(bench, found)
        assert bench("submit", "Look", "-t", "t1", "-w", str(bench.workspace)).exit_code == 0
        first = bench.process(*work, real=True)
        assert bench("resume", "t1", "that one").exit_code == 0
        second = bench.process(*work, real=True)
    assert [(code, "Traceback" in err) for code, _, err in (first, second)] == [(0, False)] * 2
    agents = [span["attributes"] for span in found.spans if span["name"].startswith("invoke_agent")]
    assert [one["gen_ai.conversation.id"] for one in agents] == ["t1", "t1"]
    assert [one.get("signoff.outcome.status") for one in agents] == [None, "success"]
    assert len(found.traces) == 1
    assert ("execute_tool read_file", "invoke_agent signoff") in found.tree


@contextmanager
def nobody() -> Iterator[Collector]:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Collector(address=f"http://127.0.0.1:{taken.getsockname()[1]}")


@contextmanager
def silent() -> Iterator[Collector]:
    with collector(answers=False) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("server", [nobody, silent])
def test_a_server_that_is_down_costs_a_command_a_second(bench: Bench, server: Any) -> None:
    bench.model(steps(*[DONE] * 2))

    def seconds(thread: str) -> float:
        begun = time.monotonic()
        words = ("run", "Finish", "-t", thread, "-w", str(bench.workspace))
        code, out, err = bench.process(*words, real=True)
        assert (code, err, "All done." in out) == (0, "", True)
        return time.monotonic() - begun

    bench.env[VARIABLE] = "off"
    without = seconds("t1")
    bench.env[VARIABLE] = "on"
    with server() as found:
        sent_to(bench, found)
        # OpenTelemetry itself is imported, too.
        assert seconds("t2") < without + 4
