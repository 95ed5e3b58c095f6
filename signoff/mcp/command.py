"""`signoff mcp`: threads as tools for other agents."""

import importlib.util
import os

from signoff import SetupError
from signoff.front.database import Database
from signoff.front.options import TO_BEGIN, OwnGraph, check_own_graph, takes
from signoff.front.settings import Given, settle
from signoff.front.stdio import claim_stdio
from signoff.graph.inside.installing import install_hint


@takes(*TO_BEGIN)
def mcp(given: Given, file: Database, graph: OwnGraph = None) -> None:
    """Give tasks to it from other agents, by the Model Context Protocol.

    It is a server over stdin and stdout, which the other agent's program starts. Its tools run a task, answer
    it, give it more turns and try it again; its resources are outcomes and records. When that program ends,
    what runs is paused.
    """
    if importlib.util.find_spec("mcp") is None:
        raise SetupError(f"An MCP server needs an extra package: {install_hint('mcp')}")
    check_own_graph(graph, given)
    if graph is None:
        # Reports wrong options here, not with the first task.
        settle(given, None, os.environ)
    reading, writing = claim_stdio()
    # The package is an extra, and slow to import.
    from signoff.mcp.serving import serve

    serve(file, given, graph, reading, writing)
