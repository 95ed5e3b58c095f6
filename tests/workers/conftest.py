"""A bench on a fresh database of PostgreSQL."""

from collections.abc import Iterator

import pytest

from signoff import postgres_storage
from tests.support.benches.workers import Bench


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)
