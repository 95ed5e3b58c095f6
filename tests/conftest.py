"""Figures that tests measure are printed at the end of the run."""

import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.incidents.stored",
    "tests.support.servers.postgres",
    "tests.support.chromium",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", default="0/1", metavar="K/N", help="of the tests chosen, each Nth, beginning with the Kth"
    )


def pytest_configure() -> None:
    # What whoever runs the tests has in a signoff.toml is not what they are about.
    os.environ["SIGNOFF_CONFIG"] = "none"
    # A script that starts the tests in the background, or `nohup`, has them ignore these, and all they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_itemcollected(item: pytest.Item) -> None:
    # They test what measures the product, not the product.
    if item.path.parent.name in ("conformance", "benchmarks"):
        item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line that the end of the run prints."""
    return lambda line: request.node.user_properties.append(("figure", line))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The files with processes and servers first, so that no worker is alone with one of them at the end.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)
    first, stride = map(int, config.getoption("part").split("/"))
    left_out = [item for at, item in enumerate(items) if at % stride != first % stride]
    config.hook.pytest_deselected(items=left_out)
    items[:] = items[first % stride :: stride]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A test that leaves its process in another folder fails: what a later test of that process starts would
    begin there, and find nothing of ours."""
    yield
    home = item.config.invocation_params.dir
    try:
        left = os.getcwd()
    except FileNotFoundError:
        left = "a folder that is gone"
    if left != str(home):
        os.chdir(home)
        why = f"the test left its process in {left}: change folders by `monkeypatch.chdir`"
        pytest.fail(why, pytrace=False)


def pytest_collection_finish() -> None:
    # Modules and collected tests stay to the end: without this every full collection looks at all of them.
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    found = [line for one in reports for name, line in one.user_properties if name == "figure"]
    if found:
        terminalreporter.section("figures")
        for line in found:
            terminalreporter.line(line)
