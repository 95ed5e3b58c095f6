"""Traces that nobody here wrote (tests/lint/public), with their faults as a person labelled them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from signoff.cli.app import app
from signoff.lint import Fault, FaultKind, Unreadable, faults, names, read_file, read_trace
from signoff.lint.trace import Result, Trace, TraceMessage, TraceReply

PUBLIC = Path(__file__).parent / "public"

AGENTDOJO, INSPECT, TAU = "AgentDojo messages", "inspect messages", "OpenAI chat messages"
SWE_AGENT, MINI = "SWE-agent messages", "mini-swe-agent messages"


class Label(NamedTuple):
    """format: as it is called. sizes: replies, calls and results, counted by hand. faults: kind and message.
    remark: the message at which it is remarked that the run has no finish."""

    format: str
    sizes: tuple[int, int, int]
    faults: list[tuple[FaultKind, int]]
    remark: int | None = None


LABELS = {
    # It asks for help, is told to wait, and asks once more in words.
    "agentdojo_help": Label(AGENTDOJO, (3, 1, 1), [], remark=5),
    "agentdojo_two_calls": Label(AGENTDOJO, (3, 2, 2), [], remark=6),
    "inspect_answer": Label(INSPECT, (1, 0, 0), [], remark=2),
    # Eleven results, and not one reply of a model.
    "inspect_errors": Label(INSPECT, (0, 0, 11), [(FaultKind.NO_CALL, n) for n in range(11)], remark=10),
    # The commands stand in the text of the replies, the results are the next messages.
    "mini_local": Label(MINI, (2, 2, 2), []),
    "mini_github_issue": Label(MINI, (10, 10, 10), []),
    "swe_agent_text": Label(SWE_AGENT, (5, 5, 4), []),
    # A flag is refused ("Wrong flag!"), and another one submitted: that repeats no finish.
    "swe_agent_wrong_flag": Label(SWE_AGENT, (12, 12, 11), []),
    # Four calls have ids that calls before them had.
    "swe_agent_tools": Label(SWE_AGENT, (13, 13, 13), [(FaultKind.SAME_ID, n) for n in (14, 18, 22, 24)]),
    # Refusals, a transfer to a person, offers to help: none of them is a promise.
    "tau_transfer": Label(TAU, (5, 2, 2), [], remark=11),
    "tau_balances": Label(TAU, (8, 0, 0), [], remark=17),
}


def load(name: str) -> Any:
    return read_file(PUBLIC / f"{name}.json")


def found(document: Any) -> list[Fault]:
    return faults(read_trace(document), names())


def labelled(every: list[Fault]) -> list[tuple[FaultKind, int]]:
    return [(fault.kind, fault.at) for fault in every if not fault.remark]


def sizes(trace: Trace) -> tuple[int, int, int]:
    replies = [entry for entry in trace.entries if isinstance(entry, TraceReply)]
    calls = sum(len(reply.calls) for reply in replies)
    return len(replies), calls, sum(isinstance(entry, Result) for entry in trace.entries)


@pytest.mark.parametrize("name", LABELS)
def test_the_findings_are_those_of_a_person(name: str) -> None:
    label, trace = LABELS[name], read_trace(load(name))
    assert (trace.format, sizes(trace)) == (label.format, label.sizes)
    every = faults(trace, names())
    assert labelled(every) == label.faults
    remarks = [(fault.kind, fault.at) for fault in every if fault.remark]
    assert remarks == ([] if label.remark is None else [(FaultKind.NO_FINISH, label.remark)])


def test_every_trace_has_its_label_and_its_source() -> None:
    assert {path.stem for path in PUBLIC.glob("*.json")} == {*LABELS}
    sources = (PUBLIC / "README.md").read_text("utf-8")
    assert all(f"`{name.split('_')[0]}_" in sources for name in LABELS)


def messages(name: str) -> list[Any]:
    document: Any = load(name)
    if isinstance(document, dict):
        document = document.get("history") or document["messages"]
    return list(document)


def without(name: str, *gone: int) -> list[Any]:
    return [item for at, item in enumerate(messages(name)) if at not in gone]


def with_words(name: str, at: int, text: str) -> list[Any]:
    """The reply `at` says `text` and calls nothing."""
    changed = messages(name)
    changed[at] = {"role": "assistant", "content": text}
    return changed


# The same traces with a fault put in, where they have none of this kind.
BROKEN: dict[str, tuple[Any, list[tuple[FaultKind, int]]]] = {
    "AgentDojo: a result is lost": (without("agentdojo_two_calls", 3), [(FaultKind.DANGLING, 2)]),
    "tau-bench: a result is lost": (without("tau_transfer", 5), [(FaultKind.DANGLING, 4)]),
    "SWE-agent: a result is lost": (without("swe_agent_tools", 3), [(FaultKind.DANGLING, 2)]),
    "SWE-agent: its reply is lost": (without("swe_agent_tools", 2), [(FaultKind.NO_CALL, 2)]),
    "SWE-agent: it is cut before it submits": (
        messages("swe_agent_tools")[:8],
        [(FaultKind.NO_FINISH, 7)],
    ),
    "SWE-agent: commands in text, cut before it submits": (
        messages("swe_agent_text")[:-1],
        [(FaultKind.NO_FINISH, 9)],
    ),
    "mini-swe-agent: it is cut before it submits": (messages("mini_local")[:4], [(FaultKind.NO_FINISH, 3)]),
    "tau-bench: a promise, and the customer has to ask": (
        with_words("tau_balances", 8, "I'll look up both prices now. Please hold on."),
        [(FaultKind.PROMISE, 8)],
    ),
    "AgentDojo: a promise, and then words": (
        with_words("agentdojo_help", 4, "I will open the notice now."),
        [(FaultKind.PROMISE, 4)],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_put_into_one_is_found_there(name: str) -> None:
    document, expected = BROKEN[name]
    known = [fault for fault in labelled(found(document)) if fault[0] is not FaultKind.SAME_ID]
    assert known == expected


def test_a_submission_that_only_the_trajectory_has_is_one() -> None:
    document = load("swe_agent_text")
    document["history"] = document["history"][:-1]
    assert labelled(found(document)) == []
    document["trajectory"] = document["trajectory"][:-1]
    assert labelled(found(document)) == [(FaultKind.NO_FINISH, 9)]


def test_a_demonstration_in_the_history_is_none_of_it() -> None:
    document = load("swe_agent_text")
    shown = [{**item, "is_demo": True} for item in messages("swe_agent_wrong_flag")[2:9]]
    document["history"][1:1] = shown
    assert sizes(read_trace(document)) == LABELS["swe_agent_text"].sizes


def log(*samples: str) -> dict[str, Any]:
    """A log of inspect's with these traces as its samples."""
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "t"},
        "plan": {"steps": []},
        "samples": [{"id": n, "epoch": 1, "messages": messages(name)} for n, name in enumerate(samples)],
    }


