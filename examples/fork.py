"""A thread is forked as it was after its first turn, and the copy goes another way. The first one stays."""

from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call


def paint(door: str, colour: str) -> str:
    """Paint a door."""
    return f"The {door} is {colour}."


script = [
    call("paint", door="front door", colour="blue"),
    call("paint", door="back door", colour="blue"),
    call("finish_task", summary="Both doors are blue."),
    call("paint", door="back door", colour="red"),
    call("finish_task", summary="One door is blue, one is red."),
]
with sqlite_storage("threads.sqlite") as storage:
    session = Session(build_graph(ScriptedModel(script), tools=[paint], storage=storage), "doors")
    print(session.run("Paint both doors blue.").outcome.summary)
    other = session.fork(at=1, thread_id="other doors")
    print(other.run("Make the back door red.").outcome.summary)
    for thread in (session, other):
        print([event.result for turn in thread.history() for event in turn.events])
