"""Whatever waits survives being summarised around, again and again, and a restart changes no prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import Command

from signoff import Limits, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.graph.test_compress import FINISH, FIRST, THREAD, TINY, note, notes, turns_shown
from tests.support.histories import assert_sendable

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Waiting:
    """A control call or a wait between summarised turns. given: what answers each wait, in order. says:
    results that the history then holds, once each."""

    steps: Sequence[Any]
    given: Sequence[Any] = ()
    says: Sequence[str] = ()
    settings: dict[str, Any] | None = None
    contract: str = ""


CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
WAITS = {
    "a finish": Waiting([*notes(3), FINISH]),
    "a refused finish": Waiting(
        [*notes(3), call("finish_task", summary=""), *notes(3), FINISH],
        says=["the summary is empty"],
        contract="a finish_task of yours did not count: Refused: the summary is empty",
    ),
    "a question": Waiting(
        [*notes(3), call("ask_user", question="Which bird?"), *notes(3), FINISH], ["blue"], ["blue"]
    ),
    "an approval": Waiting(
        [*notes(3), call("pay", amount=3), *notes(3), FINISH],
        ["approve"],
        ["paid 3"],
        {"approvals": {"pay": True}},
    ),
    "a rejection": Waiting(
        [*notes(3), call("pay", amount=3), *notes(3), FINISH],
        ["no, too dear"],
        ["too dear"],
        {"approvals": {"pay": True}},
    ),
    "a hand-over": Waiting(
        [*notes(3), call("pay", amount=3), *notes(3), FINISH], ["3 paid"], ["3 paid"], {"hand_over": ["pay"]}
    ),
    "a confirmation": Waiting(
        [*notes(3), CONFIRM, *notes(3), CONFIRM],
        ["The title is wrong.", "yes"],
        ["did not accept this: The title is wrong."],
        contract="a finish_task of yours did not count: A person did not accept this: The title is wrong.",
    ),
    "an approach": Waiting(
        [call("think", thought="hm", approach="by hand", status="begun"), *notes(3), FINISH],
        contract="- your approach: by hand\n- your status: begun",
    ),
}


@pytest.mark.parametrize("again", [False, True], ids=["in one process", "a new graph for each step"])
@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS)
@pytest.mark.sample(4)
def test_it_survives_any_number_of_compressions(case: Waiting, again: bool, tmp_path: Path) -> None:
    ran: list[int] = []
    with ScriptedModel(case.steps) as model:
        result = drive(model, case, tmp_path / "threads.sqlite", ran, by_step=again)
    assert result["outcome"]["status"] == "success"
    assert result["outcome"]["turns"] == turns_shown(result["messages"]) == len(case.steps)
    results = [m.text for m in result["messages"] if isinstance(m, ToolMessage)]
    for said in case.says:
        assert sum(said in text for text in results) == 1
    assert ran == ([3] if "paid 3" in case.says else [])
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert FIRST in [message.text for message in seen.messages]
        assert turns_shown(seen.messages) <= 1
    assert case.contract in model.seen[-1].messages[3].text


def drive(
    model: ScriptedModel,
    case: Waiting,
    file: Path,
    ran: list[int],
    *,
    by_step: bool = False,
    tokens: int = TINY,
) -> dict[str, Any]:
    """Runs the case to its end, by the same graph or by a new one for each model call."""

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    given: Any = {"messages": [("user", FIRST)]}
    answers, result = iter(case.given), dict[str, Any]()
    while not result.get("outcome"):
        with sqlite_storage(file) as storage:
            graph = build_graph(
                model,
                [note, pay],
                storage=storage,
                prompt_tokens=tokens,
                limits=Limits(turns=100),
                **case.settings or {},
            )
            while not result.get("outcome"):
                result = graph.invoke(given, THREAD, interrupt_before=["call_llm"] if by_step else None)
                waits = graph.get_state(THREAD).interrupts
                given = Command(resume={waits[0].id: next(answers)}) if waits else None
                if by_step:
                    break
    return result


@pytest.mark.parametrize("tokens", [TINY, 1_200])
@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS)
@pytest.mark.sample(4)
def test_a_restart_changes_no_prompt(case: Waiting, tokens: int, tmp_path: Path) -> None:
    views = []
    for by_step in (False, True):
        with ScriptedModel(case.steps) as model:
            drive(model, case, tmp_path / "threads.sqlite", [], by_step=by_step, tokens=tokens)
        # The same file for both: what is cut out of a result names a folder of its database.
        for file in tmp_path.glob("threads.sqlite*"):
            if file.is_file():
                file.unlink()
        views.append([[as_sent(message) for message in seen.messages] for seen in model.seen])
    assert views[0] == views[1]


def as_sent(message: BaseMessage) -> tuple[Any, ...]:
    """What a provider is sent of a message."""
    calls = getattr(message, "tool_calls", None)
    return message.type, message.content, calls, getattr(message, "tool_call_id", None)
