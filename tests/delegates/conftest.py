from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff import Storage, sqlite_storage
from tests.support.trees import Shop


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@pytest.fixture
def shop() -> Shop:
    return Shop()