def results(*traces: str) -> list[Any]:
    """What tau-bench writes of a run over several tasks."""
    return [{"task_id": n, "reward": 0.0, "traj": messages(name)} for n, name in enumerate(traces)]


SEVERAL: dict[str, Any] = {
    "inspect's log": log("inspect_answer", "inspect_errors"),
    "tau-bench's results": results("tau_transfer", "tau_balances"),
    "tau2-bench's simulations": {
        "simulations": [{"messages": messages("tau_transfer")}, {"messages": messages("tau_balances")}]
    },
    "a list of conversations": [messages("tau_transfer"), messages("tau_balances")],
    "JSON lines of them": [{"messages": messages("tau_transfer")}, {"messages": messages("tau_balances")}],
}


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several_runs_one_is_named(name: str) -> None:
    with pytest.raises(Unreadable, match=r"holds 2 .*; select one of them with --run 0 to --run 1\.$"):
        read_trace(SEVERAL[name])
    with pytest.raises(Unreadable, match=r"holds 2 .*; the last one is --run 1\.$"):
        read_trace(SEVERAL[name], run=2)
    alone = read_trace(SEVERAL[name], run=1)
    assert (
        alone.entries == read_trace(messages("inspect_errors" if "log" in name else "tau_balances")).entries
    )


def test_one_run_needs_no_name() -> None:
    assert read_trace(log("inspect_answer")).entries == read_trace(messages("inspect_answer")).entries
    assert read_trace(results("tau_transfer")).entries == read_trace(messages("tau_transfer")).entries
    with pytest.raises(Unreadable, match="contains one run; omit --run"):
        read_trace(messages("tau_transfer"), run=3)


