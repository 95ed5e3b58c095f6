"""How strict the scripted model is: what it refuses, what it notices at the end, what copies share."""

import copy
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import tool

from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step, UnexpectedCall, UnusedSteps
from tests.support.model_ways import Ask, Model, every_way


@every_way
@pytest.mark.parametrize("script", [[], iter([]), (text for text in [""] if text)])
def test_a_call_beyond_the_script_shows_what_the_model_was_shown(ask: Ask, script: Any) -> None:
    model = ScriptedModel(script)
    asked = AIMessage("", tool_calls=[tool_call(name="read", args={}, id="1")])
    with pytest.raises(UnexpectedCall, match=r"(?s)call 1 .*human: 'Fix the port'.*ai: '' calls read"):
        ask(model, [HumanMessage("Fix the port"), asked])
    assert len(model.seen) == 1


def _failing(messages: list[BaseMessage]) -> Step:
    raise AssertionError("the tool result is missing")


@pytest.mark.parametrize(("script", "message"), [([], "call 1"), ([_failing], "result is missing")])
def test_a_failed_expectation_that_an_agent_swallowed_comes_back_at_the_end(
    script: Any, message: str
) -> None:
    model = ScriptedModel(script)
    with pytest.raises(AssertionError, match=message):
        model.invoke("go")
    with pytest.raises(AssertionError, match=message):
        model.assert_done()


def _endless() -> Iterator[str]:
    for number in itertools.count(1):
        yield f"turn {number}"


UNUSED: list[tuple[Any, str]] = [
    (["a", "b", call("c")], r"At least 2 .*'b'"),
    (itertools.repeat("a"), r"At least 1 .*'a'"),
    (_endless(), r"At least 1 .*'turn 2'"),
]


@pytest.mark.parametrize(("script", "message"), UNUSED)
def test_steps_left_over_are_named_and_still_playable(script: Any, message: str) -> None:
    model = ScriptedModel(script)
    model.invoke("go")
    with pytest.raises(UnusedSteps, match=message):
        model.assert_done()
    assert model.invoke("go").text in {"a", "b", "turn 2"}


def test_leaving_the_with_block_checks_the_script_but_hides_no_other_error() -> None:
    with pytest.raises(UnusedSteps), ScriptedModel(["a"]):
        pass
    with pytest.raises(ZeroDivisionError), ScriptedModel(["a"]):
        _ = 1 / 0


def test_a_script_is_taken_step_by_step_and_may_be_endless() -> None:
    taken: list[str] = []

    def script() -> Iterator[Step]:
        for text in _endless():
            taken.append(text)
            yield text

    model = ScriptedModel(script())
    assert taken == []
    assert [model.invoke("go").text for _ in range(2)] == taken == ["turn 1", "turn 2"]


def test_a_script_that_is_one_function_decides_from_what_it_is_shown() -> None:
    def answer(messages: list[BaseMessage]) -> Step:
        return call("read") if len(messages) == 1 else "Done."

    with ScriptedModel(answer) as model:
        assert [model.invoke([HumanMessage("x")] * n).text for n in (2, 2)] == ["Done.", "Done."]
        assert model.invoke("x").tool_calls


@every_way
@pytest.mark.parametrize("step", [TimeoutError("slow"), TimeoutError, lambda messages: TimeoutError("slow")])
def test_an_exception_is_raised_and_the_call_is_recorded(ask: Ask, step: Any) -> None:
    with ScriptedModel([step, "back again"]) as model:
        with pytest.raises(TimeoutError, match=r"^(slow)?$"):
            ask(model, "go")
        assert ask(model, "go").content == "back again"
    assert len(model.seen) == 2


BAD_SCRIPTS: list[Any] = ["text", call("a"), reply("a"), AIMessage("a"), TimeoutError(), TimeoutError]


@pytest.mark.parametrize("script", BAD_SCRIPTS)
def test_a_single_step_is_no_script(script: Any) -> None:
    with pytest.raises(TypeError, match="list"):
        ScriptedModel(script)


@pytest.mark.parametrize("step", [None, 3, HumanMessage("a"), {"text": "a"}, [3], [["a"]], ["a", None]])
def test_what_is_no_step_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"call\(\.\.\.\)"):
        ScriptedModel([step]).invoke("go")


BAD_CALLS: list[dict[str, Any]] = [{"raw": "{}", "x": 1}, {"args": ["-l"]}, {"x": object()}]


@pytest.mark.parametrize("arguments", BAD_CALLS)
def test_a_call_that_no_provider_could_send_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        call("a", **arguments)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@every_way
def test_bound_copies_share_the_script_and_the_record(ask: Ask) -> None:
    model = ScriptedModel(["1", "2", "3", "4", "5"])
    bound = model.bind_tools([add], tool_choice="required", parallel_tool_calls=False)
    copies: list[Model] = [model, bound, model.bind(temperature=0), model.model_copy(), copy.deepcopy(model)]
    assert [ask(each, "go").text for each in copies] == ["1", "2", "3", "4", "5"]
    assert [seen.tool_names for seen in model.seen] == [[], ["add"], [], [], []]
    assert [seen.tool_choice for seen in model.seen] == [None, "required", None, None, None]
    assert model.seen[1].kwargs == {"parallel_tool_calls": False}
    assert model.seen[2].kwargs == {"temperature": 0}
    model.assert_done()


def test_the_record_keeps_what_was_shown_then() -> None:
    model = ScriptedModel(["1", "2"])
    history: list[BaseMessage] = [HumanMessage("go")]
    history.append(model.invoke(history))
    model.invoke(history, stop=["END"], tools=[add])
    first, second = model.seen
    assert [message.content for message in first.messages] == ["go"]
    assert [message.content for message in second.messages] == ["go", "1"]
    assert second.kwargs == {"stop": ["END"]}
    assert second.tools[0]["function"]["parameters"]["required"] == ["a", "b"]


@every_way
def test_the_model_name_is_the_one_asked_for(ask: Ask) -> None:
    model = ScriptedModel(["1", "2"], model_name="tiny")
    replies = [ask(each, "go") for each in (model, model.bind(model="big"))]
    assert [each.response_metadata["model_name"] for each in replies] == ["tiny", "big"]


def test_threads_share_a_script_without_losing_or_repeating_a_step() -> None:
    def numbers() -> Iterator[Step]:
        for number in range(200):
            time.sleep(0.0005)  # lets another thread in while the script is at work
            yield call("n", n=number)

    model = ScriptedModel(numbers())
    got: list[AIMessage] = []
    threads = [
        threading.Thread(target=lambda: got.extend(model.invoke("go") for _ in range(50))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.tool_calls[0]["args"]["n"] for each in got) == list(range(200))
    assert len({each.tool_calls[0]["id"] for each in got}) == len(model.seen) == 200
    assert model.chunks_sent == sum(3 for _ in got)


def test_the_script_is_in_no_printout_of_the_model() -> None:
    assert "secret" not in repr(ScriptedModel(["secret"])) + str(ScriptedModel(["secret"]).to_json())
