"""Signoff's rules for an agent of LangChain: `create_agent(model, tools, middleware=[Guards()])`.

The machine itself decides: its states run within the hooks of one middleware (`steps.py`), and the table says
where each event leads. What LangChain's loop does in its own way (the model call, the tool calls) are the
only two states that are not the machine's.
"""

from signoff.guards.agent import GuardedGraph, guarded
from signoff.guards.middleware import Guards

__all__ = ["GuardedGraph", "Guards", "guarded"]
