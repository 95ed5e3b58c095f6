"""`signoff acp`: threads in an editor."""

import importlib.util

from signoff import SetupError
from signoff.front.database import Database
from signoff.front.options import TO_BEGIN, OwnGraph, check_own_graph, takes
from signoff.front.settings import Given
from signoff.front.stdio import claim_stdio
from signoff.graph.inside.installing import install_hint


@takes(*TO_BEGIN)
def acp(given: Given, file: Database, graph: OwnGraph = None) -> None:
    """Work in an editor such as Zed, by the Agent Client Protocol.

    The editor starts this command and speaks to it over stdin and stdout. Each of its sessions is a thread,
    in the folder that the editor names unless --workspace does. Closing the editor pauses what runs; a
    session that is loaded goes on.
    """
    if importlib.util.find_spec("acp") is None:
        raise SetupError(f"Editors need an extra package: {install_hint('acp')}")
    check_own_graph(graph, given)
    reading, writing = claim_stdio()
    # The package is an extra, and slow to import.
    from signoff.acp.serving import serve

    serve(file, given, graph, reading, writing)
