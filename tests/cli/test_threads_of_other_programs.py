"""Threads that another program began, with tools of its own: their approvals, and actions handed over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from signoff import Action, Session, build_graph, sqlite_storage
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of
from signoff.tools.files import workspace_tools
from tests.support.benches.cli import Bench, offered, one_sentence, steps

DONE = 'call("finish_task", summary="All done.")'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
UNKNOWN = "It was handed out before and may already have been done: check before you run it."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def deploy(target: str) -> str:
    """Deploy."""
    raise AssertionError("it must not run here")


def elsewhere(bench: Bench, step: Any, tools: Sequence[Any], handed_out: bool = False, **policy: Any) -> None:
    """A thread that another program began, and that waits. handed_out: a driver has taken the action."""
    with ScriptedModel([step]) as model, sqlite_storage(bench.database) as storage:
        graph = build_graph(model, tools, storage=storage, **policy)
        if handed_out:
            assert isinstance(Session(graph, "t1").run("do it"), Action)
        else:
            graph.invoke({"messages": [("user", "do it")]}, config_of("t1"))
    bench.model(steps(DONE, SAY, DONE))


class TestApprovals:
    def test_they_are_kept(self, bench: Bench) -> None:
        tools = workspace_tools(bench.workspace)
        write = call("write_file", path="new.md", content="x")
        elsewhere(bench, write, tools, approvals={"write_file": ["approve", "reject"]})
        words = ("resume", "t1", "-w", str(bench.workspace))
        one_sentence(bench(*words, '[{"type": "respond", "message": "x"}]'), "'respond' is not allowed")
        result = bench(*words, "reject: not here")
        assert (result.exit_code, "not here" in result.stdout) == (0, True), result.output
        assert not (bench.workspace / "new.md").exists()

    def test_a_call_of_a_tool_that_is_not_here_cannot_be_decided(self, bench: Bench) -> None:
        elsewhere(bench, call("deploy", target="blue"), [deploy], approvals={"deploy": True})
        before = bench.json("show", "t1")
        one_sentence(bench("resume", "t1", bench.decide()), "deploy waits for approval", "--tools")
        assert bench.json("show", "t1") == before


class TestActions:
    @pytest.fixture(params=[False, True], ids=["fresh", "handed out"])
    def handed_out(self, bench: Bench, request: pytest.FixtureRequest) -> bool:
        before: bool = request.param
        elsewhere(bench, call("deploy", target="blue"), [deploy], before, hand_over=["deploy"])
        return before

    def resume(self, bench: Bench, *words: str) -> Any:
        return bench("resume", "-w", str(bench.workspace), "t1", *words)

    @pytest.mark.usefixtures("handed_out")
    def test_looking_hands_nothing_out(self, bench: Bench) -> None:
        found = bench.json("show", "t1")
        assert (found["status"], found["action"]["tool"], found["action"]["args"]) == (
            "waiting",
            "deploy",
            {"target": "blue"},
        )
        shown = bench("show", "t1").stdout
        for part in ("waiting for an action", "Handed over to you:", "target: blue", "'its result'"):
            assert part in shown
        assert bench.json("show", "t1") == found

    def test_the_second_time_it_may_have_been_done_already(self, bench: Bench, handed_out: bool) -> None:
        first, second = self.resume(bench), self.resume(bench)
        assert (first.exit_code, UNKNOWN in first.stdout) == (4, handed_out)
        assert (second.exit_code, UNKNOWN in second.stdout) == (4, True)
        assert list(offered(second.stdout)) == ["Answer"]
        assert bench.json("resume", "t1", "-w", str(bench.workspace))["action"]["unknown"] is True

    @pytest.mark.usefixtures("handed_out")
    def test_the_printed_command_answers_it_by_its_observation(self, bench: Bench) -> None:
        *words, answer = offered(self.resume(bench).stdout)["Answer"]
        assert answer == "its result"
        result = bench(*words, "It is up.", "-w", str(bench.workspace))
        assert result.exit_code == 0
        assert '  1 ✓ deploy  target="blue"\n      It is up.\n' in result.stdout
        (event,) = (event for event in bench.told() if event["kind"] == "call")
        assert (event["name"], event["ok"], event["result"]) == ("deploy", True, "It is up.")

    def test_a_message_takes_it_back(self, bench: Bench, handed_out: bool) -> None:
        result = bench("run", "Leave it.", "-t", "t1", "-w", str(bench.workspace))
        assert result.exit_code == 0, result.output
        assert "The thread waits: your message takes the action back." in result.stdout
        (event,) = (event for event in bench.told() if event.get("name") == "deploy")
        # Whoever was shown it by `invoke` may have done it, which no journal tells.
        told = DEFAULT_TEXTS.results["unknown_outcome" if handed_out else "maybe_run"].format(name="deploy")
        assert (event["ok"], told in event["result"], "Leave it." in event["result"]) == (False, True, True)
