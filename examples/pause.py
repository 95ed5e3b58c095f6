"""A run that another thread pauses. Nothing is lost: it goes on where it stopped, in any process."""

import threading

from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

working, paused = threading.Event(), threading.Event()


def count(to: int) -> str:
    """Count."""
    working.set()
    paused.wait()
    return f"counted to {to}"


script = [call("count", to=1), call("count", to=2), call("finish_task", summary="I counted to 2.")]
model = ScriptedModel(script)
with sqlite_storage("threads.sqlite") as storage:
    session = Session(build_graph(model, tools=[count], storage=storage), "counting")
    runner = threading.Thread(target=lambda: print(type(session.run("Count to 2.")).__name__))
    runner.start()
    working.wait()
    session.pause()
    paused.set()
    runner.join()
    print(len(session.history()), "of 3 turns")
    print(session.run().outcome.status, "after", len(session.history()))
