"""Two servers for the whole folder: the repository's own graph, and one with several graphs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk.client import SyncLangGraphClient

from tests.support.benches.studio import Shared, client_of
from tests.support.pages import blocks
from tests.support.servers.dev_server import REPOSITORY, Server, langgraph_dev, quiet_environment

GRAPHS = {
    "agent": "./served_graphs.py:agent",
    "team": "./served_graphs.py:team",
    "signoff": "./served_graphs.py:writer",
    "ticket": "./my_agent.py:graph",
}


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return Shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="package")
def server(shared: Shared) -> Iterator[Server]:
    """The repository's own graph, with a model that takes its time for its work."""
    with langgraph_dev(shared.folder, shared.env(delay=0.1)) as running:
        yield running
        assert "BlockingError" not in running.log.read_text(errors="replace"), "the event loop was blocked"


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with client_of(server) as client:
        yield client


def written(folder: Path, **settings: Any) -> Path:
    """The configuration of a server with all graphs, in this folder."""
    shutil.copy(REPOSITORY / "tests/support/servers/served_graphs.py", folder)
    names = ["my_agent.py", "go_on.py", "begin.py"]
    programs = [block.text for block in blocks("docs/how-to/studio.md") if block.language == "python"]
    for name, program in zip(names, programs, strict=True):
        (folder / name).write_text(program)
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": ["."], "graphs": GRAPHS, **settings}))
    return config


@pytest.fixture(scope="package")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """All graphs of `GRAPHS`, on the database of Signoff."""
    folder = tmp_path_factory.mktemp("graphs")
    ours = json.loads((REPOSITORY / "langgraph.json").read_text())
    config = written(folder, **{name: ours[name] for name in ("checkpointer", "store", "http")})
    env = quiet_environment(XDG_CACHE_HOME=str(folder), SIGNOFF_DATABASE="threads.sqlite")
    with langgraph_dev(folder, env, config) as running:
        yield running


@pytest.fixture
def many(graphs: Server) -> Iterator[SyncLangGraphClient]:
    """The client of a server with several graphs."""
    with client_of(graphs) as client:
        yield client


@pytest.fixture(scope="module")
def own_saver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same graphs on a server that keeps its threads itself."""
    folder = tmp_path_factory.mktemp("own")
    with langgraph_dev(folder, quiet_environment(XDG_CACHE_HOME=str(folder)), written(folder)) as running:
        yield running
