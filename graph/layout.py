"""Where the picture of the machine has its boxes and lines. What it shows comes from the table alone.

Units are pixels of a picture `WIDTH` by `HEIGHT`. All lines run straight across or straight down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from signoff.graph.machine import Event, State

WIDTH, HEIGHT = 920, 524

Anchor = Literal["start", "middle", "end"]


class Point(NamedTuple):
    x: int
    y: int


class Exit(StrEnum):
    """How an event that leads to the last state ends the task: the word on the door that its line enters."""

    SUCCESS = "success"
    LIMIT = "limit"
    ERROR = "error"
    AS_BEFORE = "as before"


EXITS: Mapping[Event, Exit] = {
    Event.ACCEPTED: Exit.SUCCESS,
    Event.EXHAUSTED: Exit.LIMIT,
    Event.FAILED: Exit.ERROR,
    Event.CANCELLED: Exit.ERROR,
    Event.ENDED: Exit.AS_BEFORE,
}


@dataclass(frozen=True)
class Box:
    """One state: the middle of its box, and a few words under its name."""

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
    """The corners of one line from box to box, and where its label stands (on the text's base line)."""

    points: tuple[Point, ...]
    label: Point
    anchor: Anchor = "middle"


def route(*points: tuple[int, int], label: tuple[int, int], anchor: Anchor = "middle") -> Route:
    return Route(tuple(Point(*point) for point in points), Point(*label), anchor)


MAIN_PATH = (State.COMPRESS, State.DECIDE, State.CALL_LLM, State.ROUTE_TOOLS, State.EXECUTE)
PAUSES = frozenset({State.ASK_USER})

START_AT, END_AT = Point(26, 230), Point(824, 406)

BOXES: Mapping[State, Box] = {
    State.COMPRESS: Box(120, 230, "clean, fold"),
    State.DECIDE: Box(296, 230, "ordered rules"),
    State.CALL_LLM: Box(472, 230, "one model call"),
    State.ROUTE_TOOLS: Box(648, 230, "check the calls"),
    State.EXECUTE: Box(824, 230, "run a batch"),
    State.NUDGE: Box(472, 112, "remind"),
    State.ASK_USER: Box(184, 362, "wait for a person"),
    State.REVIEW: Box(240, 466, "judge the finish"),
    State.FINISH: Box(600, 406, "write the outcome", width=232, height=176),
}

# The doors of the last state, on its left side: the height at which each is drawn.
DOORS: Mapping[Exit, int] = {Exit.ERROR: 346, Exit.LIMIT: 386, Exit.AS_BEFORE: 426, Exit.SUCCESS: 466}

ROUTES: Mapping[tuple[State, State, Exit | None], Route] = {
    (State.COMPRESS, State.DECIDE, None): route((176, 230), (240, 230), label=(206, 222)),
    (State.DECIDE, State.CALL_LLM, None): route((352, 230), (416, 230), label=(382, 222)),
    (State.CALL_LLM, State.ROUTE_TOOLS, None): route((528, 230), (592, 230), label=(557, 222)),
    (State.ROUTE_TOOLS, State.EXECUTE, None): route((704, 230), (768, 230), label=(734, 222)),
    (State.EXECUTE, State.ROUTE_TOOLS, None): route(
        (808, 258), (808, 288), (664, 288), (664, 258), label=(736, 281)
    ),
    (State.DECIDE, State.ROUTE_TOOLS, None): route(
        (316, 202), (316, 168), (612, 168), (612, 202), label=(472, 161)
    ),
    (State.DECIDE, State.NUDGE, None): route((276, 202), (276, 112), (416, 112), label=(346, 104)),
    (State.ROUTE_TOOLS, State.NUDGE, None): route((640, 202), (640, 112), (528, 112), label=(582, 104)),
    (State.NUDGE, State.COMPRESS, None): route(
        (472, 84), (472, 40), (120, 40), (120, 202), label=(480, 66), anchor="start"
    ),
    (State.ROUTE_TOOLS, State.COMPRESS, None): route(
        (668, 202), (668, 40), (120, 40), (120, 202), label=(676, 126), anchor="start"
    ),
    (State.EXECUTE, State.COMPRESS, None): route(
        (824, 202), (824, 40), (120, 40), (120, 202), label=(832, 126), anchor="start"
    ),
    (State.DECIDE, State.ASK_USER, None): route(
        (258, 258), (258, 362), (240, 362), label=(252, 320), anchor="end"
    ),
    (State.ASK_USER, State.COMPRESS, None): route((150, 334), (150, 258), label=(157, 286), anchor="start"),
    (State.DECIDE, State.REVIEW, None): route((276, 258), (276, 438), label=(270, 419), anchor="end"),
    (State.REVIEW, State.COMPRESS, None): route((184, 466), (90, 466), (90, 258), label=(140, 459)),
    (State.REVIEW, State.FINISH, Exit.SUCCESS): route((296, 466), (484, 466), label=(412, 459)),
    (State.DECIDE, State.FINISH, Exit.AS_BEFORE): route((302, 258), (302, 426), (484, 426), label=(412, 419)),
    (State.DECIDE, State.FINISH, Exit.LIMIT): route((320, 258), (320, 386), (484, 386), label=(412, 379)),
    (State.DECIDE, State.FINISH, Exit.ERROR): route((338, 258), (338, 346), (484, 346), label=(412, 339)),
    (State.CALL_LLM, State.FINISH, Exit.ERROR): route(
        (504, 258), (504, 318), label=(512, 292), anchor="start"
    ),
}
