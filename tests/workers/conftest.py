"""A bench on a fresh database of PostgreSQL."""

from collections.abc import Iterator

import pytest

from signoff import postgres_storage
from tests.support.benches.workers import Bench
from tests.support.servers.postgres import execute
from tests.support.waiting import wait_until


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    # Right after the start of its server no worker is presumed dead.
    started = "SELECT now() - pg_postmaster_start_time() > interval '2 seconds'"
    wait_until(lambda: execute(postgres_url, started) == [(True,)])
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)
