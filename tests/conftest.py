"""Figures that tests measure are printed at the end of the run."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest_plugins = ["tests.postgres"]
FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line that the end of the run prints."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Else one worker is left with these at the end, while the others have nothing more to do.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    # Modules and collected tests stay to the end: without this every full collection looks at all of them.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Beside others, a worker hands its figures to the process that prints them.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = session.config.stash.get(FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(FIGURES, []).extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if found := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in found:
            terminalreporter.line(line)
