"""Signoff inside of other people's programs: each runs in a process of its own, and prints that it holds."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

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
    """flags: of Python. env: changes to the environment; None takes a variable away. bare: without HEAD."""

    text: str
    flags: tuple[str, ...] = ()
    env: dict[str, str | None] = {}  # noqa: RUF012  nobody changes it
    bare: bool = False


WITHOUT_HOME: dict[str, str | None] = {
    "HOME": None,
    "XDG_CACHE_HOME": None,
    "XDG_CONFIG_HOME": None,
    "XDG_DATA_HOME": None,
}
NO_HOME = """
import pwd
def nobody(_):
    raise KeyError("uid not found")
pwd.getpwuid = nobody
"""

PROGRAMS: dict[str, Program] = {
    "nothing of the process is changed": Program(
        """
        import asyncio, locale, logging, os, signal, socket, sys, threading
        # What LangChain and LangGraph change by their own import is theirs.
        import langchain.agents, langgraph.graph, langgraph.checkpoint.sqlite
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
        from signoff import Session, build_graph
        from signoff.models import ScriptedModel, call
        from signoff.tools import terminal_tool, workspace_tools
        assert state() == before
        done = call("finish_task", summary="Done.")
        script = [call("list_files"), call("run_command", command="echo x"), done]
        model = ScriptedModel([*script, *script])
        tools = [*workspace_tools("."), terminal_tool(".")]
        with build_graph(model, tools, checks=["true"], storage="t.sqlite") as graph:
            assert Session(graph, "a").run("go").outcome.status == "success"
            asyncio.run(graph.ainvoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "b"}}))
        after = state()
        changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
        assert not changed, changed
        """,
        bare=True,
    ),
    "cells of a notebook, in its running loop": Program(
        r"""
        CELLS = [
            "from signoff import build_graph, outcome_of",
            "def look(place: str) -> str:\n    'Look.'\n    return 'seen ' + place",
            "graph = build_graph(script(), [look], storage='t.sqlite')",
            "result = graph.invoke(GO, thread('a'))\nended(result)",
            # The cell is changed, and run again.
            "def look(place: str) -> str:\n    'Look again.'\n    return 'seen again ' + place",
            "graph.close()\ngraph = build_graph(script(), [look], storage='t.sqlite')",
            "result = await graph.ainvoke(GO, thread('b'))\nended(result)",
            "assert any('seen again' in m.text for m in result['messages'])",
            "parts = [part async for part in graph.astream(GO, thread('c'))]\nassert parts",
            "ended(graph.invoke(GO, thread('d')))\ngraph._repr_mimebundle_()\ngraph.close()",
        ]
        import ast, inspect
        names = {**globals()}
        async def main():
            for cell in CELLS:
                made = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(made, names)
                if inspect.isawaitable(value):
                    await value
        asyncio.run(main())
        """
    ),
    "a stop button in an async cell, and the next cell": Program(
        """
        import signal
        pressed = []
        async def press() -> str:
            '''Press.'''
            if not pressed:
                pressed.append(1)
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(5)
            return "pressed"
        model = ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("press"))
        with build_graph(model, [press], storage="t.sqlite") as graph:
            try:
                asyncio.run(graph.ainvoke(GO, thread("a")))
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                pass
            ended(asyncio.run(graph.ainvoke(None, thread("a"))))
        """,
        flags=("-W", "ignore"),
    ),
    "a module that is reloaded while its graph lives": Program(
        r"""
        import importlib, pathlib
        sys.path.insert(0, ".")
        sys.dont_write_bytecode = True
        mine = pathlib.Path("mine.py")
        mine.write_text("def look(place: str) -> str:\n    'Look.'\n    return 'first'\n")
        import mine as module
        first = build_graph(script(), [module.look])
        ended(first.invoke(GO))
        mine.write_text("def look(place: str) -> str:\n    'Look.'\n    return 'the second'\n")
        importlib.reload(module)
        second = build_graph(script(), [module.look])
        for graph, text in ((first, "first"), (second, "the second")):
            result = graph.invoke(GO)
            ended(result)
            assert text in [m.text for m in result["messages"]]
        import signoff
        importlib.reload(signoff)
        ended(signoff.build_graph(script(), [module.look]).invoke(GO))
        """
    ),
    "a web service of FastAPI, on asyncio and on uvloop": Program(
        """
        import urllib.request, uvicorn
        from contextlib import asynccontextmanager
        from fastapi import FastAPI
        from signoff import Session
        def service(loop):
            held = {}
            @asynccontextmanager
            async def lifespan(app):
                with build_graph(script(), [look], storage=f"{loop}.sqlite") as graph:
                    held["graph"] = graph
                    yield
            app = FastAPI(lifespan=lifespan)
            @app.post("/async/{name}")
            async def runs_async(name: str):
                return (await Session(held["graph"], name).arun("go")).outcome.status
            @app.post("/sync/{name}")
            def runs(name: str):
                return Session(held["graph"], name).run("go").outcome.status
            return app
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        def asked(port, path, answers):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST")
            answers.append(opener.open(request, timeout=30).read())
        for loop in ("asyncio", "uvloop"):
            server = uvicorn.Server(uvicorn.Config(service(loop), port=0, loop=loop, log_level="error"))
            runner = threading.Thread(target=server.run)
            runner.start()
            while not server.started:
                time.sleep(0.01)
            port, answers = server.servers[0].sockets[0].getsockname()[1], []
            paths = [f"/{way}/{number}-{way}" for number in range(5) for way in ("async", "sync")]
            callers = [threading.Thread(target=asked, args=(port, path, answers)) for path in paths]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            server.should_exit = True
            runner.join()
            assert answers == [b'"success"'] * 10, answers
        """
    ),
    "workers that a server forks after it has preloaded the graph, as gunicorn does": Program(
        """
        graph = build_graph(script(), [look], storage="t.sqlite")
        def serve(name):
            ended(graph.invoke(GO, thread(f"{name}-sync")))
            ended(asyncio.run(graph.ainvoke(GO, thread(f"{name}-async"))))
        children = []
        for number in range(3):
            child = os.fork()
            if not child:
                try:
                    serve(number)
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        serve("parent")
        for number in range(3):
            assert outcome_of(graph.get_state(thread(f"{number}-sync"))).status == "success"
        graph.close()
        """,
        flags=("-W", "ignore"),
    ),
    "a pool of processes that is forked after the graph has run, as Celery does": Program(
        """
        import multiprocessing
        graph = build_graph(script(), [look], storage="t.sqlite")
        ended(graph.invoke(GO, thread("before")))
        def task(number):
            ended(graph.invoke(GO, thread(f"task-{number}")))
            return number
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(task, range(6)).get(40) == [*range(6)]
        for number in range(6):
            assert outcome_of(graph.get_state(thread(f"task-{number}"))).status == "success"
        graph.close()
        """,
        flags=("-W", "ignore"),
    ),
    "gevent, which patches threads, locks and sockets": Program(
        """
        from gevent import monkey
        monkey.patch_all()
        import time
        import gevent
        from signoff import Session, build_graph
        from signoff.models import ScriptedModel, call
        def look(place: str) -> str:
            '''Look.'''
            time.sleep(0.05)
            return "seen " + place
        done = call("finish_task", summary="Done.")
        model = ScriptedModel(lambda seen: done if seen[-1].type == "tool" else call("look", place="x"))
        with build_graph(model, [look], storage="t.sqlite") as graph:
            def serve(number):
                return Session(graph, str(number)).run("go").outcome.status
            jobs = [gevent.spawn(serve, number) for number in range(10)]
            gevent.joinall(jobs, timeout=40)
            assert [job.value for job in jobs] == ["success"] * 10, jobs
        """,
        flags=("-W", "ignore"),
        bare=True,
    ),
    "an event loop that is nested by nest_asyncio": Program(
        """
        import nest_asyncio
        nest_asyncio.apply()
        async def main(graph):
            ended(await graph.ainvoke(GO, thread("a")))
            ended(asyncio.run(graph.ainvoke(GO, thread("b"))))
            ended(asyncio.get_event_loop().run_until_complete(graph.ainvoke(GO, thread("c"))))
            ended(graph.invoke(GO, thread("d")))
        with build_graph(script(), [look], storage="t.sqlite") as graph:
            asyncio.run(main(graph))
        """,
        flags=("-W", "ignore"),
    ),
    "a script that is run again in another thread, as Streamlit does": Program(
        """
        from contextlib import ExitStack
        cached, errors = {}, []
        SCRIPT = '''
        if "graph" not in cached:
            stack = cached["stack"] = ExitStack()
            storage = stack.enter_context(sqlite_storage("t.sqlite"))
            cached["graph"] = build_graph(script(), [look], storage=storage)
        ended(cached["graph"].invoke(GO, thread(f"run-{cached['number']}")))
        '''
        import textwrap
        def rerun():
            try:
                exec(textwrap.dedent(SCRIPT), {**globals(), "__name__": "__main__"})
            except BaseException as error:
                errors.append(error)
        for number in range(5):
            cached["number"] = number
            runner = threading.Thread(target=rerun)
            runner.start()
            runner.join()
        cached["stack"].close()
        assert errors == []
        """
    ),
    "three event loops, and twenty runs at once": Program(
        """
        graph = build_graph(script(), [look])
        async def at_once():
            for result in await asyncio.gather(*(graph.ainvoke(GO) for _ in range(20))):
                ended(result)
        for _ in range(3):
            asyncio.run(at_once())
        """
    ),
    "uvloop": Program(
        """
        import uvloop
        with build_graph(script(), [look], storage="t.sqlite") as graph:
            ended(uvloop.run(graph.ainvoke(GO, thread("a"))))
        """
    ),
    "a cancelled run goes on later": Program(
        """
        begun = asyncio.Event()
        async def wait() -> str:
            '''Wait.'''
            if not begun.is_set():
                begun.set()
                await asyncio.sleep(30)
            return "waited"
        wait.metadata = None
        async def main(graph):
            running = asyncio.create_task(graph.ainvoke(GO, thread("a")))
            await begun.wait()
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                pass
            ended(await graph.ainvoke(None, thread("a")))
        model = ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("wait"))
        with build_graph(model, [wait], storage="t.sqlite") as graph:
            asyncio.run(main(graph))
        """
    ),
    "a tool that hangs does not keep the process": Program(
        """
        def hang() -> str:
            '''Hang.'''
            time.sleep(100)
            return "late"
        model = ScriptedModel([call("hang"), DONE, DONE])
        ended(build_graph(model, [hang], policy={"tool_seconds": 0.2}).invoke(GO))
        """
    ),
    "a process forked after the graph was built, as a preloaded server does": Program(
        """
        graph = build_graph(script(), [look])
        child = os.fork()
        ended(graph.invoke(GO))
        ended(asyncio.run(graph.ainvoke(GO)))
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    ),
    "a storage that one thread opens, another uses, and a third closes": Program(
        """
        from contextlib import ExitStack
        stack, graphs = ExitStack(), []
        def open_it():
            storage = stack.enter_context(sqlite_storage("t.sqlite"))
            graphs.append(build_graph(script(), [look], storage=storage))
        def use_it():
            ended(graphs[0].invoke(GO, thread("a")))
        for work in (open_it, use_it, stack.close):
            other = threading.Thread(target=work)
            other.start()
            other.join()
        with build_graph(script(), [look], storage="t.sqlite") as graph:
            assert outcome_of(graph.get_state(thread("a"))).status == "success"
        """
    ),
    "every warning an error": Program(
        """
        import warnings
        # Not by -W: what other packages warn of at their import is theirs.
        warnings.simplefilter("error")
        with build_graph(script(), [look], storage="t.sqlite") as graph:
            ended(graph.invoke(GO, thread("a")))
            ended(asyncio.run(graph.ainvoke(GO, thread("b"))))
        """,
        flags=("-bb", "-X", "dev"),
    ),
    "sixty graphs that open a storage and close it leave nothing": Program(
        """
        def held():
            return len(os.listdir("/proc/self/fd")), threading.active_count()
        def once(number):
            with build_graph(script(), [look], storage="t.sqlite") as graph:
                ended(graph.invoke(GO, thread(str(number))))
        once(0)
        before = held()
        for number in range(1, 61):
            once(number)
        # A thread that has done its work may take a moment to end.
        until = time.monotonic() + 10
        while any(now > then for now, then in zip(held(), before)):
            assert time.monotonic() < until, (before, held())
            time.sleep(0.05)
        """
    ),
    "functions of cells, cached ones, and of a class": Program(
        '''
        import functools
        from pydantic.v1 import BaseModel as First
        from langchain_core.tools import StructuredTool
        cell = {"__name__": "__main__"}
        exec("def look(place: str) -> str:\\n    'Look.'\\n    return place", cell)
        class Place(First):
            place: str
        class Shop:
            def look(self, place: str) -> str:
                """Look."""
                return place
            @classmethod
            def by_class(cls, place: str) -> str:
                """Look."""
                return place
            @staticmethod
            def static(place: str) -> str:
                """Look."""
                return place
        options = {"name": "first", "description": "Look.", "args_schema": Place}
        first = StructuredTool.from_function(lambda place: place, **options)
        for tool in (cell["look"], functools.cache(look), Shop().look, Shop.by_class, Shop.static, first):
            name = getattr(tool, "__name__", None) or tool.name
            model = ScriptedModel([call(name, place="x"), DONE])
            result = build_graph(model, [tool]).invoke(GO)
            ended(result)
            (text, *_) = [m.text for m in result["messages"] if m.type == "tool"]
            assert text in ("x", "seen x"), (name, text)
        ''',
        flags=("-W", "ignore"),
    ),
    "arguments of all common types": Program(
        '''
        import datetime, decimal, enum, pathlib, typing, uuid
        from typing_extensions import TypedDict
        from dataclasses import dataclass
        from pydantic import BaseModel
        class Colour(enum.Enum):
            RED = "red"
        @dataclass
        class Point:
            x: int
        class Box(BaseModel):
            at: Point
        class Row(TypedDict):
            n: int
        def take(
            a: int, b: float, c: bool, d: str, e: list[int], f: dict[str, int], g: Colour, h: Point, i: Box,
            j: Row, k: datetime.date, l: decimal.Decimal, m: uuid.UUID, n: pathlib.Path,
            o: typing.Literal["x"], p: int | None = None, q: tuple[int, str] = (1, "a"),
        ) -> str:
            """Take them all."""
            assert isinstance(h, Point) and isinstance(i, Box) and g is Colour.RED
            return type(k).__name__ + type(l).__name__ + type(m).__name__ + type(n).__name__
        given = dict(
            a=1, b=1.5, c=True, d="x", e=[1], f={"a": 1}, g="red", h={"x": 1}, i={"at": {"x": 1}}, j={"n": 1},
            k="2026-01-01", l="1.5", m=str(uuid.UUID(int=1)), n="/tmp", o="x",
        )
        result = build_graph(ScriptedModel([call("take", **given), DONE]), [take]).invoke(GO)
        (text, *_) = [m.text for m in result["messages"] if m.type == "tool"]
        assert text in ("dateDecimalUUIDPosixPath",), text
        '''
    ),
    "errors with broken text": Program(
        """
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no text")
        def broken(way: int) -> str:
            '''Break.'''
            raise [Odd(), ValueError("half a character: " + chr(0xD800)), KeyError(chr(0))][way]
        model = ScriptedModel([call("broken", way=0), call("broken", way=1), call("broken", way=2), DONE])
        with build_graph(model, [broken], storage="t.sqlite") as graph:
            result = graph.invoke(GO, thread("a"))
        assert [m.status for m in result["messages"] if m.type == "tool"][:3] == ["error"] * 3
        """
    ),
    "no terminal, and the language C": Program(
        """
        with build_graph(script(), [look], storage="t.sqlite") as graph:
            ended(graph.invoke({"messages": [("user", "gr\\u00fc\\u00df dich")]}, thread("a")))
        """,
        env={"TERM": None, "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": None},
    ),
    "a stop button, and the next cell": Program(
        """
        import signal
        pressed = []
        def press() -> str:
            '''Press.'''
            if not pressed:
                pressed.append(1)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(2)
            return "pressed"
        press.metadata = None
        model = ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("press"))
        with build_graph(model, [press], storage="t.sqlite") as graph:
            try:
                graph.invoke(GO, thread("a"))
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                pass
            ended(graph.invoke(None, thread("a")))
        """,
        flags=("-W", "ignore"),
    ),
    "a working folder that is gone": Program(
        """
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        ended(build_graph(script(), [look], checks=[lambda: True]).invoke(GO))
        from signoff import Check, SetupError
        ended(build_graph(script(), [look], checks=[Check("true", folder="/")]).invoke(GO))
        try:
            build_graph(script(), checks=["true"])
            raise AssertionError("it has nowhere to run")
        except SetupError as error:
            assert "folder" in str(error)
        """
    ),
    "a user without a name and a home": Program(
        NO_HOME
        + """
import os
from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call
from signoff.tools.files import workspace_tools
from langchain.agents import create_agent
from signoff.guards import Guards, guarded
GO = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
def much() -> str:
    '''Return much.'''
    return "word " * 20_000
model = ScriptedModel([call("list_files"), call("much"), DONE])
with build_graph(model, [*workspace_tools("."), much], storage="t.sqlite") as graph:
    result = graph.invoke(GO, {"configurable": {"thread_id": "a"}})
assert outcome_of(result).status == "success"
told = [m.text for m in result["messages"] if m.type == "tool"][1]
assert "the full text is in" in told, told[-200:]
agent = guarded(create_agent(ScriptedModel([DONE]), middleware=[Guards()]))
assert outcome_of(agent.invoke(GO)).status == "success"
assert not os.path.exists("~")
""",
        env=WITHOUT_HOME,
        bare=True,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_somebody_else(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    text = textwrap.dedent(program.text) if not program.bare or program.text[:1] == "\n" else program.text
    (tmp_path / "program.py").write_text(text if program.bare else HEAD + text)
    env: dict[str, Any] = {**os.environ, **program.env}
    command = [sys.executable, *program.flags, "program.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={key: value for key, value in env.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.timed
def test_signoff_is_imported_at_once() -> None:
    program = "import time; t = time.perf_counter(); import signoff; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", program]
    times = [float(subprocess.run(command, capture_output=True, text=True).stdout) for _ in range(5)]
    assert min(times) < 0.01
