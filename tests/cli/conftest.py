"""The command line on a bench of its own."""

from pathlib import Path

import pytest

from tests.support.benches.cli import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
