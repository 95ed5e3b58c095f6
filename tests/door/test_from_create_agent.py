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
RULES: Any = {"refund": True}


def beside(middleware: Any) -> dict[str, Any]:
    return {"middleware": [middleware]}


WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "a person decides": (beside(HumanInTheLoopMiddleware(interrupt_on=RULES)), "approvals="),
    "a person decides, as in deepagents": ({"interrupt_on": RULES}, "approvals="),
    "a summary": (beside(SummarizationMiddleware(MODEL)), "policy={'prompt_tokens'"),
    "a limit of model calls": (beside(ModelCallLimitMiddleware(run_limit=3)), r"Limits\(turns="),
    "a limit of tool calls": (beside(ToolCallLimitMiddleware(run_limit=3)), r"Limits\(tool_calls="),
    "a prompt that is a function": ({"system_prompt": lambda state: "x"}, "dynamic_prompt"),
    "LangChain's transformers": ({"transformers": []}, "transformers"),
    "no name at all": ({"approval": {}}, "no approval=.*model, tools, .*approvals"),
    **{
        f"{name}, of the policy": ({name: None}, f"{name}=.*policy={{'{name}'")
        for name in LoopPolicy.model_fields
    },
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_to_write_is_said(name: str) -> None:
    options, named = WRITTEN[name]
    with pytest.raises(SetupError, match=named):
        build_graph(MODEL, [], **options)
