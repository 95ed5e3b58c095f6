"""Runs on a PostgreSQL server that goes away and comes back, and many runs at once."""

from contextlib import ExitStack
from functools import partial

import pytest

from signoff import StorageError, postgres_storage
from tests.support.postgres_runs import GO, SCRIPT, Acts, invoked, results
from tests.support.servers.postgres import SETTINGS, Server

pytestmark = [pytest.mark.slow]
MOST = int(SETTINGS["max_connections"])


@pytest.mark.parametrize(("way", "act"), [("sync", "stop"), ("async", "restart")])
def test_a_thread_outlives_its_server(
    way: str, act: str, own_postgres_url: str, own_postgres_server: Server
) -> None:
    with postgres_storage(own_postgres_url) as storage:
        acts = Acts(storage, SCRIPT, getattr(own_postgres_server, act))
        try:
            with pytest.raises(StorageError):
                invoked(acts.graph, GO, way)
        finally:
            if act == "stop":
                own_postgres_server.start()
        assert invoked(acts.graph, None, way)["outcome"]["status"] == "success"
        assert results(acts.graph)[0].startswith("Outcome unknown")
        assert results(acts.graph)[1] == "did two"
        assert acts.done == ["one", "two"]


def test_more_threads_than_the_server_has_connections_for(own_postgres_url: str) -> None:
    with postgres_storage(own_postgres_url) as storage:
        with ExitStack() as held:
            take = [partial(held.enter_context, storage.runner(f"t{number}")) for number in range(MOST)]
            with pytest.raises(StorageError, match="max_connections"):
                [one() for one in take]
        acts = Acts(storage, SCRIPT, lambda: None)
        assert invoked(acts.graph, GO, "sync")["outcome"]["status"] == "success"
