"""LangChain's middleware in a Signoff graph: nothing outside of this folder knows its types.

`given.py` checks what a graph is given, and names what fights the machine. `stack.py` is what the states work
with. `hooks.py` runs the hooks around a model call and a task, `changes.py` holds what they write, until the
state that they belong to reports it. `model_calls.py` and `tool_calls.py` are what wraps a call.
"""
