"""Signoff's rules for an agent of LangChain: `create_agent(model, tools, middleware=[Guards()])`.

The machine itself decides: its states run within the hooks of one middleware (`steps.py`), and the table says
where each event leads. What LangChain's loop does in its own way (the model call, the tool calls) are the
only two states that are not the machine's.
"""

from signoff.graph.inside.installing import install_hint

try:
    from signoff.guards.agent import guarded
    from signoff.guards.middleware import Guards
except ImportError as error:
    from signoff.graph.errors import SetupError

    raise SetupError(
        f"Guards are for LangChain's agents, which are not installed; run: {install_hint('langchain')}"
    ) from error

__all__ = ["Guards", "guarded"]
