"""Tasks of AgentDojo under faults, on agents that exist: see `__main__.py`."""
