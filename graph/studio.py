"""The graph that `langgraph dev` serves and Studio shows, set up by the environment.

    SIGNOFF_MODEL       as `--model` of the command line; the embedded model when it is not set
    OPENAI_API_KEY, OPENAI_BASE_URL    for a model behind an OpenAI-compatible address
    SIGNOFF_WORKSPACE   the folder that the model works in; the current one when it is not set

It has no checkpointer and no store: the server brings its own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from signoff.graph.build import Graph, build_graph
from signoff.graph.errors import SetupError
from signoff.models.choose import EMBEDDED, choose_model
from signoff.tools.files import workspace_tools


class MissingModel(BaseChatModel):
    """Stands where a model cannot be made, so that the graph can be drawn; every call raises SetupError.

    why: what is missing and what to do about it.
    """

    why: str

    @property
    def _llm_type(self) -> str:
        return "missing"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise SetupError(self.why)


def compose(env: Mapping[str, str]) -> Graph:
    """The graph with the model and the workspace that `env` names. Loads no weights and calls no server.

    Raises SetupError when the workspace does not exist. A model that cannot be made (no key, say) is no
    obstacle here: a task then ends with the error `model_error` that says what is missing.
    """
    tools = workspace_tools(env.get("SIGNOFF_WORKSPACE") or os.curdir)
    name, base_url = env.get("SIGNOFF_MODEL") or EMBEDDED, env.get("OPENAI_BASE_URL") or None
    try:
        chosen = choose_model(name, base_url, env)
    except SetupError as error:
        return build_graph(MissingModel(why=str(error)), tools)
    return build_graph(chosen.model, tools, system_prompt=chosen.prompt)


graph = compose(os.environ)
