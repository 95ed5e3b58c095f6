"""LangChain's middleware in a Signoff graph: nothing outside this folder knows its types.

`given.py` validates a graph's middleware, and lists what conflicts with the machine. `stack.py` is the
interface for the states. `hooks.py` runs the hooks around a model call and a task, `changes.py` collects
their writes until the state to which they belong reports them. `model_calls.py` and `tool_calls.py` wrap
calls.
"""
