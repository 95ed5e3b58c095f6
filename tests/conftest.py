"""Figures that tests measure are printed at the end of the run."""

from collections.abc import Callable

import pytest

pytest_plugins = ["tests.postgres"]
FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line that the end of the run prints."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if found := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in found:
            terminalreporter.line(line)
