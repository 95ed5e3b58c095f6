"""A graph for LangGraph's server and Studio."""

from signoff.graph.studio import compose, served

__all__ = ["compose", "served"]
