"""The positions of boxes and lines in the picture of the machine. Its content comes from the table alone.

Units are pixels of a picture `WIDTH` by `HEIGHT`. All lines are horizontal or vertical.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Literal, NamedTuple

from signoff.graph.machine import Event, State

WIDTH, HEIGHT = 960, 640

Anchor = Literal["start", "middle", "end"]


class Point(NamedTuple):
    x: int
    y: int


class ExitWord(StrEnum):
    """How an event that leads to the last state ends the task: the label of the exit that its line enters."""

    SUCCESS = "success"
    LIMIT = "limit"
    ERROR = "error"
    AS_BEFORE = "as before"


EXITS: Mapping[Event, ExitWord] = {
    Event.ACCEPTED: ExitWord.SUCCESS,
    Event.CONFIRMED: ExitWord.SUCCESS,
    Event.EXHAUSTED: ExitWord.LIMIT,
    Event.DEADLOCK: ExitWord.LIMIT,
    Event.FAILED: ExitWord.ERROR,
    Event.CANCELLED: ExitWord.ERROR,
    Event.ENDED: ExitWord.AS_BEFORE,
}


@dataclass(frozen=True)
class Box:
    """One state: the centre of its box, and a few words under its name."""

    x: int
    y: int
    caption: str
    width: int = 112
    height: int = 56

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True)
class Route:
    """The corners of one line from box to box, and the position of its label (on the text's baseline)."""

    points: tuple[Point, ...]
    label: Point
    anchor: Anchor = "middle"


def route(*points: tuple[int, int], label: tuple[int, int], anchor: Anchor = "middle") -> Route:
    return Route(tuple(Point(*point) for point in points), Point(*label), anchor)


MAIN_PATH = (State.COMPRESS, State.DECIDE, State.CALL_LLM, State.ROUTE_TOOLS, State.EXECUTE)
# The lines of a normal turn: the main path, and the way back from its end.
MAIN_LINES = frozenset({*pairwise(MAIN_PATH), (State.EXECUTE, State.DECIDE)})
# The graph is not planar; these lines cross another one.
ACROSS = frozenset(
    {
        (State.EXECUTE, State.DECIDE),
        (State.ROUTE_TOOLS, State.DECIDE),
        (State.FINISH, State.UNDO),
        (State.UNDO, State.FINISH),
    }
)
PAUSES = frozenset({State.ASK_USER, State.APPROVE, State.HAND_OVER, State.CONFIRM})

START_AT, END_AT = Point(30, 230), Point(562, 572)
# The events that enter are listed under the start: the baseline of the first word, and the line height.
ENTRIES_AT, LINE_HEIGHT = Point(30, 260), 17
# Events that enter elsewhere have their own start, below the state.
OTHER_STARTS: Mapping[State, Point] = {State.UNDO: Point(790, 600)}

BOXES: Mapping[State, Box] = {
    State.COMPRESS: Box(120, 230, "clean, compact"),
    State.DECIDE: Box(310, 230, "ordered rules"),
    State.CALL_LLM: Box(500, 230, "one model call"),
    State.ROUTE_TOOLS: Box(690, 230, "check the calls"),
    State.EXECUTE: Box(880, 230, "tools, delegates"),
    State.APPROVE: Box(880, 346, "a person decides"),
    State.HAND_OVER: Box(880, 442, "the driver acts"),
    State.NUDGE: Box(500, 108, "remind"),
    State.ASK_USER: Box(190, 346, "a person answers"),
    State.REVIEW: Box(270, 452, "judge the finish"),
    State.CONFIRM: Box(270, 548, "a person checks"),
    State.FINISH: Box(562, 428, "write the outcome", width=124, height=212),
    State.UNDO: Box(790, 540, "take it back"),
}

# The exits on the left side of the last state: the height of each.
DOORS: Mapping[ExitWord, int] = {
    ExitWord.ERROR: 346,
    ExitWord.AS_BEFORE: 378,
    ExitWord.LIMIT: 410,
    ExitWord.SUCCESS: 466,
}

ROUTES: Mapping[tuple[State, State, ExitWord | None], Route] = {
    (State.COMPRESS, State.DECIDE, None): route((176, 230), (254, 230), label=(212, 222)),
    (State.DECIDE, State.CALL_LLM, None): route((366, 230), (444, 230), label=(402, 222)),
    (State.CALL_LLM, State.ROUTE_TOOLS, None): route((556, 230), (634, 230), label=(592, 222)),
    (State.ROUTE_TOOLS, State.EXECUTE, None): route((746, 230), (824, 230), label=(782, 222)),
    (State.EXECUTE, State.ROUTE_TOOLS, None): route(
        (856, 258), (856, 286), (730, 286), (730, 258), label=(793, 279)
    ),
    (State.ROUTE_TOOLS, State.APPROVE, None): route((704, 258), (704, 332), (824, 332), label=(766, 325)),
    (State.APPROVE, State.ROUTE_TOOLS, None): route((824, 360), (686, 360), (686, 258), label=(766, 353)),
    (State.ROUTE_TOOLS, State.HAND_OVER, None): route((668, 258), (668, 428), (824, 428), label=(766, 421)),
    (State.HAND_OVER, State.ROUTE_TOOLS, None): route((824, 456), (650, 456), (650, 258), label=(766, 449)),
    (State.DECIDE, State.ROUTE_TOOLS, None): route(
        (330, 202), (330, 166), (654, 166), (654, 202), label=(500, 159)
    ),
    (State.DECIDE, State.NUDGE, None): route((290, 202), (290, 108), (444, 108), label=(366, 100)),
    (State.ROUTE_TOOLS, State.NUDGE, None): route((682, 202), (682, 108), (556, 108), label=(618, 100)),
    (State.NUDGE, State.COMPRESS, None): route(
        (500, 80), (500, 32), (120, 32), (120, 202), label=(508, 75), anchor="start"
    ),
    (State.ROUTE_TOOLS, State.DECIDE, None): route(
        (710, 202), (710, 56), (270, 56), (270, 202), label=(718, 122), anchor="start"
    ),
    (State.EXECUTE, State.DECIDE, None): route(
        (880, 202), (880, 56), (270, 56), (270, 202), label=(888, 122), anchor="start"
    ),
    (State.DECIDE, State.COMPRESS, None): route((254, 246), (176, 246), label=(215, 262)),
    (State.DECIDE, State.ASK_USER, None): route(
        (268, 258), (268, 346), (246, 346), label=(262, 305), anchor="end"
    ),
    (State.ASK_USER, State.COMPRESS, None): route((154, 318), (154, 258), label=(161, 286), anchor="start"),
    (State.DECIDE, State.REVIEW, None): route((284, 258), (284, 424), label=(278, 399), anchor="end"),
    (State.REVIEW, State.COMPRESS, None): route((214, 452), (90, 452), (90, 258), label=(152, 445)),
    (State.REVIEW, State.FINISH, ExitWord.LIMIT): route(
        (326, 436), (478, 436), (478, 410), (500, 410), label=(402, 430)
    ),
    (State.REVIEW, State.FINISH, ExitWord.SUCCESS): route((326, 466), (500, 466), label=(402, 459)),
    (State.REVIEW, State.FINISH, ExitWord.ERROR): route(
        (326, 476), (464, 476), (464, 594), (612, 594), (612, 534), label=(402, 489)
    ),
    (State.REVIEW, State.CONFIRM, None): route((270, 480), (270, 520), label=(278, 504), anchor="start"),
    (State.CONFIRM, State.COMPRESS, None): route((214, 548), (90, 548), (90, 258), label=(152, 541)),
    (State.CONFIRM, State.FINISH, ExitWord.SUCCESS): route(
        (326, 548), (478, 548), (478, 466), (500, 466), label=(402, 541)
    ),
    (State.DECIDE, State.FINISH, ExitWord.LIMIT): route((306, 258), (306, 410), (500, 410), label=(424, 403)),
    (State.DECIDE, State.FINISH, ExitWord.AS_BEFORE): route(
        (324, 258), (324, 378), (500, 378), label=(424, 371)
    ),
    (State.DECIDE, State.FINISH, ExitWord.ERROR): route((342, 258), (342, 346), (500, 346), label=(424, 339)),
    (State.CALL_LLM, State.FINISH, ExitWord.ERROR): route(
        (528, 258), (528, 322), label=(520, 294), anchor="end"
    ),
    (State.FINISH, State.UNDO, None): route((624, 488), (770, 488), (770, 512), label=(700, 481)),
    (State.UNDO, State.UNDO, None): route(
        (846, 530), (884, 530), (884, 552), (846, 552), label=(892, 545), anchor="start"
    ),
    (State.UNDO, State.FINISH, None): route((734, 528), (624, 528), label=(684, 521)),
    (State.CALL_LLM, State.COMPRESS, None): route(
        (544, 258), (544, 296), (637, 296), (637, 614), (90, 614), (90, 258), label=(385, 607)
    ),
}
