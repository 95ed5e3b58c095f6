"""What a user of `create_agent` would write is answered by what to write."""

from typing import Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)

from signoff import LoopPolicy, SetupError, build_graph
from signoff.models import ScriptedModel

MODEL = ScriptedModel([])


def refund(order: str) -> str:
    """Pay money back."""
    return order


WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "a person decides": (
        {"middleware": [HumanInTheLoopMiddleware(interrupt_on={"refund": True})]},
        "write approvals=",
    ),
    "a person decides, as in deepagents": ({"interrupt_on": {"refund": True}}, "write approvals="),
    "a summary": ({"middleware": [SummarizationMiddleware(MODEL)]}, "policy={'prompt_tokens'"),
    "a limit of model calls": ({"middleware": [ModelCallLimitMiddleware(run_limit=3)]}, r"Limits\(turns="),
    "a limit of tool calls": (
        {"middleware": [ToolCallLimitMiddleware(run_limit=3)]},
        r"Limits\(tool_calls=",
    ),
    "a prompt that is a function": ({"system_prompt": lambda state: "x"}, "dynamic_prompt"),
    "LangChain's transformers": ({"transformers": []}, "leave it out"),
    "no name at all": ({"approval": {}}, "no approval=; it takes model, tools, .*approvals"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_to_write_is_said(name: str) -> None:
    options, said = WRITTEN[name]
    with pytest.raises(SetupError, match=said):
        build_graph(MODEL, [refund], **options)


@pytest.mark.parametrize("name", LoopPolicy.model_fields)
def test_a_part_of_the_policy_is_no_argument(name: str) -> None:
    with pytest.raises(SetupError, match=f"no {name}=; write policy={{'{name}'"):
        build_graph(MODEL, [refund], **{name: None})  # type: ignore[arg-type]