def test_texts_that_inspect_keeps_apart_are_put_in_place() -> None:
    document = log("inspect_answer")
    (sample,) = document["samples"]
    sample["messages"][2]["content"] = "attachment://abc"
    sample["attachments"] = {"abc": "I'll patch it now."}
    assert labelled(found(document)) == [(FaultKind.PROMISE, 2)]


REFUSED: dict[str, tuple[bytes, str]] = {
    "inspect's archive": (b"PK\x03\x04\x14\x00", "inspect log dump"),
    "inspect's log without samples": (
        b'{"eval": {}, "plan": {}, "version": 2}',
        "inspect log without samples",
    ),
    "a trajectory alone": (b'{"trajectory": [{"action": "ls"}]}', "without its history"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    data, says = REFUSED[name]
    (tmp_path / "trace.json").write_bytes(data)
    told = CliRunner().invoke(app, ["lint", str(tmp_path / "trace.json")], env={"COLUMNS": "300"})
    assert (told.exit_code, told.stdout) == (2, "")
    assert says in " ".join(told.stderr.split())


def test_the_newer_mini_calls_a_tool_and_ends_with_its_own_role() -> None:
    def bash(at: str, command: str) -> Any:
        call = {
            "id": at,
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        return {"role": "assistant", "content": "So.", "tool_calls": [call]}

    begins = messages("mini_local")[:2]
    works = [bash("a", "ls"), {"role": "tool", "tool_call_id": "a", "content": "<returncode>0</returncode>"}]
    submits = bash("b", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    submitted = {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}}
    limit = {"role": "exit", "content": "LimitsExceeded", "extra": {"exit_status": "LimitsExceeded"}}
    assert labelled(found([*begins, *works, submits, submitted])) == []
    assert labelled(found([*begins, *works, limit])) == [(FaultKind.NO_FINISH, 3)]
    declined = {"role": "tool", "tool_call_id": "b", "content": "<returncode>1</returncode>"}
    assert labelled(found([*begins, submits, declined, *works, submits, submitted])) == [
        (FaultKind.SAME_ID, 6)
    ]


def test_a_reply_without_a_command_is_answered_by_the_program() -> None:
    begins = messages("mini_local")[:2]
    reminder = {"role": "user", "content": "Please always provide EXACTLY ONE action in triple backticks."}
    history = [
        *begins,
        {"role": "assistant", "content": "I will look."},
        reminder,
        *messages("mini_local")[2:],
    ]
    trace = read_trace(history)
    assert trace.entries[2] == TraceMessage(3, genuine=False)
    assert labelled(faults(trace, names())) == []


OFFERED: dict[str, tuple[Any, bool]] = {
    "OpenAI's tools": ({"tools": [{"type": "function", "function": {"name": "submit"}}]}, True),
    "Anthropic's, or of Responses": ({"tools": [{"name": "finish_task", "input_schema": {}}]}, True),
    "LangSmith's": ({"invocation_params": {"tools": [{"function": {"name": "done"}}]}}, True),
    "AgentDojo's names": ({"available_tools": ["search_web", "Submit"]}, True),
    "inspect's events": ({"events": [{"event": "model", "tools": [{"name": "submit"}]}]}, True),
    "other tools": ({"tools": [{"type": "function", "function": {"name": "search"}}]}, False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize("name", OFFERED)
def test_a_missing_finish_is_a_fault_only_where_the_model_could_finish(name: str, tmp_path: Path) -> None:
    beside, offered = OFFERED[name]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({**beside, "messages": messages("tau_balances")}), "utf-8")
    told = CliRunner().invoke(app, ["lint", str(trace)], env={"COLUMNS": "120"})
    assert told.exit_code == (1 if offered else 0)
    assert ("Remark on message 17: it ends with a message that has no reply" in told.stdout) is not offered
    as_json = json.loads(CliRunner().invoke(app, ["lint", str(trace), "--json"]).stdout)
    assert [len(as_json["faults"]), len(as_json["remarks"])] == ([1, 0] if offered else [0, 1])
    left_out = CliRunner().invoke(app, ["lint", str(trace), "--ignore", "no-finish", "--json"])
    assert json.loads(left_out.stdout)["remarks"] == []


def test_who_names_the_finishing_tool_says_that_there_is_one() -> None:
    document = messages("tau_balances")
    assert [fault.remark for fault in faults(read_trace(document), names())] == [True]
    assert [fault.remark for fault in faults(read_trace(document), names(frozenset({"hand_in"})))] == [False]
