"""What somebody else does in the middle of a run of the stateful test."""

from collections.abc import Callable
from typing import Any

from signoff import Session, ThreadBusy, ThreadError, request_pause
from tests.support.stateful.world import World


def outside(what: str, session: Session, world: World) -> Callable[[], None]:
    """Does it when it is called, and notes what goes wrong: an error of a tool would only be shown to the
    model."""

    def act() -> None:
        try:
            _do(what, session, world)
        except Exception as error:  # noqa: BLE001  as said above
            world.faults.append(f"{what} in the middle of a run raised {error!r}")

    return act


def _do(what: str, session: Session, world: World) -> None:
    other = world.session(session.thread_id)
    match what:
        case "pause":
            session.pause()
        case "stop":
            session.stop()
        case "request":
            request_pause(world.storage.store, session.thread_id)
        case "busy":
            _refused(other.run, ThreadBusy)
        case "again":
            _refused(session.run, ThreadError)
        case "look":
            other.status()
            other.history()


def _refused(move: Callable[[], Any], error: type[Exception]) -> None:
    try:
        move()
    except error:
        return
    raise AssertionError("a second run was let in")
