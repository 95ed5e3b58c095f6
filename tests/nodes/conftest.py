"""A provider for all tests of a file, whose script begins anew for each of them."""

from collections.abc import Iterator

import pytest

from tests.support.servers.fake_provider import FakeProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def server(provider: FakeProvider) -> FakeProvider:
    provider.plays()
    return provider
