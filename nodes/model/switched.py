"""Shows a model the replies of another provider's model in a form that every client takes.

The history keeps a reply as it came, since its own provider wants the thoughts and signatures back. Another
one refuses them, in whatever form its client passes them on. So only the words and the calls of such a reply
are shown, decided anew for each model that is asked. Gemini's client then gives a call without a signature
the documented one (`skip_thought_signature_validator`). Claude takes no results, with thinking on, of calls
before which it has not thought: there a reminder that the task goes on begins a turn of its own.
"""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff.graph.history.replies import words_of
from signoff.graph.history.usage import RESUMED
from signoff.graph.messages import KEY, marks, nudge
from signoff.graph.texts import Texts
from signoff.nodes.model.providers import PROVIDERS

# By what a client writes into each reply as `model_provider`.
_PACKAGES = {name: provider.package.replace("-", "_") for name, provider in PROVIDERS.items()}
_CLAUDES_CLIENTS = {"langchain_anthropic", "langchain_aws"}


def taken_over(model: Any, prompt: list[BaseMessage], texts: Texts) -> list[BaseMessage]:
    """The prompt for this model; nearly always it is that already. A client that is not known, such as one
    that asks several providers itself, is shown everything."""
    modules = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    own = modules.intersection(_PACKAGES.values())
    if not own:
        return prompt
    # Nearly always there is no other one, and this is all that is looked at.
    names = {m.response_metadata.get("model_provider", "") for m in prompt if isinstance(m, AIMessage)}
    others = {_PACKAGES[name] for name in names if name in _PACKAGES} - own
    if not others:
        return prompt
    makers = [_maker_of(message) for message in prompt]
    shown, is_theirs, ends = list[BaseMessage](), False, {*own, None}
    for message, maker, following in zip(prompt, makers, [*makers[1:], None], strict=True):
        is_theirs = maker in others if maker else is_theirs
        shown += _words_alone(message) if maker in others else [message]
        if is_theirs and isinstance(message, ToolMessage) and following in ends and own & _CLAUDES_CLIENTS:
            shown.append(nudge(RESUMED, texts.nudges["resumed"].format()))
    return shown


def _maker_of(message: BaseMessage) -> str:
    """The package that a reply came from; empty for any other message, and for one that is not known."""
    if not isinstance(message, AIMessage):
        return ""
    return _PACKAGES.get(message.response_metadata.get("model_provider", ""), "")


def _words_alone(reply: Any) -> list[BaseMessage]:
    """The reply without what only its provider understands; nothing if nothing else is in it."""
    text, notes = words_of(reply), {KEY: marks(reply)}
    made = AIMessage(text, tool_calls=reply.tool_calls, response_metadata=notes)
    return [made] if text or made.tool_calls else []
