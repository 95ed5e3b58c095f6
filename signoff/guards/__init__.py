"""Signoff's rules for a LangChain agent: `create_agent(model, tools, middleware=[Guards()])`.

The machine itself decides: its states run inside the hooks of one middleware (`steps.py`), and the transition
table says where each event leads. Only two states are not the machine's: the model call and the tool calls,
which LangChain's loop performs.
"""

from signoff.guards.agent import GuardedGraph, guarded
from signoff.guards.middleware import Guards

__all__ = ["GuardedGraph", "Guards", "guarded"]
