"""Signoff inside of other people's programs: each ends with 0 in a process of its own."""

import asyncio
import os
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call

HEAD = '''
import asyncio, os, sys, threading, time
from signoff import build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call
GO = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
def thread(name):
    return {"configurable": {"thread_id": name}}
def look(place: str) -> str:
    """Look."""
    return "seen " + place
def script():
    return ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("look", place="x"))
def ended(result):
    assert outcome_of(result).status == "success", result
'''


class Program(NamedTuple):
    """first: what stands before HEAD. flags: of Python. env: of the process; None takes a variable away."""

    text: str
    first: str = ""
    flags: tuple[str, ...] = ()
    env: dict[str, str | None] = {}  # noqa: RUF012  nobody changes it


PROGRAMS: dict[str, Program] = {
    # Whom everybody meets; the others are thorough.
    "nothing of the process is changed, with every warning an error": Program(
        """
        from signoff.tools import terminal_tool, workspace_tools
        assert state() == before
        script = [call("list_files"), call("run_command", command="echo x"), DONE]
        tools = [*workspace_tools("."), terminal_tool(".")]
        model = ScriptedModel([*script, *script])
        with build_graph(model, tools, checks=["true"], storage="t.sqlite") as graph:
            ended(graph.invoke(GO, thread("a")))
            ended(asyncio.run(graph.ainvoke(GO, thread("b"))))
        after = state()
        assert after == before, [key for key in before if before[key] != after[key]]
        """,
        first="""
        import asyncio, locale, logging, os, signal, socket, sys, threading, warnings
        # What LangChain and LangGraph change by their own import is theirs.
        import langchain.agents, langgraph.graph, langgraph.checkpoint.sqlite
        warnings.simplefilter("error")
        def state():
            mask = os.umask(0)
            os.umask(mask)
            return {
                "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
                "wakeup": signal.set_wakeup_fd(-1),
                "log": (list(logging.root.handlers), logging.root.level, logging.root.disabled),
                "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
                "interpreter": (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()),
                "streams": (sys.stdin, sys.stdout, sys.stderr),
                "environment": {**os.environ},
                "folder": (os.getcwd(), mask, locale.setlocale(locale.LC_ALL)),
                "loop": type(asyncio.get_event_loop_policy()),
                "socket": socket.getdefaulttimeout(),
                "path": list(sys.path),
            }
        before = state()
        """,
        flags=("-bb",),
    ),
    "cells of a notebook, in its running loop": Program(
        r"""
        CELLS = [
            "graph = build_graph(script(), [look], storage='t.sqlite')\nended(graph.invoke(GO, thread('a')))",
            "graph.close()\ngraph = build_graph(script(), [look], storage='t.sqlite')",
            "ended(await graph.ainvoke(GO, thread('b')))\ngraph._repr_mimebundle_()\ngraph.close()",
        ]
        import ast, inspect
        names = {**globals()}
        async def main():
            for cell in CELLS:
                made = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if inspect.isawaitable(value := eval(made, names)):
                    await value
        asyncio.run(main())
        """
    ),
    "a user without a name and a home": Program(
        """
        def much() -> str:
            '''Return much, which is kept in a file.'''
            return "word " * 20_000
        with build_graph(ScriptedModel([call("much"), DONE]), [much], storage="t.sqlite") as graph:
            ended(graph.invoke(GO, thread("a")))
        assert not os.path.exists("~")
        """,
        first="""
        import pwd
        def nobody(_):
            raise KeyError("uid not found")
        pwd.getpwuid = nobody
        """,
        env=dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.thorough] * (at > 0)) for at, one in enumerate(PROGRAMS)]
)
def test_a_program_of_somebody_else(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    (tmp_path / "program.py").write_text(
        textwrap.dedent(program.first) + HEAD + textwrap.dedent(program.text)
    )
    env = {key: value for key, value in {**os.environ, **program.env}.items() if value is not None}
    command = [sys.executable, *program.flags, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_that_are_forked_after_the_graph_has_run(tmp_path: Path) -> None:
    """As gunicorn and Celery do."""

    def serve(name: str) -> bool:
        threads: list[Any] = [{"configurable": {"thread_id": f"{name} {way}"}} for way in ("sync", "async")]
        values = graph.invoke(GO, threads[0]), asyncio.run(graph.ainvoke(GO, threads[1]))
        return [outcome_of(one).status for one in values] == ["success", "success"]

    model = ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("look"))
    with build_graph(model, [look], storage=str(tmp_path / "t.sqlite")) as graph:
        assert serve("before")
        if (child := os.fork()) == 0:
            with ExitStack() as stack:
                stack.callback(os._exit, 1)
                os._exit(not serve("child"))
        assert os.waitpid(child, 0)[1] == 0
        assert serve("parent")


GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")


def look() -> str:
    """Look."""
    return "seen"
