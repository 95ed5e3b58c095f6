from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff import sqlite_storage
from tests.support.benches.session import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield Bench(storage)
