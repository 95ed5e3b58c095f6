"""Each fault is found where it is, in each format, and not in its clean twin."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from signoff.lint import MEANINGS, Fault, FaultKind, faults, names, read_trace
from tests.support.lint.cases import CUT, END, GO, PAIRS, Pair, finish, poll, work
from tests.support.lint.writers import WRITERS, Ai, History, Line, Res, Use, User, ai, chat

# There is no text of arguments in them that could be cut.
UNWRITABLE = {("Anthropic", "arguments that were cut ran"), ("AgentDojo", "arguments that were cut ran")} | {
    # Their messages do not say how a reply stopped.
    (writer, "a call that was cut ran")
    for writer in ("AgentDojo", "inspect", "tau2-bench")
}


every_pair = pytest.mark.parametrize(
    ("writer", "pair"),
    [
        pytest.param(writer, PAIRS[name], id=f"{writer}: {name}")
        for writer, name in product(WRITERS, PAIRS)
        if (writer, name) not in UNWRITABLE
    ],
)


def of(history: History, writer: str = "OpenAI chat", **options: Any) -> list[Fault]:
    document, _ = WRITERS[writer](history)
    return faults(read_trace(document), options.pop("names", names()), **options)


@every_pair
def test_a_fault_is_found_at_its_place(writer: str, pair: Pair) -> None:
    document, places = WRITERS[writer](pair.faulty)
    found = faults(read_trace(document), names())
    expected = [(kind, places[at, call_id], call_id) for kind, at, call_id in pair.found]
    assert [(fault.kind, fault.at, fault.call_id) for fault in found] == expected
    assert all(fault.says for fault in found)


@every_pair
def test_its_twin_is_clean(writer: str, pair: Pair) -> None:
    assert of(pair.clean, writer) == []


def test_every_fault_has_a_case_and_a_meaning() -> None:
    assert {kind for pair in PAIRS.values() for kind, _, _ in pair.found} == set(FaultKind) == set(MEANINGS)


FINISHES = ["finish_task", "task_done", "attempt_completion", "final_answer", "submit", "Final_Answer"]


@pytest.mark.parametrize("name", FINISHES)
def test_the_usual_names_of_a_finish_are_known(name: str) -> None:
    assert of([GO, ai(finish(name=name))]) == []


def test_a_finish_can_have_any_name() -> None:
    history: History = [GO, ai(finish(name="hand_in")), Res("f")]
    assert [fault.kind for fault in of(history)] == [FaultKind.NO_FINISH]
    assert of(history, names=names(frozenset({"Hand_In"}))) == []
    assert [fault.kind for fault in of([GO, *END], names=names(frozenset({"hand_in"})))] == [
        FaultKind.NO_FINISH
    ]


def test_a_question_can_have_any_name() -> None:
    history: History = [GO, ai(Use("consult", "a"))]
    assert [fault.kind for fault in of(history)] == [FaultKind.DANGLING, FaultKind.NO_FINISH]
    assert of(history, names=names(ask=frozenset({"consult"}))) == []


def test_a_delegate_may_ask_a_person() -> None:
    history: History = [GO, ai(Use("research", "a"), Use("write", "b")), Res("b")]
    assert [fault.kind for fault in of(history)] == [FaultKind.DANGLING, FaultKind.NO_FINISH]
    known = names(delegates=frozenset({"Research"}))
    assert of(history, names=known) == []
    gone_on: History = [*history, *END]
    assert [fault.kind for fault in of(gone_on, names=known)] == [FaultKind.DANGLING], "nobody waits any more"
    beside: History = [GO, ai(Use("research", "a"), finish()), Res("a", failed=True), Res("f")]
    assert [f.kind for f in of(beside, names=known)] == [FaultKind.FAILED_SIBLING], "it is work all the same"


def chat_messages(history: History) -> Any:
    document: Any = chat(history)[0]
    return document["messages"]


ASKED = [{"id": "i", "value": {"type": "question", "path": ["research"]}}]
WAITING: dict[str, Callable[[Any], Any]] = {
    "what a graph returns": lambda messages: {"messages": messages, "__interrupt__": ASKED},
    "a thread of a server": lambda messages: {"values": {"messages": messages}, "interrupts": {"t": ASKED}},
    "a state of a server": lambda messages: {
        "values": {"messages": messages},
        "tasks": [{"name": "execute", "interrupts": ASKED}],
    },
}


@pytest.mark.parametrize("place", WAITING)
def test_a_state_that_says_that_it_waits_may_have_open_calls_at_its_end(place: str) -> None:
    messages = chat_messages([GO, ai(Use("research", "a"), Use("write", "b"))])
    assert faults(read_trace(WAITING[place](messages)), names()) == []
    messages = chat_messages([GO, ai(Use("write", "b")), ai(Use("research", "a"))])
    found = faults(read_trace(WAITING[place](messages)), names())
    assert [(fault.kind, fault.call_id) for fault in found] == [(FaultKind.DANGLING, "b")]


@pytest.mark.parametrize("told", [{"interrupts": {}}, {"__interrupt__": []}, {"tasks": [{"interrupts": []}]}])
def test_one_that_does_not_wait_is_no_excuse(told: dict[str, Any]) -> None:
    messages = chat_messages([GO, ai(Use("research", "a"))])
    found = faults(read_trace({"messages": messages, **told}), names())
    assert [fault.kind for fault in found] == [FaultKind.DANGLING, FaultKind.NO_FINISH]


@pytest.mark.parametrize("times", [2, 3, 7])
def test_how_often_makes_a_repetition_can_be_said(times: int) -> None:
    def kinds(count: int) -> list[FaultKind]:
        return [fault.kind for fault in of([GO, *poll(count), *END], repeats=times)]

    assert (kinds(times - 1), kinds(times)) == ([], [FaultKind.REPEAT])


def test_a_repetition_is_told_once_and_how_often() -> None:
    (found,) = of([GO, *poll(40), *END])
    assert found.says == "write: 40 times with the same results, up to message 79"


def test_the_finish_may_stay_open_behind_the_result_of_its_sibling() -> None:
    history: History = [GO, ai(work("w"), finish()), Res("w")]
    assert [fault.kind for fault in of(history)] == [FaultKind.BLIND]


def test_a_finishing_tool_that_says_go_on_has_not_finished() -> None:
    goes_on: History = [GO, ai(finish("e")), Res("e", '{"shouldContinue": true}'), ai(work("w")), Res("w")]
    assert [fault.kind for fault in of(goes_on)] == [FaultKind.NO_FINISH]
    assert of([*goes_on, *END]) == []


def test_results_go_to_the_latest_reply_with_an_open_call_of_their_id() -> None:
    history: History = [GO, ai(work("0")), ai(work("0", "b")), Res("0"), *END]
    assert [(f.kind, f.at) for f in of(history)] == [(FaultKind.DANGLING, 1), (FaultKind.SAME_ID, 2)]


def test_the_first_protocol_without_ids_is_understood() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "write", "arguments": "{}"}}
    ends = {"role": "assistant", "function_call": {"name": "submit", "arguments": "{}"}}
    told = {"role": "function", "name": "write", "content": "ok"}
    assert faults(read_trace([called, told, ends]), names()) == []
    assert [f.kind for f in faults(read_trace([called, ends]), names())] == [FaultKind.DANGLING]


PROMISES = [
    "I'll patch it now…",
    "I\u2019ll run the tests next.",
    "Found it in app.py, line 3.1. Let me fix that:",
    "I am going to write the file.",
    "Next, I update the docs.",
    "Ich werde das jetzt ändern.",
    "Je vais corriger ce fichier.",
    "Voy a ejecutar las pruebas.",
    "Eu vou corrigir isso.",
    "Я сейчас исправлю.",
    "我会修复它。",
    "I'll look that up. Please hold on.",
    "Just a moment while your order is looked up.",
    "<think>Is it done?</think>I will do that now.",
]
NO_PROMISES = [
    "All is done.",
    "Let me know if anything is missing.",
    "If you like, I'll add tests.",
    "I'll be happy to help with more.",
    "The service will restart at noon.",
    "I'll wait for your answer.",
    "I won't change that file.",
    "Would you like that? I will do it once you say so.",
    "I'll fix it now. Wait: it is fixed already. It works. So all is done.",
    "<think>I will do that now.</think>Done.",
    "To proceed, I'll need your user ID. Could you provide it?",
    "For this, I'll need your user ID, trip type, origin, and destination.",
    "I need to verify your reservation. If you can provide your ID, I can look it up.",
    "Please confirm with a yes. I will then cancel the order.",
    "Once I have that, I will book it.",
    'Let me look: <tool_call>{"name": "ls"}</tool_call>',
    "Let me look:\n```bash\nls\n```",
    "I need your approval, so I will stop here until you answer.",
    "如果需要，我会修复它。",  # noqa: RUF001 -- a full-width comma is Chinese
    "",
]


@pytest.mark.parametrize("text", PROMISES)
def test_a_promise(text: str) -> None:
    assert [fault.kind for fault in of([GO, ai(text)])] == [FaultKind.PROMISE]


@pytest.mark.parametrize("text", NO_PROMISES)
def test_no_promise(text: str) -> None:
    assert [(fault.kind, fault.remark) for fault in of([GO, Ai(text)])] == [(FaultKind.NO_FINISH, True)]


@pytest.mark.parametrize("text", PROMISES)
def test_a_promise_in_the_middle(text: str) -> None:
    asked: History = [GO, ai(text), User("And?"), ai(work("w")), Res("w"), *END]
    assert [(fault.kind, fault.at) for fault in of(asked)] == [(FaultKind.PROMISE, 1)]
    and_then_words: History = [GO, ai(text), ai("All is done."), *END]
    assert [(fault.kind, fault.at) for fault in of(and_then_words)] == [(FaultKind.PROMISE, 1)]


@pytest.mark.parametrize("text", NO_PROMISES)
def test_no_promise_in_the_middle(text: str) -> None:
    assert of([GO, ai(text), User("And?"), *END]) == []


def test_a_promise_that_the_next_reply_keeps_is_none() -> None:
    assert of([GO, ai(PROMISES[0]), ai(work("w")), Res("w"), *END]) == []


def test_a_promise_after_a_finish_is_none() -> None:
    assert of([GO, *END, ai("I'll say it again."), User("Thanks."), ai(finish("g"))]) == []


FAILED = [
    "Error: no such file",
    "error executing tool write",
    "FileNotFoundError: a.txt",
    "Traceback (most recent call last):\n  File",
    "fatal: not a git repository",
    "[Error: timed out]",
    '{"error": "no"}',
    '{"success": false}',
    '{"isError": true, "content": []}',
]
WENT_WELL = [
    "ok",
    "0 errors",
    "The Error class is in a.py",
    "Errors are listed below",
    '{"error": null}',
    '{"error',
    '{"ok": true}',
]


@pytest.mark.parametrize("text", FAILED)
def test_a_result_without_a_status_that_reads_like_an_error_failed(text: str) -> None:
    history: History = [GO, ai(work("w"), finish()), Res("w", text), Res("f")]
    assert [fault.kind for fault in of(history)] == [FaultKind.FAILED_SIBLING]


@pytest.mark.parametrize("text", WENT_WELL)
def test_another_one_did_not(text: str) -> None:
    history: History = [GO, ai(work("w"), finish()), Res("w", text), Res("f")]
    assert [fault.kind for fault in of(history)] == [FaultKind.BLIND]


def test_where_there_is_a_status_the_words_say_nothing() -> None:
    history: History = [GO, ai(work("w"), finish()), Res("w", "Error: said a log that was read"), Res("f")]
    for writer in ("LangChain dumps", "Anthropic", "plain role and content"):
        assert [fault.kind for fault in of(history, writer)] == [FaultKind.BLIND]


def test_malformed_calls_stand_where_the_provider_had_them() -> None:
    """LangChain keeps them in another list. Where nothing shows the order, they come first."""
    history: History = [GO, ai(finish(), CUT), Res("f"), Res("w", "no JSON", failed=True)]
    document, _ = WRITERS["LangChain messages_to_dict"](history)
    assert [f.kind for f in faults(read_trace(document), names())] == [FaultKind.FAILED_SIBLING]
    sent = chat(history)[0]["messages"][1]["tool_calls"]
    document[1]["data"]["additional_kwargs"] = {"tool_calls": sent}
    assert faults(read_trace(document), names()) == []


@pytest.mark.thorough
def test_a_long_history_takes_linear_time() -> None:
    lines: list[Line] = [GO]
    for n in range(20_000):
        lines += [ai(work("0", str(n % 7))), Res("0", str(n))]
    found = of([*lines, *END, User("x")])
    assert len(found) == 19_999 + 1
