"""`pytest --processes N`: the tests are collected once, then run in N forks of this process.

pytest-xdist starts an interpreter for each worker, which imports and collects everything again: nine seconds
of CPU for each. A fork has what was collected. It gets its tests in groups, each a part of one file, and is
told the next group before it runs the last test of the one before, so that fixtures which both need stay. A
file whose tests are marked `together` is one group, since its fixtures are expensive.
"""

import os
import sys
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import Any

import pytest

LARGEST = 16
"""Tests in a group: few enough that no fork is left with much at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run the tests in this many forks")


def pytest_configure(config: pytest.Config) -> None:
    if count := config.getoption("processes"):
        config.pluginmanager.register(Processes(count), "processes")


def groups(items: Sequence[pytest.Item]) -> list[list[int]]:
    """The places of `items` in groups, each of one file, in order."""
    found: list[list[int]] = []
    for _, places in groupby(range(len(items)), lambda place: items[place].path):
        file = list(places)
        size = len(file) if items[file[0]].get_closest_marker("together") else LARGEST
        found += [file[at : at + size] for at in range(0, len(file), size)]
    return found


class Processes:
    """Runs the tests of a session in forks, and reports what they report."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.left: deque[list[int]] = deque()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed or not session.items:
            return None  # pytest's own loop says what is to be said
        # Made before the forks, so that all use one.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # no fixture is there yet
        self.left.extend(groups(session.items))
        forks: list[Fork] = []
        for _ in range(min(self.count, len(self.left))):
            forks.append(Fork(session, forks))
        try:
            while forks:
                ready = wait([fork.pipe for fork in forks])
                for fork in [fork for fork in forks if fork.pipe in ready]:
                    self._serve(fork, forks, session)
                if stop := session.shouldfail or session.shouldstop:
                    raise session.Interrupted(stop)
        finally:
            for fork in forks:
                fork.end()
        return True

    def _serve(self, fork: "Fork", forks: list["Fork"], session: pytest.Session) -> None:
        """Hears one thing from a fork."""
        hook = session.config.hook
        try:
            kind, value = fork.pipe.recv()
        except (EOFError, ConnectionError):
            kind, value = "died", None
        match kind:
            case "died":
                self._mourn(fork, forks, session)
            case "next":
                group = self.left.popleft() if self.left else []
                fork.given += group
                fork.pipe.send(group)
            case "report":
                report = hook.pytest_report_from_serializable(config=session.config, data=value)
                hook.pytest_runtest_logreport(report=report)
            case "ran":
                fork.given.remove(value)
                item = session.items[value]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            case "done":
                forks.remove(fork)
                fork.end()

    def _mourn(self, fork: "Fork", forks: list["Fork"], session: pytest.Session) -> None:
        """A test has ended its process: it has failed, and another fork goes on with the others."""
        forks.remove(fork)
        fork.end()
        if not fork.given:
            raise session.Interrupted(f"a process that runs tests ended with {fork.process.exitcode}")
        item = session.items[fork.given.pop(0)]
        why = f"the process that ran this test ended with {fork.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        if fork.given:
            self.left.appendleft(fork.given)
        forks.append(Fork(session, forks))


class Fork:
    """A fork of this process that runs tests. given: the places of those that it has not run yet."""

    def __init__(self, session: pytest.Session, others: Sequence["Fork"]) -> None:
        self.given: list[int] = []
        self.pipe, theirs = get_context("fork").Pipe()
        # Closed in the fork, or the end of this process would be seen by none of them.
        ours = [self.pipe, *(fork.pipe for fork in others)]
        # No daemon: tests start processes of their own.
        self.process = get_context("fork").Process(target=Tests(session, theirs, ours).run)
        self.process.start()
        theirs.close()

    def end(self) -> None:
        self.pipe.close()
        self.process.join(30)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Silent:
    """In place of the reporter in a fork: other plugins ask it for its writer, and what it writes is lost;
    and for what it has counted, which is nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self.stats: dict[str, list[Any]] = {}
        self._tw = pytest.TerminalReporter(config, open(os.devnull, "w"))._tw  # noqa: SIM115  as long as the fork


class Tests:
    """Runs tests in a fork, and sends what is reported of them."""

    __test__ = False

    def __init__(self, session: pytest.Session, pipe: Connection, to_close: Sequence[Connection]) -> None:
        self.session, self.pipe, self.to_close = session, pipe, to_close

    def run(self) -> None:
        for end in self.to_close:
            end.close()
        config = self.session.config
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Silent(config), "terminalreporter")
        config.pluginmanager.register(self)
        # The files that take what a test prints are the other forks', too, as is the place to write at.
        capture = config.pluginmanager.getplugin("capturemanager")
        kept = self._keep_open(capture)
        capture.stop_global_capturing()
        capture.start_global_capturing()
        group = self._next()
        while group:
            following: list[int] = []
            for place, after in zip(group, [*group[1:], None], strict=True):
                if after is None:
                    following = self._next()
                    after = following[0] if following else None
                items = self.session.items
                nextitem = None if after is None else items[after]
                config.hook.pytest_runtest_protocol(item=items[place], nextitem=nextitem)
                self.pipe.send(("ran", place))
            group = following
        self.pipe.send(("done", None))
        kept.clear()

    def _keep_open(self, capture: Any) -> list[Any]:
        """The files that took what was printed while tests were collected. Packages that were imported then
        may write to them still (`mcp` gives its servers the stderr of its import): in a fork they are empty
        files of its own, which nothing reads, instead of closed ones."""
        capture.resume_global_capture()
        files = [file for file in (sys.stdout, sys.stderr) if file not in (sys.__stdout__, sys.__stderr__)]
        capture.suspend_global_capture()
        for file in files:
            with TemporaryFile() as own:
                os.dup2(own.fileno(), file.fileno())
            file.close = lambda: None  # type: ignore[method-assign]  # the end of capturing calls it
        return files

    def _next(self) -> list[int]:
        self.pipe.send(("next", None))
        found: list[int] = self.pipe.recv()
        return found

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self.pipe.send(("report", config.hook.pytest_report_to_serializable(config=config, report=report)))
