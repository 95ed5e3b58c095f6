"""The model with the tools of each offer: all, all with one required, the control tools with one required."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from signoff.graph.errors import SetupError
from signoff.graph.rules import Offer
from signoff.nodes.guard import guarded
from signoff.tools.toolbox import Toolbox

# LangChain's word for "some tool" that every provider's package knows (OpenAI's own word is "required").
_SOME_TOOL = "any"


def bound(model: BaseChatModel, box: Toolbox) -> Mapping[Offer, Runnable[Any, Any]]:
    """The model for each offer. Raises SetupError for what is no chat model, or one without tool calling."""
    if not hasattr(model, "bind_tools"):
        raise SetupError(f"{model!r} is no chat model; give a LangChain chat model, such as ChatOpenAI(…).")
    watched = guarded(model, box)
    controls = [control.tool for control in box.controls.values()]
    try:
        return {
            Offer.ALL: watched.bind_tools(box.every),
            Offer.REQUIRED: _required(watched, box.every),
            Offer.CONTROLS: _required(watched, controls),
            Offer.OPTIONAL_CONTROLS: watched.bind_tools(controls),
        }
    except NotImplementedError:
        raise SetupError(
            f"{type(model).__name__} cannot call tools (it has no bind_tools); use a model with tool calling."
        ) from None


def _required(model: BaseChatModel, tools: Sequence[BaseTool]) -> Runnable[Any, Any]:
    """With one of `tools` required, where the model's package can say so; else with just these."""
    try:
        return model.bind_tools(tools, tool_choice=_SOME_TOOL)
    except NotImplementedError:
        raise
    except (TypeError, ValueError):
        return model.bind_tools(tools)
